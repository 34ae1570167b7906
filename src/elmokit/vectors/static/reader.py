"""Parse files of static word vectors: GloVe, word2vec (text and binary), fastText.

    bytes ─► whole lines, or records of a binary file ─► (words, float32 rows)

The format is detected from the first bytes. Numbers are counted from the right, because a word may
have spaces in it. No memory is allocated for a size that a file declares.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import UnsupportedFormat
from elmokit.io.lines import BYTE_ORDER_MARK, COMPRESSIONS, FilePath, OnBytes, name_of, read_blocks
from elmokit.text.readers import extension_of, total_bytes

Rows = tuple[list[bytes], NDArray[np.float32]]  # n words and (n, columns)

BLOCK_BYTES = 4 << 20  # parsed at once
MAX_LINE_BYTES = 1 << 20
MAX_WORD_BYTES = 4096  # in a binary file
MAX_COLUMNS = 1 << 14

HEADER = re.compile(rb"[ \t]*([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t\r]*\n")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")  # in binary numbers, never in text
# A number that belongs to the vector, not to a word such as "windows 3.1".
STRAY_NUMBER = re.compile(rb"(^| )[-+]?[0-9]*\.[0-9]{4,}(e[-+]?[0-9]+)?$")
UNSUPPORTED = {  # first bytes of other files, and the message
    b"\xba\x16O/": "is a fastText model with subwords: use its .vec file, which has the vectors",
    b"PK\x03\x04": "is a zip archive: unpack it and give the file inside",
    b"BZh": "is compressed with bzip2: unpack it first (.gz, .xz and .zst are read directly)",
    b"\x89HDF": "is an HDF5 file, not a file of word vectors",
    b"\x93NUMPY": "is a NumPy file, which has no words",
    **dict.fromkeys(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        "is a Python pickle, which is unsafe to read: save the vectors in word2vec's format",
    ),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "is UTF-16 text: convert it to UTF-8"),
}


class Header(NamedTuple):
    """The first line of word2vec and fastText files."""

    words: int
    columns: int
    bytes: int  # length of the line itself


def read_rows(path: FilePath, *, on_bytes: OnBytes = lambda _: None) -> Iterator[Rows]:
    """Yield the words of a file, also repeated ones, and their vectors, thousands at a time."""
    name = name_of(path)
    blocks = _join_blocks(read_blocks(path, on_bytes=on_bytes))
    start = next(blocks, b"").removeprefix(BYTE_ORDER_MARK)
    for magic, sentence in UNSUPPORTED.items():
        # A word may begin with these bytes, too, but text has no control characters.
        if start.startswith(magic) and CONTROL.search(start[:4096]):
            raise UnsupportedFormat(f"{name} {sentence}")
    header = _header(start, name)
    if header is None:
        if b"\0" in start[:8192]:
            raise UnsupportedFormat(f"{name} is a binary file of an unknown kind, not word vectors")
        return _text_rows(chain([start], blocks), name, None)
    rest = start[header.bytes :]
    is_binary = _is_binary(rest, header.columns, path)
    row_bytes = 4 * header.columns + 1 if is_binary else 2 * header.columns
    size = None if Path(path).suffix.lower() in COMPRESSIONS else total_bytes(path)
    if size is not None and header.words * row_bytes > size:
        raise UnsupportedFormat(
            f"line 1 of {name} says that it has {header.words} words with {header.columns} "
            f"columns, but a file of {size} bytes is too short for that"
        )
    return (_binary_rows if is_binary else _text_rows)(chain([rest], blocks), name, header)


def _join_blocks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Join blocks into larger ones."""
    joined = bytearray()
    for block in blocks:
        joined += block
        if len(joined) >= BLOCK_BYTES:
            yield bytes(joined)
            joined.clear()
    if joined:
        yield bytes(joined)


# ---------------------------------------------------------------------- which format
def _header(start: bytes, name: str) -> Header | None:
    """Return the header if the first line is two whole numbers, else None."""
    match = HEADER.match(start)
    if match is None:
        return None
    words, columns = int(match[1]), int(match[2])
    if not 1 <= columns <= MAX_COLUMNS:
        raise UnsupportedFormat(f"line 1 of {name} gives {columns} columns, not 1 to {MAX_COLUMNS}")
    if words < 1:
        raise UnsupportedFormat(f"line 1 of {name} says that there are no words")
    return Header(words, columns, match.end())


def _is_binary(records: bytes, columns: int, path: FilePath) -> bool:
    """Tell whether vectors are binary: the first is not a line of numbers and looks binary."""
    line = records[:MAX_LINE_BYTES].partition(b"\n")[0].rstrip(b" \r")
    fields = line.rsplit(b" ", columns)
    numbers = _numbers(b" ".join(fields[1:]))
    if len(fields) == columns + 1 and numbers is not None and len(numbers) == columns:
        return False
    return CONTROL.search(records[:8192]) is not None or extension_of(path) == ".bin"


# ---------------------------------------------------------------------- text
def _text_rows(blocks: Iterable[bytes], name: str, header: Header | None) -> Iterator[Rows]:
    columns = header.columns if header else 0
    count = 0
    for first, lines in _lines(blocks, name, 2 if header else 1):
        words: list[bytes] = []
        vectors: list[NDArray[np.float32]] = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Older releases of NumPy warn and stop.
            for i, line in enumerate(lines, first):
                if line := line.rstrip(b" \r"):
                    columns = columns or line.count(b" ")
                    word, vector = _parse(line, columns, f"line {i} of {name}")
                    words.append(word)
                    vectors.append(vector)
        count += len(words)
        if header and count > header.words:
            raise UnsupportedFormat(f"{name} has more words than the {header.words} of its line 1")
        if words:
            yield words, np.stack(vectors)
    if header and count < header.words:
        raise UnsupportedFormat(
            f"{name} has {count} words instead of the {header.words} of its line 1"
        )


def _lines(blocks: Iterable[bytes], name: str, first: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield whole lines, many at a time, and the line number of the first of them."""
    pending = b""
    for block in blocks:
        *lines, pending = (pending + block).split(b"\n")
        if lines:
            yield first, lines
            first += len(lines)
        if len(pending) > MAX_LINE_BYTES:
            raise UnsupportedFormat(f"line {first} of {name} is too long for a word and its vector")
    if pending:
        yield first, [pending]


def _parse(line: bytes, columns: int, where: str) -> tuple[bytes, NDArray[np.float32]]:
    """Return the word, which may have spaces in it, and the numbers of a line."""
    if not 1 <= columns <= MAX_COLUMNS:
        raise UnsupportedFormat(f"{where} is not a word and its numbers")
    word, _, text = line.partition(b" ")
    if text.count(b" ") != columns - 1 or not text:
        word, *fields = line.rsplit(b" ", columns)
        if len(fields) < columns:
            raise UnsupportedFormat(f"{where} has {len(fields)} numbers instead of {columns}")
        if STRAY_NUMBER.search(word):
            raise UnsupportedFormat(f"{where} has more than {columns} numbers")
        word, text = word.strip(b" "), b" ".join(fields)
    vector = _numbers(text)
    if vector is None or len(vector) != columns:
        fields = text.split(b" ")
        wrong = next(f for f in fields if (n := _numbers(f)) is None or len(n) != 1)
        raise UnsupportedFormat(f"{where}: {_shown(wrong)} is not a number")
    if not np.isfinite(vector).all():
        problem = "has a number that is not finite (NaN or too large)"
        raise UnsupportedFormat(f"{where}: the vector of {_shown(word)} {problem}")
    return word, vector


def _numbers(text: bytes) -> NDArray[np.float32] | None:
    """Parse numbers separated by single spaces; return None if there is anything else."""
    if any(blank in text for blank in (b"  ", b"\t", b"\v", b"\f", b"\r")):
        return None
    try:
        return np.fromstring(text, np.float32, sep=" ")
    except (ValueError, DeprecationWarning):
        return None


def _shown(field: bytes) -> str:
    text = field.decode(errors="replace")
    return repr(text if len(text) <= 40 else text[:40] + "…")


# ---------------------------------------------------------------------- binary
def _binary_rows(blocks: Iterable[bytes], name: str, header: Header) -> Iterator[Rows]:
    """Parse records of a word, a space and float32 bytes, with or without a newline."""
    pending, done = b"", 0
    for block in blocks:
        pending += block
        words, vectors, used = _records(pending, header, done, name)
        pending = pending[used:]
        if words:
            table = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, header.columns)
            _check_binary(words, table, done, name)
            yield words, table.astype(np.float32, copy=False)
        done += len(words)
        if done == header.words and pending.strip(b"\n"):
            break
    declared = f"the {header.words} of its line 1"
    if done < header.words:
        raise UnsupportedFormat(f"{name} is truncated: it has {done} words instead of {declared}")
    if pending.strip(b"\n"):
        raise UnsupportedFormat(f"{name} has more words than {declared}")


def _records(
    data: bytes, header: Header, done: int, name: str
) -> tuple[list[bytes], list[bytes], int]:
    """Return words and vectors of the complete records in `data`, and their size in bytes."""
    words: list[bytes] = []
    vectors: list[bytes] = []
    start, size = 0, 4 * header.columns
    while done + len(words) < header.words:
        blank = data.find(b" ", start, start + MAX_WORD_BYTES)
        if blank < 0 and len(data) - start >= MAX_WORD_BYTES:
            raise UnsupportedFormat(f"word {done + len(words) + 1} of {name} has no end")
        end = blank + 1 + size
        if blank < 0 or end > len(data):
            break
        words.append(data[start:blank].lstrip(b"\n"))
        vectors.append(data[blank + 1 : end])
        start = end
    return words, vectors, start


def _check_binary(words: list[bytes], table: NDArray[np.float32], done: int, name: str) -> None:
    is_finite: list[bool] = np.all(np.isfinite(table), axis=1).tolist()
    for i, (word, finite) in enumerate(zip(words, is_finite, strict=True), done + 1):
        if not finite or b"\n" in word:
            problem = "has a newline in it" if finite else "has a number that is not finite"
            raise UnsupportedFormat(f"word {i} of {name}, {_shown(word)}, {problem}")
