"""An index of words in their sentences: its files, and the exact search in them.

    OUT/vectors.f16       a unit vector per use, the mean subtracted: (uses, dim)
    OUT/uses.u32          word, sentence and position of each use: (uses, 3)
    OUT/sentences.jsonl   the tokens of a sentence per line
    OUT/starts.u64        the byte where each line begins: (sentences,)
    OUT/words.jsonl       the distinct words
    OUT/static.f16        their unit vectors in layer 0, the mean subtracted: (words, dim)
    OUT/means.f32         the means of layer 0 and of the layer of the uses: (2, dim)
    OUT/index.json        metadata: settings, and the size of each file

Vectors are memory-mapped a block at a time, so a search takes the same memory in any index.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.geometry import Array, unit
from elmokit.analysis.uses import Use
from elmokit.errors import ElmokitError, reason_of
from elmokit.io.jsonfile import read_json
from elmokit.io.resumable import parts_folder

VERSION = 1
METADATA = "index.json"
VECTORS, USES, SENTENCES, STARTS = "vectors.f16", "uses.u32", "sentences.jsonl", "starts.u64"
WORDS, STATIC, MEANS = "words.jsonl", "static.f16", "means.f32"
GRAPHS = "graphs.json"  # written by approximate.py
FILES = (VECTORS, USES, SENTENCES, STARTS, WORDS, STATIC, MEANS)
BLOCK_BYTES = 4 << 20  # of vectors in float32: a block fits the cache of the processor

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class VectorFile:
    """Vectors in a file, of which only the rows that are asked for are in memory."""

    path: Path
    shape: tuple[int, int]

    def __getitem__(self, rows: slice | Rows) -> NDArray[np.float16]:
        count, dim = self.shape
        if isinstance(rows, slice):
            start, end, _ = rows.indices(count)
            # Copy-on-write, because torch wants writable arrays.
            return np.memmap(self.path, "<f2", "c", 2 * dim * start, (end - start, dim))
        return np.array(np.memmap(self.path, "<f2", "r", 0, self.shape)[rows])


@dataclass(frozen=True)
class Index:
    """A finished index of the uses of words."""

    folder: Path
    metadata: dict[str, Any]
    """The content of index.json."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings it was made with: model, layer, corpus."""
        return self.metadata["settings"]  # type: ignore[no-any-return]

    @property
    def dim(self) -> int:
        """Dimension of a vector."""
        return int(self.metadata["dim"])

    def __len__(self) -> int:
        """Return the number of uses."""
        return int(self.metadata["sizes"][VECTORS]) // (2 * self.dim)

    @property
    def num_sentences(self) -> int:
        """Number of sentences."""
        return int(self.metadata["sizes"][STARTS]) // 8

    @property
    def vectors(self) -> VectorFile:
        """Vectors of all uses: (uses, dim)."""
        return VectorFile(self.folder / VECTORS, (len(self), self.dim))

    @property
    def static(self) -> VectorFile:
        """Vectors of all words in layer 0: (words, dim)."""
        return VectorFile(self.folder / STATIC, (len(self.words), self.dim))

    @cached_property
    def uses(self) -> NDArray[np.uint32]:
        """Word, sentence and position of each use: (uses, 3)."""
        return np.memmap(self.folder / USES, "<u4", "r", 0, (len(self), 3))

    @cached_property
    def words(self) -> list[str]:
        """Distinct words."""
        with self._explain(WORDS):
            lines = (self.folder / WORDS).read_bytes().splitlines()
            words = _strings(b"[" + b",".join(lines) + b"]")
            if 2 * self.dim * len(words) != self.metadata["sizes"][STATIC]:
                raise ValueError(f"it has {len(words)} words")
        return words

    @cached_property
    def means(self) -> Array:
        """Means that were subtracted from layer 0 and from the layer of the uses: (2, dim)."""
        return np.fromfile(self.folder / MEANS, "<f4").reshape(2, self.dim)

    def sentence(self, i: int) -> tuple[str, ...]:
        """Return the tokens of sentence `i`."""
        with self._explain(SENTENCES), (self.folder / SENTENCES).open("rb") as file:
            file.seek(int(np.fromfile(self.folder / STARTS, "<u8", 1, offset=8 * i)[0]))
            return tuple(_strings(file.readline()))

    def use(self, row: int) -> Use:
        """Return a use: its word in its sentence."""
        with self._explain(USES):
            _, i, position = (int(x) for x in self.uses[row])
            tokens = self.sentence(i)
            return Use(tokens, position, position + 1, tokens[position].lower())

    @contextmanager
    def _explain(self, name: str) -> Iterator[None]:
        """Turn an exception because of a damaged file into a sentence."""
        try:
            yield
        except (OSError, OverflowError, RecursionError, LookupError, ValueError) as error:
            reason = f"{name}: {reason_of(error)}"
            raise ElmokitError(f"the index {self.folder} is damaged ({reason})") from None

    def uses_of(self, word: str) -> NDArray[np.bool_]:
        """Tell which uses are of a word, in upper or lower case: (uses,)."""
        spellings = [i for i, other in enumerate(self.words) if other.lower() == word.lower()]
        return np.isin(self.uses[:, 0], spellings)

    def query(self, vectors: Array, *, static: bool = False) -> Array:
        """Normalize vectors (n, dim) of the layer of the uses, or of layer 0, as in the index."""
        return unit(vectors - self.means[0 if static else 1])

    def bytes_on_disk(self) -> int:
        """Return the size of all its files."""
        return sum(file.stat().st_size for file in self.folder.iterdir() if file.is_file())

    def to_dict(self) -> dict[str, Any]:
        """Return what the index holds, for JSON and tables."""
        return {
            "sentences": self.num_sentences,
            "uses": len(self),
            "distinct words": len(self.words),
            "layer": self.settings["layer"],
            "dim": self.dim,
            "MB": self.bytes_on_disk() / 1e6,
            "search": "approximate" if (self.folder / GRAPHS).is_file() else "exact",
        }


def _strings(content: bytes) -> list[str]:
    values = json.loads(content)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("it is not a list of strings")
    return values


def open_index(folder: str | Path) -> Index:
    """Open a finished index without reading its large files."""
    path = Path(folder)
    if not (path / METADATA).is_file():
        if not path.exists() and (parts_folder(path) / METADATA).is_file():
            raise ElmokitError(
                f"the index {path} is not finished: resume it with elmokit neighbours index "
                "--resume"
            )
        raise ElmokitError(f"there is no index at {path}: create one with elmokit neighbours index")
    metadata = read_metadata(path)
    if not metadata["complete"]:
        raise ElmokitError(f"the index {path} is not finished")
    for name, size in metadata["sizes"].items():
        if not (path / name).is_file() or (path / name).stat().st_size != size:
            raise ElmokitError(f"the index {path} is damaged: {name} has another size than written")
    return Index(path, metadata)


def read_metadata(folder: Path) -> dict[str, Any]:
    """Return the content of index.json; raise if it is not that of an index."""
    metadata = read_json(folder / METADATA)
    kinds = {"version": int, "complete": bool, "dim": int, "sizes": dict, "settings": dict}
    is_valid = all(type(metadata.get(name)) is kind for name, kind in kinds.items())
    if not is_valid or not _fits(metadata["dim"], metadata["sizes"], metadata["settings"]):
        raise ElmokitError(f"{folder / METADATA} is not the metadata of an index of neighbours")
    if metadata["version"] != VERSION:
        raise ElmokitError(
            f"{folder} is an index of version {metadata['version']}, and this elmokit reads "
            f"version {VERSION}"
        )
    return metadata


def _fits(dim: int, sizes: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Tell whether the sizes of an index are those of whole rows, and its settings have types."""
    if set(sizes) != set(FILES) or any(type(size) is not int for size in sizes.values()):
        return False
    uses, rest = divmod(sizes[VECTORS], max(2 * dim, 1))
    has_means = sizes[MEANS] == (8 * dim if sizes[STARTS] else 0)
    texts = [settings.get(name, "") for name in ("model", "tokenizer", "fingerprint")]
    is_typed = all(isinstance(text, str) for text in texts) and "layer" in settings
    return dim > 0 and not rest and sizes[USES] == 12 * uses and has_means and is_typed


def exact_search(
    vectors: VectorFile | NDArray[Any],
    queries: Array,
    count: int,
    *,
    keep: NDArray[np.bool_] | None = None,
) -> tuple[Array, Rows]:
    """Return the `count` largest dot products with each query, and their rows: (q, found) each.

    Search the vectors (n, dim), or only those that `keep` (n,) says, for the queries (q, dim).
    """
    import torch

    total, dim = vectors.shape
    query = torch.from_numpy(np.ascontiguousarray(queries, np.float32))  # (q, dim)
    best = torch.empty((len(queries), 0))
    rows = torch.empty((len(queries), 0), dtype=torch.long)
    block = max(1, BLOCK_BYTES // (4 * dim))
    for start in range(0, total, block):
        part: NDArray[Any] = vectors[start : start + block]
        indices = np.arange(start, start + len(part))
        if keep is not None:
            chosen = keep[start : start + block]
            part, indices = part[chosen], indices[chosen]
        # torch converts float16 several times faster than NumPy.
        tensor = torch.from_numpy(np.require(part, requirements=["C", "W"])).float()
        scores = query @ tensor.T  # (q, block)
        top = scores.topk(min(count, scores.shape[1]))
        best = torch.cat([best, top.values], dim=1)
        rows = torch.cat([rows, torch.from_numpy(indices)[top.indices]], dim=1)
        kept = best.topk(min(count, best.shape[1]))
        best, rows = kept.values, rows.gather(1, kept.indices)
    return best.numpy(), rows.numpy()
