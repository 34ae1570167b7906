"""Cosines of the two sides of pairs in every layer, raw and with the mean subtracted.

    pairs ─► pass 1: mean vector of all tokens ─► pass 2: pooled vectors of both sides ─► cosines

The layers come from the store, which keeps them on disk, so the second pass computes nothing again.
Only one number per pair stays in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from elmokit.analysis.geometry import Array, cosine
from elmokit.analysis.similarity.pairs import Pair
from elmokit.analysis.uses import Use, with_average
from elmokit.errors import ElmokitError
from elmokit.layers import pool
from elmokit.vectors.static.table import StaticVectors

if TYPE_CHECKING:
    from elmokit.store import LayerStore

# The sum is not among them: its cosine is that of the mean.
POOLINGS = ("mean", "max", "min", "first", "last", "ends")
DIGITS = 6  # Cosines are rounded, so that rounding errors do not break ties.


def check_poolings(names: Sequence[str]) -> None:
    """Raise if there are no poolings or one of them is unknown."""
    unknown = next((name for name in names if name not in POOLINGS), None)
    if unknown is not None or not names:
        raise ElmokitError(
            f"pooling must be one or more of {', '.join(POOLINGS)}, not {unknown or ''!r}"
        )


def texts_of(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """Return the texts of all pairs, the two sides of each one after the other."""
    return [side.tokens for pair in pairs for side in (pair.first, pair.second)]


def pair_cosines(
    store: LayerStore,
    pairs: Sequence[Pair],
    *,
    mean: Array,
    poolings: Sequence[str] = ("mean",),
    quiet: bool = True,
) -> NDArray[np.float64]:
    """Return the cosines of the two sides: (poolings, 2, L + 2, pairs), raw and centered.

    A side is the vectors of its word, or of all its tokens, pooled. Subtracting the mean (L + 2, 1,
    dim) from the pooled vector equals subtracting it from every token, whatever the pooling.
    """
    cosines = np.empty((len(poolings), 2, store.elmo.config.num_layers + 2, len(pairs)))
    sides: list[Array] = []
    bar: tqdm[Any] = tqdm(total=len(pairs), unit=" pairs", desc="cosines", disable=quiet)
    with bar:
        for i, layers in enumerate(store.stream(texts_of(pairs))):
            pair = pairs[i // 2]
            sides.append(_pool(layers, pair.second if i % 2 else pair.first, poolings))
            if i % 2:
                first, second = sides
                cosines[:, 0, :, i // 2] = cosine(first, second)
                cosines[:, 1, :, i // 2] = cosine(first - mean[:, 0], second - mean[:, 0])
                sides = []
                bar.update()
    return cosines.round(DIGITS)


def _pool(layers: NDArray[np.float16], use: Use, poolings: Sequence[str]) -> Array:
    """Return the pooled vectors of one side: (poolings, L + 2, dim)."""
    span = with_average(layers[:, use.start : use.end].astype(np.float32))
    return np.stack([pool(span, name) for name in poolings])  # type: ignore[arg-type]


def static_cosines(
    vectors: StaticVectors,
    pairs: Sequence[Pair],
    *,
    whole: bool,
    mean_of: Sequence[Pair] | None = None,
) -> NDArray[np.float64]:
    """Return the cosines of the mean static vectors of both sides: (2, pairs), raw and centered.

    Unknown words are left out; the cosine of a side without any known word is 0.

    Args:
        vectors: The word vectors.
        pairs: What to compare.
        whole: Compare all tokens of the texts, not only the words.
        mean_of: Pairs whose tokens give the mean to subtract (default: `pairs`).
    """
    tokens = [token for text in texts_of(mean_of or pairs) for token in text]
    rows = vectors.rows(tokens)
    known, counts = np.unique(rows[rows >= 0], return_counts=True)
    mean = (counts @ vectors.vectors[known]) / max(counts.sum(), 1)  # (dim,)
    cosines = np.zeros((2, len(pairs)))
    for i, pair in enumerate(pairs):
        first, second = (_static_mean(vectors, use, whole) for use in (pair.first, pair.second))
        if first is not None and second is not None:
            cosines[:, i] = [cosine(first, second), cosine(first - mean, second - mean)]
    return cosines.round(DIGITS)


def _static_mean(vectors: StaticVectors, use: Use, whole: bool) -> Array | None:
    rows = vectors.rows(use.tokens if whole else use.tokens[use.start : use.end])
    known = rows[rows >= 0]
    return vectors.vectors[known].mean(axis=0, dtype=np.float64) if len(known) else None
