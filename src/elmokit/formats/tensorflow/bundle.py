"""TensorFlow's checkpoint files, read without TensorFlow: `NAME.index` and `NAME.data-i-of-n`.

The index is a sorted table as in LevelDB: blocks of entries (key, value), a block that locates
them, and a footer that locates that block. A key is a tensor's name; its value gives the data file,
offset, type, shape and checksum of the tensor. The value of the empty key gives the number of data
files. The values are protocol buffers, of which a few fields are needed.

Lengths and offsets are compared with file sizes before anything is read, checksums with content.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import MissingFile, UnsupportedFormat
from elmokit.formats.tensorflow.crc32c import crc32c, masked
from elmokit.io.jsonfile import read_bytes
from elmokit.io.paths import check_regular

INDEX = ".index"
MAX_INDEX_BYTES, MAX_ENTRIES, MAX_NAME_BYTES = 1 << 24, 10_000, 1000
MAX_FILES, MAX_DIMENSIONS = 1000, 8
MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
FOOTER, TRAILER = 48, 5  # bytes
FIXED = {1: 8, 5: 4}  # bytes of the integers of a protocol buffer that are not varints
FLOATS = {1: "<f4", 2: "<f8", 19: "<f2"}  # by the type codes of TensorFlow


class Damaged(ValueError):
    """What is wrong with an index file; the caller adds its name."""


class Entry(NamedTuple):
    """Type, shape and location of a tensor."""

    dtype: int
    shape: tuple[int, ...]
    file: int
    offset: int
    size: int
    checksum: int
    in_slices: bool


@dataclass(frozen=True)
class Bundle:
    """A checkpoint whose index has been read; tensors are read on request."""

    prefix: Path
    files: list[Path]
    entries: dict[str, Entry]

    def read(self, name: str) -> NDArray[np.float32]:
        entry = self.entries[name]
        path = self.files[entry.file]
        tensor = f"{path}: the tensor {name!r}"
        if entry.dtype not in FLOATS:
            raise UnsupportedFormat(f"{tensor} is not of float16, float32 or float64")
        dtype = np.dtype(FLOATS[entry.dtype])
        if entry.in_slices:
            raise UnsupportedFormat(f"{tensor} is stored in slices, which is not supported")
        if entry.size != math.prod(entry.shape) * dtype.itemsize:
            shape = list(entry.shape)
            raise UnsupportedFormat(f"{tensor} of shape {shape} has {entry.size:,} bytes")
        try:
            content = np.fromfile(path, np.uint8, entry.size, offset=entry.offset)
        except OSError as error:
            raise UnsupportedFormat(f"cannot read {path}: {error.strerror}") from None
        except MemoryError:
            raise UnsupportedFormat(f"{tensor} is too large") from None
        if len(content) != entry.size or masked(crc32c(content)) != entry.checksum:
            raise UnsupportedFormat(f"{tensor} is damaged (its checksum differs)")
        with np.errstate(over="ignore"):  # Building the model finds infinities.
            return content.view(dtype).reshape(entry.shape).astype(np.float32, copy=False)


def open_bundle(prefix: Path) -> Bundle:
    """Read the index of a checkpoint, given its path without `.index`."""
    index = prefix.with_name(prefix.name + INDEX)
    check_regular(index)
    try:
        file_count, entries = _table(read_bytes(index, MAX_INDEX_BYTES, "an index of tensors"))
    except Damaged as reason:
        raise UnsupportedFormat(f"{index} is not a readable TensorFlow index: {reason}") from None
    pattern = f"{prefix.name}.data-{{:05d}}-of-{file_count:05d}"
    files = [prefix.with_name(pattern.format(i)) for i in range(file_count)]
    sizes = []
    for path in files:
        if not path.is_file():
            raise MissingFile(f"there is no file {path}, which belongs to {index.name}")
        sizes.append(path.stat().st_size)
    for name, entry in entries.items():
        i, end = entry.file, entry.offset + entry.size
        if i >= len(files):
            raise UnsupportedFormat(f"{index}: {name!r} is in data file {i} of {len(files)}")
        if end > sizes[i]:
            raise UnsupportedFormat(
                f"{files[i]} is truncated: it has {sizes[i]:,} bytes, and the tensor {name!r} "
                f"ends at {end:,}"
            )
    if sum(entry.size for entry in entries.values()) > sum(sizes):
        raise UnsupportedFormat(f"{index} declares more tensors than its data files can hold")
    return Bundle(prefix, files, entries)


# ---------------------------------------------------------------------- the table
def _table(content: bytes) -> tuple[int, dict[str, Entry]]:
    """Return the number of data files, and the entry of every tensor by its name."""
    footer = content[-FOOTER:]
    if len(footer) < FOOTER or footer[-8:] != MAGIC:
        raise Damaged("it is truncated or of another format")
    items: list[tuple[bytes, bytes]] = []
    end = 0
    # The first two numbers locate a block that TensorFlow leaves empty.
    for _, value in _entries(_block(content, *_varints(BytesIO(footer), 4)[2:])):
        offset, size = _varints(BytesIO(value), 2)
        if offset < end:
            raise Damaged("its blocks overlap")
        end = offset + size
        items += _entries(_block(content, offset, size))
        if len(items) > MAX_ENTRIES:
            raise Damaged(f"it has more than {MAX_ENTRIES:,} entries")
    if not items or items[0][0] != b"":
        raise Damaged("it has no header")
    entries: dict[str, Entry] = {}
    for key, value in items[1:]:
        name = key.decode("utf-8", "backslashreplace")
        if name in entries:
            raise Damaged(f"it has the tensor {name!r} twice")
        entries[name] = _entry(name, value)
    header = dict(_fields(items[0][1]))  # BundleHeaderProto: 1 counts the files, 2 is byte order.
    if header.get(2, 0) != 0:
        raise Damaged("its tensors are big-endian, which is not supported")
    count = header.get(1, 1)
    if not isinstance(count, int) or not 1 <= count <= MAX_FILES:
        raise Damaged("its number of data files is invalid")
    return count, entries


def _block(content: bytes, offset: int, size: int) -> bytes:
    """Return the entries of a block, without the list of restarts after them."""
    end = offset + size
    if size < 4 or end + TRAILER > len(content):
        raise Damaged("a block is outside the file")
    restarts, kind, checksum = struct.unpack_from("<IBI", content, end - 4)
    if masked(crc32c(content[offset : end + 1])) != checksum:
        raise Damaged("the checksum of a block differs")
    if kind != 0:
        raise Damaged("it is compressed, which TensorFlow does not do")
    if 4 * (1 + restarts) > size:
        raise Damaged("a block has more restarts than bytes")
    return content[offset : end - 4 * (1 + restarts)]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values; a key is the length it shares with the last one, and the rest."""
    key, data = b"", BytesIO(block)
    for _ in range(MAX_ENTRIES + 1):
        if data.tell() == len(block):
            return
        shared, more, size = _varints(data, 3)
        end = data.tell() + more + size
        if shared > len(key) or shared + more > MAX_NAME_BYTES or end > len(block):
            raise Damaged("an entry does not fit into its block")
        key = key[:shared] + _take(data, more)
        yield key, _take(data, size)
    raise Damaged(f"it has more than {MAX_ENTRIES:,} entries")


# ---------------------------------------------------------------------- the values
def _entry(name: str, value: bytes) -> Entry:
    """Return type, shape, data file, offset, size, checksum and slices of a BundleEntryProto."""
    fields: dict[int, Any] = {1: 0, 2: b"", 3: 0, 4: 0, 5: 0, 6: 0, 7: None} | dict(_fields(value))
    dtype, shape, file, offset, size, checksum, slices = (fields[tag] for tag in range(1, 8))
    integers = (dtype, file, offset, size, checksum)
    if not isinstance(shape, bytes) or not all(isinstance(each, int) for each in integers):
        raise Damaged(f"the entry of the tensor {name!r} is invalid")
    sizes = []
    for tag, dimension in _fields(shape):  # TensorShapeProto: 2 is a dimension, its 1 the size.
        if tag == 2 and isinstance(dimension, bytes):
            length = dict(_fields(dimension)).get(1, 0)
            if not isinstance(length, int) or length >= 1 << 40:
                raise Damaged("a tensor has a dimension of invalid size")
            sizes.append(length)
    if len(sizes) > MAX_DIMENSIONS:
        raise Damaged(f"the tensor {name!r} has {len(sizes)} dimensions")
    return Entry(dtype, tuple(sizes), file, offset, size, checksum, slices is not None)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer: their numbers, and integers or bytes."""
    data = BytesIO(message)
    while data.tell() < len(message):
        (tag,) = _varints(data, 1)
        if (kind := tag & 7) == 0:
            yield tag >> 3, _varints(data, 1)[0]
        elif kind == 2:
            yield tag >> 3, _take(data, _varints(data, 1)[0])
        elif kind in FIXED:
            yield tag >> 3, int.from_bytes(_take(data, FIXED[kind]), "little")
        else:
            raise Damaged("an entry has a field of unknown kind")


def _varints(data: BytesIO, count: int) -> list[int]:
    """Read integers of 7 bits per byte, the last byte below 128."""
    values = []
    for _ in range(count):
        value = 0
        for shift in range(0, 70, 7):
            byte = data.read(1)
            if not byte:
                raise Damaged("it ends in the middle of a number")
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                break
        else:
            raise Damaged("a number is too long")
        values.append(value)
    return values


def _take(data: BytesIO, size: int) -> bytes:
    taken = data.read(min(size, MAX_INDEX_BYTES))
    if len(taken) < size:
        raise Damaged("an entry ends too early")
    return taken
