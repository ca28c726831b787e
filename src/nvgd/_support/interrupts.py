"""Ctrl-C between two statements that belong together, and while garbage is collected."""

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

# Seconds after which a signal that came during a collection of garbage is sent again.
AGAIN = 0.05


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Context manager: Ctrl-C takes effect at the end of the block, not in the middle of it.

    For a few statements of bookkeeping, nothing that takes long. Python delivers signals to the
    main thread only; elsewhere there is nothing to defer.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    arrived: list[Any] = []
    signal.signal(signal.SIGINT, lambda *signal_and_frame: arrived.append(signal_and_frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if arrived:
        handler(*arrived[-1])


@contextlib.contextmanager
def heard_interrupts() -> Iterator[None]:
    """Context manager: Ctrl-C takes effect also if it comes while garbage is collected.

    Python ignores exceptions in finalizers and callbacks of the garbage collector. JAX has such a
    callback, and it runs often while programs are traced. A signal that comes there is sent again.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or handler is not signal.default_int_handler:
        yield
        return

    is_collecting = False

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal is_collecting
        del info
        is_collecting = phase == "start"

    def heard(number: int, frame: FrameType | None) -> None:
        if is_collecting or _is_in_callback(frame):
            threading.Timer(AGAIN, os.kill, (os.getpid(), number)).start()
        else:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, heard)
    gc.callbacks.insert(0, note)
    try:
        yield
    finally:
        gc.callbacks.remove(note)
        signal.signal(signal.SIGINT, handler)


def _is_in_callback(frame: FrameType | None) -> bool:
    callbacks = {getattr(each, "__code__", None) for each in gc.callbacks}
    while frame is not None:
        if frame.f_code in callbacks:
            return True
        frame = frame.f_back
    return False
