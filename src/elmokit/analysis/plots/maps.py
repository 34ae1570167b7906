"""What the pictures show, as numbers: a word's uses as points, two sentences, mixes, surprisal.

uses ─► vectors, the mean of all tokens taken off ─► two principal components ─► WordMap
two sentences ─► cosines of all their tokens ─► Pair
folders of task models ─► the weights that they gave the layers ─► Mixes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.senses.induce import induce_senses
from elmokit.analysis.uses import (
    SAME,
    Array,
    Use,
    embed_uses,
    layer_names,
    principal_components,
    purity,
    silhouette,
    similarities,
    unit,
    with_average,
)
from elmokit.errors import ElmokitError

if TYPE_CHECKING:
    from elmokit.store import LayerStore

FEWEST_USES = 3  # two points are always a line
PLACES = ("input", "output")


# ---------------------------------------------------------------------- a word's uses
@dataclass(frozen=True)
class WordMap:
    """The uses of a word as points, for layers 0..L and their average."""

    word: str
    uses: list[Use]
    points: Array
    """On the first two principal components of each layer's directions: (L + 2, uses, 2)."""
    shares: Array
    """Of the variance, that these components have: (L + 2, 2)."""
    is_one_point: NDArray[np.bool_]
    """Whether all uses have the same vector, as a word has it in layer 0: (L + 2,)."""
    purity: Array | None
    """How often the nearest other use has the same sense: (L + 2,); None without two named ones."""
    silhouette: Array | None
    """Of the senses: (L + 2,); None without two senses."""

    @property
    def senses(self) -> list[str]:
        """The senses of the uses, each once, in their order."""
        return list(dict.fromkeys(use.sense for use in self.uses))

    @property
    def names(self) -> list[str]:
        """Of the layers."""
        return layer_names(len(self.points) - 2)

    def to_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        layers = {}
        for number, name in enumerate(self.names):
            layers[name] = {
                "purity": None if self.purity is None else float(self.purity[number]),
                "silhouette": None if self.silhouette is None else float(self.silhouette[number]),
                "variance": self.shares[number].tolist(),
                "points": self.points[number].tolist(),
            }
        uses = [{"sense": use.sense or None, "sentence": use.marked()} for use in self.uses]
        return {"uses": uses, "layers": layers}


def map_uses(store: LayerStore, uses: Sequence[Use]) -> list[WordMap]:
    """A map for each word of some uses; the mean of all their sentences' tokens is taken off."""
    vectors, mean = embed_uses(store, uses)
    vectors -= mean
    words = dict.fromkeys(use.lemma for use in uses)
    rows = {word: [n for n, use in enumerate(uses) if use.lemma == word] for word in words}
    return [map_word(word, [uses[n] for n in rows[word]], vectors[:, rows[word]]) for word in words]


def map_word(word: str, uses: list[Use], vectors: Array) -> WordMap:
    """The map of one word, from its vectors (L + 2, uses, dim)."""
    if len(uses) < FEWEST_USES:
        raise ElmokitError(
            f"a map needs at least {FEWEST_USES} uses of a word, and {word!r} has {len(uses)}"
        )
    found = [principal_components(unit(layer)) for layer in vectors]  # as cosines compare them
    one = _is_one_point(vectors)  # what its components say is rounding
    points = np.where(one[:, None, None], 0, np.stack([points for points, _ in found]))
    shares = np.where(one[:, None], 0, np.stack([shares for _, shares in found]))
    cosines = similarities(vectors)
    senses = [use.sense for use in uses]
    has_senses = len(set(senses)) > 1
    return WordMap(
        word,
        uses,
        points.astype(np.float32),
        shares.astype(np.float32),
        one,
        purity(cosines, senses) if has_senses else None,
        silhouette(cosines, senses) if has_senses else None,
    )


def _is_one_point(vectors: Array) -> NDArray[np.bool_]:
    away = np.linalg.norm(vectors - vectors[:, :1], axis=2).max(axis=1)  # (layers,)
    return away <= SAME * np.linalg.norm(vectors[:, 0], axis=1)  # type: ignore[no-any-return]


def map_clusters(store: LayerStore, uses: Sequence[Use], clusters: int | None = None) -> WordMap:
    """The map of one word whose senses nobody has named: by clusters, as induce.py finds them.

    Each is called by words that are typical of it. They were found in the vectors that the map
    shows, so purity would say nothing.
    """
    found = induce_senses(store, uses, clusters=clusters).clusters
    named = [
        replace(use, sense=": ".join(filter(None, [each.name, ", ".join(each.typical[:3])])))
        for each in found
        for use in each.uses
    ]
    (each,) = map_uses(store, named)
    return replace(each, purity=None)


# ---------------------------------------------------------------------- two sentences
@dataclass(frozen=True)
class Pair:
    """How alike the tokens of two sentences are."""

    first: list[str]
    second: list[str]
    cosines: Array
    """Of layers 0..L and their average: (L + 2, tokens of the first, tokens of the second)."""

    @property
    def names(self) -> list[str]:
        """Of the layers."""
        return layer_names(len(self.cosines) - 2)


def compare_tokens(store: LayerStore, first: Sequence[str], second: Sequence[str]) -> Pair:
    """The cosine of each token of one tokenized sentence with each of another."""
    if not first or not second:
        raise ElmokitError("a sentence has no tokens")
    one, other = (
        unit(with_average(layers.astype(np.float32))) for layers in store.stream([first, second])
    )
    return Pair(list(first), list(second), one @ other.swapaxes(1, 2))


def layer_index(layer: str, layers: int) -> int:
    """Where a layer stands, by its number, "top" or "average", in a model of so many layers.

    >>> layer_index("top", 2), layer_index("average", 2), layer_index("0", 2)
    (2, 3, 0)
    """
    named = {"top": layers, "average": layers + 1}
    number = named.get(layer, int(layer) if layer.isdecimal() else -1)
    if layer not in named and not 0 <= number <= layers:
        raise ElmokitError(f"layer must be 0 to {layers}, top or average, not {layer!r}")
    return number


# ---------------------------------------------------------------------- task models
@dataclass(frozen=True)
class Mixes:
    """What share each layer has in the mixes of a task model."""

    name: str
    task: str
    places: dict[str, list[float]]
    """The shares of layers 0..L in the mix at the input, at the output, or at both."""
    scales: dict[str, float]
    """What each mix is multiplied by."""


def short_names(folders: Sequence[str]) -> list[str]:
    """The names of folders, with as much of their paths as tells them apart.

    >>> short_names(["runs/a/ner", "runs/b/ner"])
    ['a/ner', 'b/ner']
    """
    parts = [Path(folder).expanduser().absolute().parts for folder in folders]
    longest = max(map(len, parts))
    for count in range(1, longest + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return ["/".join(part) for part in parts]
