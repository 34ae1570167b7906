"""How many threads torch computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from elmokit.errors import ElmokitError


def check_threads(threads: int | None) -> None:
    """Raise if `threads` is not None and less than 1."""
    if threads is not None and threads < 1:
        raise ElmokitError(f"threads must be at least 1, not {threads}")


def set_threads(threads: int | None) -> None:
    """Compute with `threads` threads from now on; with None, leave the number as it is."""
    check_threads(threads)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


@contextmanager
def use_threads(threads: int | None) -> Iterator[None]:
    """Compute with `threads` threads while the block runs; with None, leave the number as it is."""
    check_threads(threads)
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
