"""Bytes by key in two files that only grow: what is kept outlives a kill, and can be shared.

    records.data      the bytes of all records, one after the other
    records.index     of each record: key, offset, size, checksum of the bytes, checksum of all this

A record's bytes are safe on the disk before its line of the index is written, so a process that
dies leaves at most bytes that no index names; the next one writes over them. Several processes may
append, one at a time; reading needs no lock. Bytes are checked the first time they are read.
"""

from __future__ import annotations

import os
import struct
import time
import weakref
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.io.atomic import locked

DATA, INDEX = "records.data", "records.index"
ENTRY = struct.Struct("<16sQQI")  # key, offset, size, checksum of the bytes
CHECKED = struct.Struct("<16sQQII")  # the same, and a checksum of the entry
LINE = CHECKED.size
KEY_BYTES = 16
PATIENCE = 60.0  # seconds that another process may keep the lock


class Records:
    """The records of one folder, which is made if it is not there.

    Its files stay open: if another process deletes them, this one goes on with what it has.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._data = self._open(folder / DATA)
        self._index = self._open(folder / INDEX)
        with suppress(OSError):  # when it was last used: see `remove_oldest`
            os.utime(folder / INDEX)
        self._places: dict[bytes, tuple[int, int, int]] = {}  # offset, size, checksum
        self._sound: set[bytes] = set()  # keys whose bytes were checked
        self._lines = 0  # of the index that are known
        self._end = 0  # of the data that the index knows
        self._map: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.refresh()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def _open(self, path: Path) -> IO[bytes]:
        """A file, made if it is not there; open for reading alone where writing is forbidden."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        try:
            file: IO[bytes] = os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0)
        except OSError:
            if not path.is_file():
                raise
            file = path.open("rb", buffering=0)
        weakref.finalize(self, file.close)
        return file

    @property
    def writable(self) -> bool:
        """Whether records can be added."""
        return self._data.writable() and self._index.writable()

    def refresh(self) -> None:
        """See what other processes have added."""
        size = os.fstat(self._index.fileno()).st_size
        if size // LINE == self._lines:
            return
        self._index.seek(self._lines * LINE)
        lines = self._index.read((size // LINE - self._lines) * LINE)
        there = os.fstat(self._data.fileno()).st_size
        for start in range(0, len(lines) // LINE * LINE, LINE):
            self._lines += 1
            key, offset, length, checksum, check = CHECKED.unpack_from(lines, start)
            entry = lines[start : start + ENTRY.size]
            if check == zlib.crc32(entry) and offset + length <= there:
                self._places[key] = (offset, length, checksum)  # the last: others are damaged
                self._sound.discard(key)
                self._end = max(self._end, offset + length)

    def get(self, key: bytes) -> NDArray[np.uint8] | None:
        """The bytes of a record, memory-mapped; None if there is none or it is damaged."""
        if key not in self._places:
            return None
        offset, size, checksum = self._places[key]
        if offset + size > len(self._map):
            whole = np.memmap(self._data, np.uint8, "r", shape=(self._end,))
            self._map = np.asarray(whole)  # a plain array is sliced faster
        found = self._map[offset : offset + size]
        if key not in self._sound:
            if zlib.crc32(found.data) != checksum:
                del self._places[key]
                return None
            self._sound.add(key)
        return found

    def append(self, records: Mapping[bytes, bytes]) -> None:
        """Keep records; those that another process has added meanwhile are left as they are.

        Raises OSError if the disk does not take them; what was there is not touched.
        """
        with _alone(self.folder):
            self.refresh()
            new = {key: value for key, value in records.items() if key not in self._places}
            try:
                write_at(self._data, self._end, b"".join(new.values()))
            except OSError:
                with suppress(OSError):  # on a full disk the space is wanted back at once
                    self._data.truncate(self._end)
                raise
            lines = b"".join(_lines(new, self._end))
            write_at(self._index, self._lines * LINE, lines)
            self.refresh()


def _lines(records: Mapping[bytes, bytes], at: int) -> Iterator[bytes]:
    """What the index says of records whose bytes begin there."""
    for key, value in records.items():
        entry = ENTRY.pack(key, at, len(value), zlib.crc32(value))
        yield CHECKED.pack(key, at, len(value), zlib.crc32(value), zlib.crc32(entry))
        at += len(value)


def write_at(file: IO[bytes], position: int, content: bytes) -> None:
    """Write all of some bytes, and have them on the disk."""
    file.seek(position)
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]
    os.fsync(file.fileno())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is at work in a folder, and keep others out."""
    deadline = time.monotonic() + PATIENCE
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(folder))
                break
            except FileNotFoundError:  # another process has deleted it: nobody else is in there
                break
            except ElmokitError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(str(error)) from None
                time.sleep(0.02)
        yield


def remove_oldest(folder: Path, *, needed: int, limit: int, spare: Path) -> int:
    """Delete the folders of records used longest ago until `needed` bytes more fit the limit.

    `spare` is not deleted. Gives the bytes that may still be written.
    """
    sizes: dict[Path, int] = {}
    used: dict[Path, float] = {}
    for place in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):
            parts = [(place / name).stat() for name in (DATA, INDEX)]
            sizes[place], used[place] = sum(p.st_size for p in parts), parts[1].st_mtime
    for place in sorted(used, key=lambda place: used[place]):
        if sum(sizes.values()) + needed <= limit:
            break
        if place != spare:
            with suppress(OSError, ElmokitError), locked(place):  # not while it is written to
                for name in (INDEX, DATA):
                    (place / name).unlink()
                del sizes[place]
                place.rmdir()
    return max(0, limit - sum(sizes.values()))
