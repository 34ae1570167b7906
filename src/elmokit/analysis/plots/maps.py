"""Read and compute what the figures show: a word's uses, the tokens of two sentences."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis import geometry
from elmokit.analysis.geometry import Array, unit
from elmokit.analysis.sampling import sample_uses
from elmokit.analysis.senses.induce import induce_senses
from elmokit.analysis.uses import Model, Use, as_store, embed_uses, read_uses, with_average
from elmokit.errors import ElmokitError
from elmokit.layers import layer_names
from elmokit.text.readers import kind_of, read_sentences
from elmokit.text.tokenize import split_sentences
from elmokit.text.tokenize import tokenizer as find_tokenizer

MIN_USES = 3  # Two points are always on a line.
MAX_MAPS = 12  # words of one figure
MAX_TEXT = 1000  # words of a text
SEED = 1


# ---------------------------------------------------------------------- a word's uses
@dataclass(frozen=True)
class WordMap:
    """The uses of a word as points, for layers 0..L and their average."""

    word: str
    uses: list[Use]
    """Its uses, with their senses."""
    points: Array
    """Unit vectors on their first two principal components in each layer: (L + 2, uses, 2)."""
    shares: Array
    """Shares of the variance that these components have: (L + 2, 2)."""
    is_one_point: NDArray[np.bool_]
    """Whether all uses have the same vector, as a word has in layer 0: (L + 2,)."""
    purity: Array | None
    """How often the nearest other use has the same sense: (L + 2,); None without two senses."""
    silhouette: Array | None
    """Silhouette of the senses: (L + 2,); None without two senses."""

    @property
    def senses(self) -> list[str]:
        """Senses of the uses, in their order."""
        return list(dict.fromkeys(use.sense for use in self.uses))

    @property
    def names(self) -> list[str]:
        """Names of the layers."""
        return layer_names(len(self.points) - 2)

    def to_dict(self) -> dict[str, Any]:
        """Return the uses, and the points and measures of each layer, for JSON."""
        layers = {
            name: {
                "purity": None if self.purity is None else float(self.purity[i]),
                "silhouette": None if self.silhouette is None else float(self.silhouette[i]),
                "variance": self.shares[i].tolist(),
                "points": self.points[i].tolist(),
            }
            for i, name in enumerate(self.names)
        }
        uses = [{"sense": use.sense or None, "sentence": use.marked()} for use in self.uses]
        return {"uses": uses, "layers": layers}


def map_uses(model: Model, uses: Sequence[Use], *, quiet: bool = True) -> list[WordMap]:
    """Return a map for each word of some uses; the mean of all their tokens is subtracted.

    Args:
        model: The model; a LayerStore keeps its layers on disk.
        uses: Uses of one or more words, such as `read_uses` reads them.
        quiet: Do not show progress.
    """
    store = as_store(model)
    store.prepare([use.tokens for use in uses], quiet=quiet)
    vectors, mean = embed_uses(store, uses)  # (L + 2, uses, dim), (L + 2, 1, dim)
    vectors -= mean
    rows: dict[str, list[int]] = {}
    for i, use in enumerate(uses):
        rows.setdefault(use.lemma, []).append(i)
    return [map_word(word, [uses[i] for i in own], vectors[:, own]) for word, own in rows.items()]


def map_word(word: str, uses: list[Use], vectors: Array) -> WordMap:
    """Return the map of one word from its vectors (L + 2, uses, dim)."""
    if len(uses) < MIN_USES:
        raise ElmokitError(
            f"a map needs at least {MIN_USES} uses of a word, and {word!r} has {len(uses)}"
        )
    projected = [geometry.principal_components(unit(layer)) for layer in vectors]
    points, shares = (np.stack(parts).astype(np.float32) for parts in zip(*projected, strict=True))
    distance = np.linalg.norm(vectors - vectors[:, :1], axis=2).max(axis=1)  # (layers,)
    one = distance <= geometry.TIE * np.linalg.norm(vectors[:, 0], axis=1)
    points[one], shares[one] = 0, 0  # There the components are only rounding.
    cosines, senses = geometry.cosine_matrix(vectors), [use.sense for use in uses]
    known = len(set(senses)) > 1
    purity = geometry.purity(cosines, senses) if known else None
    silhouette = geometry.silhouette(cosines, senses) if known else None
    return WordMap(word, uses, points, shares, one, purity, silhouette)


def map_clusters(
    model: Model, uses: Sequence[Use], clusters: int | None = None, *, quiet: bool = True
) -> WordMap:
    """Return the map of one word whose senses are unknown, by the clusters of `induce_senses`."""
    induced = induce_senses(model, uses, clusters=clusters, quiet=quiet)
    named = []
    for cluster in induced.clusters:
        sense = ": ".join(filter(None, [cluster.name, ", ".join(cluster.typical[:3])]))
        named += [replace(use, sense=sense) for use in cluster.uses]
    (word_map,) = map_uses(model, named, quiet=quiet)
    return replace(word_map, purity=None)  # The clusters were found in the same vectors.


# ---------------------------------------------------------------------- two sentences
@dataclass(frozen=True)
class TokenPair:
    """How similar the tokens of two sentences are."""

    first: list[str]
    second: list[str]
    cosines: Array
    """In layers 0..L and their average: (L + 2, tokens of the first, tokens of the second)."""

    @property
    def names(self) -> list[str]:
        """Names of the layers."""
        return layer_names(len(self.cosines) - 2)

    def to_dict(self) -> dict[str, Any]:
        """Return the tokens and the cosines of each layer, for JSON."""
        cosines = dict(zip(self.names, self.cosines.tolist(), strict=True))
        return {"first": self.first, "second": self.second, "cosines": cosines}


def compare_tokens(model: Model, first: Sequence[str], second: Sequence[str]) -> TokenPair:
    """Return the cosine of each token of one tokenized sentence with each of another."""
    if not first or not second:
        raise ElmokitError("a sentence has no tokens")
    both = as_store(model).stream([first, second])  # (L + 1, tokens, dim) each
    one, other = (unit(with_average(layers.astype(np.float32))) for layers in both)
    return TokenPair(list(first), list(second), one @ other.swapaxes(1, 2))


# ---------------------------------------------------------------------- reading
def short_names(folders: Sequence[str]) -> list[str]:
    """Return the names of folders, with as much of their paths as tells them apart.

    >>> short_names(["runs/a/ner", "runs/b/ner"])
    ['a/ner', 'b/ner']
    """
    parts = [Path(folder).expanduser().absolute().parts for folder in folders]
    by_length = (["/".join(part[-count:]) for part in parts] for count in itertools.count(1))
    return next(names for names in by_length if len(set(names)) == len(set(parts)))


def read_table_uses(path: str, words: list[str] | None, max_uses: int) -> list[Use]:
    """Return the first uses of each word in a table, of all words or of some."""
    uses: dict[str, list[Use]] = {}
    for use in read_uses(path):
        if len(uses.setdefault(use.lemma, [])) < max_uses:
            uses[use.lemma].append(use)
    if not uses:
        raise ElmokitError(f"{path} has no uses of words")
    frequent = [word for word in uses if len(uses[word]) >= MIN_USES]
    for word in words or ([] if frequent else list(uses)[:1]):
        _check_count(path, word, len(uses.get(word, [])))
    if words is None and len(frequent) > MAX_MAPS:
        raise ElmokitError(
            f"{path} has {len(frequent)} words, and a figure has room for {MAX_MAPS}: name some "
            "with --words"
        )
    return [use for word in words or frequent for use in uses[word]]


def _check_count(path: str, word: str, count: int) -> None:
    if count < MIN_USES:
        uses = {0: "no use", 1: "only one use"}.get(count, f"only {count} uses")
        raise ElmokitError(f"{path} has {uses} of {word!r}, and a map needs at least {MIN_USES}")


def sample_text_uses(path: str, word: str, max_uses: int, **reading: Any) -> list[Use]:
    """Return a random sample of the uses of a word in a text; `reading` as for `sample_uses`."""
    uses, _ = sample_uses(path, word, max_uses, SEED, **reading)
    _check_count(path, word, len(uses))
    return uses


def read_text(text: str, tokenizer: str) -> Iterator[list[str]]:
    """Yield the tokenized sentences of a file, or of the text itself if it names no file."""
    looks_like_file = re.fullmatch(r"\S+\.\w{1,7}|\S*[/\\]\S*", text) is not None
    if text == "-" or looks_like_file or os.path.lexists(text):
        is_running = kind_of(text) in ("text", "jsonl")
        lines = read_sentences(text, tokenizer=tokenizer, split=is_running)
        return (line.tokens for line in lines if line.tokens)
    tokenize = find_tokenizer(tokenizer)
    return (tokens for sentence in split_sentences(text) if (tokens := tokenize(sentence)))


def first_words(sentences: Iterable[list[str]]) -> tuple[list[list[str]], bool]:
    """Return the sentences up to MAX_TEXT words, and whether there were more."""
    kept: list[list[str]] = []
    left = MAX_TEXT
    for tokens in sentences:
        if len(tokens) > left:
            return [*kept, tokens[:left]] if left else kept, True
        kept.append(tokens)
        left -= len(tokens)
    if not kept:
        raise ElmokitError("the text has no words")
    return kept, False
