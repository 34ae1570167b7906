"""Reading questions and their passages, and writing answers."""

from __future__ import annotations

import json
import lzma
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import complaint, make_reading

from elmokit.data.examples import Question, Span
from elmokit.data.labeled import BadLines
from elmokit.data.squad import read_squad
from elmokit.text.tokenize import tokenize

PASSAGE = "Zoë’s café\u00a0opened in 1999–2000.  It cost $3.5m 😀 (about €3m), they said."


def answer_text(question: Question, span: Span) -> str:
    """Return the characters of a span of tokens of the passage."""
    first, after = span
    return question.passage[question.offsets[first][0] : question.offsets[after - 1][1]]


def entry(
    identifier: str | int, *answers: str, passage: str = PASSAGE, **more: Any
) -> dict[str, Any]:
    """A question whose answers are where the passage has them first."""
    spans = [{"text": text, "answer_start": passage.index(text)} for text in answers]
    return {"id": identifier, "question": "What is it?", "answers": spans} | more


def write(folder: Path, *entries: dict[str, Any], passage: Any = PASSAGE) -> Path:
    content = {
        "version": "1.1",
        "data": [
            {"title": "one", "paragraphs": [{"context": passage, "qas": list(entries)}]},
            {"title": "two", "paragraphs": [{"context": PASSAGE, "qas": [entry("last", "It")]}]},
        ],
    }
    path = folder / "a.json"
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


def questions(path: Path, **options: Any) -> list[Question]:
    return list(read_squad(path, make_reading({"tokenize": tokenize, **options})))


@pytest.mark.parametrize(
    ("answer", "covered"),
    [
        ("café", "café"),
        ("café\u00a0opened", "café\u00a0opened"),
        ("1999–2000", "1999–2000"),
        ("2000.  It", "2000.  It"),
        ("3.5", "3.5m"),  # inside of a token: the whole of it
        ("$3", "$3.5m"),
        ("😀", "😀"),
        ("said.", "said."),
        (" cost ", "cost"),
    ],
)
def test_an_answer_is_the_fewest_tokens_that_cover_it(
    tmp_path: Path, answer: str, covered: str
) -> None:
    example, _ = questions(write(tmp_path, entry("q1", answer)))
    assert example.answers == (answer,)
    assert example.span is not None
    assert answer_text(example, example.span) == covered


def test_a_question_has_its_passage_as_written_and_as_tokens(tmp_path: Path) -> None:
    path = write(tmp_path, entry("q1", "café", "Zoë’s café"), entry(7, "It"))
    first, second, last = questions(path)
    assert first.texts == (("What", "is", "it", "?"), tuple(tokenize(PASSAGE)))
    assert first.passage == PASSAGE
    assert [PASSAGE[start:end] for start, end in first.offsets] == tokenize(PASSAGE)
    assert first.answers == ("café", "Zoë’s café")
    assert first.span == (2, 3)  # Zoë | ’s | café
    assert [e.identifier for e in (first, second, last)] == ["q1", "7", "last"]
    assert first.where == f"{path}, question q1"


def test_questions_without_answers_can_be_read_to_answer_them(tmp_path: Path) -> None:
    bare = {"id": "q1", "question": "Why?"}
    path = write(tmp_path, bare, entry("q2", is_impossible=True), entry("q3", "It"))
    result = questions(path, labeled=False)
    assert [(e.answers, e.span) for e in result] == [((), None)] * 4


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (entry("bad") | {"answers": [{"text": "It", "answer_start": 1}]}, "'It' is not at char"),
        (entry("bad") | {"answers": [{"text": "It", "answer_start": -4}]}, "is not a position: -4"),
        (
            entry("bad") | {"answers": [{"text": "It", "answer_start": "1"}]},
            "is not a position: '1'",
        ),
        (entry("bad") | {"answers": [{"text": "It"}]}, "is not a position: None"),
        (entry("bad") | {"answers": [{"text": " ", "answer_start": 0}]}, "no text in 'text'"),
        (entry("bad", "It") | {"question": "  "}, "no text in 'question'"),
        (entry("bad", "It") | {"question": "\ud800"}, "no text in 'question'"),
        (entry("bad"), "it has no answer"),
        (entry("bad") | {"answers": None}, "no list 'answers'"),
        (entry("bad", is_impossible=True), "SQuAD 2.0"),
    ],
)
def test_a_bad_question_is_named_by_its_id_or_skipped(
    tmp_path: Path, wrong: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "a.json"
    content = {"data": [{"paragraphs": [{"context": PASSAGE, "qas": [entry("q1", "It"), wrong]}]}]}
    path.write_text(json.dumps(content))
    message = complaint(lambda: questions(path))
    assert message.startswith(f"{path}, question bad: ")
    assert sentence in message
    bad = BadLines(skip=True)
    assert [e.identifier for e in questions(path, bad=bad)] == ["q1"]
    assert bad.first == message


def test_an_id_must_be_there_and_be_one_questions_alone(tmp_path: Path) -> None:
    path = write(tmp_path, entry("q1", "It"), entry("q1", "It"))
    assert complaint(lambda: questions(path)) == (f"{path}, question q1: its id is not unique")
    without = entry("", "It")
    del without["id"]
    path = write(tmp_path, without)
    assert complaint(lambda: questions(path)) == f"{path}, article 1, paragraph 1: it has no id"


@pytest.mark.parametrize("passage", [None, "", " \n", 5, ["a"]])
def test_a_paragraph_without_text_is_named_or_skipped(tmp_path: Path, passage: Any) -> None:
    path = write(tmp_path, entry("q1", "It"), passage=passage)
    assert complaint(lambda: questions(path)) == (
        f"{path}, article 1, paragraph 1: there is no text in 'context'"
    )
    assert [e.identifier for e in questions(path, bad=BadLines(skip=True))] == ["last"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no list 'data'"),
        ('{"data": {}}', "no list 'data'"),
        ('{"data": ["x"]}', "no list 'data'"),
        ("", "not JSON"),
    ],
)
def test_a_file_that_is_not_squad_is_an_error(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    for skip in (False, True):
        message = complaint(partial(questions, path, bad=BadLines(skip)))
        assert message.startswith(f"{path} is not a SQuAD file: ")
        assert sentence in message


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text("ab1 .,'n't-éह्漢😀\u00a0\u3000\n\u0301", min_size=1).filter(str.strip),
    st.integers(0, 20),
    st.integers(1, 20),
)
def test_the_span_is_the_smallest_that_covers_the_answer(
    tmp_path: Path, passage: str, start: int, length: int
) -> None:
    answer = passage[start : start + length]
    if not answer.strip():
        return
    question = {"id": "q", "question": "?", "answers": [{"text": answer, "answer_start": start}]}
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps({"data": [{"paragraphs": [{"context": passage, "qas": [question]}]}]})
    )
    [example] = questions(path)
    assert example.span is not None
    inside = {i for i in range(start, start + len(answer)) if not passage[i].isspace()}
    touched = [
        token for token, (a, b) in enumerate(example.offsets) if not inside.isdisjoint(range(a, b))
    ]
    assert list(range(*example.span)) == touched
    assert answer.strip() in answer_text(example, example.span)


def test_real_questions(shared: Path) -> None:
    path = shared / "data" / "qa" / "squad.dev.json.xz"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    data = json.loads(lzma.decompress(path.read_bytes()))["data"]
    raw = [qa for article in data for part in article["paragraphs"] for qa in part["qas"]]
    result = questions(path)
    assert [e.identifier for e in result] == [qa["id"] for qa in raw]
    for example, qa in zip(result, raw, strict=True):
        assert list(example.answers) == [answer["text"] for answer in qa["answers"]]
        assert example.span is not None
        answer = answer_text(example, example.span)
        assert example.answers[0] in answer
        assert example.passage[example.offsets[example.span[0]][0] :].startswith(answer)
    exact = sum(answer_text(e, e.span) == e.answers[0] for e in result if e.span)
    assert exact > 0.95 * len(result)
