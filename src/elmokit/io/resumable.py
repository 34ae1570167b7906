"""Vectors on their way to the disk, first step: numbered parts that outlive a kill.

`embed` produces vectors for hours; an HDF5 or zip file that is open for writing when the
process dies is lost. So vectors go into a directory of parts, and a part is there whole or
not at all:

    part-000000.npy     float array (layers, rows, dim): the rows of its sentences
    part-000000.json    number of the first sentence, rows and tokens of each sentence

A sentence has one row a token, or exactly one row when its vectors were pooled. The json is
renamed into place after the npy is safe on the disk: it is the mark that the part exists.
`vectors.py` makes the final output from a complete directory, which `VectorShards` reads.
"""

from __future__ import annotations

import errno
import io
import json
import operator
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError

Vectors = NDArray[Any]  # float16 or float32

SETTINGS, INDEX, ASSEMBLED = "settings.json", "index.json", "assembled.tmp"
# Whatever is deleted is deleted by these names: a user's own file is never in danger.
OUR_FILES = re.compile(
    r"(part-\d{6,}\.(npy|json)|settings\.json|index\.json)(\.tmp)?|assembled\.tmp"
)
COMMITTED = re.compile(r"part-(\d{6,})\.json")


class EmbeddedSentence(Protocol):
    """What can be written: tokens with layers (K, tokens, dim), or (K, dim) when pooled."""

    @property
    def tokens(self) -> Sequence[str]: ...

    @property
    def layers(self) -> Vectors: ...


@dataclass(frozen=True)
class Part:
    """The vectors of consecutive sentences; `part[i]` gives tokens and layers of its i-th."""

    first: int
    tokens: list[list[str]]
    starts: list[int]  # row at which each sentence begins, and the end of the last one
    array: Vectors  # (K, rows, dim), memory-mapped
    pooled: bool

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, position: int) -> tuple[list[str], Vectors]:
        if self.pooled:
            return self.tokens[position], self.array[:, position]  # (K, dim)
        rows = slice(self.starts[position], self.starts[position + 1])
        return self.tokens[position], self.array[:, rows]  # (K, T, dim)


@contextmanager
def clear_disk_errors(out: Path) -> Iterator[None]:
    """Turn what the operating system says about the output `out` into a sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            sentence = (
                f"the disk is full ({reason}): {out} is not finished, but the parts done so far "
                f"are kept in {parts_directory(out)}; free some space and go on with --resume"
            )
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            sentence = f"{out} cannot be written because its directory does not allow it: {reason}"
        else:
            sentence = f"{out} cannot be written: {reason} ({error.filename or 'while writing'})"
        raise ElmokitError(sentence) from error


def parts_directory(out: Path) -> Path:
    """Where the parts of the output `out` are gathered: beside it, so that a rename will do."""
    return out.with_name(out.name + ".parts")


def check_place(out: Path, parts: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a place without a folder, or with what nobody asked to go on with or to replace."""
    if not out.parent.is_dir():
        raise ElmokitError(f"there is no folder {out.parent} to write {out.name} into")
    if parts.exists():
        if not (resume or overwrite):
            raise ElmokitError(
                f"{parts} holds an unfinished run: go on with --resume, or start again with "
                "--overwrite"
            )
    elif out.exists() and not overwrite:
        if resume:
            raise ElmokitError(f"{out} is complete, there is nothing to resume: use it as it is")
        raise ElmokitError(f"{out} exists: choose another name, or replace it by --overwrite")


@contextmanager
def durable_file(path: Path, *, temporary: Path | None = None) -> Iterator[io.BufferedRandom]:
    """A file that appears as `path` only when all of it is on the disk, or not at all."""
    temporary = temporary or path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk the space is wanted back at once
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the renames inside `directory` outlive a power cut, in their order."""
    if os.name == "nt":  # a directory cannot be opened there
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, content: Any) -> None:
    """Write `content` durably, in ASCII: lone surrogates in tokens become escapes."""
    with durable_file(path) as file:
        file.write(json.dumps(content).encode("ascii"))


def write_npy_header(file: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Begin an .npy file whose array of `shape` is then written row by row."""
    description = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)


def write_part(
    directory: Path, number: int, first: int, sentences: Sequence[EmbeddedSentence], *, pooled: bool
) -> None:
    """Commit `sentences`, the first of which has the number `first`, as one part."""
    name = directory / f"part-{number:06d}"
    layers = [sentence.layers for sentence in sentences]
    lengths = [1 if pooled else each.shape[1] for each in layers]
    shape = (layers[0].shape[0], sum(lengths), layers[0].shape[-1])
    with durable_file(name.with_suffix(".npy")) as file:
        write_npy_header(file, shape, layers[0].dtype)
        for layer in range(shape[0]):
            for each in layers:  # one by one: no second copy of the part in memory
                file.write(np.ascontiguousarray(each[layer]).data)
    tokens = [list(sentence.tokens) for sentence in sentences]
    description = {"first": first, "lengths": lengths, "tokens": tokens}
    write_json(name.with_suffix(".json"), description)


def open_part(directory: Path, number: int, *, pooled: bool) -> Part:
    """Open a committed part; its vectors stay on the disk until they are looked at."""
    name = directory / f"part-{number:06d}"
    try:
        description = json.loads(name.with_suffix(".json").read_bytes())
        first, tokens = description["first"], description["tokens"]
        starts = [0, *accumulate(description["lengths"])]
        array = np.load(name.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
        if (array.shape[1], len(tokens)) != (starts[-1], len(starts) - 1):
            raise ValueError("its json and its npy do not fit")
    except (ValueError, KeyError, IndexError, TypeError, EOFError, FileNotFoundError) as error:
        raise damaged(directory, f"{name.name}: {error}") from error
    return Part(first, tokens, starts, array, pooled)


def damaged(directory: Path, reason: str) -> ElmokitError:
    """The error for parts that are not as they were written."""
    return ElmokitError(f"{directory} is damaged ({reason}): start again with --overwrite")


def committed_parts(directory: Path, *, pooled: bool) -> Iterator[Part]:
    """Check and yield the parts that exist, after removing what an interruption left over."""
    found = [COMMITTED.fullmatch(path.name) for path in directory.iterdir()]
    numbers = sorted(int(match[1]) for match in found if match)
    if numbers != list(range(len(numbers))):
        raise damaged(directory, "a part is missing between others")
    for path in list(directory.iterdir()):
        uncommitted = path.suffix == ".npy" and not path.with_suffix(".json").exists()
        if OUR_FILES.fullmatch(path.name) and (uncommitted or path.suffix == ".tmp"):
            path.unlink()
    done = 0
    for number in numbers:
        part = open_part(directory, number, pooled=pooled)
        if part.first != done:
            raise damaged(directory, f"part {number} begins at {part.first} instead of {done}")
        done += len(part)
        yield part


def remove_parts(directory: Path) -> None:
    """Delete a directory of parts so that a kill meanwhile leaves a shorter, sound one."""

    def turn(path: Path) -> tuple[bool, bool, bool, str]:
        # Marks before arrays, later parts before earlier ones, the settings at the very end.
        name = path.name
        return name != SETTINGS, name.startswith("part-"), path.suffix == ".json", name

    ours = [path for path in directory.iterdir() if OUR_FILES.fullmatch(path.name)]
    for path in sorted(ours, key=turn, reverse=True):
        path.unlink()
    directory.rmdir()


def read_settings(directory: Path) -> dict[str, Any] | None:
    """The settings that a directory of parts was begun with; None if killed before that."""
    try:
        settings = json.loads((directory / SETTINGS).read_bytes())
    except FileNotFoundError:
        if any(directory.glob("part-*.json")):
            raise damaged(directory, f"{SETTINGS} is missing") from None
        return None
    except ValueError as error:
        raise damaged(directory, f"{SETTINGS}: {error}") from error
    if not isinstance(settings, dict):
        raise damaged(directory, f"{SETTINGS} holds no object")
    return settings


def check_settings(directory: Path, saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings: half of the vectors would be of another kind."""
    for field in sorted(saved.keys() | given.keys()):
        before, now = (
            json.dumps(settings[field], ensure_ascii=False) if field in settings else "not set"
            for settings in (saved, given)
        )
        if before != now:
            raise ElmokitError(
                f"{directory} was begun with other settings ({field} was {before} and is now "
                f"{now}): go on with the same settings, or start again with --overwrite"
            )


class VectorShards:
    """A finished directory of parts: `shards[i]` gives tokens and vectors of sentence i.

    Vectors are (K, tokens, dim), or (K, dim) when pooled; without K if squeezed. They are
    memory-mapped: only what is looked at is read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            index = json.loads((self.path / INDEX).read_bytes())
            self._length: int = index["sentences"]
            self._firsts: list[int] = index["firsts"]
            self.pooled: bool = index["pooled"]
            self.squeeze: bool = index["squeeze"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ElmokitError(f"{path} is not a finished directory of vectors") from error
        # A few parts at a time: every open map holds a file descriptor.
        self._open_part = lru_cache(maxsize=8)(partial(open_part, self.path, pooled=self.pooled))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> tuple[list[str], Vectors]:
        number = operator.index(number)
        if not -self._length <= number < self._length:
            raise IndexError(f"sentence {number} of {self._length}")
        number %= self._length
        part = bisect_right(self._firsts, number) - 1
        tokens, layers = self._open_part(part)[number - self._firsts[part]]
        return tokens, layers[0] if self.squeeze else layers

    def __reduce__(self) -> tuple[type[VectorShards], tuple[Path]]:
        return VectorShards, (self.path,)  # worker processes map the files themselves

    def spans(self) -> list[range]:
        """The sentence numbers of each part."""
        return [range(first, end) for first, end in pairwise([*self._firsts, self._length])]

    def kind(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of the first sentence's vectors; a guess if there is no sentence."""
        if not self._length:
            return (0,), np.dtype(np.float32)
        vectors = self[0][1]
        return vectors.shape, vectors.dtype
