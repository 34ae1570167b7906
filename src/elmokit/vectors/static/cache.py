"""Static word vectors that were read once, as a memory map for the next time.

    FOLDER/glove.txt-1f0c…/     words.txt, vectors.npy, facts.json: of which file, as it was when

A path has one place for each limit, and what is there counts as long as the file has the size and
the time of change that it had. Nothing depends on the cache: where it cannot be written, the file
is read each time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.io.atomic import atomic_folder
from elmokit.io.jsonfile import read_json, read_text
from elmokit.io.npy import write_npy_header

if TYPE_CHECKING:
    from typing import TypeAlias

Table: TypeAlias = "NDArray[np.float32]"
WordRows: TypeAlias = "tuple[list[str], Table]"  # n words and (n, columns)

VERSION = 1  # what another one has written is made anew
FACTS, WORDS, VECTORS = "facts.json", "words.txt", "vectors.npy"


class Kept(NamedTuple):
    """What the cache has of a file."""

    words: list[str]
    vectors: Table
    notes: list[str]
    """What was said when the file was read."""


class Place:
    """Where the cache keeps the first `limit` words of a file, as the file is now."""

    def __init__(self, path: Path, limit: int | None, cache: Path) -> None:
        whole, status = str(path.absolute()), path.stat()
        key = hashlib.blake2b(json.dumps([whole, limit]).encode(), digest_size=8).hexdigest()
        self.folder = cache / f"{path.name[:60]}-{key}"
        self.facts = {
            "version": VERSION,
            "path": whole,
            "limit": limit,
            "bytes": status.st_size,
            "changed": status.st_mtime_ns,
        }

    def read(self) -> Kept | None:
        """What is kept; None if there is nothing, or of the file as it was before."""
        with suppress(ElmokitError, OSError, ValueError, EOFError):
            facts = read_json(self.folder / FACTS)
            notes = facts.pop("notes", None)
            words = read_text(self.folder / WORDS).removesuffix("\n").split("\n")
            vectors = np.load(self.folder / VECTORS, mmap_mode="r", allow_pickle=False)
            sound = vectors.dtype == np.float32 and vectors.shape[:1] == (len(words),)
            if sound and vectors.ndim == 2 and facts == self.facts and isinstance(notes, list):
                return Kept(words, vectors, [str(note) for note in notes])
        return None

    def write(self, rows: Iterable[WordRows], notes: Callable[[], list[str]]) -> None:
        """Keep all rows, and the notes that are there at their end.

        If the rows raise an ElmokitError, so does this; if the cache cannot be written, it is left
        as it is.
        """
        trouble: list[ElmokitError] = []
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with atomic_folder(self.folder, overwrite=True) as making:
                try:
                    _write_rows(making, rows)
                except ElmokitError as error:
                    trouble.append(error)
                    raise
                facts: dict[str, Any] = {**self.facts, "notes": notes()}
                (making / FACTS).write_text(json.dumps(facts), encoding="utf-8")
        except (ElmokitError, OSError):
            if trouble:
                raise trouble[0] from None


def _write_rows(folder: Path, rows: Iterable[WordRows]) -> None:
    count = columns = 0
    with (folder / VECTORS).open("wb") as vectors, (folder / WORDS).open("wb") as words:
        for more, table in rows:
            if not columns:
                columns = table.shape[1]
                _write_header(vectors, 0, columns)
            count += len(more)
            words.write("".join(f"{word}\n" for word in more).encode())
            vectors.write(np.ascontiguousarray(table, "<f4").data)
        vectors.seek(0)
        _write_header(vectors, count, columns)


def _write_header(file: BinaryIO, rows: int, columns: int) -> None:
    """The header, which has the same length for any number of rows."""
    write_npy_header(file, (rows, columns), np.dtype("<f4"))
