"""Reader of questions in the format of SQuAD 1.1, and writer of answers to them.

Places are characters of the passage as it was written, so that an answer is cut out of it exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from elmokit.data.examples import Question, Span
from elmokit.data.labeled import BadLines
from elmokit.data.lines import Unfit, is_text
from elmokit.errors import ElmokitError
from elmokit.io.lines import FilePath, name_of, read_lines
from elmokit.text.readers import Tokenize
from elmokit.text.tokenize import token_offsets, token_span


def read_squad(
    path: FilePath, *, tokenize: Tokenize, labeled: bool = True, bad: BadLines
) -> Iterator[Question]:
    """The questions of a file, each with its passage.

    Without `labeled` their answers are not read; they may be missing, or impossible.
    """
    seen = set[str]()
    for where, paragraph in _paragraphs(path, bad):
        try:
            passage = _text(paragraph, "context")
            entries = _entries(paragraph, "qas")
        except Unfit as problem:
            bad(where, str(problem))
            continue
        tokens = tuple(tokenize(passage))
        offsets = tuple(token_offsets(passage, tokens))
        for entry in entries:
            identifier = str(entry.get("id", ""))
            at = f"{name_of(path)}, question {identifier}" if identifier else where
            try:
                if not identifier or identifier in seen:
                    raise Unfit("its id is that of another one" if identifier else "it has no id")
                seen.add(identifier)
                question = tuple(tokenize(_text(entry, "question")))
                answers = _answers(entry, passage) if labeled else []
            except Unfit as problem:
                bad(at, str(problem))
                continue
            yield Question(
                (question, tokens),
                at,
                identifier,
                passage,
                offsets,
                tuple(passage[start:end] for start, end in answers),
                token_span(offsets, *answers[0]) if answers else None,
            )


def write_answers(questions: Iterable[Question], answers: Iterable[str]) -> Iterator[str]:
    """The text of a file {identifier: answer}, which SQuAD's own script reads."""
    pairs = zip(questions, answers, strict=True)
    found = {question.identifier: answer for question, answer in pairs}
    yield json.dumps(found, ensure_ascii=False, indent=1) + "\n"


def answer_text(question: Question, span: Span) -> str:
    """The characters of the passage that some of its tokens have."""
    first, after = span
    return question.passage[question.offsets[first][0] : question.offsets[after - 1][1]]


def _paragraphs(path: FilePath, bad: BadLines) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each paragraph of each article, with its place."""
    name = name_of(path)
    try:
        articles = _entries(_load(path), "data")
    except Unfit as problem:
        raise ElmokitError(f"{name} is no file of SQuAD: {problem}") from None
    for number, article in enumerate(articles, start=1):
        try:
            paragraphs = _entries(article, "paragraphs")
        except Unfit as problem:
            bad(f"{name}, article {number}", str(problem))
            continue
        for order, paragraph in enumerate(paragraphs, start=1):
            yield f"{name}, article {number}, paragraph {order}", paragraph


def _load(path: FilePath) -> Any:
    pieces = read_lines(path, errors="surrogateescape")
    text = "".join(piece.text + "\n" * piece.ended for piece in pieces)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Unfit(f"it is not JSON at line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise Unfit("it is not JSON that can be read") from None


def _entries(owner: Any, key: str) -> list[dict[str, Any]]:
    found = owner.get(key) if isinstance(owner, dict) else None
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise Unfit(f"there is no list {key!r}")
    return found


def _text(owner: dict[str, Any], key: str) -> str:
    text: Any = owner.get(key)
    if not is_text(text) or not text.strip():
        raise Unfit(f"there is no text in {key!r}")
    return str(text)


def _answers(entry: dict[str, Any], passage: str) -> list[Span]:
    """The characters of all answers that are given."""
    if entry.get("is_impossible"):
        raise Unfit("it has no answer in its passage, as some of SQuAD 2.0: such are not learned")
    spans = [_answer(answer, passage) for answer in _entries(entry, "answers")]
    if not spans:
        raise Unfit("it has no answer")
    return spans


def _answer(answer: dict[str, Any], passage: str) -> Span:
    text, start = _text(answer, "text"), answer.get("answer_start")
    if not isinstance(start, int) or start < 0:
        raise Unfit(f"the answer_start of {text!r} is no place: {start!r}")
    if passage[start : start + len(text)] != text:
        raise Unfit(f"the answer {text!r} is not at character {start} of its passage")
    return start, start + len(text)
