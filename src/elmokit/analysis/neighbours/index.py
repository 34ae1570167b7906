"""An index of words in their sentences: files on the disk, and the exact search in them.

    OUT/vectors.f16       a vector of length 1 a use, the mean taken off: (uses, dim)
    OUT/uses.u32          a use's word, sentence and place in it: (uses, 3)
    OUT/sentences.jsonl   the tokens of a sentence a line
    OUT/starts.u64        the byte where each line begins: (sentences,)
    OUT/words.jsonl       the distinct words, each once
    OUT/static.f16        their vectors in layer 0, the mean taken off: (words, dim)
    OUT/means.f32         what was taken off layer 0, and off the layer of the uses: (2, dim)
    OUT/index.json        what it was made from, and the size of each file

`indexing.py` writes them. Vectors are mapped a block at a time, so a search takes the same memory
whatever the size of the index.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.uses import Array, unit
from elmokit.errors import ElmokitError
from elmokit.io.jsonfile import read_json
from elmokit.io.resumable import parts_folder

VERSION = 1
ABOUT = "index.json"
VECTORS, USES, SENTENCES, STARTS = "vectors.f16", "uses.u32", "sentences.jsonl", "starts.u64"
WORDS, STATIC, MEANS = "words.jsonl", "static.f16", "means.f32"
FILES = (VECTORS, USES, SENTENCES, STARTS, WORDS, STATIC, MEANS)
BLOCK_BYTES = 4 << 20  # of a block of vectors in float32: it stays in the cache of the processor

Rows = NDArray[np.int64]


class Blocks(Protocol):
    """Vectors of length 1 that are read some at a time: an array, or a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: Any) -> NDArray[Any]: ...


@dataclass(frozen=True)
class VectorFile:
    """Vectors in a file; what is not looked at is not read, what was looked at is let go."""

    path: Path
    shape: tuple[int, int]

    def __getitem__(self, rows: slice | Rows) -> NDArray[np.float16]:
        count, dim = self.shape
        if isinstance(rows, slice):
            start, end, _ = rows.indices(count)
            # copy on write: torch wants arrays that may be written to
            return np.memmap(self.path, "<f2", "c", 2 * dim * start, (end - start, dim))
        return np.array(np.memmap(self.path, "<f2", "r", 0, self.shape)[rows])


# ---------------------------------------------------------------------- reading
@dataclass(frozen=True)
class Index:
    """A finished index."""

    folder: Path
    about: dict[str, Any]
    """What stands in index.json."""

    @property
    def settings(self) -> dict[str, Any]:
        """What the vectors are made of: model, layer, corpus."""
        return self.about["settings"]  # type: ignore[no-any-return]

    @property
    def dim(self) -> int:
        """Columns of a vector."""
        return int(self.about["dim"])

    def __len__(self) -> int:
        """The number of uses."""
        return int(self.about["sizes"][VECTORS]) // (2 * self.dim)

    @property
    def sentences(self) -> int:
        """The number of sentences."""
        return int(self.about["sizes"][STARTS]) // 8

    @property
    def vectors(self) -> VectorFile:
        """Of all uses: (uses, dim)."""
        return VectorFile(self.folder / VECTORS, (len(self), self.dim))

    @property
    def static(self) -> VectorFile:
        """Of all words, in layer 0: (words, dim)."""
        return VectorFile(self.folder / STATIC, (len(self.words), self.dim))

    @cached_property
    def uses(self) -> NDArray[np.uint32]:
        """The word, the sentence and the place in it of each use: (uses, 3)."""
        return np.memmap(self.folder / USES, "<u4", "r", 0, (len(self), 3))

    @cached_property
    def words(self) -> list[str]:
        """The distinct words."""
        lines = (self.folder / WORDS).read_bytes().splitlines()
        return json.loads(b"[" + b",".join(lines) + b"]")  # type: ignore[no-any-return]

    @cached_property
    def means(self) -> Array:
        """What was taken off layer 0, and off the layer of the uses: (2, dim)."""
        return np.fromfile(self.folder / MEANS, "<f4").reshape(2, self.dim)

    @cached_property
    def _starts(self) -> NDArray[np.uint64]:
        return np.memmap(self.folder / STARTS, "<u8", "r", 0, (self.sentences,))

    def sentence(self, number: int) -> tuple[str, ...]:
        """The tokens of a sentence."""
        with (self.folder / SENTENCES).open("rb") as file:
            file.seek(int(self._starts[number]))
            return tuple(json.loads(file.readline()))

    def uses_of(self, word: str) -> NDArray[np.bool_]:
        """Which uses are of a word, in capital letters or not: (uses,)."""
        numbers = [number for number, each in enumerate(self.words) if each.lower() == word.lower()]
        return np.isin(self.uses[:, 0], numbers)

    def query(self, vectors: Array) -> Array:
        """Vectors (n, dim) of the layer of the uses, as they are in the index."""
        return unit(vectors - self.means[1])

    def static_query(self, vectors: Array) -> Array:
        """Vectors (n, dim) of layer 0, as they are in the index."""
        return unit(vectors - self.means[0])

    def bytes_on_disk(self) -> int:
        """What it takes, with all that belongs to it."""
        return sum(file.stat().st_size for file in self.folder.iterdir() if file.is_file())


def open_index(folder: str | Path) -> Index:
    """Open a finished index; nothing large is read."""
    path = Path(folder)
    if not (path / ABOUT).is_file():
        making = parts_folder(path)
        if not path.exists() and (making / ABOUT).is_file():
            raise ElmokitError(
                f"the index {path} is not finished: go on with elmokit neighbours index --resume"
            )
        raise ElmokitError(f"there is no index at {path}: elmokit neighbours index makes one")
    about = read_about(path)
    if not about["whole"]:
        raise ElmokitError(f"the index {path} is not finished")
    for name, size in about["sizes"].items():
        found = (path / name).stat().st_size if (path / name).is_file() else None
        if found != size:
            raise ElmokitError(f"the index {path} is damaged: {name} is not as it was written")
    return Index(path, about)


def read_about(folder: Path) -> dict[str, Any]:
    """What index.json says, if it is an index's."""
    about = read_json(folder / ABOUT)
    kinds = {"version": int, "whole": bool, "dim": int, "sizes": dict, "settings": dict}
    sound = all(isinstance(about.get(name), kind) for name, kind in kinds.items())
    if not sound or set(about["sizes"]) != set(FILES):
        raise ElmokitError(f"{folder / ABOUT} is not that of an index of neighbours")
    if about["version"] != VERSION:
        raise ElmokitError(
            f"{folder} is an index of version {about['version']}, and this elmokit reads {VERSION}"
        )
    return about


# ---------------------------------------------------------------------- exact search
def exact_search(
    vectors: Blocks,
    queries: Array,
    count: int,
    *,
    keep: NDArray[np.bool_] | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[Array, Rows]:
    """The vectors with the largest products with each query, the largest first.

    Args:
        vectors: those to search, float16 or float32: (n, dim).
        queries: (q, dim).
        count: how many to find of each; fewer where there are fewer.
        keep: search these only: (n,).
        block_bytes: of the vectors that are looked at together, in float32.

    Returns:
        Products (q, found) and rows of `vectors` (q, found).
    """
    import torch

    total, dim = vectors.shape
    asked = torch.from_numpy(np.ascontiguousarray(queries, np.float32))
    best = torch.empty((len(queries), 0))
    rows = torch.empty((len(queries), 0), dtype=torch.long)
    block = max(1, block_bytes // (4 * dim))
    for start in range(0, total, block):
        chosen = None if keep is None else np.flatnonzero(keep[start : start + block])
        if chosen is not None and not len(chosen):
            continue
        some = vectors[start : start + block]
        some = some if chosen is None else some[chosen]
        scores = asked @ _as_float32(some).T  # (q, block)
        top = scores.topk(min(count, scores.shape[1]))
        places = top.indices if chosen is None else torch.from_numpy(chosen)[top.indices]
        best = torch.cat([best, top.values], dim=1)
        rows = torch.cat([rows, places + start], dim=1)
        kept = best.topk(min(count, best.shape[1]))
        best, rows = kept.values, rows.gather(1, kept.indices)
    return best.numpy(), rows.numpy()


def _as_float32(vectors: NDArray[Any]) -> Any:
    """A block as a tensor; torch makes float32 of float16 several times faster than NumPy."""
    import torch

    return torch.from_numpy(np.require(vectors, requirements=["C", "W"])).float()
