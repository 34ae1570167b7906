"""Compare cosines with what people say: correlation with ratings, accuracy of a threshold.

    pairs ─► pass 1: mean vector of all tokens ─► pass 2: pooled vectors of both sides ─► cosines

The store keeps the layers on disk, so the second pass computes nothing again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from elmokit.analysis.geometry import Array, best_threshold, cosine, pearson, spearman
from elmokit.analysis.similarity.pairs import Pair
from elmokit.analysis.uses import Model, Use, as_store, mean_vector, with_average
from elmokit.errors import ElmokitError
from elmokit.layers import layer_names, pool
from elmokit.vectors.static.table import StaticVectors

if TYPE_CHECKING:
    from elmokit.store import LayerStore

Measures: TypeAlias = "dict[str, float | None]"
# The sum is not among them: its cosine is that of the mean.
POOLINGS = ("mean", "max", "min", "first", "last", "ends")
DIGITS = 6  # Cosines are rounded, so that rounding errors do not break ties.


@dataclass(frozen=True)
class SimilarityRow:
    """How well the cosines of one layer, or of static vectors, agree with people."""

    name: str
    pooling: str
    """How tokens are pooled; empty for a baseline without vectors."""
    raw: dict[str, float | None]
    """Measures of the vectors as they are: "Pearson" and "Spearman" from -1 to 1 (None if nothing
    varies), or of WiC "accuracy" and the "threshold" of the cosine."""
    centered: dict[str, float | None]
    """The same with the mean vector of all tokens subtracted."""


@dataclass(frozen=True)
class SimilarityResult:
    """How well cosines agree with people, for every layer."""

    kind: str
    """"scws", "wic" or "sentences"."""
    pairs: int
    rows: list[SimilarityRow]
    """Baselines, layers 0..L, their average, and static vectors."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return asdict(self)


def rate_similarity(
    model: Model,
    pairs: Sequence[Pair],
    *,
    kind: str,
    training: Sequence[Pair] | None = None,
    poolings: Sequence[str] = ("mean",),
    static: StaticVectors | None = None,
    quiet: bool = True,
) -> SimilarityResult:
    """Correlate cosines with the ratings of SCWS or of sentences, or measure the accuracy on WiC.

    Args:
        model: The model; a LayerStore keeps its layers on disk.
        pairs: Pairs that people have compared, such as `read_pairs` reads them.
        kind: Kind of pairs: "scws", "wic" or "sentences".
        training: Pairs of WiC to learn thresholds and the mean vector from (default: `pairs`).
        poolings: How the tokens of sentences are pooled: some of mean, max, min, first, last, ends.
        static: Word vectors to compare with.
        quiet: Do not show progress.
    """
    check_poolings(poolings)
    store = as_store(model)
    learned = pairs if training is None else training
    store.prepare(texts_of([*(training or []), *pairs]), quiet=quiet)
    mean = mean_vector(store, texts_of(learned))  # (L + 2, 1, dim)

    def cosines_of(some: Sequence[Pair]) -> dict[tuple[str, str], NDArray[np.float64]]:
        """Return cosines (2, pairs), raw and centered, by the name of a row and its pooling."""
        of_layers = pair_cosines(store, some, mean, poolings, quiet=quiet)
        cosines = {
            (name, pooling): of_layers[p, :, layer]
            for p, pooling in enumerate(poolings)
            for layer, name in enumerate(layer_names(store.elmo.config.num_layers))
        }
        if static is not None and kind != "sentences":
            cosines["static, word", "mean"] = static_cosines(static, some, learned, whole=False)
        if static is not None:
            name = "static vectors" if kind == "sentences" else "static, text"
            cosines[name, "mean"] = static_cosines(static, some, learned, whole=True)
        return cosines

    cosines = cosines_of(pairs)
    learned_cosines = cosines if training is None else cosines_of(training)
    gold, learned_gold = ([pair.gold for pair in some] for some in (pairs, learned))
    rows = []
    if kind == "wic":  # the accuracy of always giving the more frequent answer
        share = float(np.mean(gold))
        guess: Measures = {"accuracy": max(share, 1 - share), "threshold": None}
        rows.append(SimilarityRow("majority answer", "", guess, guess))
    for key, scores in cosines.items():
        measures: list[Measures] = []
        for own, learned_scores in zip(scores, learned_cosines[key], strict=True):
            if kind == "wic":
                threshold = best_threshold(learned_scores, learned_gold)
                share = float(((own >= threshold) == np.array(gold, bool)).mean())
                measures.append({"accuracy": share, "threshold": threshold})
            else:
                linear = {} if kind == "scws" else {"Pearson": pearson(own, gold)}
                measures.append({**linear, "Spearman": spearman(own, gold)})
        rows.append(SimilarityRow(*key, *measures))
    return SimilarityResult(kind, len(pairs), rows)


def check_poolings(names: Sequence[str]) -> None:
    """Raise if there are no poolings or one of them is unknown."""
    bad = [name for name in names or [""] if name not in POOLINGS]
    if bad:
        raise ElmokitError(f"pooling must be one or more of {', '.join(POOLINGS)}, not {bad[0]!r}")


def texts_of(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """Return the texts of all pairs, the two sides of each one after the other."""
    return [side.tokens for pair in pairs for side in (pair.first, pair.second)]


def pair_cosines(
    store: LayerStore, pairs: Sequence[Pair], mean: Array, poolings: Sequence[str], *, quiet: bool
) -> NDArray[np.float64]:
    """Return the cosines of the two sides: (poolings, 2, L + 2, pairs), raw and centered."""
    cosines = np.empty((len(poolings), 2, store.elmo.config.num_layers + 2, len(pairs)))
    stream = store.stream(texts_of(pairs))
    for i, pair in enumerate(tqdm(pairs, unit=" pairs", desc="cosines", disable=quiet)):
        spans = (next(stream)[:, use.start : use.end] for use in (pair.first, pair.second))
        sides = (with_average(span.astype(np.float32)) for span in spans)  # (L + 2, tokens, dim)
        first, second = (np.stack([pool(side, p) for p in poolings]) for side in sides)  # type: ignore[arg-type]
        cosines[:, 0, :, i] = cosine(first, second)
        # With any pooling, this equals subtracting the mean from every token.
        cosines[:, 1, :, i] = cosine(first - mean[:, 0], second - mean[:, 0])
    return cosines.round(DIGITS)


def static_cosines(
    vectors: StaticVectors, pairs: Sequence[Pair], mean_of: Sequence[Pair], *, whole: bool
) -> NDArray[np.float64]:
    """Return the cosines of the mean static vectors of both sides: (2, pairs), raw and centered.

    A side is its word, or with `whole` its text. The cosine of one without known words is 0.
    """
    rows = vectors.rows([token for text in texts_of(mean_of) for token in text])
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
