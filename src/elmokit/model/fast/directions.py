"""Both directions of a biLM at the same time, for inference and for training alike."""

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
_one_at_a_time = threading.Lock()


def _after_fork() -> None:
    """A forked process has neither the worker's thread nor anyone to open a closed lock."""
    global _worker, _one_at_a_time
    _worker = ThreadPoolExecutor(1, thread_name_prefix="elmokit-backward")
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_fork)


def both(
    run: Callable[[int], T], device: torch.device, mode: Callable[[], AbstractContextManager[Any]]
) -> list[T]:
    """Run forward (0) and backward (1): at the same time on a CPU, each with half of the threads.

    `mode` (no_grad or inference_mode) is entered in each thread: torch keeps it for each apart.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads < 2:
        return [run(0), run(1)]

    def limited(way: int) -> T:
        torch.set_num_threads(max(1, threads // 2))  # holds for the calling thread
        with mode():
            return run(way)

    with _one_at_a_time:
        try:
            backward = _worker.submit(limited, 1)
            forward = limited(0)
            return [forward, backward.result()]
        finally:
            torch.set_num_threads(threads)
