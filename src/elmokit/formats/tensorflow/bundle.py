"""TensorFlow's checkpoint files, read without TensorFlow: `NAME.index` and `NAME.data-i-of-n`.

The index is a sorted table in the manner of LevelDB: blocks of entries (key, value), a block that
says where they are, and a footer that says where that one is. A key is a tensor's name; its value
says in which data file the tensor lies, where, and its type, shape and checksum. The empty key
holds the number of data files. The values are protocol buffers, of which a few fields are needed.

All of it is numbers and names. Every length and place is compared with the size of its file before
anything is read, and every checksum with its content.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.formats.tensorflow.crc32c import crc32c, masked

INDEX = ".index"
LARGEST_INDEX, MOST_ENTRIES, LONGEST_NAME, MOST_FILES, MOST_AXES = 1 << 24, 10_000, 1000, 1000, 8
MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
FOOTER, TRAILER = 48, 5  # bytes
FLOATS: dict[int, np.dtype[Any]] = {  # by TensorFlow's numbers
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    19: np.dtype("<f2"),
}


class Damaged(ValueError):
    """What is wrong with an index file, to be told with its name."""


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies, and what it is."""

    dtype: int
    shape: tuple[int, ...]
    file: int
    offset: int
    size: int
    checksum: int
    in_slices: bool


@dataclass(frozen=True)
class Bundle:
    """A checkpoint whose index is read and whose tensors are not yet."""

    prefix: Path
    files: list[Path]
    entries: dict[str, Entry]

    def read(self, name: str) -> NDArray[np.float32]:
        """A tensor of floating numbers, as float32."""
        entry = self.entries[name]
        path, dtype = self.files[entry.file], FLOATS.get(entry.dtype)
        if dtype is None:
            raise ElmokitError(f"{path}: the tensor {name!r} is not of float16, float32 or float64")
        if entry.in_slices:
            raise ElmokitError(
                f"{path}: the tensor {name!r} is stored in slices, which is not read"
            )
        if entry.size != math.prod(entry.shape) * dtype.itemsize:
            raise ElmokitError(
                f"{path}: the tensor {name!r} of shape {list(entry.shape)} has {entry.size:,} bytes"
            )
        try:
            content = np.fromfile(path, np.uint8, entry.size, offset=entry.offset)
        except OSError as error:
            raise ElmokitError(f"cannot read {path}: {error.strerror}") from None
        except MemoryError:
            raise ElmokitError(f"{path}: the tensor {name!r} is too large") from None
        if len(content) != entry.size or masked(crc32c(content)) != entry.checksum:
            raise ElmokitError(f"{path}: the tensor {name!r} is damaged (its checksum differs)")
        with np.errstate(over="ignore"):  # infinities are found when the model is built
            values = content.view(dtype).reshape(entry.shape)
            return values.astype(np.float32, copy=False)


def open_bundle(prefix: Path) -> Bundle:
    """Read the index of a checkpoint, given its path without `.index`."""
    index = prefix.with_name(prefix.name + INDEX)
    try:
        if index.stat().st_size > LARGEST_INDEX:
            raise ElmokitError(f"{index} is too large for an index of tensors")
        content = index.read_bytes()
    except OSError as error:
        raise ElmokitError(f"cannot read {index}: {error.strerror}") from None
    try:
        number, entries = _table(content)
    except Damaged as reason:
        raise ElmokitError(
            f"{index} is not a TensorFlow index that can be read: {reason}"
        ) from None
    files = [prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{number:05d}") for i in range(number)]
    _check_places(index, files, entries)
    return Bundle(prefix, files, entries)


def _check_places(index: Path, files: list[Path], entries: dict[str, Entry]) -> None:
    """Every tensor inside its file, and not more of them than the files can hold."""
    sizes = []
    for path in files:
        if not path.is_file():
            raise ElmokitError(f"there is no file {path}, which belongs to {index.name}")
        sizes.append(path.stat().st_size)
    for name, entry in entries.items():
        if entry.file >= len(files):
            raise ElmokitError(f"{index}: the tensor {name!r} is in data file {entry.file}")
        if entry.offset + entry.size > sizes[entry.file]:
            raise ElmokitError(
                f"{files[entry.file]} is truncated: it has {sizes[entry.file]:,} bytes, and the "
                f"tensor {name!r} ends at {entry.offset + entry.size:,}"
            )
    if sum(entry.size for entry in entries.values()) > sum(sizes):
        raise ElmokitError(f"{index} declares more tensors than its data files can hold")


# ---------------------------------------------------------------------- the table
def _table(content: bytes) -> tuple[int, dict[str, Entry]]:
    """The number of data files, and every tensor's entry by its name."""
    footer = content[-FOOTER:]
    if len(footer) < FOOTER or footer[-8:] != MAGIC:
        raise Damaged("it is truncated or another kind of file")
    _, _, place = _handle(footer, 0)  # of a block that TensorFlow leaves empty
    offset, size, _ = _handle(footer, place)
    found: list[tuple[bytes, bytes]] = []
    end = 0
    for _, value in _entries(_block(content, offset, size)):
        offset, size, _ = _handle(value, 0)
        if offset < end:
            raise Damaged("its blocks overlap")
        end = offset + size
        found += _entries(_block(content, offset, size))
        if len(found) > MOST_ENTRIES:
            raise Damaged(f"it has more than {MOST_ENTRIES:,} entries")
    if not found or found[0][0] != b"":
        raise Damaged("it has no header")
    entries: dict[str, Entry] = {}
    for key, value in found[1:]:
        name = key.decode("utf-8", "backslashreplace")
        if name in entries:
            raise Damaged(f"the tensor {name!r} stands there twice")
        entries[name] = _entry(name, value)
    return _number_of_files(found[0][1]), entries


def _handle(data: bytes, place: int) -> tuple[int, int, int]:
    """Offset and size of a block, and the place after them."""
    offset, place = _varint(data, place)
    size, place = _varint(data, place)
    return offset, size, place


def _block(content: bytes, offset: int, size: int) -> bytes:
    """A block's entries, without the list of restarts behind them."""
    end = offset + size
    if size < 4 or end + TRAILER > len(content):
        raise Damaged("a block lies outside of the file")
    if masked(crc32c(content[offset : end + 1])) != _fixed(content, end + 1, 4):
        raise Damaged("the checksum of a block differs")
    if content[end] != 0:
        raise Damaged("it is compressed, which TensorFlow's own are not")
    restarts = 4 * (1 + _fixed(content, end - 4, 4))
    if restarts > size:
        raise Damaged("a block has more restarts than bytes")
    return content[offset : end - restarts]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values; a key is given by what it shares with the one before it, and the rest."""
    key, place = b"", 0
    for _ in range(MOST_ENTRIES + 1):
        if place == len(block):
            return
        shared, place = _varint(block, place)
        more, place = _varint(block, place)
        size, place = _varint(block, place)
        if shared > len(key) or shared + more > LONGEST_NAME or place + more + size > len(block):
            raise Damaged("an entry does not fit into its block")
        key = key[:shared] + block[place : place + more]
        place += more + size
        yield key, block[place - size : place]
    raise Damaged(f"it has more than {MOST_ENTRIES:,} entries")


# ---------------------------------------------------------------------- the values
def _number_of_files(value: bytes) -> int:
    """From BundleHeaderProto: 1 is the number of data files, 2 is 1 for big-endian numbers."""
    fields = dict(_fields(value))
    number = fields.get(1, 1)
    if fields.get(2, 0) != 0:
        raise Damaged("its numbers are big-endian, which is not read")
    if not isinstance(number, int) or not 1 <= number <= MOST_FILES:
        raise Damaged("it has no sensible number of data files")
    return number


def _entry(name: str, value: bytes) -> Entry:
    """From BundleEntryProto: type, shape, data file, offset, size, checksum, slices."""
    whole = {1: 0, 3: 0, 4: 0, 5: 0, 6: 0}
    shape: list[int] = []
    in_slices = False
    for number, field in _fields(value):
        if number in whole and isinstance(field, int):
            whole[number] = field
        elif number == 2 and isinstance(field, bytes):
            shape += _shape(field)
        elif number == 7:
            in_slices = True
        elif number <= 7:
            raise Damaged(f"the entry of the tensor {name!r} is garbled")
    if len(shape) > MOST_AXES:
        raise Damaged(f"the tensor {name!r} has {len(shape)} axes")
    return Entry(whole[1], tuple(shape), whole[3], whole[4], whole[5], whole[6], in_slices)


def _shape(value: bytes) -> Iterator[int]:
    """From TensorShapeProto: field 2 is an axis, whose field 1 is its length."""
    for number, axis in _fields(value):
        if number == 2 and isinstance(axis, bytes):
            length = dict(_fields(axis)).get(1, 0)
            if not isinstance(length, int) or length >= 1 << 40:
                raise Damaged("a tensor has an axis without a sensible length")
            yield length


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: number, and a whole number or bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, place = _varint(message, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, place = _fixed(message, place, size), place + size
        elif kind == 2:
            size, place = _varint(message, place)
            value, place = message[place : place + size], place + size
        else:
            raise Damaged("an entry has a field of unknown kind")
        if place > len(message):
            raise Damaged("an entry ends too early")
        yield tag >> 3, value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A whole number of 7 bits a byte, the last byte below 128, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            raise Damaged("it ends in the middle of a number")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise Damaged("a number is too long")


def _fixed(data: bytes, place: int, size: int) -> int:
    return int.from_bytes(data[place : place + size], "little")
