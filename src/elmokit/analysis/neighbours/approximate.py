"""The approximate search for an index of millions of uses: graphs of near neighbours, by usearch.

    vectors ─► segments of 250,000 ─► a graph each, in int8 ─► candidates ─► exact products

One thread builds a graph, so that it is the same whenever it is built; several are built at once,
and one that is finished is not built again. A search asks every graph for candidates and puts them
in order by their vectors in the index. usearch is the extra `ann`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from elmokit.analysis.neighbours.index import Index, Rows
from elmokit.analysis.uses import Array
from elmokit.errors import ElmokitError, reason_of, require
from elmokit.io.atomic import atomic_file
from elmokit.io.jsonfile import read_json, write_json
from elmokit.io.resumable import explain_disk_errors

WORTH = 1_000_000  # uses from which graphs are built without being asked for
SEGMENT = 250_000  # uses of a graph
AT_ONCE = 2_000  # uses between two looks at whether the run was stopped
GRAPHS = "graphs.json"
NEIGHBOURS = 16  # of a node, in the upper levels; twice as many in the lowest
ADDING, SEARCHING = 64, 128  # nodes that are kept in view while a node is added or searched for
NODE_BYTES = 200  # of a node beside its vector
BUILDING_BYTES = 1 << 30  # of all graphs that are built at once


def available() -> bool:
    """Whether usearch is installed."""
    return find_spec("usearch") is not None


def usearch() -> Any:
    """The library, or a sentence that says how to get it."""
    return require("usearch.index", extra="ann", purpose="approximate search")


def has_graphs(index: Index) -> bool:
    """Whether graphs were built for an index."""
    return (index.folder / GRAPHS).is_file()


# ---------------------------------------------------------------------- building
def build_graphs(index: Index, *, threads: int | None = None, quiet: bool = False) -> None:
    """Build the graphs of an index that it does not have yet; they lie in its folder."""
    usearch()
    starts = range(0, len(index), SEGMENT)
    stop = Event()
    room = BUILDING_BYTES // (SEGMENT * (index.dim + NODE_BYTES))
    workers = max(1, min(threads or os.cpu_count() or 1, room, len(starts)))
    bar = tqdm(
        total=len(index), desc="graphs", unit=" uses", unit_scale=True, disable=quiet, leave=False
    )
    with (
        explain_disk_errors(index.folder, kept=index.folder),
        bar,
        ThreadPoolExecutor(workers) as pool,
    ):
        running = [pool.submit(_build, index, start, stop, bar.update) for start in starts]
        try:
            for future in running:
                future.result()
        except BaseException:
            stop.set()
            for future in running:
                future.cancel()
            raise
        write_json(index.folder / GRAPHS, {"segment": SEGMENT, "uses": len(index)})


def _build(index: Index, start: int, stop: Event, on_uses: Callable[[int], object]) -> None:
    """Build the graph of the uses from `start` on, unless it is there."""
    path, end = graph_path(index, start), min(start + SEGMENT, len(index))
    if path.is_file():
        on_uses(end - start)
        return
    graph = _empty(index.dim)
    for first in range(start, end, AT_ONCE):
        if stop.is_set():
            return
        some = np.array(index.vectors[first : min(first + AT_ONCE, end)], np.float32)
        graph.add(np.arange(first - start, first - start + len(some)), some, threads=1)
        on_uses(len(some))
    with atomic_file(path, temporary=path.with_name(path.name + ".tmp")) as file:
        graph.save(file.name)


def _empty(dim: int) -> Any:
    return usearch().Index(
        ndim=dim,
        metric="cos",
        dtype="i8",
        connectivity=NEIGHBOURS,
        expansion_add=ADDING,
        expansion_search=SEARCHING,
        enable_key_lookups=False,
    )


def graph_path(index: Index, start: int) -> Path:
    """Where the graph of the uses from `start` on lies."""
    return index.folder / f"graph-{start // SEGMENT:06d}.usearch"


# ---------------------------------------------------------------------- searching
@dataclass(frozen=True)
class Graphs:
    """The graphs of an index, memory-mapped."""

    index: Index
    graphs: list[tuple[int, Any]]
    """Each with the row of its first use."""

    def search(self, queries: Array, count: int) -> list[tuple[Array, Rows]]:
        """What is found of the vectors nearest to each query (q, dim), as `exact_search` gives it.

        For each query its products (found,) and rows (found,), the largest first.
        """
        return [self._search(query, count) for query in queries]

    def _search(self, query: Array, count: int) -> tuple[Array, Rows]:
        found: list[NDArray[Any]] = []
        for start, graph in self.graphs:
            graph.expansion_search = max(SEARCHING, 2 * count)
            keys = graph.search(query, min(count, len(graph)), threads=1).keys
            found.append(start + keys.astype(np.int64))
        rows = np.concatenate(found)
        scores = self.index.vectors[rows].astype(np.float32) @ query
        order = np.argsort(-scores, kind="stable")[:count]
        return scores[order], rows[order]


def open_graphs(index: Index) -> Graphs:
    """Map the graphs of an index."""
    about = read_json(index.folder / GRAPHS)
    if about != {"segment": SEGMENT, "uses": len(index)}:
        raise _unreadable(index, "they were built for another index or another elmokit")
    graphs = []
    for start in range(0, len(index), SEGMENT):
        path = graph_path(index, start)
        graph = _empty(index.dim)
        try:
            graph.view(str(path))
        except (OSError, RuntimeError, ValueError) as error:
            raise _unreadable(index, f"{path.name}: {reason_of(error)}") from None
        if len(graph) != min(SEGMENT, len(index) - start):
            raise _unreadable(index, f"{path.name} is not whole")
        graphs.append((start, graph))
    return Graphs(index, graphs)


def _unreadable(index: Index, reason: str) -> ElmokitError:
    return ElmokitError(
        f"the graphs of {index.folder} cannot be used ({reason}): search with --exact"
    )
