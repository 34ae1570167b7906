"""Measure how far apart the uses of a word are in two corpora, and inside each of them.

apd     average pairwise distance: the mean of 1 - cos(a, b) over all a of A and b of B
within  the same inside one corpus, over all pairs of two different uses
change  apd minus the mean of both within: near 0 if both corpora use the word alike
prt     prototype distance: 1 - cos of the two mean vectors
halves  prt of two random halves of one corpus: the value that chance alone gives
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from elmokit.analysis.geometry import Array, cosine, unit
from elmokit.analysis.sampling import Corpus, frequent_words
from elmokit.analysis.senses.induce import typical_words
from elmokit.analysis.uses import Model, Use, as_store, embed_uses, mean_vector
from elmokit.errors import ElmokitError
from elmokit.layers import layer_index, layer_names
from elmokit.text.vocabulary import Vocabulary

SPLITS = 10  # random halves whose mean is `halves`

Measure = Literal["change", "apd", "prt"]
Sides = tuple[list[Use], list[Use]]
Distances = NDArray[np.float64]


@dataclass(frozen=True)
class WordChange:
    """One word in two corpora; arrays have a value for each of layers 0..L and their average."""

    word: str
    uses: Sides
    """Its uses in each corpus."""
    apd: Distances
    """Average pairwise distance of uses in different corpora."""
    within: tuple[Distances, Distances]
    """Average pairwise distance of uses inside each corpus."""
    prt: Distances
    """Distance of the mean vectors (prototypes)."""
    halves: tuple[Distances, Distances]
    """Distance of the mean vectors of random halves of each corpus."""
    typical: tuple[list[int], list[int]]
    """Indices of the uses in each corpus, the most typical first (see `typical_uses`)."""
    words: tuple[list[str], list[str]]
    """Words that are near the uses in one corpus more than near those in the other."""

    @property
    def change(self) -> Distances:
        """How much larger apd is than the distances inside the corpora."""
        return self.apd - (self.within[0] + self.within[1]) / 2

    def to_dict(self, examples: int = 3) -> dict[str, Any]:
        """Return all distances by layer and the most typical sentences, for JSON."""
        measures = {"apd": self.apd, "change": self.change, "prt": self.prt}
        for side, letter in enumerate("ab"):
            measures[f"within_{letter}"] = self.within[side]
            measures[f"halves_{letter}"] = self.halves[side]
        layers = {
            name: {title: float(values[layer]) for title, values in measures.items()}
            for layer, name in enumerate(layer_names(len(self.apd) - 2))
        }
        counts = [len(side) for side in self.uses]
        shown = [[use.marked() for use in self.examples(side, examples)] for side in (0, 1)]
        texts = {"typical": list(self.words), "examples": shown}
        return {"word": self.word, "uses": counts, "layers": layers, **texts}

    def examples(self, side: int, count: int) -> list[Use]:
        """Return the most typical uses of a side, without repeated sentences."""
        return list(dict.fromkeys(self.uses[side][i] for i in self.typical[side]))[:count]


@dataclass(frozen=True)
class DriftResult:
    """Words by how differently two corpora use them."""

    words: list[WordChange]
    """The words, the most different first."""
    layer: str
    """Name of the layer that they are ranked by."""
    measure: Measure
    """Name of the distance that they are ranked by."""

    def to_dict(self, examples: int = 3) -> dict[str, Any]:
        """Return the ranked words with some typical sentences, for JSON."""
        return {
            "ranked_by": [self.layer, self.measure],
            "words": [word.to_dict(examples) for word in self.words],
        }


def sample_both(
    first: Corpus,
    second: Corpus,
    words: Sequence[str] | None = None,
    *,
    min_count: int = 5,
    max_uses: int = 500,
    max_words: int = 200,
    skip_words: int = 100,
    seed: int = 1,
) -> tuple[dict[str, Sides], dict[str, list[int]]]:
    """Return uses of words in two corpora, and how often words occur that are too rare in one.

    Args:
        first: One corpus.
        second: The other.
        words: The words (default: words that are frequent in both).
        min_count: Minimum number of uses in each corpus.
        max_uses: Maximum number of uses of a word in a corpus; more are sampled at random.
        max_words: Maximum number of words, if none are given.
        skip_words: Number of most frequent words to skip then; most are function words.
        seed: Seed of the random numbers.
    """
    if words is None:
        counted = first.counts(), second.counts()
        words = frequent_words(*counted, min_count=min_count, max_words=max_words, skip=skip_words)
    else:
        words = [word for word in dict.fromkeys(map(first.fold, words)) if word]
    uses, counts = first.sample(words, max_uses=max_uses, seed=2 * seed)
    other_uses, other_counts = second.sample(words, max_uses=max_uses, seed=2 * seed + 1)
    totals = {word: [counts[word], other_counts[word]] for word in words}
    rare = {word: total for word, total in totals.items() if min(total) < min_count}
    kept = {word: (uses[word], other_uses[word]) for word in words if word not in rare}
    if not totals:
        raise ElmokitError("name words with --words, separated by commas")
    if not kept:
        shown = ", ".join(f"{word} ({a} and {b})" for word, (a, b) in list(rare.items())[:5])
        raise ElmokitError(
            f"no word occurs {min_count} times in both corpora: {shown}; lower --min-count"
        )
    return kept, rare


def measure_drift(
    model: Model,
    uses: Mapping[str, Sides],
    *,
    layer: str | int = "average",
    measure: Measure = "change",
    seed: int = 1,
    quiet: bool = True,
) -> DriftResult:
    """Measure how differently two corpora use words, and rank the words.

    The mean vector of all their sentences is subtracted.

    Args:
        model: The model; a LayerStore keeps its layers on disk.
        uses: Uses of each word in the first and the second corpus (see `sample_both`).
        layer: Layer to rank by: a number, "top" or "average".
        measure: Distance to rank by: "change", "apd" or "prt".
        seed: Seed of the random halves.
        quiet: Do not show progress.
    """
    store = as_store(model)
    index = layer_index(layer, store.elmo.config.num_layers)
    texts = dict.fromkeys(use.tokens for pair in uses.values() for side in pair for use in side)
    store.prepare(texts, quiet=quiet)
    mean = mean_vector(store, texts)  # (L + 2, 1, dim)
    changes = []
    for word, sides in tqdm(uses.items(), unit=" words", desc="drift", disable=quiet):
        vectors = [embed_uses(store, side)[0] - mean for side in sides]
        changes.append(measure_word(word, sides, vectors, store.elmo.vocabulary, index, seed))
    changes.sort(key=lambda change: -getattr(change, measure)[index])
    return DriftResult(changes, layer_names(store.elmo.config.num_layers)[index], measure)


def measure_word(
    word: str,
    uses: Sides,
    vectors: Sequence[Array],
    vocabulary: Vocabulary | None = None,
    layer: int = -1,
    seed: int = 1,
) -> WordChange:
    """Measure one word from the vectors of its uses in both corpora: (L + 2, uses, dim) each."""
    first, second = (side.astype(np.float64) for side in vectors)
    ranked, rng = (first[layer], second[layer]), np.random.default_rng(seed)
    return WordChange(
        word,
        uses,
        apd=pairwise_distance(first, second),
        within=(inner_distance(first), inner_distance(second)),
        prt=prototype_distance(first, second),
        halves=(half_distance(first, rng), half_distance(second, rng)),
        typical=(typical_uses(*ranked), typical_uses(*ranked[::-1])),
        words=(typical_words(*uses, vocabulary), typical_words(*uses[::-1], vocabulary)),
    )


# ---------------------------------------------------------------------- distances
# The mean cosine of all pairs is the dot product of the mean directions, so pairs are not formed.


def pairwise_distance(first: Any, second: Any) -> Distances:
    """Return the mean 1 - cosine of all pairs of (layers, n, dim), (layers, m, dim): (layers,)."""
    means = unit(first).mean(axis=1), unit(second).mean(axis=1)
    return 1 - (means[0] * means[1]).sum(axis=1)  # type: ignore[no-any-return]


def inner_distance(vectors: Any) -> Distances:
    """Return the mean of 1 - cosine over all pairs of different vectors: (layers,)."""
    directions = unit(vectors)
    count = directions.shape[1]
    if count < 2:
        return np.full(len(directions), np.nan)
    all_pairs = np.square(directions.sum(axis=1)).sum(axis=1)
    own = np.square(directions).sum(axis=(1, 2))  # each vector with itself
    return 1 - (all_pairs - own) / (count * (count - 1))  # type: ignore[no-any-return]


def prototype_distance(first: Any, second: Any) -> Any:
    """Return 1 - cosine of the two mean vectors: (layers,)."""
    return 1 - cosine(first.mean(axis=1), second.mean(axis=1))


def half_distance(vectors: Any, rng: np.random.Generator) -> Distances:
    """Return the mean prototype distance of two random halves over several splits: (layers,)."""
    count = vectors.shape[1]
    if count < 2:
        return np.full(len(vectors), np.nan)
    distances = []
    for _ in range(SPLITS):
        order = rng.permutation(count)
        half, rest = order[: count // 2], order[count // 2 :]
        distances.append(prototype_distance(vectors[:, half], vectors[:, rest]))
    return np.mean(distances, axis=0)  # type: ignore[no-any-return]


def typical_uses(own: Any, other: Any) -> list[int]:
    """Rank uses (n, dim) by how much nearer they are to their own mean than to the other's."""
    own_mean, other_mean = unit(own.mean(axis=0)), unit(other.mean(axis=0))
    return np.argsort(-(unit(own) @ (own_mean - other_mean)), kind="stable").tolist()  # type: ignore[no-any-return]
