"""Whether cosines say what people say: correlation with ratings, accuracy of a threshold.

pairs ─► cosines of layers and of static vectors ─► a row for each, raw and with the mean off
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.geometry import accuracy, best_threshold, pearson, spearman
from elmokit.analysis.similarity.cosines import mean_vector, pair_cosines, static_cosines, texts_of
from elmokit.analysis.similarity.rated_pairs import Pair
from elmokit.analysis.uses import Array, layer_names
from elmokit.vectors.static.table import StaticVectors

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.store import LayerStore

    # The name of a row and its pooling: cosines (2, pairs), raw and with the mean off.
    Cosines: TypeAlias = "dict[tuple[str, str], NDArray[np.float64]]"

WAYS = ("raw", "mean_off")


def measure_pairs(
    store: LayerStore,
    pairs: Sequence[Pair],
    *,
    kind: str,
    training: Sequence[Pair] | None = None,
    poolings: Sequence[str] = ("mean",),
    static: StaticVectors | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Correlations of SCWS or of sentences, accuracies of WiC, for every layer.

    Args:
        store: the model with its kept layers.
        pairs: what people have compared.
        kind: "scws", "wic" or "sentences".
        training: pairs of WiC to learn thresholds and the mean vector from; `pairs` themselves if
            not given.
        poolings: of sentences.
        static: word vectors to compare with.
        quiet: no progress.

    Returns:
        `kind`, `pairs` (how many) and `rows`: each has a `name`, a `pooling`, and under `raw` and
        `mean_off` its measures from -1 to 1; None where nothing varies.
    """
    learned = pairs if training is None else training
    mean = mean_vector(store, texts_of(learned))

    def cosines(some: Sequence[Pair]) -> Cosines:
        found = layer_cosines(store, some, mean, poolings, quiet=quiet)
        return found | _static_rows(static, some, learned, kind)

    found = cosines(pairs)
    before = found if training is None else cosines(training)
    rows = []
    for (name, pooling), scores in found.items():
        row: dict[str, Any] = {"name": name, "pooling": pooling}
        for number, way in enumerate(WAYS):
            if kind == "wic":
                row[way] = _accuracy(before[name, pooling][number], learned, scores[number], pairs)
            else:
                row[way] = _correlations(scores[number], pairs, kind)
        rows.append(row)
    if kind == "wic":
        rows.insert(0, _majority(pairs))
    return {"kind": kind, "pairs": len(pairs), "rows": rows}


def layer_cosines(
    store: LayerStore,
    pairs: Sequence[Pair],
    mean: Array,
    poolings: Sequence[str],
    *,
    quiet: bool = True,
) -> Cosines:
    """Cosines of every layer and pooling."""
    found = pair_cosines(store, pairs, mean=mean, poolings=poolings, quiet=quiet)
    names = layer_names(store.elmo.config.num_layers)
    return {
        (name, pooling): found[p, :, layer]
        for p, pooling in enumerate(poolings)
        for layer, name in enumerate(names)
    }


def _static_rows(
    vectors: StaticVectors | None, pairs: Sequence[Pair], learned: Sequence[Pair], kind: str
) -> Cosines:
    if vectors is None:
        return {}
    rows = {("static vectors", "mean"): static_cosines(vectors, pairs, whole=True, of=learned)}
    if kind == "sentences":
        return rows
    word = static_cosines(vectors, pairs, whole=False, of=learned)
    return {("static, word", "mean"): word, ("static, text", "mean"): rows.popitem()[1]}


def _gold(pairs: Sequence[Pair]) -> list[float]:
    return [pair.gold for pair in pairs]


def _correlations(scores: NDArray[np.float64], pairs: Sequence[Pair], kind: str) -> dict[str, Any]:
    rank = {"Spearman": spearman(scores, _gold(pairs))}
    return rank if kind == "scws" else {"Pearson": pearson(scores, _gold(pairs)), **rank}


def _accuracy(
    before: NDArray[np.float64],
    learned: Sequence[Pair],
    scores: NDArray[np.float64],
    pairs: Sequence[Pair],
) -> dict[str, Any]:
    """With the threshold that is best for what was before."""
    threshold = best_threshold(before, list(map(bool, _gold(learned))))
    right = accuracy(scores, list(map(bool, _gold(pairs))), threshold)
    return {"accuracy": right, "threshold": threshold}


def _majority(pairs: Sequence[Pair]) -> dict[str, Any]:
    """What the more frequent answer gets."""
    share = float(np.mean(_gold(pairs)))
    same = {"accuracy": max(share, 1 - share), "threshold": None}
    return {"name": "majority answer", "pooling": "", **dict.fromkeys(WAYS, same)}
