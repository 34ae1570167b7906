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
    """Which signal came, 0 for none yet."""

    signal: int = 0


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Catch the signals while the block runs; only the main thread can."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def caught(number: int, frame: FrameType | None) -> None:
        if stop.signal == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    before = {number: signal.signal(number, caught) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
