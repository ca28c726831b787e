"""Linear algebra on one thread, for matrices that are small.

JAX on CPUs and NumPy factorise matrices by OpenBLAS. Its threads wait for each other in loops that
keep processors busy: while other programs need these processors, a product that takes 10 µs on one
thread takes 10 ms on two.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")

# Where a person has set this variable, that number of threads is used.
VARIABLE = "OPENBLAS_NUM_THREADS"


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Context manager: factorisations and NumPy's matrix products use one thread."""
    if os.environ.get(VARIABLE):
        yield
        return
    with _pools().limit(limits=1, user_api="blas"):
        yield


def on_one_thread(function: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """The function, with factorisations and NumPy's matrix products on one thread."""

    @functools.wraps(function)
    def call(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Output:
        with one_blas_thread():
            return function(*args, **kwargs)

    return call


@functools.cache
def _pools() -> ThreadpoolController:
    # JAX uses SciPy's OpenBLAS. A library that is not loaded yet would not be found.
    import scipy.linalg  # noqa: F401  # pyright: ignore[reportUnusedImport]

    return ThreadpoolController()
