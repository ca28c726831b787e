"""NumPy's linear algebra on one thread."""

import numpy as np
from threadpoolctl import threadpool_info

from nvgd._support.blas_threads import on_one_thread


def num_threads():
    np.dot(np.ones((2, 2)), np.ones((2, 2)))
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_a_function_runs_on_one_thread_and_others_on_as_many_as_before():
    before = num_threads()

    @on_one_thread
    def inside(value, *, added):
        """Its docstring."""
        return value + added, num_threads()

    assert inside(1, added=2) == (3, {1})
    assert inside.__doc__ == "Its docstring."
    assert num_threads() == before
