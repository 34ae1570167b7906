"""How alike the two sides of pairs are: cosines for every layer, raw and with the mean taken off.

    pairs ─► pass 1: mean vector of all tokens ─► pass 2: pooled vectors of both sides ─► cosines

The layers come from the store, where they are kept, so the second pass computes nothing anew. What
stays in memory is a number a pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from elmokit.analysis.similarity.rated_pairs import Pair
from elmokit.analysis.uses import Array, Use, unit, with_average
from elmokit.errors import ElmokitError
from elmokit.vectors.static.table import StaticVectors

if TYPE_CHECKING:
    from elmokit.store import LayerStore

POOLINGS = ("mean", "max", "min", "first", "last", "ends")
DIGITS = 6  # what differs less than this is a tie


def check_poolings(names: Sequence[str]) -> None:
    """Refuse what is no pooling, and the sum, whose cosine is that of the mean."""
    wrong = next((name for name in names if name not in POOLINGS), None)
    if wrong is not None or not names:
        raise ElmokitError(f"pooling must be some of {', '.join(POOLINGS)}, not {wrong or ''!r}")


def texts_of(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """The texts of all pairs, both sides of one after the other."""
    return [side.tokens for pair in pairs for side in (pair.first, pair.second)]


def mean_vector(store: LayerStore, texts: Iterable[Sequence[str]]) -> Array:
    """The mean of all tokens of some texts, for each layer and the average: (L + 2, 1, dim)."""
    total = np.zeros((store.elmo.config.num_layers + 1, store.elmo.dim))
    tokens = 0
    for layers in store.stream(texts):
        total += layers.sum(axis=1, dtype=np.float64)
        tokens += layers.shape[1]
    return with_average((total / max(tokens, 1)).astype(np.float32)[:, None])


def pair_cosines(
    store: LayerStore,
    pairs: Sequence[Pair],
    *,
    mean: Array,
    poolings: Sequence[str] = ("mean",),
    quiet: bool = True,
) -> NDArray[np.float64]:
    """Cosines of the two sides: (poolings, 2, L + 2, pairs), first raw, then with the mean off.

    A side is the vectors of its word, or of all its tokens, pooled. A mean that is taken off every
    token is off the pooled vector too, whatever the pooling (the sum is not among them).
    """
    found = np.empty((len(poolings), 2, store.elmo.config.num_layers + 2, len(pairs)))
    sides: list[Array] = []
    bar: tqdm[Any] = tqdm(total=len(pairs), unit=" pairs", desc="cosines", disable=quiet)
    with bar:
        for number, layers in enumerate(store.stream(texts_of(pairs))):
            pair = pairs[number // 2]
            sides.append(_pooled(layers, pair.second if number % 2 else pair.first, poolings))
            if number % 2:
                first, second = sides
                found[:, 0, :, number // 2] = cosine(first, second)
                found[:, 1, :, number // 2] = cosine(first - mean[:, 0], second - mean[:, 0])
                sides = []
                bar.update()
    return found.round(DIGITS)


def cosine(first: Array, second: Array) -> Array:
    """Of vectors in the last dimension; 0 where one has no length."""
    return (unit(first) * unit(second)).sum(axis=-1)  # type: ignore[no-any-return]


def _pooled(layers: NDArray[np.float16], use: Use, poolings: Sequence[str]) -> Array:
    """The vectors of one side: (poolings, L + 2, dim)."""
    from elmokit.layers import pool

    span = with_average(layers[:, use.start : use.end].astype(np.float32))
    return np.stack([pool(span, name) for name in poolings])  # type: ignore[arg-type]


def static_cosines(
    vectors: StaticVectors, pairs: Sequence[Pair], *, whole: bool, of: Sequence[Pair] | None = None
) -> NDArray[np.float64]:
    """Cosines of the mean static vectors of both sides: (2, pairs), raw and with the mean off.

    Words that are not known are left out; a side with none that is known has the cosine 0.

    Args:
        vectors: the word vectors.
        pairs: what is compared.
        whole: of all tokens of the text, not of the word alone.
        of: the pairs whose tokens the mean is taken of; `pairs` if not given.
    """
    tokens = [token for text in texts_of(of or pairs) for token in text]
    rows = vectors.rows(tokens)
    known, counts = np.unique(rows[rows >= 0], return_counts=True)
    mean = (counts @ vectors.vectors[known]) / max(counts.sum(), 1)
    found = np.zeros((2, len(pairs)))
    for number, pair in enumerate(pairs):
        sides = [_static_mean(vectors, use, whole) for use in (pair.first, pair.second)]
        first, second = sides
        if first is not None and second is not None:
            found[:, number] = [
                cosine(first, second),
                cosine(first - mean, second - mean),
            ]
    return found.round(DIGITS)


def _static_mean(vectors: StaticVectors, use: Use, whole: bool) -> Array | None:
    rows = vectors.rows(use.tokens if whole else use.tokens[use.start : use.end])
    known = rows[rows >= 0]
    return vectors.vectors[known].mean(axis=0, dtype=np.float64) if len(known) else None
