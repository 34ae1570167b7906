"""Spans of tokens as tensors: which tokens they cover, and how far the others are from them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.data.examples import Span
from elmokit.errors import ElmokitError

# Distances from 1, 2, 3, … on are one bucket each; wider ones where it matters less.
EDGES = (1, 2, 3, 4, 5, 8, 12, 18, 27)
BUCKETS = 2 * len(EDGES) + 1


def distance(token: int, span: Span) -> int:
    """Tokens from a span to a token: 0 within, below 0 before it, above 0 behind it."""
    return min(token - span[0], 0) + max(token - span[1] + 1, 0)


def bucket(distance: int) -> int:
    """The bucket of a distance, which may be below 0: a number below BUCKETS.

    >>> [bucket(distance) for distance in (-100, -1, 0, 1, 6, 7, 100)]
    [0, 8, 9, 10, 14, 14, 18]
    """
    size = bisect_right(EDGES, abs(distance))
    return len(EDGES) + (size if distance > 0 else -size)


def buckets(spans: Sequence[Span], tokens: int) -> Tensor:
    """How far each token of each text is from the text's span, as buckets: (texts, tokens)."""
    return torch.tensor([[bucket(distance(i, span)) for i in range(tokens)] for span in spans])


def covered(spans: Sequence[Span], tokens: int) -> Tensor:
    """True where a token is in its text's span: (texts, tokens)."""
    places = torch.arange(tokens)
    first, behind = torch.tensor(spans).unsqueeze(-1).unbind(1)  # (texts, 1) each
    return (first <= places) & (places < behind)


def check_span(span: Span, tokens: int, what: str, where: str) -> None:
    """Refuse a span without tokens or beyond its text."""
    if not 0 <= span[0] < span[1] <= tokens:
        raise ElmokitError(
            f"{where}: {what} is at tokens {span[0]} to {span[1]} of a text of {tokens}"
        )
