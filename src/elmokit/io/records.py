"""A key-value store in two append-only files that survives kills and is shared by processes.

    records.data      the bytes of all records, one after the other
    records.index     an entry per record: key, offset, size, checksum of the bytes, of the entry

A record's bytes are safe on the disk before its index entry is written, so a process that dies
leaves at most bytes that no entry refers to; the next one overwrites them. Several processes may
append, one at a time; reading needs no lock. Bytes are verified the first time they are read.
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
ENTRY_BYTES = CHECKED.size
KEY_BYTES = 16
LOCK_TIMEOUT = 60.0  # seconds that another process may hold the lock


class Records:
    """The records of one folder, which is created if it does not exist.

    Its files stay open: if another process deletes them, this one keeps using them.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._data = self._open(folder / DATA)
        self._index = self._open(folder / INDEX)
        with suppress(OSError):  # The time of last use: see `remove_oldest`.
            os.utime(folder / INDEX)
        self._entries: dict[bytes, tuple[int, int, int]] = {}  # offset, size, checksum
        self._verified: set[bytes] = set()  # keys whose bytes were checked
        self._read_entries = 0  # index entries that were read
        self._end = 0  # end of the data that the index refers to
        self._map: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.refresh()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def _open(self, path: Path) -> IO[bytes]:
        """Open a file, created if missing; read-only where writing is forbidden."""
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
        """Read the entries that other processes have added."""
        size = os.fstat(self._index.fileno()).st_size
        if size // ENTRY_BYTES == self._read_entries:
            return
        self._index.seek(self._read_entries * ENTRY_BYTES)
        lines = self._index.read((size // ENTRY_BYTES - self._read_entries) * ENTRY_BYTES)
        data_size = os.fstat(self._data.fileno()).st_size
        for start in range(0, len(lines) // ENTRY_BYTES * ENTRY_BYTES, ENTRY_BYTES):
            self._read_entries += 1
            key, offset, length, checksum, check = CHECKED.unpack_from(lines, start)
            entry = lines[start : start + ENTRY.size]
            if check == zlib.crc32(entry) and offset + length <= data_size:
                # A later entry replaces a damaged one.
                self._entries[key] = (offset, length, checksum)
                self._verified.discard(key)
                self._end = max(self._end, offset + length)

    def get(self, key: bytes) -> NDArray[np.uint8] | None:
        """Return the bytes of a record, memory-mapped; None if it is missing or damaged."""
        if key not in self._entries:
            return None
        offset, size, checksum = self._entries[key]
        if offset + size > len(self._map):
            mapped = np.memmap(self._data, np.uint8, "r", shape=(self._end,))
            self._map = np.asarray(mapped)  # A plain array is faster to slice.
        value = self._map[offset : offset + size]
        if key not in self._verified:
            if zlib.crc32(value.data) != checksum:
                del self._entries[key]
                return None
            self._verified.add(key)
        return value

    def append(self, records: Mapping[bytes, bytes]) -> None:
        """Add records, except those that another process has added meanwhile.

        Raise OSError if they cannot be written; existing records are not touched.
        """
        with _wait_for_lock(self.folder):
            self.refresh()
            new = {key: value for key, value in records.items() if key not in self._entries}
            try:
                write_at(self._data, self._end, b"".join(new.values()))
            except OSError:
                with suppress(OSError):  # On a full disk, free the space at once.
                    self._data.truncate(self._end)
                raise
            entries = b"".join(_index_entries(new, self._end))
            write_at(self._index, self._read_entries * ENTRY_BYTES, entries)
            self.refresh()


def _index_entries(records: Mapping[bytes, bytes], offset: int) -> Iterator[bytes]:
    """Yield the index entries of records whose bytes begin at `offset`."""
    for key, value in records.items():
        entry = ENTRY.pack(key, offset, len(value), zlib.crc32(value))
        yield CHECKED.pack(key, offset, len(value), zlib.crc32(value), zlib.crc32(entry))
        offset += len(value)


def write_at(file: IO[bytes], position: int, content: bytes) -> None:
    """Write all of `content` at a position and sync it to the disk."""
    file.seek(position)
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]
    os.fsync(file.fileno())


@contextmanager
def _wait_for_lock(folder: Path) -> Iterator[None]:
    """Wait until no other process writes to a folder, and keep others out."""
    deadline = time.monotonic() + LOCK_TIMEOUT
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(folder))
                break
            except FileNotFoundError:  # Another process has deleted it, so nobody uses it.
                break
            except ElmokitError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(str(error)) from None
                time.sleep(0.02)
        yield


def remove_oldest(folder: Path, *, needed: int, limit: int, spare: Path) -> int:
    """Delete least recently used folders of records until `needed` more bytes fit the limit.

    `spare` is not deleted. Return the number of bytes that may still be written.
    """
    sizes: dict[Path, int] = {}
    used: dict[Path, float] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):
            parts = [(path / name).stat() for name in (DATA, INDEX)]
            sizes[path], used[path] = sum(p.st_size for p in parts), parts[1].st_mtime
    for path in sorted(used, key=lambda path: used[path]):
        if sum(sizes.values()) + needed <= limit:
            break
        if path != spare:
            with suppress(OSError, ElmokitError), locked(path):  # not while it is written to
                for name in (INDEX, DATA):
                    (path / name).unlink()
                del sizes[path]
                path.rmdir()
    return max(0, limit - sum(sizes.values()))
