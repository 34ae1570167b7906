"""Ctrl-C and SIGTERM ask a run to stop after its step; a second Ctrl-C stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Stop:
    """The signal that asked a run to stop."""

    signal: int = 0
    """Number of the signal; 0 if none has arrived."""


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Catch SIGINT and SIGTERM while the block runs; only the main thread can do so."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def record(signum: int, frame: FrameType | None) -> None:
        if stop.signal == signal.SIGINT and signum == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = signum

    before = {s: signal.signal(s, record) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
