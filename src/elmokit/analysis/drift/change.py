"""How far apart two sets of uses of a word are, and how far apart the uses of one set are.

uses of A, uses of B ─► vectors a layer, the mean of all tokens off ─► apd, prt, change

apd     average pairwise distance: the mean of 1 - cos(a, b) over all a of A and b of B
within  the same inside one corpus, over all pairs of two different uses
change  apd less the mean of both within: near 0 if both corpora use the word alike
prt     prototype distance: 1 - cos of the two mean vectors
halves  prt of two random halves of one corpus: what chance alone gives
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from elmokit.analysis.similarity.cosines import mean_vector
from elmokit.analysis.uses import Array, Use, layer_names, span_vectors, unit

if TYPE_CHECKING:
    from elmokit.store import LayerStore

SPLITS = 10  # random halves that `halves` is the mean of


@dataclass(frozen=True)
class Change:
    """One word in two corpora; arrays have a value for each of layers 0..L and their average."""

    word: str
    uses: tuple[list[Use], list[Use]]
    apd: NDArray[np.float64]
    within: tuple[NDArray[np.float64], NDArray[np.float64]]
    prt: NDArray[np.float64]
    halves: tuple[NDArray[np.float64], NDArray[np.float64]]
    typical: tuple[list[int], list[int]]
    """The uses of each side, those that are most like this side and least like the other first."""

    @property
    def change(self) -> NDArray[np.float64]:
        """What apd is more than the distances inside the corpora."""
        return self.apd - (self.within[0] + self.within[1]) / 2

    def to_dict(self, examples: int = 3) -> dict[str, Any]:
        """As it stands in a JSON file, with the most typical sentences of each side."""
        names = layer_names(len(self.apd) - 2)
        measures = {"apd": self.apd, "change": self.change, "prt": self.prt}
        for side, letter in enumerate("ab"):
            measures[f"within_{letter}"] = self.within[side]
            measures[f"halves_{letter}"] = self.halves[side]
        return {
            "word": self.word,
            "uses": [len(side) for side in self.uses],
            "layers": {
                name: {title: float(values[layer]) for title, values in measures.items()}
                for layer, name in enumerate(names)
            },
            "examples": [self.examples(side, examples) for side in (0, 1)],
        }

    def examples(self, side: int, count: int) -> list[str]:
        """The most typical sentences of a side, each once, with the word in brackets."""
        marked = dict.fromkeys(self.uses[side][number].marked() for number in self.typical[side])
        return list(marked)[:count]


def measure_changes(
    store: LayerStore,
    uses: dict[str, tuple[list[Use], list[Use]]],
    *,
    layer: int = -1,
    seed: int = 1,
    quiet: bool = True,
) -> list[Change]:
    """Measure all words, with the mean vector of all their sentences taken off.

    Args:
        store: the model with its kept layers.
        uses: of each word, in one corpus and in the other.
        layer: the one that says which uses are typical; -1 is the average.
        seed: of the random halves.
        quiet: no progress.
    """
    texts = dict.fromkeys(use.tokens for pair in uses.values() for side in pair for use in side)
    store.prepare(texts, quiet=quiet)
    mean = mean_vector(store, texts)
    words = tqdm(uses.items(), unit=" words", desc="drift", disable=quiet)
    changes = []
    for word, (first, second) in words:
        vectors = [use_vectors(store, side) - mean for side in (first, second)]
        changes.append(change_of(word, (first, second), vectors, layer=layer, seed=seed))
    return changes


def use_vectors(store: LayerStore, uses: Sequence[Use]) -> Array:
    """The vectors of uses: (L + 2, uses, dim)."""
    found = store.stream(use.tokens for use in uses)
    vectors = [
        span_vectors(layers, [(use.start, use.end)])
        for use, layers in zip(uses, found, strict=True)
    ]
    return np.concatenate(vectors, axis=1)


def change_of(
    word: str,
    uses: tuple[list[Use], list[Use]],
    vectors: Sequence[Array],
    *,
    layer: int = -1,
    seed: int = 1,
) -> Change:
    """Measure one word from the vectors of its uses in both corpora: (L + 2, uses, dim) each."""
    first, second = (side.astype(np.float64) for side in vectors)
    rng = np.random.default_rng(seed)
    return Change(
        word,
        uses,
        apd=pairwise_distance(first, second),
        within=(inner_distance(first), inner_distance(second)),
        prt=prototype_distance(first, second),
        halves=(half_distance(first, rng), half_distance(second, rng)),
        typical=(
            typical_uses(first[layer], second[layer]),
            typical_uses(second[layer], first[layer]),
        ),
    )


# ---------------------------------------------------------------------- distances
# The mean cosine of all pairs is the product of the mean directions: no pair need be looked at.


def pairwise_distance(first: Any, second: Any) -> NDArray[np.float64]:
    """The mean of 1 - cosine over all pairs of (layers, n, dim) and (layers, m, dim): (layers,)."""
    means = unit(first).mean(axis=1), unit(second).mean(axis=1)
    return 1 - (means[0] * means[1]).sum(axis=1)  # type: ignore[no-any-return]


def inner_distance(vectors: Any) -> NDArray[np.float64]:
    """The mean of 1 - cosine over all pairs of two different vectors: (layers,)."""
    directions = unit(vectors)
    count = directions.shape[1]
    if count < 2:
        return np.full(len(directions), np.nan)
    whole = np.square(directions.sum(axis=1)).sum(axis=1)
    own = np.square(directions).sum(axis=(1, 2))  # each with itself
    return 1 - (whole - own) / (count * (count - 1))  # type: ignore[no-any-return]


def prototype_distance(first: Any, second: Any) -> NDArray[np.float64]:
    """1 - cosine of the two mean vectors: (layers,)."""
    means = unit(first.mean(axis=1)), unit(second.mean(axis=1))
    return 1 - (means[0] * means[1]).sum(axis=1)  # type: ignore[no-any-return]


def half_distance(vectors: Any, rng: np.random.Generator) -> NDArray[np.float64]:
    """The prototype distance of two random halves, the mean of several splits: (layers,)."""
    count = vectors.shape[1]
    if count < 2:
        return np.full(len(vectors), np.nan)
    found = []
    for _ in range(SPLITS):
        order = rng.permutation(count)
        halves = vectors[:, order[: count // 2]], vectors[:, order[count // 2 :]]
        found.append(prototype_distance(*halves))
    return np.mean(found, axis=0)  # type: ignore[no-any-return]


def typical_uses(own: Any, other: Any) -> list[int]:
    """Uses (n, dim) by how much nearer they are to their own mean than to the other's."""
    own_mean, other_mean = unit(own.mean(axis=0)), unit(other.mean(axis=0))
    return np.argsort(-(unit(own) @ (own_mean - other_mean)), kind="stable").tolist()  # type: ignore[no-any-return]
