"""Run both directions of a biLM at the same time on a CPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch

T = TypeVar("T")

_worker = ThreadPoolExecutor(1, thread_name_prefix="elmokit-backward")
_lock = threading.Lock()


def _after_fork() -> None:
    """Replace worker and lock: a forked process has no worker thread, and nobody to unlock."""
    global _worker, _lock
    _worker = ThreadPoolExecutor(1, thread_name_prefix="elmokit-backward")
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows does not fork.
    os.register_at_fork(after_in_child=_after_fork)


def run_both_directions(
    run: Callable[[int], T], device: torch.device, mode: Callable[[], AbstractContextManager[Any]]
) -> list[T]:
    """Return [run(0), run(1)] (forward, backward), on a CPU at the same time.

    Each direction gets half of the threads. `mode` (no_grad or inference_mode) is entered in each
    thread, as torch keeps it per thread.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads < 2:
        return [run(0), run(1)]

    def run_with_half(direction: int) -> T:
        torch.set_num_threads(max(1, threads // 2))  # This sets it for the calling thread.
        with mode():
            return run(direction)

    with _lock:
        try:
            backward = _worker.submit(run_with_half, 1)
            forward = run_with_half(0)
            return [forward, backward.result()]
        finally:
            torch.set_num_threads(threads)
