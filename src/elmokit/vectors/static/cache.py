"""Cache of static word vectors: files that were parsed once, as memory maps for the next time.

    FOLDER/glove.txt-1f0c…/     words.txt, vectors.npy, metadata.json: path, size and time of file

There is one entry for each path and limit, valid as long as the file has the same size and
modification time. If the cache cannot be written, the file is parsed each time.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError, UnsupportedFormat
from elmokit.formats.native import read_lines
from elmokit.io.atomic import atomic_folder
from elmokit.io.jsonfile import read_json
from elmokit.vectors.shards import write_npy_header

Table = NDArray[np.float32]
WordRows = tuple[list[str], Table]  # n words and (n, columns)

VERSION = 3  # Entries of another version are replaced.
METADATA, WORDS, VECTORS = "metadata.json", "words.txt", "vectors.npy"


def read_cached(
    path: Path,
    limit: int | None,
    cache: Path,
    parse: Callable[[Counter[str]], Iterable[WordRows]],
    notes: Counter[str],
) -> WordRows | None:
    """Return the first `limit` words of a file and their vectors, parsed only the first time.

    `notes` is filled with what `parse` counts. Return None if nothing can be cached.
    """
    full_path, status = str(path.absolute()), path.stat()
    key = hashlib.blake2b(json.dumps([full_path, limit]).encode(), digest_size=8).hexdigest()
    folder = cache / f"{path.name[:60]}-{key}"
    metadata: dict[str, Any] = {"version": VERSION, "path": full_path, "limit": limit}
    metadata |= {"bytes": status.st_size, "changed": status.st_mtime_ns}
    if cached := _read(folder, metadata, notes):
        return cached
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder, replace=(VECTORS, WORDS, METADATA)) as temporary:
            counts: Counter[str] = Counter()
            _write_rows(temporary, parse(counts))
            text = json.dumps({**metadata, "notes": counts})
            (temporary / METADATA).write_text(text, encoding="utf-8")
    except UnsupportedFormat:  # The file is bad, not the cache.
        raise
    except (ElmokitError, OSError):
        return None
    return _read(folder, metadata, notes)  # Another process may have just written it.


def _read(folder: Path, metadata: dict[str, Any], notes: Counter[str]) -> WordRows | None:
    """Return an entry, None if it is missing, damaged or outdated."""
    with suppress(ElmokitError, OSError, ValueError, TypeError, EOFError):
        saved = read_json(folder / METADATA)
        counts = Counter({str(note): int(n) for note, n in dict(saved.pop("notes", {})).items()})
        words = read_lines(folder / WORDS)
        vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
        is_table = vectors.dtype == np.float32 and vectors.ndim == 2
        if is_table and saved == metadata and len(vectors) == len(words):
            notes.update(counts)
            return words, vectors
    return None


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
