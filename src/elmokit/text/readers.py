"""Read the sentences of a file of any size as tokens, in bounded memory.

A line that is too long for memory is passed on in pieces; `whole_lines` joins them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError, InvalidInput, UnsupportedFormat, plural
from elmokit.io import lines
from elmokit.io.lines import FilePath, OnBytes, Piece, name_of, read_lines
from elmokit.io.paths import is_file
from elmokit.progress import logger
from elmokit.text import tokenize as tokenizers
from elmokit.text.tokenize import EAST_ASIAN, split_sentences

KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".conll": "conll", ".conllu": "conllu"}
WORD_COLUMN = {"conll": 0, "conllu": 1}
MAX_SENTENCE_ROWS = 2_000_000
MAX_SENTENCE_TOKENS = 4_000_000  # All tokens of a sentence are in memory, if not its vectors.
WINDOW_TOKENS = 1024  # The model reads a longer sentence in windows of this length.

# Running text is hard-wrapped at some width between these, in characters.
MIN_PAGE_WIDTH = 50
MAX_PAGE_WIDTH = 120
MAX_PARAGRAPH_LINES = 5000

Tokenize = Callable[[str], list[str]]
Pieces = Iterable[Piece]


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence of a file."""

    index: int
    """Counts from 0: the key of the sentence in the output."""
    tokens: list[str]
    continues: bool = False
    """Whether the sentence is too long for memory: the next `Line` continues it."""
    text: str | None = field(default=None, compare=False)
    """The sentence as it was written; None if the file has its tokens only."""
    id: str | None = field(default=None, compare=False)
    """The sentence's own id, if the file has one."""


def read_sentences(
    path: FilePath,
    *,
    kind: str = "auto",
    tokenizer: str = "elmokit",
    split: bool = False,
    field: str = "text",
    id_field: str | None = None,
    column: int | None = None,
    errors: str = "strict",
    start: int = 0,
    on_bytes: OnBytes = lambda _: None,
) -> Iterator[Line]:
    """Stream the sentences of a file, compressed (.gz, .xz, .zst) or not; "-" is standard input.

    `kind` is "text" (one sentence per line), "jsonl" (a string or a list of tokens in `field`,
    which may be a dotted path, with an id in `id_field`), "conll" or "conllu" (words in `column`),
    or "auto": by extension. With `split`, text is running text: it is split into sentences, also
    across the lines of hard-wrapped paragraphs. An empty line of text or JSON keeps its index,
    unless split. `errors="replace"` reads invalid UTF-8 as U+FFFD. Only the sentences from
    the index `start` on are tokenized and yielded. `on_bytes(n)` is called after each read with the
    number of bytes consumed. Wrong options raise at once.
    """
    tokenize = _Tokenize(tokenizers.tokenizer(tokenizer), is_on=start == 0)
    form = Form(kind_of(path) if kind == "auto" else kind, split, field, id_field, column)
    sentences = _read(path, form, tokenize, errors, on_bytes)
    return _not_empty(_from(sentences, start, tokenize), name_of(path))


def count_sentences(
    path: FilePath, *, kind: str = "auto", errors: str = "strict", **form: Any
) -> int:
    """Return the number of sentences of a file, without tokenizing them; see `read_sentences`."""
    own = Form(kind_of(path) if kind == "auto" else kind, **form)
    sentences = _read(path, own, lambda _: [], errors)
    return sum(not line.continues for line in _not_empty(sentences, name_of(path)))


def _read(
    path: FilePath, form: Form, tokenize: Tokenize, errors: str, on_bytes: OnBytes = lambda _: None
) -> Iterator[Line]:
    if errors not in ("strict", "replace"):
        raise InvalidInput(f"errors must be 'strict' or 'replace', not {errors!r}")
    pieces = read_lines(path, errors=errors, on_bytes=on_bytes)
    return sentences_of(pieces, name_of(path), form, tokenize)


@dataclass
class _Tokenize:
    """A tokenizer that can be off: skipped sentences would take most of the time of reading."""

    tokenize: Tokenize
    is_on: bool

    def __call__(self, text: str) -> list[str]:
        return self.tokenize(text) if self.is_on else []


def _from(sentences: Iterable[Line], start: int, tokenize: _Tokenize) -> Iterator[Line]:
    """Yield the sentences from `start` on, and switch the tokenizer on before them."""
    for line in sentences:
        if line.index >= start:
            yield line
        following = line.index if line.continues else line.index + 1
        tokenize.is_on = following >= start


@dataclass(frozen=True)
class Form:
    """How a file holds its sentences; the options of `read_sentences` of these names."""

    kind: str
    split: bool = False
    field: str = "text"
    id_field: str | None = None
    column: int | None = None

    def __post_init__(self) -> None:
        kind, column = self.kind, self.column
        if kind not in ("text", *KINDS.values()):
            choices = "auto, text, jsonl, conll, conllu"
            raise InvalidInput(f"kind must be one of {choices}, not {kind!r}")
        if self.split and kind in WORD_COLUMN:
            raise InvalidInput(f"split is for running text; a {kind} file is already split")
        if self.id_field is not None and kind != "jsonl":
            raise InvalidInput(f"id_field is for jsonl files; this one is {kind}")
        if column is not None and kind not in WORD_COLUMN:
            raise InvalidInput(f"column is for conll and conllu files; this one is {kind}")
        if column is not None and column < 0:
            raise InvalidInput(f"column must be at least 0, not {column}")


def sentences_of(pieces: Pieces, name: str, form: Form, tokenize: Tokenize) -> Iterator[Line]:
    """Yield the sentences in the lines of a file of that form."""
    if form.kind in WORD_COLUMN:
        return _column_sentences(_unbroken(pieces, name), name, form)
    if form.kind == "jsonl":
        return _json_sentences(_unbroken(pieces, name), name, form, tokenize)
    if form.split:
        return _running_text(pieces, tokenize, lines.MAX_LINE_BYTES)
    return (Line(p.line - 1, tokenize(p.text), not p.ended, p.text) for p in pieces)


def whole_lines(lines: Iterable[Line]) -> Iterator[list[str]]:
    """Yield the tokens of each line, joining lines that were split; warn about very long ones."""
    return (line.tokens for line in join_lines(lines))


def join_lines(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield whole lines: see `whole_lines`."""
    tokens: list[str] = []
    texts: list[str] = []
    for line in lines:
        tokens = tokens + line.tokens if tokens else line.tokens
        texts += [] if line.text is None else [line.text]
        if len(tokens) > MAX_SENTENCE_TOKENS:
            raise ElmokitError(
                f"sentence {line.index} has more than {MAX_SENTENCE_TOKENS:,} tokens: break its "
                "line into several, or read it as running text with --split"
            )
        if line.continues:
            continue
        if len(tokens) > WINDOW_TOKENS:
            logger.warning(
                f"sentence {line.index} has {len(tokens):,} tokens: the model reads it in windows "
                f"of {WINDOW_TOKENS:,}"
            )
        yield Line(line.index, tokens, text="".join(texts) if texts else None, id=line.id)
        tokens, texts = [], []


def chunk_tokens(tokens: Sequence[str], max_tokens: int) -> Iterator[list[str]]:
    """Cut a sentence into consecutive chunks of at most `max_tokens`; an empty one has none."""
    starts = range(0, len(tokens), max_tokens)
    return (list(tokens[start : start + max_tokens]) for start in starts)


def total_bytes(path: FilePath) -> int | None:
    """Return the size of a file on the disk, None if it is unknown, as that of a pipe."""
    is_known = os.fspath(path) != lines.STANDARD_INPUT and is_file(path)
    return Path(path).stat().st_size if is_known else None


def kind_of(path: FilePath) -> str:
    """Return the kind of a file by its extension: text, jsonl, conll or conllu."""
    return KINDS.get(extension_of(path), "text")


def extension_of(path: FilePath) -> str:
    """Return the extension in lower case, without that of the compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in lines.COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _not_empty(sentences: Iterable[Line], name: str) -> Iterator[Line]:
    is_empty = True
    for sentence in sentences:
        is_empty = False
        yield sentence
    if is_empty:
        raise InvalidInput(f"{name} has no sentences")


def _unbroken(pieces: Pieces, name: str) -> Iterator[Piece]:
    for piece in pieces:
        if not piece.ended:
            size = len(piece.text.encode(errors="replace"))
            raise ElmokitError(f"line {piece.line} of {name} is too long: more than {size} bytes")
        yield piece


def _column_sentences(pieces: Pieces, name: str, form: Form) -> Iterator[Line]:
    column = WORD_COLUMN[form.kind] if form.column is None else form.column
    index, tokens, is_open = 0, list[str](), False
    for piece in pieces:
        if piece.text.strip():
            tokens.extend(_column_words(piece, name, form.kind, column))
            is_open = is_open or bool(tokens)
            if len(tokens) > MAX_SENTENCE_ROWS:
                yield Line(index, tokens, continues=True)
                tokens = []
        elif is_open:
            yield Line(index, tokens)
            index, tokens, is_open = index + 1, [], False
    if is_open:
        yield Line(index, tokens)


def _column_words(piece: Piece, name: str, kind: str, column: int) -> list[str]:
    """Return the word in a row; none in a comment, a multiword range (1-2) or an empty node."""
    row = piece.text
    if kind == "conllu" and (row.startswith("#") or re.match(r"\d+[-.]\d", row)):
        return []
    cells = row.split("\t") if "\t" in row else [cell for cell in row.split(" ") if cell]
    if len(cells) <= column or not cells[column]:
        raise ElmokitError(
            f"line {piece.line} of {name} has no word in column {column} (counted from 0): "
            f"it has {plural(len(cells), 'column')}"
        )
    return [cells[column]]


def _json_sentences(pieces: Pieces, name: str, form: Form, tokenize: Tokenize) -> Iterator[Line]:
    index = 0
    for piece in pieces:
        where, id = f"line {piece.line} of {name}", None
        value: Any = ""
        if piece.text.strip():
            row = _json_row(piece.text, where)
            if form.id_field is not None:
                id = _json_id(_json_field(row, where, form.id_field), where)
            value = _json_field(row, where, form.field)
        if isinstance(value, str):
            for text in split_sentences(value) if form.split else [value]:
                yield Line(index, tokenize(text), text=text, id=id)
                index += 1
        elif isinstance(value, list) and all(isinstance(token, str) for token in value):
            yield Line(index, value, id=id)
            index += 1
        else:
            field = f"the field {form.field!r}"
            raise ElmokitError(f"{where} has neither text nor a list of tokens in {field}")


def _json_row(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.colno}"
        raise UnsupportedFormat(f"{where} is not valid JSON: {reason}") from None
    except (ValueError, RecursionError):  # thousands of digits or brackets
        raise UnsupportedFormat(f"{where} is not JSON that can be read") from None


def _json_field(value: Any, where: str, field: str) -> Any:
    # A key with dots in it takes precedence over a path.
    for key in [field] if isinstance(value, dict) and field in value else field.split("."):
        if not isinstance(value, dict) or key not in value:
            raise ElmokitError(f"{where} has no field {field!r}")
        value = value[key]
    return value


def _json_id(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ElmokitError(f"{where} has an id that is neither a string nor an integer")
    return str(value)


def _running_text(pieces: Pieces, tokenize: Tokenize, limit: int) -> Iterator[Line]:
    index, unfinished, is_open = 0, "", False  # is_open: a part of the sentence was yielded
    for text, ended in _paragraphs(pieces):
        sentences = split_sentences(unfinished + text)
        unfinished = ""
        if sentences and not ended:  # The last one may continue in the next part.
            unfinished = sentences.pop() + (" " if text[-1:].isspace() else "")
        if ended and is_open and not sentences:
            sentences = [""]
        for sentence in sentences:
            yield Line(index, tokenize(sentence), text=sentence)
            index, is_open = index + 1, False
        if len(unfinished) > limit:
            yield Line(index, tokenize(unfinished), True, unfinished)
            unfinished, is_open = "", True


def _paragraphs(pieces: Pieces) -> Iterator[tuple[str, bool]]:
    """Join the lines of hard-wrapped paragraphs; yield text and whether the paragraph ends."""
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
    """Tell whether a line was hard-wrapped, so that its sentence continues in the `following` one.

    It was if that begins in lower case, or with a word that did not fit on the line. Chinese and
    Japanese have no such sign, so there a line is a paragraph.
    """
    if len(line) > MAX_PAGE_WIDTH or (EAST_ASIAN.match(line[-1]) and EAST_ASIAN.match(following)):
        return False
    next_word = following[:MIN_PAGE_WIDTH].split()[0]
    return following[0].islower() or len(line) + 1 + len(next_word) > MIN_PAGE_WIDTH
