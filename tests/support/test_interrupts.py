"""Ctrl-C waits for the end of a block of bookkeeping, and of a collection of garbage."""

import gc
import signal
import threading

import pytest

from nvgd._support.interrupts import deferred_interrupts, heard_interrupts


@pytest.fixture(autouse=True)
def handled():
    """Python's own handler, which processes started in the background do not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_takes_effect_at_the_end_of_the_block():
    done = []

    def work():
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("inside")
        done.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inside"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_is_raised_and_the_handler_restored():
    with pytest.raises(ValueError, match="mine"), deferred_interrupts():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_have_nothing_to_defer():
    done = []

    def work():
        with deferred_interrupts():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


def test_ctrl_c_in_a_callback_of_the_garbage_collector_is_not_lost():
    """Python would ignore it there; JAX has such a callback."""

    def interrupted(phase, info):
        del info
        if phase == "start":
            signal.raise_signal(signal.SIGINT)

    def collect():
        with heard_interrupts():
            gc.callbacks.append(interrupted)
            try:
                gc.collect()
            finally:
                gc.callbacks.remove(interrupted)
            threading.Event().wait(30)

    with pytest.raises(KeyboardInterrupt):
        collect()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
