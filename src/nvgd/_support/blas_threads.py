"""NumPy's linear algebra on one thread, for matrices that are small."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")


def on_one_thread(function: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """The function, with NumPy's matrix products and factorisations on one thread.

    The threads of OpenBLAS wait for each other in loops that keep processors busy. While other
    programs need these processors, a product that takes 10 µs on one thread takes 10 ms on two.
    """

    @functools.wraps(function)
    def call(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Output:
        with _pools().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return call


@functools.cache
def _pools() -> ThreadpoolController:
    # Not when this module is imported: the libraries must have been loaded.
    return ThreadpoolController()
