"""What a request, and all requests together, may have, and the errors of those that have more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from elmokit.errors import ElmokitError
from elmokit.serve import schemas

MAX_ANSWERS = 2  # answers of the maximum size that may be in memory together
SMALL = 16_384  # numbers of an answer that is always taken: --max-queue bounds them
RESERVED: ContextVar[list[int] | None] = ContextVar("reserved", default=None)
"""How much the current request has reserved, in a list of one; None outside of requests."""


class TooLarge(ElmokitError):
    """A request with more texts, tokens or results than the service takes."""


class Overloaded(ElmokitError):
    """A request that has to come again later."""

    def __init__(self, seconds: int = 1) -> None:
        super().__init__(f"the service is busy: try again in {seconds} s")
        self.seconds = seconds


class NotLoaded(ElmokitError):
    """A model, a task or an index that the service was not started with."""


@dataclass(frozen=True)
class Limits:
    """What a request, and all that wait together, may have."""

    max_queue: int = 256
    """Requests that wait or are answered at once."""
    max_body: int = 2 << 20
    """Bytes of a request."""
    max_tokens: int = 65_536
    """Tokens of a request."""
    max_values: int = 8_000_000
    """Numbers of an answer: 32 MB as float32, about 100 MB as JSON."""
    timeout: float = 60.0
    """Seconds for a request from its first byte to its last."""

    def check_texts(self, count: int) -> None:
        """Raise if a request has too many texts."""
        if count > schemas.MAX_TEXTS:
            raise TooLarge(f"{count:,} texts are too many: send at most {schemas.MAX_TEXTS:,}")

    def check_tokens(self, sentences: Iterable[Sequence[str]]) -> None:
        """Raise if a request has too many tokens."""
        tokens = sum(map(len, sentences))
        if tokens > self.max_tokens:
            raise TooLarge(
                f"{tokens:,} tokens are too many: send at most {self.max_tokens:,} in a request"
            )


class Answers:
    """The numbers of all answers in memory: from before they are computed until they are sent."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.values = 0

    @contextmanager
    def request(self) -> Iterator[None]:
        """Free what a request has reserved when it ends."""
        reserved = [0]
        token = RESERVED.set(reserved)
        try:
            yield
        finally:
            RESERVED.reset(token)
            self.values -= reserved[0]

    def reserve(self, values: int) -> None:
        """Make room for an answer; raise if it is too large, or too much with the others."""
        if values > self.limits.max_values:
            raise TooLarge(
                f"the answer would have {values:,} numbers, and {self.limits.max_values:,} are "
                "allowed: send fewer texts, or ask for one layer"
            )
        reserved = RESERVED.get()
        if values <= SMALL or reserved is None:
            return
        if self.values + values > MAX_ANSWERS * self.limits.max_values:
            raise Overloaded
        self.values += values
        reserved[0] += values
