"""Approximate search for an index of millions of uses: graphs of near neighbours, by usearch.

    vectors ─► segments of 250,000 ─► a graph each, in int8 ─► candidates ─► exact dot products

Each graph is built by one thread, so that it is reproducible; several are built in parallel.
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
from tqdm.auto import tqdm

from elmokit.analysis.geometry import Array
from elmokit.analysis.neighbours.index import GRAPHS, Index, Rows
from elmokit.errors import ElmokitError, reason_of, require
from elmokit.io.atomic import atomic_file
from elmokit.io.jsonfile import read_json, write_json
from elmokit.io.resumable import explain_disk_errors

MIN_USES = 1_000_000  # from which graphs are built by default
SEGMENT = 250_000  # uses per graph
CHUNK = 2_000  # uses added between two checks whether the run was stopped
CONNECTIVITY = 16  # neighbours of a node in the upper levels; twice as many in the lowest
EXPANSION_ADD, EXPANSION_SEARCH = 64, 128  # candidates kept while a node is added or searched for
NODE_BYTES = 200  # of a node besides its vector
MAX_BUILD_BYTES = 1 << 30  # of all graphs that are built in parallel


def available() -> bool:
    """Tell whether usearch is installed."""
    return find_spec("usearch") is not None


def require_usearch() -> Any:
    """Import usearch, or raise an error that says how to install it."""
    return require("usearch.index", extra="ann", purpose="approximate search")


def has_graphs(index: Index) -> bool:
    """Tell whether graphs were built for an index."""
    return (index.folder / GRAPHS).is_file()


def build_graphs(index: Index, *, threads: int | None = None, quiet: bool = False) -> None:
    """Build those graphs that the folder of an index does not have yet."""
    require_usearch()
    starts = range(0, len(index), SEGMENT)
    stop = Event()
    max_graphs = MAX_BUILD_BYTES // (SEGMENT * (index.dim + NODE_BYTES))
    workers = max(1, min(threads or os.cpu_count() or 1, max_graphs, len(starts)))
    style: Any = {"desc": "graphs", "unit": " uses", "unit_scale": True, "leave": False}
    with (
        explain_disk_errors(index.folder, kept=index.folder),
        tqdm(total=len(index), disable=quiet, **style) as bar,
        ThreadPoolExecutor(workers) as pool,
    ):
        try:  # An error cancels the graphs that are not begun; those that are should end soon.
            list(pool.map(lambda start: _build(index, start, stop, bar.update), starts))
        finally:
            stop.set()
        write_json(index.folder / GRAPHS, {"segment": SEGMENT, "uses": len(index)})


def _build(index: Index, start: int, stop: Event, on_uses: Callable[[int], object]) -> None:
    """Build the graph of the uses from `start` on, unless it exists."""
    path, end = _graph_path(index, start), min(start + SEGMENT, len(index))
    if path.is_file():
        on_uses(end - start)
        return
    graph = _empty(index.dim)
    for first in range(start, end, CHUNK):
        if stop.is_set():
            return
        vectors = np.array(index.vectors[first : min(first + CHUNK, end)], np.float32)
        graph.add(np.arange(first - start, first - start + len(vectors)), vectors, threads=1)
        on_uses(len(vectors))
    with atomic_file(path, temporary=path.with_name(path.name + ".tmp")) as file:
        graph.save(file.name)


def _empty(dim: int) -> Any:
    return require_usearch().Index(
        ndim=dim,
        metric="cos",
        dtype="i8",
        connectivity=CONNECTIVITY,
        expansion_add=EXPANSION_ADD,
        expansion_search=EXPANSION_SEARCH,
        enable_key_lookups=False,
    )


def _graph_path(index: Index, start: int) -> Path:
    return index.folder / f"graph-{start // SEGMENT:06d}.usearch"


@dataclass(frozen=True)
class Graphs:
    """The graphs of an index, memory-mapped."""

    index: Index
    graphs: list[tuple[int, Any]]  # the row of the first use of each graph, and the graph

    def search(self, queries: Array, count: int) -> list[tuple[Array, Rows]]:
        """Return most of what `exact_search` returns for each query (q, dim): (n,) and (n,)."""
        for _, graph in self.graphs:
            graph.expansion_search = max(EXPANSION_SEARCH, 2 * count)
        results = []
        for query in queries:
            candidates = [
                start + graph.search(query, min(count, len(graph)), threads=1).keys.astype(np.int64)
                for start, graph in self.graphs
            ]
            rows = np.concatenate(candidates)
            scores = self.index.vectors[rows].astype(np.float32) @ query
            order = np.argsort(-scores, kind="stable")[:count]
            results.append((scores[order], rows[order]))
        return results


def open_graphs(index: Index) -> Graphs:
    """Open the graphs of an index, memory-mapped."""
    if read_json(index.folder / GRAPHS) != {"segment": SEGMENT, "uses": len(index)}:
        raise _unreadable(index.folder, "they were built for another index or by another version")
    graphs = []
    for start in range(0, len(index), SEGMENT):
        path = _graph_path(index, start)
        graph = _empty(index.dim)
        try:
            graph.view(str(path))
        except (OSError, RuntimeError, ValueError) as error:
            raise _unreadable(index.folder, f"{path.name}: {reason_of(error)}") from None
        if len(graph) != min(SEGMENT, len(index) - start):
            raise _unreadable(index.folder, f"{path.name} is incomplete")
        graphs.append((start, graph))
    return Graphs(index, graphs)


def _unreadable(folder: Path, reason: str) -> ElmokitError:
    return ElmokitError(f"the graphs of {folder} cannot be used ({reason}): search with --exact")
