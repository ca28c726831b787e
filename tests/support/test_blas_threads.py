"""Linear algebra on one thread."""

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

import nvgd
from nvgd._support.blas_threads import on_one_thread, one_blas_thread


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


def test_a_run_takes_one_thread_and_gives_the_others_back():
    before, seen = num_threads(), []
    nvgd.sample(
        lambda x: -0.5 * x @ x,
        dim=2,
        num_particles=8,
        num_steps=2,
        callback=lambda _: seen.append(num_threads()),
        metrics_every=1,
        progress=False,
    )
    assert {1} in seen
    assert num_threads() == before


def test_a_number_of_threads_that_the_user_has_set_is_left_as_it_is(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    with threadpool_limits(limits=2, user_api="blas"), one_blas_thread():
        assert num_threads() == {2}
