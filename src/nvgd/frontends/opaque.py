"""Objects of other packages inside a pytree."""

from typing import Any


class Opaque:
    """A value that JAX carries in a pytree without looking into it; compared by identity.

    JAX hashes and compares the leaves that are not arrays, and traces those that are. Inside an
    `Opaque`, a value without a useful equality can be carried, and arrays stay concrete.
    """

    def __init__(self, value: Any):
        self.value = value
