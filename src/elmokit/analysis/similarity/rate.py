"""Compare cosines with what people say: correlation with ratings, accuracy of a threshold.

pairs ─► cosines of layers and of static vectors ─► a row for each, raw and centered

"Centered" means that the mean vector of all tokens is subtracted first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.geometry import Array, accuracy, best_threshold, pearson, spearman
from elmokit.analysis.similarity.cosines import (
    check_poolings,
    pair_cosines,
    static_cosines,
    texts_of,
)
from elmokit.analysis.similarity.pairs import Pair
from elmokit.analysis.uses import as_store, mean_vector
from elmokit.layers import layer_names
from elmokit.vectors.static.table import StaticVectors

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.embed import Embedder
    from elmokit.store import LayerStore

    # Cosines (2, pairs), raw and centered, by the name of a row and its pooling.
    Cosines: TypeAlias = "dict[tuple[str, str], NDArray[np.float64]]"
    Measures: TypeAlias = "dict[str, float | None]"


@dataclass(frozen=True)
class SimilarityRow:
    """How well the cosines of one layer, or of static vectors, agree with people."""

    name: str
    """Name of the layer or of the baseline."""
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
    """Number of pairs."""
    rows: list[SimilarityRow]
    """Baselines, layers 0..L, their average, and static vectors."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return asdict(self)


def rate_similarity(
    model: Embedder | LayerStore,
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

    def cosines_of(some: Sequence[Pair]) -> Cosines:
        layers = layer_cosines(store, some, mean, poolings, quiet=quiet)
        return layers | _static_rows(static, some, learned, kind)

    cosines = cosines_of(pairs)
    learned_cosines = cosines if training is None else cosines_of(training)
    rows = [_majority(pairs)] if kind == "wic" else []
    for (name, pooling), scores in cosines.items():
        if kind == "wic":
            before = learned_cosines[name, pooling]
            measures = [_accuracy(before[i], learned, scores[i], pairs) for i in range(2)]
        else:
            measures = [_correlations(scores[i], pairs, kind) for i in range(2)]
        rows.append(SimilarityRow(name, pooling, *measures))
    return SimilarityResult(kind, len(pairs), rows)


def layer_cosines(
    store: LayerStore,
    pairs: Sequence[Pair],
    mean: Array,
    poolings: Sequence[str],
    *,
    quiet: bool = True,
) -> Cosines:
    """Return the cosines of every layer and pooling."""
    cosines = pair_cosines(store, pairs, mean=mean, poolings=poolings, quiet=quiet)
    names = layer_names(store.elmo.config.num_layers)
    return {
        (name, pooling): cosines[p, :, layer]
        for p, pooling in enumerate(poolings)
        for layer, name in enumerate(names)
    }


def _static_rows(
    vectors: StaticVectors | None, pairs: Sequence[Pair], learned: Sequence[Pair], kind: str
) -> Cosines:
    if vectors is None:
        return {}
    text = static_cosines(vectors, pairs, whole=True, mean_of=learned)
    if kind == "sentences":
        return {("static vectors", "mean"): text}
    word = static_cosines(vectors, pairs, whole=False, mean_of=learned)
    return {("static, word", "mean"): word, ("static, text", "mean"): text}


def _gold(pairs: Sequence[Pair]) -> list[float]:
    return [pair.gold for pair in pairs]


def _correlations(scores: NDArray[np.float64], pairs: Sequence[Pair], kind: str) -> Measures:
    rank: Measures = {"Spearman": spearman(scores, _gold(pairs))}
    return rank if kind == "scws" else {"Pearson": pearson(scores, _gold(pairs)), **rank}


def _accuracy(
    learned_scores: NDArray[np.float64],
    learned: Sequence[Pair],
    scores: NDArray[np.float64],
    pairs: Sequence[Pair],
) -> Measures:
    """Return the accuracy with the threshold that is best for the `learned` pairs."""
    threshold = best_threshold(learned_scores, list(map(bool, _gold(learned))))
    share = accuracy(scores, list(map(bool, _gold(pairs))), threshold)
    return {"accuracy": share, "threshold": threshold}


def _majority(pairs: Sequence[Pair]) -> SimilarityRow:
    """Return the accuracy of always giving the more frequent answer."""
    share = float(np.mean(_gold(pairs)))
    measures: Measures = {"accuracy": max(share, 1 - share), "threshold": None}
    return SimilarityRow("majority answer", "", measures, measures)
