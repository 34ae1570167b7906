"""The approximate search compared with the exact one, and its error messages."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tiny import complaint

from elmokit.analysis.neighbours import approximate
from elmokit.analysis.neighbours.approximate import build_graphs, has_graphs, open_graphs
from elmokit.analysis.neighbours.index import VectorFile

pytest.importorskip("usearch")

USES, DIM = 2500, 32


class Uses(SimpleNamespace):
    """As much of an index as the graphs need."""

    def __len__(self) -> int:
        return int(self.vectors.shape[0])


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """Vectors in clusters, as those of words are."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((60, DIM))
    points = centers[rng.integers(0, 60, USES)] + 0.7 * rng.standard_normal((USES, DIM))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype("<f2")


@pytest.fixture
def index(vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An index of three segments, the last of which is not full."""
    monkeypatch.setattr(approximate, "SEGMENT", 1000)
    monkeypatch.setattr(approximate, "CHUNK", 300)
    vectors.tofile(tmp_path / "vectors")
    file = VectorFile(tmp_path / "vectors", vectors.shape)
    return Uses(folder=tmp_path, dim=DIM, vectors=file)


def graphs_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("graph*")}


def test_nearly_all_of_the_nearest_are_found(index: Any, vectors: np.ndarray) -> None:
    build_graphs(index, quiet=True)
    rng = np.random.default_rng(1)
    queries = vectors[:50].astype(np.float32) + 0.05 * rng.standard_normal((50, DIM))
    queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    products = queries @ vectors.astype(np.float32).T
    nearest = np.argsort(-products, axis=1)[:, :10]
    results = open_graphs(index).search(queries, 40)
    shares = [
        len(set(rows[:10]) & set(best)) / 10
        for (_, rows), best in zip(results, nearest, strict=True)
    ]
    assert np.mean(shares) >= 0.99
    for (scores, rows), exact in zip(results, products, strict=True):
        np.testing.assert_allclose(scores, exact[rows], atol=1e-5)  # those of the vectors, not int8
        assert (np.diff(scores) <= 0).all()
        assert len(rows) == 40


def test_graphs_are_the_same_however_they_were_built(index: Any) -> None:
    build_graphs(index, threads=1, quiet=True)
    first = graphs_in(index.folder)
    assert len(first) == 4  # three graphs and their metadata
    (index.folder / "graph-000001.usearch").unlink()
    (index.folder / "graphs.json").unlink()
    kept = (index.folder / "graph-000000.usearch").stat().st_mtime_ns
    assert not has_graphs(index)
    build_graphs(index, threads=3, quiet=True)
    assert has_graphs(index)
    assert graphs_in(index.folder) == first
    assert (index.folder / "graph-000000.usearch").stat().st_mtime_ns == kept


def test_a_stop_leaves_whole_graphs_only(index: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = approximate._build

    def stops(index: Any, start: int, *rest: Any) -> None:
        if start:
            raise KeyboardInterrupt
        real(index, start, *rest)

    monkeypatch.setattr(approximate, "_build", stops)
    with pytest.raises(KeyboardInterrupt):
        build_graphs(index, threads=1, quiet=True)
    assert not has_graphs(index)
    assert set(graphs_in(index.folder)) <= {"graph-000000.usearch"}


def test_unusable_graphs_raise(index: Any) -> None:
    build_graphs(index, quiet=True)
    path = index.folder / "graph-000002.usearch"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "graph-000002.usearch" in complaint(lambda: open_graphs(index))
    path.write_bytes(b"")
    assert "--exact" in complaint(lambda: open_graphs(index))
    path.write_bytes((index.folder / "graph-000001.usearch").read_bytes())
    assert "is incomplete" in complaint(lambda: open_graphs(index))
    path.unlink()
    assert "--exact" in complaint(lambda: open_graphs(index))
    (index.folder / "graphs.json").write_text('{"segment": 5, "uses": 5}')
    assert "another index" in complaint(lambda: open_graphs(index))


def test_without_the_library_the_extra_is_named(
    index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "usearch", None)
    monkeypatch.delitem(sys.modules, "usearch.index", raising=False)
    assert "pip install 'elmokit[ann]'" in complaint(lambda: build_graphs(index, quiet=True))
    assert list(index.folder.glob("graph*")) == []
