"""Write static word vectors as word2vec does, as text or binary, for gensim and `reader.py`.

12345 256            number of words and columns
the 0.25 -1.5 …      a word per line; in a binary file float32 bytes follow each word
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

import numpy as np

from elmokit.errors import ElmokitError
from elmokit.io.atomic import atomic_file
from elmokit.io.lines import COMPRESSIONS
from elmokit.text.readers import extension_of
from elmokit.text.unicode import is_unicode
from elmokit.vectors.static.cache import Table
from elmokit.vectors.static.reader import MAX_WORD_BYTES


def is_writable(word: str) -> bool:
    """Tell whether a file can have this word: white space would end it, and UTF-8 must exist."""
    return is_unicode(word) and word.split() == [word] and len(word.encode()) < MAX_WORD_BYTES


def check_name(path: Path) -> None:
    """Raise if the name says that the file is compressed otherwise than with gzip."""
    if path.suffix.lower() in set(COMPRESSIONS) - {".gz"}:
        raise ElmokitError(f"word vectors are written as they are or as .gz, not {path.suffix}")


def write_static_vectors(
    path: Path, words: Sequence[str], vectors: Table, *, temporary: Path | None = None
) -> None:
    """Write words and vectors (words, dim) atomically: binary in .bin, else text; .gz compresses.

    Text has the digits that it takes to read the same numbers. `temporary` is as in `atomic_file`.
    """
    check_name(path)
    is_binary = extension_of(path) == ".bin"
    line = " ".join(["%.9g"] * vectors.shape[1])
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(atomic_file(path, temporary=temporary))
        if path.suffix.lower() == ".gz":
            # Without a name and a time, so that the same vectors give the same bytes.
            packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0)
            file = cast("IO[bytes]", stack.enter_context(packed))
        file.write(b"%d %d\n" % vectors.shape)
        for word, vector in zip(words, vectors, strict=True):
            row = np.asarray(vector, "<f4")
            numbers = row.tobytes() if is_binary else f"{line % tuple(row.tolist())}\n".encode()
            file.write(word.encode() + b" " + numbers)
