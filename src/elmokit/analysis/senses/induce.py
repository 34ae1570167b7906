"""Senses without an inventory: the uses of a word in a corpus, clustered by their vectors.

corpus ─► a sample of the word's uses ─► vectors of one layer ─► spherical k-means ─► clusters,
each with its size, the words that are typical of its uses, and the uses in its middle
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.reservoir import Reservoir
from elmokit.analysis.uses import (
    Array,
    Use,
    embed_uses,
    layer_names,
    silhouette,
    similarities,
    unit,
)
from elmokit.errors import ElmokitError

if TYPE_CHECKING:
    from elmokit.store import LayerStore

MOST_CLUSTERS = 8  # to be tried
MUCH_CLEARER = 0.05  # in silhouette; for less there are no more clusters
RESTARTS = 10
ROUNDS = 100
ROUNDING = 1e-3  # of a vector's length; they are kept as float16
TYPICAL_WORDS = 8
NEAR = 15  # tokens before and behind the word that its typical words are looked for in
FEWEST_USES = 2  # that a typical word stands near
TOO_COMMON = 1 / 3  # of all uses: words that stand near more are typical of nothing


@dataclass(frozen=True)
class Cluster:
    """Uses of a word that are alike."""

    name: str
    uses: list[Use]
    """The nearest to the middle first."""
    typical: list[str]
    """Words that stand near its uses more often than near the others."""


@dataclass(frozen=True)
class Induced:
    """The clusters of a word, the largest first."""

    clusters: list[Cluster]
    layer: str
    """The layer in which they were found."""
    tried: dict[int, float]
    """Number of clusters: silhouette in that layer. One entry if the number was given."""
    silhouettes: dict[str, float]
    """Of these clusters in each layer."""

    def lines(self) -> Iterator[str]:
        """All uses with their clusters, as a table that `read_uses` reads."""
        yield "sentence\tposition\tsense\tlemma\n"
        for cluster in self.clusters:
            for use in cluster.uses:
                place = position(use.start, use.end)
                yield f"{' '.join(use.tokens)}\t{place}\t{cluster.name}\t{use.lemma}\n"

    def to_dict(self, examples: int) -> dict[str, Any]:
        """For JSON, with so many examples of each cluster."""
        return {
            "clusters": [
                {
                    "name": cluster.name,
                    "uses": len(cluster.uses),
                    "typical": cluster.typical,
                    "examples": [nearby(use).marked() for use in cluster.uses[:examples]],
                }
                for cluster in self.clusters
            ],
            "silhouette_by_clusters": {str(number): clear for number, clear in self.tried.items()},
            "silhouette_by_layer": self.silhouettes,
        }


def position(start: int, end: int) -> str:
    """Where a word stands, as `read_uses` reads it: "2", or "2-4" if it has three tokens."""
    return f"{start}-{end - 1}" if end - start > 1 else f"{start}"


# ---------------------------------------------------------------------- uses
def find_uses(sentences: Iterable[Sequence[str]], word: Sequence[str]) -> Iterator[Use]:
    """Each use of a word, of one or more tokens, whatever its case."""
    wanted = [token.lower() for token in word]
    lemma = " ".join(wanted)
    for tokens in sentences:
        low = [token.lower() for token in tokens]
        for start in range(len(low) - len(wanted) + 1):
            if low[start] == wanted[0] and low[start : start + len(wanted)] == wanted:
                yield Use(tuple(tokens), start, start + len(wanted), lemma)


def sample_uses(uses: Iterable[Use], most: int, seed: int) -> tuple[list[Use], int]:
    """At most so many uses, each as likely as any other, in their order; and how many there are."""
    kept = Reservoir[Use](most, seed)
    for use in uses:
        kept.add(use)
    return kept.items, kept.seen


# ---------------------------------------------------------------------- clusters
def spherical_kmeans(
    vectors: Array, clusters: int, seed: int, *, restarts: int = RESTARTS
) -> tuple[NDArray[np.intp], Array]:
    """The cluster of each vector (n, dim), and the clusters' middles (clusters, dim).

    All vectors have length 1, middles too; the sum of the cosines to the middles is the largest of
    several starts.
    """
    draw = np.random.default_rng(seed)
    runs = (_one_kmeans(vectors, clusters, draw) for _ in range(restarts))
    labels, centres, _ = max(runs, key=lambda run: run[2])
    return labels, centres


def _one_kmeans(
    vectors: Array, clusters: int, draw: np.random.Generator
) -> tuple[NDArray[np.intp], Array, float]:
    centres = _first_centres(vectors, clusters, draw)
    labels = np.full(len(vectors), -1)
    for _ in range(ROUNDS):
        cosines = vectors @ centres.T  # (n, clusters)
        before, labels = labels, cosines.argmax(axis=1)
        _fill_empty(labels, cosines)
        if (labels == before).all():
            break
        member = np.eye(clusters, dtype=np.float32)[labels]  # (n, clusters)
        centres = unit(member.T @ vectors)
    nearness = float((vectors * centres[labels]).sum())
    return labels, centres, nearness


def _fill_empty(labels: NDArray[np.intp], cosines: Array) -> None:
    """Give a cluster without members the one that is farthest from its middle."""
    for cluster in range(cosines.shape[1]):
        sizes = np.bincount(labels, minlength=cosines.shape[1])
        if sizes[cluster] == 0:
            near = cosines[np.arange(len(labels)), labels]
            labels[np.where(sizes[labels] > 1, near, np.inf).argmin()] = cluster


def _first_centres(vectors: Array, clusters: int, draw: np.random.Generator) -> Array:
    """Vectors that lie apart: each drawn by its distance to those drawn before (k-means++)."""
    chosen = [int(draw.integers(len(vectors)))]
    while len(chosen) < clusters:
        distance = (1 - vectors @ vectors[chosen].T).min(axis=1).clip(min=0).astype(np.float64)
        total = distance.sum()
        shares = distance / total if total > 0 else None
        chosen.append(int(draw.choice(len(vectors), p=shares)))
    return vectors[chosen]


def without_mean(vectors: Array) -> Array:
    """Vectors (layers, n, dim) without what all of them share; what is rounding alone is 0.

    So uses that are all alike, as a word in one spelling in layer 0, stay alike.
    """
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    rest = vectors - vectors.mean(axis=1, keepdims=True)
    real = np.linalg.norm(rest, axis=-1, keepdims=True) > ROUNDING * length
    return np.where(real, rest, 0)


def cluster_uses(
    vectors: Array, layer: int, clusters: int | None, seed: int
) -> tuple[NDArray[np.intp], Array, dict[int, float]]:
    """Clusters of uses (layers, n, dim) in one layer.

    Without a number, it is the smallest that is nearly as clear as the clearest. Gives labels,
    middles and the silhouette of each number that was tried.
    """
    directions = unit(vectors[layer])
    cosines = _similarities(directions[None])
    most = min(MOST_CLUSTERS, len(directions) - 1)
    numbers = range(2, most + 1) if clusters is None else [clusters]
    tried: dict[int, float] = {}
    found: dict[int, tuple[NDArray[np.intp], Array]] = {}
    for number in numbers:
        found[number] = spherical_kmeans(directions, number, seed)
        labels = found[number][0].astype(str).tolist()
        tried[number] = float(silhouette(cosines, labels)[0]) if number > 1 else 0.0
    enough = max(tried.values()) - MUCH_CLEARER
    return *found[next(number for number in tried if tried[number] >= enough)], tried


# ---------------------------------------------------------------------- what a cluster is about
def typical_words(inside: Sequence[Use], outside: Sequence[Use]) -> list[str]:
    """Words that stand near the word in more of the uses inside than outside, the clearest first.

    By the log-likelihood ratio of two shares: G² = 2 Σ observed · log(observed / expected).
    """
    here, there = _use_counts(inside), _use_counts(outside)
    own = {token.lower() for use in inside for token in use.tokens[use.start : use.end]}
    rated = []
    for word, count in here.items():
        other = there[word]
        common = (count + other) / (len(inside) + len(outside)) > TOO_COMMON
        if count < FEWEST_USES or common or word in own or not any(map(str.isalpha, word)):
            continue
        if count * len(outside) > other * len(inside):
            rated.append((-likelihood_ratio(count, len(inside), other, len(outside)), word))
    return [word for _, word in sorted(rated)[:TYPICAL_WORDS]]


def _use_counts(uses: Sequence[Use]) -> Counter[str]:
    """Near how many of the uses each word stands."""
    near = ({token.lower() for token in nearby(use).tokens} for use in uses)
    return Counter(word for words in near for word in words)


def nearby(use: Use, tokens: int = NEAR) -> Use:
    """A use with that many tokens before and behind the word, and dots for the others."""
    first, last = max(use.start - tokens, 0), min(use.end + tokens, len(use.tokens))
    before = ("…",) if first > 0 else ()
    after = ("…",) if last < len(use.tokens) else ()
    moved = len(before) - first
    kept = (*before, *use.tokens[first:last], *after)
    return replace(use, tokens=kept, start=use.start + moved, end=use.end + moved)


def likelihood_ratio(here: int, inside: int, there: int, outside: int) -> float:
    """G² of a word that stands near `here` of `inside` uses and `there` of `outside`."""
    observed = np.array([[here, inside - here], [there, outside - there]], float)
    expected = observed.sum(1, keepdims=True) * observed.sum(0, keepdims=True) / observed.sum()
    filled = observed > 0
    return float(2 * (observed[filled] * np.log(observed[filled] / expected[filled])).sum())


# ---------------------------------------------------------------------- all together
def induce_senses(
    store: LayerStore,
    uses: Sequence[Use],
    *,
    layer: str = "average",
    clusters: int | None = None,
    seed: int = 1,
) -> Induced:
    """Cluster the uses of a word by their vectors in one layer.

    The model reads the word in lower case, so that a capital letter makes no cluster. What all uses
    have in common, their mean, is taken off.
    """
    names = layer_names(store.elmo.config.num_layers)
    chosen = _layer_number(layer, store.elmo.config.num_layers)
    if len(uses) < max(3, clusters or 0):
        raise ElmokitError(f"{len(uses)} uses are too few for clusters")
    vectors, _ = embed_uses(store, [_in_lower_case(use) for use in uses])
    vectors = without_mean(vectors)
    labels, centres, tried = cluster_uses(vectors, chosen, clusters, seed)
    near = (unit(vectors[chosen]) * centres[labels]).sum(axis=1)  # (n,)
    found = []
    sizes = np.bincount(labels, minlength=len(centres))
    for number, label in enumerate(np.argsort(-sizes, kind="stable"), start=1):
        members = sorted(np.flatnonzero(labels == label).tolist(), key=lambda use: -near[use])
        inside = [uses[use] for use in members]
        outside = [use for use, other in zip(uses, labels, strict=True) if other != label]
        found.append(Cluster(f"cluster {number}", inside, typical_words(inside, outside)))
    return Induced(found, names[chosen], tried, _in_each_layer(vectors, labels, names))


def _in_lower_case(use: Use) -> Use:
    """The same use with the word, not its sentence, in lower case."""
    word = (token.lower() for token in use.tokens[use.start : use.end])
    return replace(use, tokens=(*use.tokens[: use.start], *word, *use.tokens[use.end :]))


def _layer_number(layer: str, top: int) -> int:
    """The place of a layer among 0..top and their average."""
    known = {"average": top + 1, "top": top} | {str(number): number for number in range(top + 1)}
    if layer not in known:
        raise ElmokitError(f"layer must be 0 to {top}, top or average, not {layer!r}")
    return known[layer]


def _similarities(vectors: Array) -> Array:
    """Cosines (layers, n, n), where a vector is like itself even if it is 0."""
    cosines = similarities(vectors)
    every = np.arange(vectors.shape[1])
    cosines[:, every, every] = 1
    return cosines


def _in_each_layer(vectors: Array, labels: NDArray[np.intp], names: list[str]) -> dict[str, float]:
    if len(set(labels.tolist())) < 2:
        return dict.fromkeys(names, 0.0)
    found = silhouette(_similarities(vectors), labels.astype(str).tolist())
    return dict(zip(names, map(float, found), strict=True))
