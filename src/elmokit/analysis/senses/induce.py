"""Find senses without an inventory: cluster the uses of a word in a corpus by their vectors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis import geometry
from elmokit.analysis.geometry import Array, unit
from elmokit.analysis.uses import Model, Use, as_store, embed_uses
from elmokit.errors import ElmokitError, plural
from elmokit.layers import layer_index, layer_names
from elmokit.text.vocabulary import Vocabulary

MIN_USES = 3
MAX_CLUSTERS = 8  # number of clusters that are tried
MIN_GAIN = 0.05  # More clusters must raise the silhouette by this much.
MAX_TYPICAL = 8  # typical words of a cluster
CONTEXT = 15  # tokens on each side of a word in which its typical words are looked for
COMMON_WORDS = 150  # at the top of a vocabulary, mostly function words
MIN_NEAR = 2  # uses that a typical word must be near
MAX_SHARE = 1 / 3  # A word near more of all uses than this is typical of none.


@dataclass(frozen=True)
class Cluster:
    """Uses of a word that are similar."""

    name: str
    """"cluster 1" and so on."""
    uses: list[Use]
    """Its uses, the nearest to its center first."""
    typical: list[str]
    """Words that occur near its uses more often than near the others."""


@dataclass(frozen=True)
class InducedSenses:
    """The clusters of a word's uses."""

    clusters: list[Cluster]
    """The clusters, the largest first."""
    layer: str
    """Name of the layer whose vectors were clustered."""
    tried: dict[int, float]
    """Silhouette in that layer by number of clusters; one entry if the number was given."""
    silhouettes: dict[str, float]
    """Silhouette of these clusters by layer."""

    def lines(self) -> Iterator[str]:
        """Yield all uses with their clusters as lines of a table that `read_uses` reads."""
        yield "sentence\tposition\tsense\tlemma\n"
        for cluster in self.clusters:
            for use in cluster.uses:
                yield f"{' '.join(use.tokens)}\t{use.position}\t{cluster.name}\t{use.lemma}\n"

    def to_dict(self, examples: int = 3) -> dict[str, Any]:
        """Return the clusters with some examples of each, and the silhouettes, for JSON."""
        clusters = []
        for cluster in self.clusters:
            shown = [use.shortened(CONTEXT).marked() for use in cluster.uses[:examples]]
            words = {"typical": cluster.typical, "examples": shown}
            clusters.append({"name": cluster.name, "uses": len(cluster.uses), **words})
        tried = {str(count): value for count, value in self.tried.items()}
        by_layer = {"silhouette_by_layer": self.silhouettes}
        return {"clusters": clusters, "silhouette_by_clusters": tried, **by_layer}


def induce_senses(
    model: Model,
    uses: Sequence[Use],
    *,
    layer: str | int = "average",
    clusters: int | None = None,
    seed: int = 1,
    quiet: bool = True,
) -> InducedSenses:
    """Cluster the uses of a word by their vectors in one layer.

    The model reads the word in lower case, so that a capital letter does not make a cluster. The
    mean of all uses is subtracted.

    Args:
        model: The model; a LayerStore keeps its layers on disk.
        uses: Uses of the word, such as `find_uses` finds them.
        layer: Layer whose vectors are clustered: a number, "top" or "average".
        clusters: Number of clusters (default: the best by silhouette from 2 to 8).
        seed: Seed of the random starts.
        quiet: Do not show progress.
    """
    store = as_store(model)
    num_layers = store.elmo.config.num_layers
    index = layer_index(layer, num_layers)
    if len(uses) < max(MIN_USES, clusters or 0):
        raise ElmokitError(f"{plural(len(uses), 'use')} of a word: too few for clusters")
    lowered = [_lower_word(use) for use in uses]
    store.prepare([use.tokens for use in lowered], quiet=quiet)
    vectors = geometry.subtract_mean(embed_uses(store, lowered)[0])  # (L + 2, uses, dim)
    labels, centers, tried = cluster_uses(vectors, index, clusters, seed)
    cosines = (unit(vectors[index]) * centers[labels]).sum(axis=1)  # (uses,)
    sizes = np.bincount(labels, minlength=len(centers))
    described = []
    for i, label in enumerate(np.argsort(-sizes, kind="stable"), start=1):
        members = sorted(np.flatnonzero(labels == label).tolist(), key=lambda use: -cosines[use])
        inside = [uses[use] for use in members]
        outside = [use for use, other in zip(uses, labels, strict=True) if other != label]
        typical = typical_words(inside, outside, store.elmo.vocabulary)
        described.append(Cluster(f"cluster {i}", inside, typical))
    names = layer_names(num_layers)
    by_layer = dict(zip(names, _silhouettes(vectors, labels).tolist(), strict=True))
    return InducedSenses(described, names[index], tried, by_layer)


def _lower_word(use: Use) -> Use:
    """Return the use with the word, but not its sentence, in lower case."""
    word = (token.lower() for token in use.tokens[use.start : use.end])
    return replace(use, tokens=(*use.tokens[: use.start], *word, *use.tokens[use.end :]))


def cluster_uses(
    vectors: Array, layer: int, clusters: int | None, seed: int
) -> tuple[NDArray[np.intp], Array, dict[int, float]]:
    """Cluster uses (layers, n, dim) in one layer, by default with the best number of clusters.

    Return labels (n,), centers (clusters, dim), and the silhouette of each number that was tried.
    """
    directions = unit(vectors[layer])
    largest = min(MAX_CLUSTERS, len(directions) - 1)
    counts = range(2, largest + 1) if clusters is None else [clusters]
    results = {count: geometry.spherical_kmeans(directions, count, seed) for count in counts}
    tried = {
        count: float(_silhouettes(directions[None], labels)[0])
        for count, (labels, _) in results.items()
    }
    enough = max(tried.values()) - MIN_GAIN
    return *results[next(count for count in tried if tried[count] >= enough)], tried


def _silhouettes(vectors: Array, labels: NDArray[np.intp]) -> Array:
    """Return the silhouette of clusters in each layer of (layers, n, dim); 0 for one cluster."""
    if labels.max() == labels.min():
        return np.zeros(len(vectors), np.float32)
    cosines = geometry.cosine_matrix(vectors)
    diagonal = np.arange(vectors.shape[1])
    cosines[:, diagonal, diagonal] = 1  # also of a zero vector with itself
    return geometry.silhouette(cosines, labels.astype(str).tolist())


def typical_words(
    inside: Sequence[Use], outside: Sequence[Use], vocabulary: Vocabulary | None = None
) -> list[str]:
    """Return words that are near more of the uses inside than outside, the clearest first.

    They are ranked by n · log(share inside / share outside) · log(f)²: a word is near n uses
    inside, and f is its frequency, by its rank in a vocabulary or without one in all sentences.
    """
    if not outside:
        return []
    here, there = _count_near(inside), _count_near(outside)
    texts = Counter(token.lower() for use in (*inside, *outside) for token in use.tokens)
    own = {token.lower() for use in inside for token in use.tokens[use.start : use.end]}
    ranked = []
    for word, count in here.items():
        is_common = count + there[word] > MAX_SHARE * (len(inside) + len(outside))
        if count < MIN_NEAR or is_common or word in own or not any(map(str.isalpha, word)):
            continue
        ratio = (count * len(outside)) / ((there[word] + 0.5) * len(inside))
        if ratio > 1:
            rarity = math.log(texts.total() / texts[word])
            if vocabulary is not None:
                rank = vocabulary.ids.get(word, len(vocabulary))
                rarity = math.log(2 + rank) * (rank >= min(COMMON_WORDS, len(vocabulary) // 50))
            ranked.append((-count * math.log(ratio) * rarity**2, word))
    return [word for score, word in sorted(ranked)[:MAX_TYPICAL] if score < 0]


def _count_near(uses: Sequence[Use]) -> Counter[str]:
    near = ({token.lower() for token in use.shortened(CONTEXT).tokens} for use in uses)
    return Counter(word for words in near for word in words)
