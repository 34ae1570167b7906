"""From files to tokens: streams the sentences of a file of any size, in bounded memory.

A file goes through these stages, each a generator:

    raw blocks ─► decompressed blocks ─► lines of bytes ─► decoded lines ─► sentences of tokens

A line that is too long for memory travels in pieces; the sentences made from it say so.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from elmokit.errors import ElmokitError, require
from elmokit.text import tokenize as tokenizers
from elmokit.text.tokenize import EAST_ASIAN, split_sentences

STANDARD_INPUT = "-"
KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".conll": "conll", ".conllu": "conllu"}
WORD_COLUMN = {"conll": 0, "conllu": 1}
BLOCK_BYTES = 1 << 16  # small enough for progress to be told often
MAX_LINE_BYTES = 8 << 20  # more than a million words
MIN_LINE_BYTES = 4  # a character of UTF-8
MAX_SENTENCE_ROWS = 2_000_000
# A byte of a compressed file can stand for 32 KB: small blocks keep even that in bounds.
COMPRESSED_BLOCK_BYTES = 256
BINARY_CHECK_BYTES = 8 << 10
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Running text is hard-wrapped at some width between these, in characters.
NARROWEST_PAGE = 50
WIDEST_PAGE = 120
MAX_PARAGRAPH_LINES = 5000

FilePath = str | os.PathLike[str]
Tokenize = Callable[[str], list[str]]
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence of a file."""

    number: int
    """Counts from 0: the key of the sentence in the output."""
    tokens: list[str]
    continues: bool = False
    """The sentence is too long for memory: the next `Line` carries on, with the same number."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A decoded line, or a part of a line that is longer than `max_line_bytes`."""

    line: int  # counts from 1, for messages
    text: str
    ended: bool  # whether the line ends here


def read_sentences(
    path: FilePath,
    *,
    kind: str = "auto",
    tokenizer: str = "elmokit",
    split: bool = False,
    field: str = "text",
    column: int | None = None,
    errors: str = "strict",
    max_tokens: int | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    on_warning: Report | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Line]:
    """Stream the sentences of a file, compressed (.gz, .xz, .zst) or not; "-" is standard input.

    `kind` is "text" (a sentence a line), "jsonl" (a string or a list of tokens in `field`, which
    may be a dotted path), "conll" or "conllu" (words in `column`), or "auto": by the extension.
    With `split`, text is running text: sentences are found in it, also across the lines of
    hard-wrapped paragraphs. An empty line of text or JSON keeps its number, unless split.
    `errors="replace"` reads what is not UTF-8 as U+FFFD. `on_warning` is told what went on
    despite trouble, such as sentences of more than `max_tokens`, which are passed on whole (see
    `windows`). `on_bytes` is told of every read how many bytes of the file it took (see
    `total_bytes`). Wrong options raise at once, trouble with the file when the reading gets there.
    """
    name = "standard input" if os.fspath(path) == STANDARD_INPUT else os.fspath(path)
    kind = _kind_of(path) if kind == "auto" else kind
    _check_options(kind, errors, split=split, column=column)
    if max_line_bytes < MIN_LINE_BYTES:
        raise ElmokitError(f"max_line_bytes must be at least {MIN_LINE_BYTES}.")
    tokenize = tokenizers.tokenizer(tokenizer)

    blocks = _text_blocks(_blocks(path, name, on_bytes or _ignore), name)
    lines = _raw_lines(blocks, max_line_bytes)
    pieces = _decoded(lines, name, errors, on_warning or _ignore)
    if kind in WORD_COLUMN:
        index = WORD_COLUMN[kind] if column is None else column
        sentences = _column_sentences(_whole_lines(pieces, name), name, kind, index)
    elif kind == "jsonl":
        sentences = _json_sentences(_whole_lines(pieces, name), name, field, tokenize, split)
    elif split:
        sentences = _running_text(pieces, tokenize, max_line_bytes)
    else:
        sentences = (Line(p.line - 1, tokenize(p.text), continues=not p.ended) for p in pieces)
    return _watched(sentences, name, max_tokens, on_warning or _ignore)


def windows(tokens: Sequence[str], max_tokens: int) -> Iterator[list[str]]:
    """Cut a sentence into consecutive pieces of at most `max_tokens`; an empty one has none."""
    if max_tokens < 1:
        raise ElmokitError(f"max_tokens must be at least 1, not {max_tokens}.")
    starts = range(0, len(tokens), max_tokens)
    return (list(tokens[start : start + max_tokens]) for start in starts)


def total_bytes(path: FilePath) -> int | None:
    """The size of a file as it lies on the disk, or None where that is unknown, as of a pipe."""
    if os.fspath(path) == STANDARD_INPUT or not Path(path).is_file():
        return None
    return Path(path).stat().st_size


def _ignore(_: object) -> None:
    pass


def _kind_of(path: FilePath) -> str:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return KINDS.get(suffixes[-1], "text") if suffixes else "text"


def _check_options(kind: str, errors: str, *, split: bool, column: int | None) -> None:
    if kind not in ("text", *KINDS.values()):
        raise ElmokitError(
            f"There is no kind of file named {kind!r}: it may be auto, text, jsonl, conll, conllu."
        )
    if errors not in ("strict", "replace"):
        raise ElmokitError(f"errors must be 'strict' or 'replace', not {errors!r}.")
    if split and kind in WORD_COLUMN:
        raise ElmokitError(f"A {kind} file has its sentences split already: leave out split.")
    if column is not None and kind not in WORD_COLUMN:
        raise ElmokitError(f"column is for conll and conllu files, and this one is {kind}.")
    if column is not None and column < 0:
        raise ElmokitError(f"column counts from 0, so it cannot be {column}.")


def _watched(
    sentences: Iterable[Line], name: str, max_tokens: int | None, on_warning: Report
) -> Iterator[Line]:
    """Pass sentences on; at the end, complain of a file without any and tell of long ones."""
    is_empty, long_sentences = True, 0
    for sentence in sentences:
        is_empty = False
        if max_tokens is not None and len(sentence.tokens) > max_tokens:
            long_sentences += 1
        yield sentence
    if is_empty:
        raise ElmokitError(f"{name} has no sentences.")
    if long_sentences:
        on_warning(f"{long_sentences} sentence(s) of {name} have more than {max_tokens} tokens.")


# ---- from the file to decoded lines


def _open(path: FilePath, name: str) -> AbstractContextManager[BinaryIO]:
    """The file, or standard input, which is left open at the end."""
    if os.fspath(path) == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    if Path(path).is_dir():  # opening it says so on some systems only
        raise ElmokitError(f"{name} is a directory, not a file.")
    try:
        return Path(path).open("rb")
    except FileNotFoundError:
        raise ElmokitError(f"There is no file {name}.") from None
    except PermissionError:
        raise ElmokitError(f"{name} cannot be read: its permissions forbid it.") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise ElmokitError(f"{name} cannot be opened: {error}.") from None


def _blocks(path: FilePath, name: str, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """Read the file block by block, decompressed if it is compressed."""
    with _open(path, name) as stream:
        blocks = _raw_blocks(stream, name, on_bytes)
        first = next(blocks, b"")
        compression = _compression(path, name, first)
        whole = chain([first], blocks)
        yield from whole if compression is None else _decompressed(whole, name, compression)


def _raw_blocks(stream: BinaryIO, name: str, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    while True:
        try:
            block = stream.read(BLOCK_BYTES)
        except OSError as error:
            raise ElmokitError(f"{name} cannot be read to its end: {error}.") from None
        if not block:
            return
        yield block
        on_bytes(len(block))


def _gzip() -> tuple[Any, type[Exception]]:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), zlib.error


def _xz() -> tuple[Any, type[Exception]]:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ), lzma.LZMAError


def _zstd() -> tuple[Any, type[Exception]]:
    zstandard = require("zstandard", extra="zstd", purpose="Reading .zst files")
    return zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError


# Extension: how such a file may begin, and a maker of its decompressor and its error.
COMPRESSIONS: dict[str, tuple[tuple[bytes, ...], Callable[[], tuple[Any, type[Exception]]]]] = {
    ".gz": ((b"\x1f\x8b",), _gzip),
    ".xz": ((b"\xfd7zXZ\x00",), _xz),
    ".zst": ((b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"), _zstd),  # the second from pzstd
}


def _compression(path: FilePath, name: str, start: bytes) -> str | None:
    """The extension of the compression that a file has by its name and its first bytes.

    Without such a name, as on standard input, the bytes alone tell: none is the start of UTF-8.
    """
    found = next((ext for ext, (magic, _) in COMPRESSIONS.items() if start.startswith(magic)), None)
    extension = Path(path).suffix.lower()
    if start and extension in COMPRESSIONS and found != extension:
        raise ElmokitError(f"{name} is not a {extension} file, although its name says so.")
    return found


def _decompressed(blocks: Iterable[bytes], name: str, compression: str) -> Iterator[bytes]:
    """Decompress a file, which may be several compressed streams one after another."""
    _, make = COMPRESSIONS[compression]
    decompressor: Any = None
    for part in _small_blocks(blocks):
        # Zero bytes between streams and behind the last one are padding.
        while part := part.lstrip(b"\0") if decompressor is None else part:
            if decompressor is None:
                decompressor, corrupt = make()
            try:
                data = decompressor.decompress(part)
            except corrupt:
                raise ElmokitError(f"{name} is corrupt: it cannot be decompressed.") from None
            yield data
            part = b""
            if decompressor.eof:
                part, decompressor = decompressor.unused_data, None
    if decompressor is not None:
        raise ElmokitError(f"{name} is cut off: its compressed data has no end.")


def _small_blocks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), COMPRESSED_BLOCK_BYTES):
            yield block[start : start + COMPRESSED_BLOCK_BYTES]


def _text_blocks(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Pass blocks on without a byte order mark, unless they begin like something else than text."""
    seen = 0
    for block in blocks:
        if seen < BINARY_CHECK_BYTES and b"\0" in block[: BINARY_CHECK_BYTES - seen]:
            is_utf16 = seen == 0 and block.startswith((b"\xff\xfe", b"\xfe\xff"))
            what = "UTF-16 text: convert it to UTF-8" if is_utf16 else "a binary file, not text"
            raise ElmokitError(f"{name} seems to be {what}.")
        yield block.removeprefix(BYTE_ORDER_MARK) if seen == 0 else block
        seen += len(block)


def _raw_lines(blocks: Iterable[bytes], limit: int) -> Iterator[tuple[int, int, bytes, bool]]:
    r"""Split at "\n", and cut lines longer than `limit` bytes.

    Yields the line's number from 1, the offset of the piece in the line, the piece, and whether
    the line ends with it.
    """
    number, offset, pending = 1, 0, bytearray()
    for block in blocks:
        for index, part in enumerate(block.split(b"\n")):
            if index > 0:  # a newline stood before this part
                yield number, offset, bytes(pending), True
                number, offset = number + 1, 0
                pending.clear()
            pending += part
            while len(pending) > limit:
                cut = _cut_position(pending, limit)
                yield number, offset, bytes(pending[:cut]), False
                offset += cut
                del pending[:cut]
    if pending:
        yield number, offset, bytes(pending), True


def _cut_position(line: bytearray, limit: int) -> int:
    """Where to cut a line of more than `limit` bytes: behind a blank, else between characters."""
    cut = max(line.rfind(b" ", 0, limit), line.rfind(b"\t", 0, limit)) + 1
    if cut:
        return cut
    boundaries = (at for at in range(limit, max(limit - 4, 0), -1) if line[at] & 0xC0 != 0x80)
    return next(boundaries, limit)


def _decoded(
    lines: Iterable[tuple[int, int, bytes, bool]], name: str, errors: str, on_warning: Report
) -> Iterator[_Piece]:
    replaced = 0
    for number, offset, raw, ended in lines:
        if ended and raw.endswith(b"\r"):
            raw = raw[:-1]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            if errors == "strict":
                raise ElmokitError(
                    f"Line {number} of {name} is not UTF-8 at its byte {offset + error.start + 1} "
                    f"(0x{raw[error.start]:02x}): convert the file, or go on with --errors replace."
                ) from None
            text = raw.decode(errors="replace")
            replaced += 1
        yield _Piece(number, text, ended)
    if replaced:
        on_warning(f"{replaced} line(s) of {name} are not UTF-8: read in part as U+FFFD.")


# ---- from decoded lines to sentences


def _whole_lines(pieces: Iterable[_Piece], name: str) -> Iterator[_Piece]:
    """Pass lines on for readers that need each line in one piece."""
    for piece in pieces:
        if not piece.ended:
            size = len(piece.text.encode(errors="replace"))
            raise ElmokitError(f"Line {piece.line} of {name} is too long: more than {size} bytes.")
        yield piece


def _column_sentences(
    pieces: Iterable[_Piece], name: str, kind: str, column: int
) -> Iterator[Line]:
    """Sentences of a word a line, with a blank line behind each."""
    number, tokens, is_open = 0, list[str](), False
    for piece in pieces:
        if piece.text.strip():
            tokens.extend(_column_words(piece, name, kind, column))
            is_open = is_open or bool(tokens)
            if len(tokens) > MAX_SENTENCE_ROWS:
                yield Line(number, tokens, continues=True)
                tokens = []
        elif is_open:
            yield Line(number, tokens)
            number, tokens, is_open = number + 1, [], False
    if is_open:
        yield Line(number, tokens)


def _column_words(piece: _Piece, name: str, kind: str, column: int) -> list[str]:
    """The word in a row, or none in a comment, a multiword range (1-2) or an empty node (1.1)."""
    row = piece.text
    if kind == "conllu" and (row.startswith("#") or re.match(r"\d+[-.]\d", row)):
        return []
    cells = row.split("\t") if "\t" in row else [cell for cell in row.split(" ") if cell]
    if len(cells) <= column or not cells[column]:
        raise ElmokitError(
            f"Line {piece.line} of {name} has no word in column {column} (counted from 0): "
            f"it has {len(cells)} column(s)."
        )
    return [cells[column]]


def _json_sentences(
    pieces: Iterable[_Piece], name: str, field: str, tokenize: Tokenize, split: bool
) -> Iterator[Line]:
    number = 0
    for piece in pieces:
        value = _json_field(piece, name, field) if piece.text.strip() else ""
        if isinstance(value, list):
            sentences = [value]
        else:
            sentences = [tokenize(text) for text in (split_sentences(value) if split else [value])]
        for tokens in sentences:
            yield Line(number, tokens)
            number += 1


def _json_field(piece: _Piece, name: str, field: str) -> str | list[str]:
    where = f"Line {piece.line} of {name}"
    try:
        value = json.loads(piece.text)
    except json.JSONDecodeError as error:
        raise ElmokitError(
            f"{where} is not valid JSON: {error.msg} at character {error.colno}."
        ) from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, thousands of brackets
        raise ElmokitError(f"{where} is not JSON that can be read.") from None
    # A key that has dots of its own comes before a path.
    for key in [field] if isinstance(value, dict) and field in value else field.split("."):
        if not isinstance(value, dict) or key not in value:
            raise ElmokitError(f"{where} has no field {field!r}.")
        value = value[key]
    is_tokens = isinstance(value, list) and all(isinstance(token, str) for token in value)
    if not isinstance(value, str) and not is_tokens:
        raise ElmokitError(f"{where} has no string and no list of strings in the field {field!r}.")
    return value  # type: ignore[no-any-return]


def _running_text(pieces: Iterable[_Piece], tokenize: Tokenize, limit: int) -> Iterator[Line]:
    """Find the sentences of paragraphs, and number them through."""
    number, unfinished, is_open = 0, "", False  # open: the sentence has been passed on in part
    for text, ended in _paragraphs(pieces):
        sentences = split_sentences(unfinished + text)
        unfinished = ""
        if sentences and not ended:  # the last one may go on in the next part
            unfinished = sentences.pop() + (" " if text[-1:].isspace() else "")
        if ended and is_open and not sentences:
            sentences = [""]
        for sentence in sentences:
            yield Line(number, tokenize(sentence))
            number, is_open = number + 1, False
        if len(unfinished) > limit:
            yield Line(number, tokenize(unfinished), continues=True)
            unfinished, is_open = "", True


def _paragraphs(pieces: Iterable[_Piece]) -> Iterator[tuple[str, bool]]:
    """Join the lines of hard-wrapped paragraphs, and tell whether the paragraph ends there."""
    lines: list[str] = []
    in_long_line = False
    for piece in pieces:
        text = piece.text.strip()
        is_long = in_long_line or not piece.ended
        if lines and (is_long or not text or not _is_wrapped(lines[-1], text)):
            yield "\n".join(lines), True
            lines = []
        if is_long:
            yield piece.text, piece.ended
        elif text:
            lines.append(text)
        if len(lines) > MAX_PARAGRAPH_LINES:
            yield "\n".join(lines[:-1]) + "\n", False
            lines = lines[-1:]
        in_long_line = not piece.ended
    if lines:
        yield "\n".join(lines), True


def _is_wrapped(line: str, following: str) -> bool:
    """Whether a line only ended because the page did: its sentence goes on in the `following`.

    It does so if that begins in lower case, or with a word that had no room on the line. Chinese
    and Japanese have no such sign, so there a line is a paragraph.
    """
    if len(line) > WIDEST_PAGE or (EAST_ASIAN.match(line[-1]) and EAST_ASIAN.match(following)):
        return False
    next_word = following[:NARROWEST_PAGE].split()[0]
    return following[0].islower() or len(line) + 1 + len(next_word) > NARROWEST_PAGE
