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

import io
import itertools
import json
import math
import re
import signal
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import ElmokitError, require
from elmokit.formats.parts import (
    ASSEMBLED,
    INDEX,
    SETTINGS,
    EmbeddedSentence,
    Vectors,
    VectorShards,
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
    write_npy_header,
    write_part,
)

__all__ = ["PartWriter", "VectorShards", "read_vectors"]

Sentences = Iterator[tuple[int, list[str] | None, Vectors]]
SUFFIXES = {"h5": "hdf5", "hdf5": "hdf5", "npz": "npz", "parquet": "parquet", "npy": "npy"}
LARGEST_SENTENCE_INDEX = 256 * 2**20  # bytes of text; the index is built in memory
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
        with clear_disk_errors(self.out):
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
        out, unfinished = self.out, self.parts.exists()
        if not out.parent.is_dir():
            raise ElmokitError(f"The directory {out.parent} does not exist: make it first.")
        if unfinished and not (resume or overwrite):
            raise ElmokitError(
                f"{self.parts} holds an unfinished run: go on with --resume, or start again "
                "with --overwrite."
            )
        if not out.exists():
            return
        if resume and not unfinished and not overwrite:
            raise ElmokitError(f"{out} is complete, there is nothing to resume: use it as it is.")
        if not (unfinished or overwrite):
            raise ElmokitError(f"{out} exists: choose another name, or replace it by --overwrite.")
        if not (is_replaceable(out) if self.format == "npy" else out.is_file()):
            raise ElmokitError(f"{out} is not an output of this format, so it is not replaced.")

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
                f"Sentence {self.done} of {len(sentences[0].tokens):,} tokens is too long for "
                "Parquet: write .h5 or .npy, or fewer layers."
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
            f"The format of {str(out)!r} is not known ({format or ending or 'no ending'}): end the "
            "name in .h5, .hdf5, .npz, .parquet or .npy (a directory), or give one as the format."
        )
    if chosen == "parquet":  # now, not after hours of embedding
        require("pyarrow", extra="parquet", purpose="Parquet output")
    return chosen


def is_replaceable(path: Path) -> bool:
    """Whether `path` is a directory that holds nothing, or a finished output of ours."""
    return path.is_dir() and ((path / INDEX).is_file() or not any(path.iterdir()))


def write_hdf5(shards: VectorShards, file: io.BufferedRandom) -> None:
    """AllenNLP's layout, in the oldest version of HDF5, which every reader knows."""
    import h5py

    index = sentence_index(shards)
    # Nowhere are times tracked: they would make every file another one.
    with DiskShield(file.raw) as shield, h5py.File(shield, "w", libver="earliest") as hdf5:
        fill_hdf5(hdf5, shards, shield)
        if index is not None:
            form = {"dtype": h5py.string_dtype(), "track_times": False}
            hdf5.create_dataset("sentence_to_index", (1,), **form)[0] = index


def fill_hdf5(hdf5: Any, shards: VectorShards, shield: DiskShield) -> None:
    """The vectors themselves: a dataset a sentence, or one of all when pooled."""
    if shards.pooled:
        shape, dtype = shards.kind()
        form = {"dtype": dtype, "track_times": False}
        vectors = hdf5.create_dataset("vectors", (len(shards), *shape), **form)
        for span in shards.spans():
            vectors[span.start : span.stop] = np.stack([shards[number][1] for number in span])
            shield.check()
        return
    for number in range(len(shards)):
        hdf5.create_dataset(str(number), data=shards[number][1], track_times=False)
        shield.check()


class DiskShield:
    """A file for h5py that keeps a failed write, or a Ctrl-C, to itself until `check`.

    HDF5 does not survive a write that fails: errors in closing a dataset are swallowed, and
    closing the file then ends the process with a segmentation fault. A KeyboardInterrupt would
    be raised inside such a write, or where h5py loses it.
    """

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._failure: BaseException | None = None
        self._defers_interrupt = False
        self.seek, self.tell, self.flush = file.seek, file.tell, file.flush
        self.read, self.readinto = file.read, file.readinto

    def __enter__(self) -> DiskShield:
        is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_usual and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._interrupt)
            self._defers_interrupt = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._defers_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.check()

    def _interrupt(self, *_: object) -> None:
        self._failure = KeyboardInterrupt()

    def write(self, content: bytes) -> int:
        """Write all of `content`, unless a write has failed before."""
        rest = memoryview(content).cast("B")
        try:
            while rest and self._failure is None:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._failure = error
        return len(content)

    def truncate(self, size: int) -> int:
        """Set the size of the file, unless a write has failed before."""
        try:
            if self._failure is None:
                self._file.truncate(size)
        except OSError as error:
            self._failure = error
        return size

    def check(self) -> None:
        """Raise what went wrong."""
        if self._failure is not None:
            raise self._failure


def sentence_index(shards: VectorShards) -> str | None:
    """JSON object: sentence -> number of its first occurrence, as a string."""
    numbers: dict[str, str] = {}
    size = 0
    for number in range(len(shards)):
        sentence = without_surrogates(" ".join(shards[number][0]))
        if sentence not in numbers:
            numbers[sentence] = str(number)
            size += len(sentence.encode())
        if size > LARGEST_SENTENCE_INDEX:
            limit = f"{LARGEST_SENTENCE_INDEX >> 20} MB"
            warnings.warn(f"sentence_to_index is left out, the text is over {limit}.", stacklevel=2)
            return None
    return json.dumps(numbers)


def without_surrogates(text: str) -> str:
    """`text` with lone surrogates, which UTF-8 cannot hold, replaced by U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def write_npz(shards: VectorShards, file: io.BufferedRandom) -> None:
    """Like `numpy.savez`, but one array after the other and always the same bytes."""
    with zipfile.ZipFile(file, "w") as archive:
        if shards.pooled:
            shape, dtype = shards.kind()
            with npz_member(archive, "vectors") as member:
                write_npy_header(member, (len(shards), *shape), dtype)
                for number in range(len(shards)):
                    member.write(np.ascontiguousarray(shards[number][1]).data)
        else:
            for number in range(len(shards)):
                with npz_member(archive, str(number)) as member:
                    vectors = np.ascontiguousarray(shards[number][1])
                    np.lib.format.write_array(member, vectors, allow_pickle=False)
        write_npz_tokens(shards, archive)


def write_npz_tokens(shards: VectorShards, archive: zipfile.ZipFile) -> None:
    """All strings of a numpy array are as wide as the longest: compressed, that costs little."""
    width = max((len(json.dumps(shards[n][0])) for n in range(len(shards))), default=1)
    with npz_member(archive, "tokens", zipfile.ZIP_DEFLATED) as member:
        write_npy_header(member, (len(shards),), np.dtype(f"<U{width}"))
        for number in range(len(shards)):
            member.write(json.dumps(shards[number][0]).ljust(width, "\0").encode("utf-32-le"))


def npz_member(archive: zipfile.ZipFile, name: str, compression: int = zipfile.ZIP_STORED) -> Any:
    """A new array in the archive, dated 1980 as the oldest that a zip file can say."""
    info = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
    info.compress_type = compression
    return archive.open(info, "w", force_zip64=True)


def write_parquet(shards: VectorShards, file: io.BufferedRandom) -> None:
    """A row a sentence and a row group a part."""
    pyarrow = require("pyarrow", extra="parquet", purpose="Parquet output")
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Parquet output")
    number_type = pyarrow.from_numpy_dtype(shards.kind()[1])
    columns = {
        "index": pyarrow.int64(),
        "tokens": pyarrow.list_(pyarrow.string()),
        "vectors": pyarrow.list_(number_type),
        "shape": pyarrow.list_(pyarrow.int32()),
    }
    metadata = {"elmokit": json.dumps(read_settings(shards.path))}
    schema = pyarrow.schema(list(columns.items()), metadata=metadata)
    # Vectors hardly ever repeat: a dictionary and minima would be work for nothing.
    form = {"use_dictionary": False, "write_statistics": ["index"]}
    with parquet.ParquetWriter(file, schema, **form) as writer:
        for span in shards.spans():
            table = pyarrow.table(parquet_columns(shards, span, pyarrow), schema=schema)
            writer.write_table(table, row_group_size=len(span))


def parquet_columns(shards: VectorShards, span: range, pyarrow: Any) -> dict[str, Any]:
    """The columns of the sentences `span`."""
    rows = [shards[number] for number in span]
    flat = np.concatenate([vectors.reshape(-1) for _, vectors in rows])
    offsets = np.cumsum([0, *(vectors.size for _, vectors in rows)], dtype=np.int32)
    return {
        "index": list(span),
        "tokens": [[without_surrogates(token) for token in tokens] for tokens, _ in rows],
        "vectors": pyarrow.ListArray.from_arrays(offsets, pyarrow.array(flat)),
        "shape": [list(vectors.shape) for _, vectors in rows],
    }


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
        raise ElmokitError(f"{path} cannot be read: {error.strerror}.") from error
    readers = {b"\x89HDF": read_hdf5, b"PK\3\4": read_npz, b"PAR1": read_parquet}
    if magic not in readers:
        raise ElmokitError(f"{path} is not a file of vectors in HDF5, npz or Parquet.")
    return readable(path, readers[magic](path))


def readable(path: Path, sentences: Sentences) -> Sentences:
    """The same sentences, with one sentence of error if the file `path` is damaged."""
    try:
        yield from sentences
    except READING_ERRORS as error:
        raise ElmokitError(f"{path} is damaged or not a file of vectors: {error}.") from error


def read_hdf5(path: Path) -> Sentences:
    """The sentences of an HDF5 file, also of one that AllenNLP wrote."""
    import h5py

    with h5py.File(path, "r") as hdf5:
        index = json.loads(hdf5["sentence_to_index"][0]) if "sentence_to_index" in hdf5 else {}
        texts = {int(number): sentence for sentence, number in index.items()}
        if "vectors" in hdf5:
            for number, vectors in enumerate(hdf5["vectors"]):
                yield number, split_tokens(texts.get(number)), vectors
            return
        for number in sorted(int(key) for key in hdf5 if key.isdecimal()):
            vectors, tokens = hdf5[str(number)][()], split_tokens(texts.get(number))
            # A token with a space inside cannot be told from two: say nothing rather than that.
            known = tokens is not None and len(tokens) == vectors.shape[-2]
            yield number, tokens if known else None, vectors


def split_tokens(sentence: str | None) -> list[str] | None:
    """The tokens that were joined by spaces; a sentence without tokens has none."""
    if sentence is None:
        return None
    return sentence.split(" ") if sentence else []


def read_npz(path: Path) -> Sentences:
    """The sentences of an npz file; `tokens` is read in step with the vectors."""
    with zipfile.ZipFile(path) as archive:
        texts = (json.loads(str(text)) for text in npy_rows(archive, "tokens"))
        if "vectors.npy" in archive.namelist():
            rows = npy_rows(archive, "vectors")
        else:
            rows = npy_arrays(archive)
        for number, tokens in enumerate(texts):
            yield number, tokens, next(rows)


def npy_rows(archive: zipfile.ZipFile, name: str) -> Iterator[Vectors]:
    """The rows of one array in the archive, without holding all of it."""
    with archive.open(f"{name}.npy") as member:
        np.lib.format.read_magic(member)
        (length, *shape), _, dtype = np.lib.format.read_array_header_1_0(member)
        size = dtype.itemsize * math.prod(shape)
        for _ in range(length):
            yield np.frombuffer(member.read(size), dtype).reshape(shape)


def npy_arrays(archive: zipfile.ZipFile) -> Iterator[Vectors]:
    """The arrays "0", "1", … of the archive."""
    for number in itertools.count():
        with archive.open(f"{number}.npy") as member:
            yield np.lib.format.read_array(member, allow_pickle=False)


def read_parquet(path: Path) -> Sentences:
    """The sentences of a Parquet file, a row group in memory at a time."""
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Parquet input")
    with parquet.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            indices, tokens, shapes = (table[name] for name in ("index", "tokens", "shape"))
            for row, vectors in enumerate(table["vectors"]):
                flat = vectors.values.to_numpy(zero_copy_only=False)
                yield indices[row].as_py(), tokens[row].as_py(), flat.reshape(shapes[row].as_py())
