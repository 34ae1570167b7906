"""The file formats of vectors: HDF5, npz and Parquet, each written from parts and read back.

A sentence is (tokens, layers); writers take them from `VectorShards` one by one, so that memory
stays bounded, and give the same bytes for the same vectors.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import require
from elmokit.io.resumable import Vectors, VectorShards, read_settings, write_npy_header

Sentences = Iterator[tuple[int, list[str] | None, Vectors]]
LARGEST_SENTENCE_INDEX = 256 * 2**20  # bytes of text; the index is built in memory


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
