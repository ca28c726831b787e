"""Ctrl-C between two statements that belong together."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


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
