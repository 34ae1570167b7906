"""TensorFlow's checkpoint files, read without TensorFlow: `NAME.index` and `NAME.data-i-of-n`.

The index is a sorted table as in LevelDB: blocks of entries (key, value), a block that locates
them, and a footer that locates that block. A key is a tensor's name; its value gives the data file,
offset, type, shape and checksum of the tensor. The value of the empty key gives the number of data
files. The values are protocol buffers, of which a few fields are needed.

Every length and offset is compared with the size of its file before anything is read, and every
checksum with the content.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import MissingFile, UnsupportedFormat
from elmokit.formats.tensorflow.crc32c import crc32c, masked
from elmokit.io.jsonfile import read_bytes

INDEX = ".index"
MAX_INDEX_BYTES, MAX_ENTRIES, MAX_NAME_BYTES = 1 << 24, 10_000, 1000
MAX_FILES, MAX_DIMENSIONS = 1000, 8
MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
FOOTER, TRAILER = 48, 5  # bytes
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
        """Read a floating-point tensor as float32."""
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
    if not index.exists():
        raise MissingFile(f"there is no file {index}")
    try:
        file_count, entries = _table(read_bytes(index, MAX_INDEX_BYTES, "an index of tensors"))
    except Damaged as reason:
        raise UnsupportedFormat(f"{index} is not a readable TensorFlow index: {reason}") from None
    pattern = f"{prefix.name}.data-{{:05d}}-of-{file_count:05d}"
    files = [prefix.with_name(pattern.format(i)) for i in range(file_count)]
    _check_locations(index, files, entries)
    return Bundle(prefix, files, entries)


def _check_locations(index: Path, files: list[Path], entries: dict[str, Entry]) -> None:
    """Raise unless every tensor is inside its file, and all together fit into the files."""
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


# ---------------------------------------------------------------------- the table
def _table(content: bytes) -> tuple[int, dict[str, Entry]]:
    """Return the number of data files, and the entry of every tensor by its name."""
    footer = content[-FOOTER:]
    if len(footer) < FOOTER or footer[-8:] != MAGIC:
        raise Damaged("it is truncated or of another format")
    # The first two numbers locate a block that TensorFlow leaves empty.
    (_, _, offset, size), _ = _varints(footer, 0, 4)
    items: list[tuple[bytes, bytes]] = []
    end = 0
    for _, value in _entries(_block(content, offset, size)):
        (offset, size), _ = _varints(value, 0, 2)
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
    return _file_count(items[0][1]), entries


def _block(content: bytes, offset: int, size: int) -> bytes:
    """Return the entries of a block, without the list of restarts after them."""
    end = offset + size
    if size < 4 or end + TRAILER > len(content):
        raise Damaged("a block is outside the file")
    if masked(crc32c(content[offset : end + 1])) != _fixed(content, end + 1, 4):
        raise Damaged("the checksum of a block differs")
    if content[end] != 0:
        raise Damaged("it is compressed, which TensorFlow does not do")
    restarts = 4 * (1 + _fixed(content, end - 4, 4))
    if restarts > size:
        raise Damaged("a block has more restarts than bytes")
    return content[offset : end - restarts]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values; a key is the length it shares with the last one, and the rest."""
    key, position = b"", 0
    for _ in range(MAX_ENTRIES + 1):
        if position == len(block):
            return
        (shared, more, size), position = _varints(block, position, 3)
        end = position + more + size
        if shared > len(key) or shared + more > MAX_NAME_BYTES or end > len(block):
            raise Damaged("an entry does not fit into its block")
        key = key[:shared] + block[position : position + more]
        position = end
        yield key, block[end - size : end]
    raise Damaged(f"it has more than {MAX_ENTRIES:,} entries")


# ---------------------------------------------------------------------- the values
def _file_count(value: bytes) -> int:
    """Return field 1 of a BundleHeaderProto, the number of data files; 2 is the byte order."""
    fields = dict(_fields(value))
    count = fields.get(1, 1)
    if fields.get(2, 0) != 0:
        raise Damaged("its tensors are big-endian, which is not supported")
    if not isinstance(count, int) or not 1 <= count <= MAX_FILES:
        raise Damaged("its number of data files is invalid")
    return count


def _entry(name: str, value: bytes) -> Entry:
    """Return type, shape, data file, offset, size, checksum and slices of a BundleEntryProto."""
    integers = {1: 0, 3: 0, 4: 0, 5: 0, 6: 0}
    shape: list[int] = []
    in_slices = False
    for tag, field in _fields(value):
        if tag in integers and isinstance(field, int):
            integers[tag] = field
        elif tag == 2 and isinstance(field, bytes):
            shape += _shape(field)
        elif tag == 7:
            in_slices = True
        elif tag <= 7:
            raise Damaged(f"the entry of the tensor {name!r} is invalid")
    if len(shape) > MAX_DIMENSIONS:
        raise Damaged(f"the tensor {name!r} has {len(shape)} dimensions")
    dtype, file, offset, size, checksum = integers.values()
    return Entry(dtype, tuple(shape), file, offset, size, checksum, in_slices)


def _shape(value: bytes) -> Iterator[int]:
    """Yield the sizes of a TensorShapeProto: field 2 is a dimension, whose field 1 is its size."""
    for tag, dimension in _fields(value):
        if tag == 2 and isinstance(dimension, bytes):
            length = dict(_fields(dimension)).get(1, 0)
            if not isinstance(length, int) or length >= 1 << 40:
                raise Damaged("a tensor has a dimension of invalid size")
            yield length


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer: their numbers, and integers or bytes."""
    position = 0
    while position < len(message):
        (tag,), position = _varints(message, position, 1)
        kind, size = tag & 7, {1: 8, 5: 4}.get(tag & 7, 0)
        value: int | bytes
        if kind == 0:
            (value,), position = _varints(message, position, 1)
        elif kind == 2:
            (size,), position = _varints(message, position, 1)
            value, position = message[position : position + size], position + size
        elif size:
            value, position = _fixed(message, position, size), position + size
        else:
            raise Damaged("an entry has a field of unknown kind")
        if position > len(message):
            raise Damaged("an entry ends too early")
        yield tag >> 3, value


def _varints(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Return integers of 7 bits per byte, the last byte below 128, and the position after them."""
    values = []
    for _ in range(count):
        value = 0
        for shift in range(0, 70, 7):
            if position >= len(data):
                raise Damaged("it ends in the middle of a number")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise Damaged("a number is too long")
        values.append(value)
    return values, position


def _fixed(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "little")
