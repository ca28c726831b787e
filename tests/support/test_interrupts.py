"""Ctrl-C while Python collects garbage."""

import gc
import signal
import threading

import pytest

from nvgd._support.interrupts import heard_interrupts


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

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            collect()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
