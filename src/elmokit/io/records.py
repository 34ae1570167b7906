"""Records of several owners in one SQLite database, shared by processes and safe against kills.

The database never shrinks: the space of records that were deleted is used again.
"""

from __future__ import annotations

import os
import sqlite3
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

LOCK_TIMEOUT = 60.0  # seconds that another process may write
MAX_VALUE_BYTES = 900_000_000  # SQLite's own limit is a little higher.
OVERHEAD_BYTES = 4200  # of one record: the page that it does not fill, its key and checksum
TABLES = """
CREATE TABLE IF NOT EXISTS owners (owner TEXT PRIMARY KEY, used REAL);
CREATE TABLE IF NOT EXISTS records (
    owner TEXT, key BLOB, checksum INTEGER, value BLOB, PRIMARY KEY (owner, key)
);
"""
_abandoned: list[sqlite3.Connection] = []  # of parent processes
USED = "INSERT OR REPLACE INTO owners VALUES (?, ?)"


class Records:
    """The records of one owner; the database is created if it does not exist.

    What cannot be read is missing; what cannot be written raises sqlite3.Error.
    """

    def __init__(self, path: Path, owner: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._owner = path, owner
        self._connect()
        with suppress(sqlite3.OperationalError):  # It may be read-only.
            self._database.execute(USED, (owner, time.time()))

    def _connect(self) -> None:
        self._process = os.getpid()
        try:
            self._connection = _open(self._path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # It is damaged, and everything in it can be computed again.
            self._path.unlink()
            self._connection = _open(self._path)

    @property
    def _database(self) -> sqlite3.Connection:
        """The connection of this process: one that was forked cannot use its parent's."""
        if self._process != os.getpid():
            _abandoned.append(self._connection)  # Closing it here would release the parent's locks.
            self._connect()
        return self._connection

    def __len__(self) -> int:
        query = "SELECT count(*) FROM records WHERE owner = ?"
        return int(self._database.execute(query, (self._owner,)).fetchone()[0])

    def __contains__(self, key: bytes) -> bool:
        return self._find("SELECT 1 FROM records WHERE owner = ? AND key = ?", key) is not None

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a record; None if it is missing or damaged."""
        row = self._find("SELECT checksum, value FROM records WHERE owner = ? AND key = ?", key)
        checksum, value = row or (0, None)
        if value is not None and zlib.crc32(value) != checksum:
            self._find("DELETE FROM records WHERE owner = ? AND key = ?", key)
            return None
        return value

    def _find(self, statement: str, key: bytes) -> Any:
        with suppress(sqlite3.DatabaseError):
            return self._database.execute(statement, (self._owner, key)).fetchone()
        return None

    def append(self, records: Mapping[bytes, bytes]) -> None:
        """Add all of these records or none, except those that another process has added."""
        rows = [(self._owner, key, zlib.crc32(value), value) for key, value in records.items()]
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(USED, (self._owner, time.time()))
            database.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)", rows)

    def make_room(self, needed: int, limit: int) -> int:
        """Delete records of the owners that were used longest ago until `needed` bytes fit.

        Return how many bytes may still be added to at most `limit`, which other owners count for.
        """
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            oldest = "SELECT owner FROM owners WHERE owner != ? ORDER BY used"
            for owner in database.execute(oldest, (self._owner,)).fetchall():
                if self._used() + needed <= limit:
                    break
                database.execute("DELETE FROM records WHERE owner = ?", owner)
                database.execute("DELETE FROM owners WHERE owner = ?", owner)
            return max(0, limit - self._used())

    def _used(self) -> int:
        pages, free, size = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(
        path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    try:
        database.executescript(TABLES)
    except sqlite3.Error:
        database.close()
        raise
    return database
