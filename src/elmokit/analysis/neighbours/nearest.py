"""Find the uses in an index that are nearest to a word in a sentence, and the nearest words.

marked words ─► their vectors ─► candidates: exact, or by graphs ─► one use per sentence
                     └─────────► layer 0 and static vectors ─► nearest words without context
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elmokit.analysis.geometry import Array
from elmokit.analysis.neighbours.approximate import Graphs
from elmokit.analysis.neighbours.index import Index, Rows, exact_search
from elmokit.analysis.uses import Model, Use, as_store, embed_uses
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.layers import layer_index
from elmokit.vectors.static.table import StaticVectors

Only = Literal["same-word", "other-words"]
NearWords = list[tuple[str, float]]

OVERSAMPLING = 8  # candidates per neighbour: several may be in one sentence
MAX_CANDIDATES = 4_000  # Above this the exact search is faster than the graphs.


@dataclass(frozen=True)
class Neighbour:
    """A use in the index."""

    use: Use
    score: float
    """Cosine of its vector and that of the query, the mean subtracted."""


@dataclass(frozen=True)
class QueryResult:
    """The neighbours of a marked word."""

    query: Use
    neighbours: list[Neighbour]
    """The nearest uses, the nearest first."""
    static: dict[str, NearWords | None]
    """Nearest words and their cosines by vectors without context; None if these lack the word."""

    def to_dict(self) -> dict[str, Any]:
        """Return the query, its neighbours and the nearest words, for JSON."""
        neighbours = [
            {"score": round(near.score, 4), "word": near.use.word, "sentence": near.use.marked()}
            for near in self.neighbours
        ]
        static = {
            name: None if near is None else [[word, round(score, 4)] for word, score in near]
            for name, near in self.static.items()
        }
        return {"query": self.query.marked(), "neighbours": neighbours, "static": static}


def find_neighbours(
    model: Model,
    index: Index,
    uses: Sequence[Use],
    *,
    k: int = 10,
    only: Only | None = None,
    graphs: Graphs | None = None,
    static: StaticVectors | None = None,
) -> list[QueryResult]:
    """Find the uses in an index that are nearest to some words, and the words nearest to them.

    Args:
        model: The model that the index was made with.
        index: The index to search.
        uses: Words in their sentences (see `marked_use`).
        k: Number of neighbours of each.
        only: Find only uses of the same word or of other words (default: of any word).
        graphs: Graphs for an approximate search (default: search exactly).
        static: Vectors without context, besides those of layer 0.
    """
    store = as_store(model)
    check_model(index, store.elmo)
    vectors, _ = embed_uses(store, uses)  # (L + 2, uses, dim)
    return neighbours_of(index, uses, vectors, k=k, only=only, graphs=graphs, static=static)


def check_model(index: Index, elmo: Embedder) -> None:
    """Raise if the index was made with another model."""
    if (index.settings.get("fingerprint"), index.dim) != (elmo.fingerprint(), elmo.dim):
        raise ElmokitError(
            f"{index.folder} was made with another model ({index.settings.get('model', 'unknown')})"
            f" than {elmo.source}: its vectors cannot be compared"
        )


def neighbours_of(
    index: Index,
    uses: Sequence[Use],
    vectors: Array,
    *,
    k: int = 10,
    only: Only | None = None,
    graphs: Graphs | None = None,
    static: StaticVectors | None = None,
) -> list[QueryResult]:
    """Find the neighbours of uses whose vectors (L + 2, uses, dim) are those of `embed_uses`."""
    layer = layer_index(index.settings["layer"], len(vectors) - 2)
    queries = index.query(vectors[layer])  # (uses, dim)
    nearest = nearest_uses(index, uses, queries, k, only, graphs)
    scores, rows = exact_search(index.static, index.query(vectors[0], static=True), k + 1)
    results = []
    for i, use in enumerate(uses):
        near = zip((index.words[row] for row in rows[i]), scores[i].tolist(), strict=True)
        words: dict[str, NearWords | None] = {"layer 0": [p for p in near if p[0] != use.word][:k]}
        if static is not None:
            is_known = static.row(use.word) is not None
            words[Path(static.source).name] = static.most_similar(use.word, k) if is_known else None
        results.append(QueryResult(use, nearest[i], words))
    return results


def nearest_uses(
    index: Index,
    uses: Sequence[Use],
    queries: Array,
    k: int,
    only: Only | None,
    graphs: Graphs | None,
) -> list[list[Neighbour]]:
    """Return the `k` uses nearest to each query (uses, dim), one per sentence but not its own."""
    groups: dict[str, list[int]] = {}
    for i, use in enumerate(uses):
        groups.setdefault(use.lemma if only else "", []).append(i)
    results: dict[int, list[Neighbour]] = {}
    for lemma, members in groups.items():  # They search among the same uses.
        keep = None if only is None else index.uses_of(lemma) == (only == "same-word")
        missing, count = members, OVERSAMPLING * k
        while missing:
            if graphs is None or only == "same-word" or count > MAX_CANDIDATES:
                best = exact_search(index.vectors, queries[missing], count, keep=keep)
                candidates = list(zip(*best, strict=True))
            else:
                candidates = graphs.search(queries[missing], count)
            for i, (scores, rows) in zip(missing, candidates, strict=True):
                kept = slice(None) if keep is None else keep[rows]
                results[i] = distinct(index, uses[i], scores[kept], rows[kept], k)
            if count >= len(index):
                break
            missing, count = [i for i in missing if len(results[i]) < k], 8 * count
    return [results[i] for i in range(len(uses))]


def distinct(index: Index, query: Use, scores: Array, rows: Rows, k: int) -> list[Neighbour]:
    """Return the first `k` uses in different sentences that are not the query's."""
    neighbours: dict[tuple[str, ...], Neighbour] = {}
    for score, row in zip(scores, rows, strict=True):
        use = index.use(row)
        # The same sentence may occur in a corpus many times.
        if use.tokens != query.tokens and use.tokens not in neighbours:
            neighbours[use.tokens] = Neighbour(use, float(score))
        if len(neighbours) == k:
            break
    return list(neighbours.values())
