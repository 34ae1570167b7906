"""Reader of questions in the format of SQuAD 1.1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from elmokit.data.examples import Question, Span
from elmokit.data.labeled import BadLines, Reading
from elmokit.data.lines import BadRecord, is_text, reporting
from elmokit.errors import explained
from elmokit.io.lines import FilePath, name_of, read_lines
from elmokit.text.tokenize import token_offsets, token_span


def read_squad(path: FilePath, reading: Reading) -> Iterator[Question]:
    """Read the questions of a file, each with its passage, and if `labeled` their answers."""
    tokenize, bad, seen = reading.tokenize, reading.bad, set[str]()
    for where, paragraph in _paragraphs(path, bad):
        with reporting(bad, where):
            passage, entries = _text(paragraph, "context"), _entries(paragraph, "qas")
            tokens = tuple(tokenize(passage))
            offsets = tuple(token_offsets(passage, tokens))
            for entry in entries:
                identifier = str(entry.get("id", ""))
                at = f"{name_of(path)}, question {identifier}" if identifier else where
                with reporting(bad, at):
                    if not identifier or identifier in seen:
                        raise BadRecord("its id is not unique" if identifier else "it has no id")
                    seen.add(identifier)
                    texts = tuple(tokenize(_text(entry, "question"))), tokens
                    spans = _answers(entry, passage) if reading.labeled else []
                    answers = tuple(passage[start:end] for start, end in spans)
                    span = token_span(offsets, *spans[0]) if spans else None
                    yield Question(texts, at, identifier, passage, offsets, answers, span)


def _paragraphs(path: FilePath, bad: BadLines) -> Iterator[tuple[str, dict[str, Any]]]:
    name = name_of(path)
    with explained(f"{name} is not a SQuAD file", BadRecord):
        articles = _entries(_load(path), "data")
    for i, article in enumerate(articles, start=1):
        with reporting(bad, f"{name}, article {i}"):
            for j, paragraph in enumerate(_entries(article, "paragraphs"), start=1):
                yield f"{name}, article {i}, paragraph {j}", paragraph


def _load(path: FilePath) -> Any:
    pieces = read_lines(path, errors="surrogateescape")
    text = "".join(piece.text + "\n" * piece.ended for piece in pieces)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRecord(f"it is not JSON at line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise BadRecord("it is not JSON that can be read") from None


def _entries(owner: Any, key: str) -> list[dict[str, Any]]:
    entries = owner.get(key) if isinstance(owner, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadRecord(f"there is no list {key!r}")
    return entries


def _text(owner: dict[str, Any], key: str) -> str:
    text: Any = owner.get(key)
    if not is_text(text) or not text.strip():
        raise BadRecord(f"there is no text in {key!r}")
    return str(text)


def _answers(entry: dict[str, Any], passage: str) -> list[Span]:
    if entry.get("is_impossible"):
        raise BadRecord(
            "it has no answer in its passage: such questions of SQuAD 2.0 are unsupported"
        )
    spans = []
    for answer in _entries(entry, "answers"):
        text, start = _text(answer, "text"), answer.get("answer_start")
        if not isinstance(start, int) or start < 0:
            raise BadRecord(f"the answer_start of {text!r} is not a position: {start!r}")
        if passage[start : start + len(text)] != text:
            raise BadRecord(f"the answer {text!r} is not at character {start} of its passage")
        spans.append((start, start + len(text)))
    if not spans:
        raise BadRecord("it has no answer")
    return spans
