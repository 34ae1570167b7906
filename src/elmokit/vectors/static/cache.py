"""Cache of static word vectors: files that were parsed once, as memory maps for the next time.

    FOLDER/glove.txt-1f0c…/     words.txt, vectors.npy, metadata.json: path, size and time of file

There is one entry for each path and limit, valid as long as the file has the same size and
modification time. Nothing depends on the cache: if it cannot be written, the file is parsed each
time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.formats.native import read_lines
from elmokit.io.atomic import atomic_folder
from elmokit.io.jsonfile import read_json
from elmokit.io.npy import write_npy_header

Table = NDArray[np.float32]
WordRows = tuple[list[str], Table]  # n words and (n, columns)

VERSION = 2  # Entries of another version are replaced.
METADATA, WORDS, VECTORS = "metadata.json", "words.txt", "vectors.npy"


class CachedVectors(NamedTuple):
    """The words and vectors of a file."""

    words: list[str]
    vectors: Table
    notes: list[str]
    """Warnings from when the file was parsed."""


class CacheEntry:
    """The cache folder of the first `limit` words of a file in its current state."""

    def __init__(self, path: Path, limit: int | None, cache: Path) -> None:
        full_path, status = str(path.absolute()), path.stat()
        key = hashlib.blake2b(json.dumps([full_path, limit]).encode(), digest_size=8).hexdigest()
        self.folder = cache / f"{path.name[:60]}-{key}"
        self.metadata = {
            "version": VERSION,
            "path": full_path,
            "limit": limit,
            "bytes": status.st_size,
            "changed": status.st_mtime_ns,
        }

    def read(self) -> CachedVectors | None:
        """Return the entry, None if it is missing, damaged or outdated."""
        with suppress(ElmokitError, OSError, ValueError, EOFError):
            metadata = read_json(self.folder / METADATA)
            notes = metadata.pop("notes", None)
            words = read_lines(self.folder / WORDS)
            vectors = np.load(self.folder / VECTORS, mmap_mode="r", allow_pickle=False)
            is_table = vectors.dtype == np.float32 and vectors.ndim == 2
            is_current = metadata == self.metadata and isinstance(notes, list)
            if is_table and is_current and len(vectors) == len(words):
                return CachedVectors(words, vectors, [str(note) for note in notes or ()])
        return None

    def write(self, rows: Iterable[WordRows], notes: Callable[[], list[str]]) -> None:
        """Write all rows, and the notes that exist after the last one.

        Errors of the rows are raised; if the cache cannot be written, nothing happens.
        """
        row_errors: list[ElmokitError] = []
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with atomic_folder(self.folder, replace=(VECTORS, WORDS, METADATA)) as temporary:
                try:
                    _write_rows(temporary, rows)
                except ElmokitError as error:
                    row_errors.append(error)
                    raise
                metadata: dict[str, Any] = {**self.metadata, "notes": notes()}
                (temporary / METADATA).write_text(json.dumps(metadata), encoding="utf-8")
        except (ElmokitError, OSError):
            if row_errors:
                raise row_errors[0] from None


def _write_rows(folder: Path, rows: Iterable[WordRows]) -> None:
    count = columns = 0
    with (folder / VECTORS).open("wb") as vectors, (folder / WORDS).open("wb") as words:
        for more, table in rows:
            if not columns:
                columns = table.shape[1]
                write_npy_header(vectors, (0, columns), np.dtype("<f4"))
            count += len(more)
            words.write("".join(f"{word}\n" for word in more).encode())
            vectors.write(np.ascontiguousarray(table, "<f4").data)
        vectors.seek(0)  # The header has the same length for any number of rows.
        write_npy_header(vectors, (count, columns), np.dtype("<f4"))
