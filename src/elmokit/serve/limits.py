"""What a request may have, and the errors of those that have more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elmokit.errors import ElmokitError
from elmokit.serve import schemas


class TooLarge(ElmokitError):
    """A request with more texts, tokens or results than the service takes."""


class NotLoaded(ElmokitError):
    """A model, a task or an index that the service was not started with."""


@dataclass(frozen=True)
class Limits:
    """What a request, and all that wait together, may have."""

    max_queue: int = 256
    """Requests that are read, wait or are answered at once."""
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

    def check_values(self, values: int) -> None:
        """Raise if an answer would have too many numbers."""
        if values > self.max_values:
            raise TooLarge(
                f"the answer would have {values:,} numbers, and {self.max_values:,} are allowed: "
                "send fewer texts, or ask for one layer"
            )
