"""How many threads torch computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from elmokit.errors import ElmokitError


def check_threads(threads: int | None) -> None:
    """Refuse a number that is none."""
    if threads is not None and threads < 1:
        raise ElmokitError(f"threads must be at least 1, not {threads}")


@contextmanager
def use_threads(threads: int | None) -> Iterator[None]:
    """Compute with so many threads while the block runs; with None, as before."""
    check_threads(threads)
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
