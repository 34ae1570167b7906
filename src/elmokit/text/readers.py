"""From files to tokens: streams the sentences of a file of any size, in bounded memory.

Its decoded lines (see `lines.py`) become sentences of tokens, according to the kind of file. A line
that is too long for memory travels in pieces; the sentences made from it say so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import ElmokitError
from elmokit.io.lines import (
    COMPRESSIONS,
    MAX_LINE_BYTES,
    STANDARD_INPUT,
    FilePath,
    Piece,
    Report,
    name_of,
    read_lines,
)
from elmokit.text import tokenize as tokenizers
from elmokit.text.tokenize import EAST_ASIAN, split_sentences

KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".conll": "conll", ".conllu": "conllu"}
WORD_COLUMN = {"conll": 0, "conllu": 1}
MIN_LINE_BYTES = 4  # a character of UTF-8
MAX_SENTENCE_ROWS = 2_000_000

# Running text is hard-wrapped at some width between these, in characters.
NARROWEST_PAGE = 50
WIDEST_PAGE = 120
MAX_PARAGRAPH_LINES = 5000

Tokenize = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence of a file."""

    number: int
    """Counts from 0: the key of the sentence in the output."""
    tokens: list[str]
    continues: bool = False
    """The sentence is too long for memory: the next `Line` carries on, with the same number."""


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
    name = name_of(path)
    kind = kind_of(path) if kind == "auto" else kind
    _check_options(kind, errors, split=split, column=column)
    if max_line_bytes < MIN_LINE_BYTES:
        raise ElmokitError(f"max_line_bytes must be at least {MIN_LINE_BYTES}")
    tokenize = tokenizers.tokenizer(tokenizer)

    pieces = read_lines(
        path,
        errors=errors,
        max_line_bytes=max_line_bytes,
        on_warning=on_warning or _ignore,
        on_bytes=on_bytes or _ignore,
    )
    sentences = sentences_of(
        pieces,
        name,
        kind,
        tokenize,
        split=split,
        field=field,
        column=column,
        max_line_bytes=max_line_bytes,
    )
    return _watched(sentences, name, max_tokens, on_warning or _ignore)


def sentences_of(
    pieces: Iterable[Piece],
    name: str,
    kind: str,
    tokenize: Tokenize,
    *,
    split: bool = False,
    field: str = "text",
    column: int | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[Line]:
    """The sentences in the lines of a file of that `kind`; the options are `read_sentences`'s."""
    if kind in WORD_COLUMN:
        index = WORD_COLUMN[kind] if column is None else column
        return _column_sentences(_whole_lines(pieces, name), name, kind, index)
    if kind == "jsonl":
        return _json_sentences(_whole_lines(pieces, name), name, field, tokenize, split)
    if split:
        return _running_text(pieces, tokenize, max_line_bytes)
    return (Line(p.line - 1, tokenize(p.text), continues=not p.ended) for p in pieces)


def windows(tokens: Sequence[str], max_tokens: int) -> Iterator[list[str]]:
    """Cut a sentence into consecutive pieces of at most `max_tokens`; an empty one has none."""
    if max_tokens < 1:
        raise ElmokitError(f"max_tokens must be at least 1, not {max_tokens}")
    starts = range(0, len(tokens), max_tokens)
    return (list(tokens[start : start + max_tokens]) for start in starts)


def total_bytes(path: FilePath) -> int | None:
    """The size of a file as it lies on the disk, or None where that is unknown, as of a pipe."""
    if os.fspath(path) == STANDARD_INPUT or not Path(path).is_file():
        return None
    return Path(path).stat().st_size


def _ignore(_: object) -> None:
    pass


def kind_of(path: FilePath) -> str:
    """What a file is by its extension: text, jsonl, conll or conllu."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return KINDS.get(suffixes[-1], "text") if suffixes else "text"


def _check_options(kind: str, errors: str, *, split: bool, column: int | None) -> None:
    if kind not in ("text", *KINDS.values()):
        raise ElmokitError(
            f"there is no kind of file named {kind!r}: it may be auto, text, jsonl, conll, conllu"
        )
    if errors not in ("strict", "replace"):
        raise ElmokitError(f"errors must be 'strict' or 'replace', not {errors!r}")
    if split and kind in WORD_COLUMN:
        raise ElmokitError(f"a {kind} file has its sentences split already: leave out split")
    if column is not None and kind not in WORD_COLUMN:
        raise ElmokitError(f"column is for conll and conllu files, and this one is {kind}")
    if column is not None and column < 0:
        raise ElmokitError(f"column counts from 0, so it cannot be {column}")


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
        raise ElmokitError(f"{name} has no sentences")
    if long_sentences:
        on_warning(f"{long_sentences} sentence(s) of {name} have more than {max_tokens} tokens")


def _whole_lines(pieces: Iterable[Piece], name: str) -> Iterator[Piece]:
    """Pass lines on for readers that need each line in one piece."""
    for piece in pieces:
        if not piece.ended:
            size = len(piece.text.encode(errors="replace"))
            raise ElmokitError(f"line {piece.line} of {name} is too long: more than {size} bytes")
        yield piece


def _column_sentences(pieces: Iterable[Piece], name: str, kind: str, column: int) -> Iterator[Line]:
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


def _column_words(piece: Piece, name: str, kind: str, column: int) -> list[str]:
    """The word in a row, or none in a comment, a multiword range (1-2) or an empty node (1.1)."""
    row = piece.text
    if kind == "conllu" and (row.startswith("#") or re.match(r"\d+[-.]\d", row)):
        return []
    cells = row.split("\t") if "\t" in row else [cell for cell in row.split(" ") if cell]
    if len(cells) <= column or not cells[column]:
        raise ElmokitError(
            f"line {piece.line} of {name} has no word in column {column} (counted from 0): "
            f"it has {len(cells)} column(s)"
        )
    return [cells[column]]


def _json_sentences(
    pieces: Iterable[Piece], name: str, field: str, tokenize: Tokenize, split: bool
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


def _json_field(piece: Piece, name: str, field: str) -> str | list[str]:
    where = f"line {piece.line} of {name}"
    try:
        value = json.loads(piece.text)
    except json.JSONDecodeError as error:
        raise ElmokitError(
            f"{where} is not valid JSON: {error.msg} at character {error.colno}"
        ) from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, thousands of brackets
        raise ElmokitError(f"{where} is not JSON that can be read") from None
    # A key that has dots of its own comes before a path.
    for key in [field] if isinstance(value, dict) and field in value else field.split("."):
        if not isinstance(value, dict) or key not in value:
            raise ElmokitError(f"{where} has no field {field!r}")
        value = value[key]
    is_tokens = isinstance(value, list) and all(isinstance(token, str) for token in value)
    if not isinstance(value, str) and not is_tokens:
        raise ElmokitError(f"{where} has no string and no list of strings in the field {field!r}")
    return value  # type: ignore[no-any-return]


def _running_text(pieces: Iterable[Piece], tokenize: Tokenize, limit: int) -> Iterator[Line]:
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


def _paragraphs(pieces: Iterable[Piece]) -> Iterator[tuple[str, bool]]:
    """Join the lines of hard-wrapped paragraphs, and tell whether the paragraph ends there."""
    lines: list[str] = []
    in_long_line = False
    for piece in pieces:
        text = piece.text.strip()
        is_long = in_long_line or not piece.ended
        if lines and (is_long or not text or not is_wrapped(lines[-1], text)):
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


def is_wrapped(line: str, following: str) -> bool:
    """Whether a line only ended because the page did: its sentence goes on in the `following`.

    It does so if that begins in lower case, or with a word that had no room on the line. Chinese
    and Japanese have no such sign, so there a line is a paragraph.
    """
    if len(line) > WIDEST_PAGE or (EAST_ASIAN.match(line[-1]) and EAST_ASIAN.match(following)):
        return False
    next_word = following[:NARROWEST_PAGE].split()[0]
    return following[0].islower() or len(line) + 1 + len(next_word) > NARROWEST_PAGE
