"""The uses in an index that are nearest to a word in a sentence, and the words nearest without one.

marked words ─► their vectors ─► candidates: exact, or by graphs ─► one use a sentence
                     └─────────► layer 0 and static vectors ─► nearest words
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.neighbours.approximate import Graphs
from elmokit.analysis.neighbours.index import Blocks, Index, Rows, exact_search
from elmokit.analysis.uses import Array, Use, embed_uses, unit
from elmokit.errors import ElmokitError
from elmokit.vectors.static.table import StaticVectors

if TYPE_CHECKING:
    from elmokit.store import LayerStore

Words = Literal["any", "same", "other"]
Near = list[tuple[str, float]]

AT_FIRST = 8  # candidates for each neighbour that is wanted: several may stand in one sentence
MOST_CANDIDATES = 4_000  # that graphs are asked for, before the exact search is faster


@dataclass(frozen=True)
class Neighbour:
    """A use in the index."""

    use: Use
    score: float
    """The cosine of its vector and the query's, the mean taken off."""


@dataclass(frozen=True)
class Answer:
    """What was found for a marked word."""

    use: Use
    neighbours: list[Neighbour]
    static: dict[str, Near | None]
    """Nearest words by vectors without context; None where these do not have the word."""

    def facts(self) -> dict[str, Any]:
        """The same for a JSON file."""
        found = [
            {
                "score": round(each.score, 4),
                "word": word_of(each.use),
                "sentence": each.use.marked(),
            }
            for each in self.neighbours
        ]
        static = {
            name: None if near is None else [[word, round(score, 4)] for word, score in near]
            for name, near in self.static.items()
        }
        return {"query": self.use.marked(), "neighbours": found, "static": static}


def answer(
    opened: Index,
    store: LayerStore,
    uses: Sequence[Use],
    *,
    k: int = 10,
    words: Words = "any",
    graphs: Graphs | None = None,
    static: StaticVectors | None = None,
) -> list[Answer]:
    """The uses in an index that are nearest to some words, and the words nearest without context.

    Args:
        opened: the index.
        store: the LayerStore of the model that the index was made with.
        uses: the words, in their sentences.
        k: how many to find of each.
        words: uses of any words, of the same word or of other words.
        graphs: for an approximate search.
        static: vectors without context, beside those of layer 0.
    """
    if store.elmo.fingerprint() != opened.settings["fingerprint"]:
        raise ElmokitError(
            f"{opened.folder} was made with another model ({opened.settings['model']}) than "
            f"{store.elmo.source}: its vectors cannot be compared"
        )
    layer = opened.settings["layer"]
    vectors, _ = embed_uses(store, uses)  # (L + 2, uses, dim)
    queries = opened.query(vectors[-1 if layer == "average" else layer])
    nearest = nearest_uses(opened, uses, queries, k, words, graphs)
    tables: dict[str, list[Near | None]] = {
        "layer 0": static_neighbours(opened, uses, opened.static_query(vectors[0]), k)
    }
    if static is not None:
        tables[Path(static.source).name] = [word_neighbours(static, use, k) for use in uses]
    return [
        Answer(use, found, {name: near[number] for name, near in tables.items()})
        for number, (use, found) in enumerate(zip(uses, nearest, strict=True))
    ]


def nearest_uses(
    opened: Index,
    uses: Sequence[Use],
    queries: Array,
    k: int,
    words: Words = "any",
    graphs: Graphs | None = None,
) -> list[list[Neighbour]]:
    """The `k` uses nearest to each query (uses, dim), one a sentence; not the query's own sentence.

    Queries that search among the same uses are searched for together.
    """
    together: dict[str, list[int]] = {}
    for number, use in enumerate(uses):
        together.setdefault("" if words == "any" else use.lemma, []).append(number)
    found: dict[int, list[Neighbour]] = {}
    for lemma, numbers in together.items():
        keep = None if words == "any" else opened.uses_of(lemma) == (words == "same")
        search = Search(opened, keep, graphs if words != "same" else None)
        missing, count = numbers, AT_FIRST * k
        while missing:
            candidates = search(queries[missing], count)
            for number, (scores, rows) in zip(missing, candidates, strict=True):
                found[number] = distinct(opened, uses[number], scores, rows, k)
            if count >= len(opened):
                break
            missing, count = [n for n in missing if len(found[n]) < k], 8 * count
    return [found[number] for number in range(len(uses))]


@dataclass(frozen=True)
class Search:
    """A search among all uses of an index, or among those to `keep`."""

    opened: Index
    keep: NDArray[np.bool_] | None
    graphs: Graphs | None

    def __call__(self, queries: Array, count: int) -> list[tuple[Array, Rows]]:
        """Products and rows of the uses nearest to each query, or of many of them."""
        if self.graphs is None or count > MOST_CANDIDATES:
            best = exact_search(self.opened.vectors, queries, count, keep=self.keep)
            return list(zip(*best, strict=True))
        found = self.graphs.search(queries, count)
        if self.keep is None:
            return found
        return [(scores[self.keep[rows]], rows[self.keep[rows]]) for scores, rows in found]


def distinct(opened: Index, use: Use, scores: Array, rows: Rows, k: int) -> list[Neighbour]:
    """The first `k` uses in different sentences, which are not the query's."""
    found: list[Neighbour] = []
    seen_numbers: set[int] = set()
    seen = {use.tokens}
    for score, row in zip(scores, rows, strict=True):
        _, number, place = (int(x) for x in opened.uses[row])
        if number in seen_numbers:
            continue
        seen_numbers.add(number)
        tokens = opened.sentence(number)
        if tokens not in seen:  # the same sentence may stand in a corpus many times
            seen.add(tokens)
            found.append(
                Neighbour(Use(tokens, place, place + 1, tokens[place].lower()), float(score))
            )
            if len(found) == k:
                break
    return found


# ---------------------------------------------------------------------- without context
def static_neighbours(
    opened: Index, uses: Sequence[Use], queries: Array, k: int
) -> list[Near | None]:
    """The words of an index that are nearest in layer 0 to each of some words."""
    scores, rows = exact_search(opened.static, queries, k + 1)
    return [
        _near(opened.words, word_of(use), scores[number], rows[number], k)
        for number, use in enumerate(uses)
    ]


def word_neighbours(static: StaticVectors, use: Use, k: int) -> Near | None:
    """The words whose static vectors are nearest to that of a word; None if it has none."""
    own = static.row(word_of(use))
    if own is None:
        return None
    query = unit(np.array(static.vectors[own : own + 1], np.float32))
    scores, rows = exact_search(UnitBlocks(static.vectors), query, k + 1)
    return _near(static.words, static.words[own], scores[0], rows[0], k)


@dataclass(frozen=True)
class UnitBlocks:
    """Vectors of any length, made 1 as they are read."""

    vectors: Blocks

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the vectors: (n, dim)."""
        return self.vectors.shape

    def __getitem__(self, rows: Any) -> Array:
        return unit(np.array(self.vectors[rows], np.float32))


def word_of(use: Use) -> str:
    """The word of a use as it stands in its sentence."""
    return " ".join(use.tokens[use.start : use.end])


def _near(words: Sequence[str], word: str, scores: Array, rows: Rows, k: int) -> Near:
    """The first `k` words in the rows that were found, without the word itself."""
    near = [(words[row], float(score)) for score, row in zip(scores, rows, strict=True)]
    return [(other, score) for other, score in near if other != word][:k]
