"""Ctrl-C while modules are imported, which takes seconds: it ends the process at once.

Python would raise KeyboardInterrupt in the midst of whatever is being imported. That prints pages, and where it strikes
a callback it is lost, and the command goes on. Nothing is under way yet, so there is nothing to keep.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ending_at_once() -> Iterator[None]:
    """For a block of imports."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # somebody else says what an interrupt does
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
