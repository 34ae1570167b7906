"""Vectors on their way to the disk, last step: parts become one HDF5, npz, Parquet or npy output.

`PartWriter` takes the sentences of a file of any size in parts (see `parts.py`) and puts the
final output in place at the end. The finished directory of parts is itself an output, read
with `VectorShards`; the other formats are made from it, sentence by sentence:

    vectors.h5          dataset "0", "1", … a sentence, `sentence_to_index` as AllenNLP has it
    vectors.npz         array "0", "1", … a sentence, `tokens`: a JSON list a sentence
    vectors.parquet     a row a sentence: index, tokens, vectors (flat), shape
    vectors.npy/        the parts and an index

Pooled vectors are one array `vectors` in HDF5 and npz. `read_vectors` reads all of them.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError, require
from elmokit.io.atomic import locked
from elmokit.io.resumable import (
    ASSEMBLED,
    INDEX,
    SETTINGS,
    EmbeddedSentence,
    VectorShards,
    check_place,
    check_settings,
    clear_disk_errors,
    committed_parts,
    durable_file,
    open_part,
    parts_directory,
    read_settings,
    remove_parts,
    sync_directory,
    write_json,
    write_part,
)
from elmokit.vectors.files import (
    Sentences,
    read_hdf5,
    read_npz,
    read_parquet,
    write_hdf5,
    write_npz,
    write_parquet,
)

__all__ = ["PartWriter", "VectorShards", "read_vectors"]

SUFFIXES = {"h5": "hdf5", "hdf5": "hdf5", "npz": "npz", "parquet": "parquet", "npy": "npy"}
READING_ERRORS = OSError, ValueError, LookupError, EOFError, RuntimeError, zipfile.BadZipFile
LARGEST_PART = 2**31 - 1  # numbers; Parquet counts those of a row group in 32 bits
FINISHED = "finished_sentences"  # added to the settings when the output stands under its final name


class PartWriter:
    """Writes vectors part by part, so that a run killed at any moment can go on.

    `settings` say what the vectors are made of (model, input, layers, dtype, sentences a
    part, …): a run goes on only with the same. `pooled`: a sentence has layers (K, dim), not
    (K, tokens, dim). `squeeze`: K is 1 and the output leaves that axis out. `resume` goes on
    after the `done` sentences that are safe already, or starts when there are none;
    `overwrite` drops what is there. Both together: go on if there are parts, else replace.
    As a context manager it leaves nothing behind when the run fails before its first part.
    """

    def __init__(
        self,
        out: str | Path,
        settings: Mapping[str, Any],
        *,
        format: str | None = None,
        pooled: bool = False,
        squeeze: bool = False,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.out, self.format = Path(out), output_format(out, format)
        self.parts = parts_directory(self.out)
        form = {"format": self.format, "pooled": pooled, "squeeze": squeeze}
        # Through JSON and back, so that a tuple equals the list it is saved as.
        self.settings: dict[str, Any] = json.loads(json.dumps({**settings, **form}))
        self.pooled, self.squeeze = pooled, squeeze
        self.done = 0  # sentences that need not be embedded again
        self._firsts: list[int] = []  # number of the first sentence of each part
        self._kind: tuple[int, int, str] | None = None  # (K, dim, dtype) of every sentence
        self.finished = False  # the output is in place, only parts are left to delete
        # A run that is at work in the parts loses none of them.
        alone = locked(self.parts) if self.parts.is_dir() else nullcontext()
        with clear_disk_errors(self.out), alone:
            self._check_place(resume, overwrite)
            if resume and self.parts.exists():
                self._go_on()
            else:
                self._begin()

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self.done == 0:
            with suppress(OSError):
                remove_parts(self.parts)

    def holds(self, first: int, tokens: Sequence[Sequence[str]]) -> bool:
        """Whether the sentences from the number `first` on, with these tokens, are a part."""
        if first not in self._firsts:
            return False
        part = open_part(self.parts, self._firsts.index(first), pooled=self.pooled)
        return part.tokens == list(map(list, tokens))

    def write(self, sentences: Sequence[EmbeddedSentence]) -> None:
        """Commit the next sentences as one part: when this returns, they are safe."""
        if not sentences:
            return
        if self.finished:
            raise ValueError(f"{self.out} is finished with {self.done} sentences")
        for sentence in sentences:
            self._check_kind(sentence)
        self._check_size(sentences)
        with clear_disk_errors(self.out):
            write_part(self.parts, len(self._firsts), self.done, sentences, pooled=self.pooled)
        self._firsts.append(self.done)
        self.done += len(sentences)

    def finish(self) -> Path:
        """Put the complete output under its final name and delete the parts."""
        with clear_disk_errors(self.out):
            if not self.finished:
                form = {"pooled": self.pooled, "squeeze": self.squeeze}
                index = {"sentences": self.done, "firsts": self._firsts, **form}
                write_json(self.parts / INDEX, index)
            if self.format == "npy":
                self._rename_parts()
            else:
                self._assemble()
                remove_parts(self.parts)
        return self.out

    def _check_place(self, resume: bool, overwrite: bool) -> None:
        out = self.out
        check_place(out, self.parts, resume=resume, overwrite=overwrite)
        if out.exists() and not (is_replaceable(out) if self.format == "npy" else out.is_file()):
            raise ElmokitError(f"{out} is not an output of this format, so it is not replaced")

    def _begin(self) -> None:
        if self.parts.exists():
            remove_parts(self.parts)
        self.parts.mkdir()
        sync_directory(self.parts.parent)
        write_json(self.parts / SETTINGS, self.settings)

    def _go_on(self) -> None:
        saved = read_settings(self.parts)
        if saved is None:  # killed between making the directory and writing the settings
            write_json(self.parts / SETTINGS, self.settings)
            return
        finished = saved.pop(FINISHED, None)
        check_settings(self.parts, saved, self.settings)
        if finished is not None and self.out.exists():  # killed while deleting the parts
            self.done, self.finished = finished, True
        elif finished is not None:  # the output was taken away, and some parts may be deleted
            self._begin()
        else:
            for part in committed_parts(self.parts, pooled=self.pooled):
                self._firsts.append(part.first)
                self.done += len(part)
                self._kind = part.array.shape[0], part.array.shape[2], part.array.dtype.name

    def _check_size(self, sentences: Sequence[EmbeddedSentence]) -> None:
        size = sum(sentence.layers.size for sentence in sentences)
        if self.format != "parquet" or size <= LARGEST_PART:
            return
        if len(sentences) == 1:
            raise ElmokitError(
                f"sentence {self.done} of {len(sentences[0].tokens):,} tokens is too long for "
                "Parquet: write .h5 or .npy, or fewer layers"
            )
        raise ValueError(f"a part holds at most {LARGEST_PART} numbers: write smaller ones")

    def _check_kind(self, sentence: EmbeddedSentence) -> None:
        layers, K = sentence.layers, len(sentence.layers)
        shape = (K,) if self.pooled else (K, len(sentence.tokens))
        kind = K, layers.shape[-1], layers.dtype.name
        expected = self._kind or kind
        if layers.shape[:-1] != shape or kind != expected or (self.squeeze and K != 1):
            raise ValueError(f"layers {layers.shape} {layers.dtype}, not {shape} of {expected}")
        if kind[2] not in ("float16", "float32"):
            raise ValueError(f"layers are float16 or float32, not {kind[2]}")
        self._kind = kind

    def _assemble(self) -> None:
        if self.finished:
            return
        assemble = {"hdf5": write_hdf5, "npz": write_npz, "parquet": write_parquet}[self.format]
        with durable_file(self.out, temporary=self.parts / ASSEMBLED) as file:
            assemble(VectorShards(self.parts), file)
        self.finished = True
        write_json(self.parts / SETTINGS, {**self.settings, FINISHED: self.done})

    def _rename_parts(self) -> None:
        # A directory cannot be renamed over a full one: the old output steps aside first.
        aside = self.out.with_name(self.out.name + ".replaced")
        if self.out.exists():
            if aside.exists():
                remove_parts(aside)
            self.out.rename(aside)
        self.parts.rename(self.out)
        sync_directory(self.out.parent)
        if aside.exists():
            remove_parts(aside)


def output_format(out: str | Path, format: str | None) -> str:
    """The format called `format`, or else the one that the name of `out` asks for."""
    ending = "npy" if str(out).endswith("/") else Path(out).suffix[1:]
    chosen = SUFFIXES.get((format or ending).lower())
    if chosen is None or not Path(out).name:
        raise ElmokitError(
            f"the format of {str(out)!r} is not known ({format or ending or 'no ending'}): end the "
            "name in .h5, .hdf5, .npz, .parquet or .npy (a directory), or give one as the format"
        )
    if chosen == "parquet":  # now, not after hours of embedding
        require("pyarrow", extra="parquet", purpose="Parquet output")
    return chosen


def is_replaceable(path: Path) -> bool:
    """Whether `path` is a directory that holds nothing, or a finished output of ours."""
    return path.is_dir() and ((path / INDEX).is_file() or not any(path.iterdir()))


def read_vectors(path: str | Path) -> Sentences:
    """Number, tokens and vectors of every sentence of an output, one at a time.

    Tokens are None where the file does not tell them: HDF5 keeps only the first of equal
    sentences, joined by spaces.
    """
    path = Path(path)
    if path.is_dir():
        shards = VectorShards(path)
        return ((number, *shards[number]) for number in range(len(shards)))
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ElmokitError(f"{path} cannot be read: {error.strerror}") from error
    readers = {b"\x89HDF": read_hdf5, b"PK\3\4": read_npz, b"PAR1": read_parquet}
    if magic not in readers:
        raise ElmokitError(f"{path} is not a file of vectors in HDF5, npz or Parquet")
    return readable(path, readers[magic](path))


def readable(path: Path, sentences: Sentences) -> Sentences:
    """The same sentences, with one sentence of error if the file `path` is damaged."""
    try:
        yield from sentences
    except READING_ERRORS as error:
        raise ElmokitError(f"{path} is damaged or not a file of vectors: {error}") from error
