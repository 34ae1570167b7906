"""Files of static word vectors as blocks of rows: GloVe, word2vec (text and binary), fastText.

    bytes ─► whole lines, or records of a binary file ─► (words, float32 rows)

Which format a file has is seen from its first bytes. A line of text is a word and its numbers; the
word may have spaces in it, so numbers are counted from the right. Nothing is believed of a size
that a file declares before the rows themselves are there.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.io.lines import BYTE_ORDER_MARK, COMPRESSIONS, FilePath, name_of, read_blocks

if TYPE_CHECKING:
    from typing import TypeAlias

Rows: TypeAlias = "tuple[list[bytes], NDArray[np.float32]]"  # n words and (n, columns)

BLOCK_BYTES = 4 << 20  # parsed at once
LARGEST_LINE = 1 << 20
LONGEST_WORD = 4096  # bytes, in a binary file
MOST_COLUMNS = 1 << 14

HEADER = re.compile(rb"[ \t]*([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t\r]*\n")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")  # text has none of these, numbers of a binary many
# A number that belongs to the vector, not to a word such as "windows 3.1".
STRAY_NUMBER = re.compile(rb"(^| )[-+]?[0-9]*\.[0-9]{4,}(e[-+]?[0-9]+)?$")
PICKLE = "is a Python pickle, which is never read: save the vectors in word2vec's format"
FOREIGN = {  # how files begin that are not read, and what to say
    b"\xba\x16O/": "is a fastText model with subwords; take its .vec file, which has the vectors",
    b"PK\x03\x04": "is a zip archive: unpack it and give the file inside",
    b"BZh": "is compressed by bzip2: unpack it first (.gz, .xz and .zst are read as they are)",
    b"\x89HDF": "is an HDF5 file, not one of word vectors",
    b"\x93NUMPY": "is a NumPy file, which has no words",
    b"\x80\x02": PICKLE,
    b"\x80\x03": PICKLE,
    b"\x80\x04": PICKLE,
    b"\x80\x05": PICKLE,
    b"\xff\xfe": "is UTF-16 text: convert it to UTF-8",
    b"\xfe\xff": "is UTF-16 text: convert it to UTF-8",
}


class Header(NamedTuple):
    """What the first line of word2vec and fastText says."""

    words: int
    columns: int
    bytes: int  # of the line itself


def read_rows(
    path: FilePath, *, on_bytes: Callable[[int], None] = lambda _: None
) -> Iterator[Rows]:
    """The words of a file and their vectors, some thousands at a time.

    Words are as in the file, repeated ones too. Trouble is an ElmokitError that names the line.
    """
    name = name_of(path)
    blocks = _larger(read_blocks(path, on_bytes=on_bytes))
    start = next(blocks, b"").removeprefix(BYTE_ORDER_MARK)
    for magic, sentence in FOREIGN.items():
        if start.startswith(magic) and CONTROL.search(start[:4096]):  # words begin so too
            raise ElmokitError(f"{name} {sentence}")
    header = _header(start, name)
    rest = chain([start[header.bytes if header else 0 :]], blocks)
    if header and _is_binary(start[header.bytes :], header.columns, path):
        _check_declared(path, name, header, 4 * header.columns + 1)
        return _binary_rows(rest, name, header)
    if header is None and b"\0" in start[:8192]:
        raise ElmokitError(f"{name} is a binary file of an unknown kind, not one of word vectors")
    if header:
        _check_declared(path, name, header, 2 * header.columns)
    return _text_rows(rest, name, header)


def _larger(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in larger blocks."""
    parts: list[bytes] = []
    size = 0
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size >= BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


# ---------------------------------------------------------------------- which format
def _header(start: bytes, name: str) -> Header | None:
    """Words and columns, if the first line is two whole numbers and nothing else."""
    found = HEADER.match(start)
    if found is None:
        return None
    words, columns = int(found[1]), int(found[2])
    if not 1 <= columns <= MOST_COLUMNS:
        raise ElmokitError(
            f"line 1 of {name} says that vectors have {columns} columns; "
            f"they may have 1 to {MOST_COLUMNS}"
        )
    if words < 1:
        raise ElmokitError(f"line 1 of {name} says that there are no words")
    return Header(words, columns, found.end())


def _is_binary(records: bytes, columns: int, path: FilePath) -> bool:
    """Whether vectors are bytes, not digits: the first is no line of numbers, and looks so."""
    line = records[:LARGEST_LINE].partition(b"\n")[0].rstrip(b" \r")
    fields = line.rsplit(b" ", columns)
    numbers = _numbers(b" ".join(fields[1:]))
    if len(fields) == columns + 1 and numbers is not None and len(numbers) == columns:
        return False
    if CONTROL.search(records[:8192]):
        return True
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    return next((s for s in reversed(suffixes) if s not in COMPRESSIONS), "") == ".bin"


def _check_declared(path: FilePath, name: str, header: Header, row_bytes: int) -> None:
    """Refuse a file that is too short for the words it declares, before all of it is read."""
    compressed = Path(path).suffix.lower() in COMPRESSIONS
    if compressed or not Path(path).is_file():
        return
    size = Path(path).stat().st_size
    if header.words * row_bytes > size:
        raise ElmokitError(
            f"line 1 of {name} says that it has {header.words} words with {header.columns} "
            f"columns, but a file of {size} bytes is too short for that"
        )


# ---------------------------------------------------------------------- text
def _text_rows(blocks: Iterable[bytes], name: str, header: Header | None) -> Iterator[Rows]:
    columns = header.columns if header else 0
    rows = 0
    for number, lines in _lines(blocks, name, 2 if header else 1):
        columns = columns or _columns(lines, number, name)
        words, values, numbers = _split(lines, number, columns, name)
        rows += len(words)
        if header and rows > header.words:
            raise ElmokitError(f"{name} has more words than the {header.words} of its line 1")
        if words:
            yield words, _table(words, values, numbers, columns, name)
    if header and rows < header.words:
        raise ElmokitError(f"{name} has {rows} words instead of the {header.words} of its line 1")


def _lines(blocks: Iterable[bytes], name: str, first: int) -> Iterator[tuple[int, list[bytes]]]:
    """Whole lines, many at a time, and the number of the first of them."""
    pending = b""
    for block in blocks:
        *lines, pending = (pending + block).split(b"\n")
        if lines:
            yield first, lines
            first += len(lines)
        if len(pending) > LARGEST_LINE:
            raise ElmokitError(f"line {first} of {name} is too long for a word and its vector")
    if pending:
        yield first, [pending]


def _columns(lines: list[bytes], first: int, name: str) -> int:
    """Numbers of the first line that is not empty, where no header says it; 0 if all are empty."""
    found = ((n, line.rstrip(b" \r")) for n, line in enumerate(lines, first))
    number, line = next(((n, line) for n, line in found if line), (first, b""))
    columns = line.count(b" ")
    if line and not 1 <= columns <= MOST_COLUMNS:
        raise ElmokitError(f"line {number} of {name} is not a word and its numbers")
    if line:  # what is not of word vectors at all is told of here
        _check_numbers(line.partition(b" ")[2], number, name)
    return columns


def _split(
    lines: list[bytes], first: int, columns: int, name: str
) -> tuple[list[bytes], list[bytes], list[int]]:
    """Of each line that is not empty: the word, the numbers behind it, and its place."""
    words, values, numbers = [], [], []
    for number, line in enumerate(lines, first):
        line = line.rstrip(b" \r")
        if not line:
            continue
        word, _, vector = line.partition(b" ")
        if vector.count(b" ") != columns - 1 or not vector:
            word, vector = _split_from_the_right(line, number, columns, name)
        words.append(word)
        values.append(vector)
        numbers.append(number)
    return words, values, numbers


def _split_from_the_right(line: bytes, number: int, columns: int, name: str) -> tuple[bytes, bytes]:
    word, *vector = line.rsplit(b" ", columns)
    if len(vector) < columns:
        raise ElmokitError(
            f"line {number} of {name} has {len(vector)} numbers instead of {columns}"
        )
    if STRAY_NUMBER.search(word):
        raise ElmokitError(f"line {number} of {name} has more than {columns} numbers")
    return word.strip(b" "), b" ".join(vector)


def _table(
    words: list[bytes], values: list[bytes], numbers: list[int], columns: int, name: str
) -> NDArray[np.float32]:
    """The numbers of many lines: (lines, columns)."""
    found = _numbers(b" ".join(values))
    if found is None or len(found) != len(words) * columns:
        for number, vector in zip(numbers, values, strict=True):
            _check_numbers(vector, number, name)
        raise AssertionError("each line alone is right, but all together are not")
    table = found.reshape(-1, columns)
    if (wrong := _not_finite(table)) is not None:
        raise ElmokitError(
            f"line {numbers[wrong]} of {name}: the vector of {_shown(words[wrong])} has a number "
            "that is not finite (NaN or too large)"
        )
    return table


def _numbers(text: bytes) -> NDArray[np.float32] | None:
    """Numbers with one space between them; None if something else is there."""
    if any(blank in text for blank in (b"  ", b"\t", b"\v", b"\f", b"\r")):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # older releases of NumPy warn and stop
            return np.fromstring(text, np.float32, sep=" ")
    except (ValueError, DeprecationWarning):
        return None


def _check_numbers(vector: bytes, number: int, name: str) -> None:
    for field in vector.split(b" "):
        found = _numbers(field)
        if found is None or len(found) != 1:
            raise ElmokitError(f"line {number} of {name}: {_shown(field)} is not a number")


def _shown(field: bytes) -> str:
    text = field.decode(errors="replace")
    return repr(text if len(text) <= 40 else text[:40] + "…")


# ---------------------------------------------------------------------- binary
def _binary_rows(blocks: Iterable[bytes], name: str, header: Header) -> Iterator[Rows]:
    """Records of a word, a space and the bytes of float32 numbers, with or without a newline."""
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
    if done < header.words:
        raise ElmokitError(
            f"{name} is truncated: it has {done} words instead of the {header.words} of its line 1"
        )
    if pending.strip(b"\n"):
        raise ElmokitError(f"{name} has more words than the {header.words} of its line 1")


def _records(
    data: bytes, header: Header, done: int, name: str
) -> tuple[list[bytes], list[bytes], int]:
    """Words and vectors of the whole records in `data`, and how many bytes they take."""
    words: list[bytes] = []
    vectors: list[bytes] = []
    start, size = 0, 4 * header.columns
    while done + len(words) < header.words:
        blank = data.find(b" ", start, start + LONGEST_WORD)
        if blank < 0 and len(data) - start >= LONGEST_WORD:
            raise ElmokitError(f"word {done + len(words) + 1} of {name} has no end")
        end = blank + 1 + size
        if blank < 0 or end > len(data):
            break
        words.append(data[start:blank].lstrip(b"\n"))
        vectors.append(data[blank + 1 : end])
        start = end
    return words, vectors, start


def _check_binary(words: list[bytes], table: NDArray[np.float32], done: int, name: str) -> None:
    broken = next((number for number, word in enumerate(words) if b"\n" in word), None)
    if (wrong := _not_finite(table)) is None:
        wrong = broken
    if wrong is not None:
        what = "has a newline in it" if wrong == broken else "has a number that is not finite"
        raise ElmokitError(f"word {done + wrong + 1} of {name}, {_shown(words[wrong])}, {what}")


def _not_finite(table: NDArray[np.float32]) -> int | None:
    """The first row with a NaN or an infinity."""
    wrong = np.flatnonzero((~np.isfinite(table)).any(axis=1))
    return int(wrong[0]) if len(wrong) else None
