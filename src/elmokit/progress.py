"""What a long computation shows and uses: messages beside progress bars, and threads.

The library reports through `logging.getLogger("elmokit")`; the command line prints its messages.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from elmokit.errors import ElmokitError

if TYPE_CHECKING:
    from tqdm import tqdm

logger = logging.getLogger("elmokit")

MAX_THREADS = 4096  # Far more of them end the process.


class StderrHandler(logging.Handler):
    """Prints messages as `elmokit: …` on stderr, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        try:
            tqdm.write(f"elmokit: {self.format(record)}", file=sys.stderr)
        except Exception:
            self.handleError(record)


def log_to_stderr(*, quiet: bool = False) -> None:
    """Print elmokit's log messages to stderr, only warnings if `quiet`."""
    if not any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        logger.addHandler(StderrHandler())
    logger.setLevel(logging.WARNING if quiet else logging.INFO)


class TokenRate:
    """Moves a bar by the bytes that were read, and shows the tokens per second of this run."""

    def __init__(self, bar: tqdm[Any], read: list[int]) -> None:
        self.bar, self.read = bar, read
        self.tokens, self.since = 0, time.perf_counter()

    def advance(self, tokens: int) -> None:
        """Count the tokens that were embedded: 0 if an earlier run has done so."""
        self.tokens += tokens
        if not tokens:
            self.since = time.perf_counter()
        elif (seconds := time.perf_counter() - self.since) > 0:
            self.bar.set_postfix_str(f"{self.tokens / seconds:,.0f} tokens/s", refresh=False)
        self.bar.update(sum(self.read))
        self.read.clear()


def check_threads(threads: int | None) -> None:
    """Raise if `threads` is not None and less than 1, or more than any machine has."""
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        bound = "at least 1" if threads < 1 else f"at most {MAX_THREADS}"
        raise ElmokitError(f"threads must be {bound}, not {threads}")


def set_threads(threads: int | None) -> None:
    """Compute with `threads` threads from now on; None changes nothing."""
    check_threads(threads)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


@contextmanager
def use_threads(threads: int | None) -> Iterator[None]:
    """Compute with `threads` threads while the block runs; None changes nothing."""
    check_threads(threads)
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
