"""Spans of tokens as tensors: which tokens they cover, and the distance of the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.data.examples import Span

# Lower bounds of the buckets of distances, wider where a difference matters less.
EDGES = (1, 2, 3, 4, 5, 8, 12, 18, 27)
BUCKETS = 2 * len(EDGES) + 1


def distance(token: int, span: Span) -> int:
    """Return the distance from a span to a token: 0 within, negative before, positive after."""
    return min(token - span[0], 0) + max(token - span[1] + 1, 0)


def bucket(distance: int) -> int:
    """Return the bucket of a distance, an index below BUCKETS.

    >>> [bucket(distance) for distance in (-100, -1, 0, 1, 6, 7, 100)]
    [0, 8, 9, 10, 14, 14, 18]
    """
    size = bisect_right(EDGES, abs(distance))
    return len(EDGES) + (size if distance > 0 else -size)


def buckets(spans: Sequence[Span], tokens: int) -> Tensor:
    """Return the bucket of each token's distance to the span of its text: (texts, tokens)."""
    return torch.tensor([[bucket(distance(i, span)) for i in range(tokens)] for span in spans])


def covered(spans: Sequence[Span], tokens: int) -> Tensor:
    """Return a mask that is True where a token is in the span of its text: (texts, tokens)."""
    positions = torch.arange(tokens)
    first, after = torch.tensor(spans).unsqueeze(-1).unbind(1)  # (texts, 1) each
    return (first <= positions) & (positions < after)
