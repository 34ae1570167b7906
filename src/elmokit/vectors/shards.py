"""The parts in which `embed` stores vectors, and `VectorShards`, which reads a finished folder.

An HDF5 or zip file that is open for writing when the process dies is lost, and `embed` may run for
hours. So vectors go into a folder of parts, each of which is there completely or not at all:

    part-000000.npy     float array (layers, rows, dim): the rows of its sentences
    part-000000.json    index of the first sentence, rows and tokens of each sentence, own columns
    settings.json       what the vectors are made of
    index.json          only when finished: number of sentences, first sentence of each part, and
                        `start`, the index of the first one in the input: not 0 in a shard of it

A sentence has one row per token, or exactly one row if its vectors are pooled. The json of a part
is written after its npy is safe on the disk: it marks the part as committed.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.io.atomic import atomic_file, matches
from elmokit.io.jsonfile import MAX_TEXT_BYTES, read_json, write_json
from elmokit.io.resumable import damaged

Vectors = NDArray[Any]  # float16 or float32
Columns = dict[str, list[str | None]]  # what is known of each sentence beside its tokens

SETTINGS, INDEX, ASSEMBLED = "settings.json", "index.json", "assembled.tmp"
# Only files with these names are ever deleted, so that a user's own files are safe.
_PART = "part-" + 6 * "[0-9]" + "*"
_NAMES = (f"{_PART}.npy", f"{_PART}.json", SETTINGS, INDEX)
OUR_FILES = (*_NAMES, *(f"{name}.tmp" for name in _NAMES), ASSEMBLED)
COMMITTED = re.compile(r"part-(\d{6,})\.json")


class EmbeddedSentence(NamedTuple):
    """What is written: tokens with layers (K, tokens, dim), or (K, dim) when pooled."""

    tokens: Sequence[str]
    layers: Vectors


class Window(NamedTuple):
    """Consecutive sentences that become one part."""

    first: int
    """Index of the first sentence in the output."""
    tokens: list[list[str]]
    columns: Columns


@dataclass(frozen=True)
class Part:
    """The vectors of consecutive sentences; `part[i]` returns tokens and layers of its i-th."""

    window: Window
    starts: list[int]
    """First row of each sentence, and the end of the last one."""
    array: Vectors
    """All rows, memory-mapped: (K, rows, dim)."""
    pooled: bool

    def __len__(self) -> int:
        return len(self.window.tokens)

    def __getitem__(self, position: int) -> tuple[list[str], Vectors]:
        if self.pooled:
            return self.window.tokens[position], self.array[:, position]  # (K, dim)
        rows = slice(self.starts[position], self.starts[position + 1])
        return self.window.tokens[position], self.array[:, rows]  # (K, T, dim)


def write_npy_header(file: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Start an .npy file whose array of `shape` is then written row by row."""
    description = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)


def write_rows(
    folder: Path, index: int, sentences: Sequence[EmbeddedSentence], *, pooled: bool
) -> None:
    """Write the vectors of a part, which is committed by `commit_part`."""
    file_path = folder / f"part-{index:06d}.npy"
    layers = [sentence.layers for sentence in sentences]
    rows = sum(1 if pooled else each.shape[1] for each in layers)
    shape = (layers[0].shape[0], rows, layers[0].shape[-1])
    with atomic_file(file_path, temporary=file_path.with_suffix(".npy.tmp")) as file:
        write_npy_header(file, shape, layers[0].dtype)
        for layer in range(shape[0]):
            for each in layers:  # One by one, to avoid a second copy of the part in memory.
                file.write(np.ascontiguousarray(each[layer]).data)


def commit_part(folder: Path, index: int, window: Window, *, pooled: bool) -> None:
    """Commit the rows of sentences, which `write_rows` has written."""
    lengths = [1 if pooled else len(tokens) for tokens in window.tokens]
    write_json(folder / f"part-{index:06d}.json", {**window._asdict(), "lengths": lengths})


def open_part(folder: Path, index: int, *, pooled: bool) -> Part:
    """Open a committed part; its vectors are memory-mapped."""
    stem = folder / f"part-{index:06d}"
    try:
        description = read_json(stem.with_suffix(".json"), max_bytes=MAX_TEXT_BYTES)
        window = Window(*(description[name] for name in Window._fields))
        starts = [0, *accumulate(description["lengths"])]
        array = np.load(stem.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
        if (array.shape[1], len(window.tokens)) != (starts[-1], len(starts) - 1):
            raise ValueError("its json and its npy do not match")
    except (ElmokitError, ValueError, LookupError, TypeError, EOFError, OSError) as error:
        raise damaged(folder, f"{stem.name}: {error}") from error
    return Part(window, starts, array, pooled)


def committed_parts(folder: Path, *, pooled: bool) -> Iterator[Part]:
    """Check and yield the committed parts, after deleting what a killed run left over."""
    committed = [COMMITTED.fullmatch(path.name) for path in folder.iterdir()]
    indices = sorted(int(match[1]) for match in committed if match)
    if indices != list(range(len(indices))):
        raise damaged(folder, "a part is missing between others")
    for path in list(folder.iterdir()):
        is_uncommitted = path.suffix == ".npy" and not path.with_suffix(".json").exists()
        if matches(path.name, OUR_FILES) and (is_uncommitted or path.suffix == ".tmp"):
            path.unlink()
    done = 0
    for index in indices:
        part = open_part(folder, index, pooled=pooled)
        if (first := part.window.first) != done:
            raise damaged(folder, f"part {index} begins at {first} instead of {done}")
        done += len(part)
        yield part


def remove_parts(folder: Path) -> None:
    """Delete a folder of parts in an order such that a kill leaves a shorter, valid one."""

    def rank(path: Path) -> tuple[bool, bool, bool, str]:
        # Reversed: json before npy, later parts before earlier ones, the settings last.
        name = path.name
        return name != SETTINGS, name.startswith("part-"), path.suffix == ".json", name

    ours = [path for path in folder.iterdir() if matches(path.name, OUR_FILES)]
    for path in sorted(ours, key=rank, reverse=True):
        path.unlink()
    folder.rmdir()


def read_settings(folder: Path) -> dict[str, Any] | None:
    """Return the settings of a folder of parts, None if it was killed before they were written."""
    if not (folder / SETTINGS).exists():
        if any(folder.glob("part-*.json")):
            raise damaged(folder, f"{SETTINGS} is missing")
        return None
    try:
        return read_json(folder / SETTINGS)
    except ElmokitError as error:
        raise damaged(folder, str(error)) from None


class VectorShards:
    """A finished folder of parts: `shards[i]` returns tokens and vectors of sentence i.

    Vectors are (K, tokens, dim), or (K, dim) when pooled; without K if squeezed. They are
    memory-mapped: only what is accessed is read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            index = read_json(self.path / INDEX)
            self._length, self._firsts = int(index["sentences"]), list(map(int, index["firsts"]))
            self.pooled, self.squeeze = bool(index["pooled"]), bool(index["squeeze"])
            self.start = int(index["start"])
        except (ElmokitError, ValueError, KeyError, TypeError) as error:
            raise ElmokitError(f"{path} is not a finished folder of vectors") from error
        # Every open map holds a file descriptor, so keep only a few.
        self._open_part = lru_cache(maxsize=8)(partial(open_part, self.path, pooled=self.pooled))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[list[str], Vectors]:
        index = operator.index(index)
        if not -self._length <= index < self._length:
            raise IndexError(f"sentence {index} of {self._length}")
        index %= self._length
        part = bisect_right(self._firsts, index) - 1
        tokens, layers = self._open_part(part)[index - self._firsts[part]]
        return tokens, layers[0] if self.squeeze else layers

    def __reduce__(self) -> tuple[type[VectorShards], tuple[Path]]:
        return VectorShards, (self.path,)  # Worker processes map the files themselves.

    def spans(self) -> list[range]:
        """Return the sentence indices of each part."""
        return [range(first, end) for first, end in pairwise([*self._firsts, self._length])]

    def columns(self, part: int) -> Columns:
        """Return what else is known of the sentences of a part, such as their texts."""
        return self._open_part(part).window.columns

    def shape_and_dtype(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of the first sentence's vectors; a guess without sentences."""
        if not self._length:
            return (0,), np.dtype(np.float32)
        vectors = self[0][1]
        return vectors.shape, vectors.dtype


Sentences = Iterator[tuple[int, list[str] | None, Vectors]]
"""Index, tokens (None if the file does not have them) and vectors of sentences."""
