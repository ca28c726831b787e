"""Objects of other packages inside a pytree."""

from typing import Any


class Opaque:
    """A value that JAX carries in a pytree without looking into it; compared by identity.

    JAX traces leaves that are arrays, and hashes and compares the others. An `Opaque` keeps arrays
    concrete, and can hold values without a useful equality.
    """

    def __init__(self, value: Any):
        self.value = value
