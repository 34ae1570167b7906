"""Question answering: attention, the choice of a span, and answers as the passage has them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny_elmo

from elmokit.data.examples import Question, Tokens
from elmokit.data.labeled import BadLines
from elmokit.tasks.layers.attention import matches
from elmokit.tasks.layers.embedder import Inputs, known_words
from elmokit.tasks.models import question as span_qa
from elmokit.tasks.models.question import TASK, BiAttention, SpanReader, best_spans, window
from elmokit.tasks.settings import QuestionSettings

ODD = "“Zoë’s  naïve\u00a0 café”,\n\tthey\u2003said ,  closed\u3000 in  \U0001f3f0 中 文 .  "


def make_question(question: str, passage: str, right: str = "", where: str = "") -> Question:
    """A question on a passage of tokens separated by whitespace, with an answer in it."""
    offsets = tuple(result.span() for result in re.finditer(r"\S+", passage))
    span = None
    if right:
        start = passage.index(right)
        first = [begin for begin, _ in offsets].index(start)
        span = first, [end for _, end in offsets].index(start + len(right)) + 1
    return Question(
        texts=(tuple(question.split()), tuple(passage[begin:end] for begin, end in offsets)),
        where=where,
        identifier=where,
        passage=passage,
        offsets=offsets,
        answers=(right,) if right else (),
        span=span,
    )


def cue_questions(count: int, *, seed: int) -> list[Question]:
    """The answer, of one or two words, follows the cue that the question names."""
    choice = random.Random(seed)
    examples = []
    for _ in range(count):
        cues = choice.sample([f"cue{k}" for k in range(6)], 4)
        things = [f"thing{choice.randrange(12)}" + choice.choice(["", " indeed"]) for _ in cues]
        parts = [f"and then {cue} {thing} ." for cue, thing in zip(cues, things, strict=True)]
        k = choice.randrange(4)
        first = len(" ".join(parts[:k]).split()) + 3  # behind "and then cue"
        span = first, first + len(things[k].split())
        example = make_question(f"what follows {cues[k]} ?", " ".join(parts))
        examples.append(replace(example, answers=(things[k],), span=span))
    return examples


def make_model(examples: Sequence[Question], *, elmo: Any = None, **given: Any) -> SpanReader:
    torch.manual_seed(1)
    given = {"hidden": 12, "word_dim": 16, "dropout": 0.0, **given}
    settings = TASK.settings(**given).with_word_dim(has_vectors=False)
    words = known_words([text for example in examples for text in example.texts], settings)
    inputs = Inputs(settings, words, elmo=elmo)
    return TASK.model(inputs, settings, TASK.learn(examples, settings))


def learn(model: SpanReader, examples: Sequence[Question], epochs: int) -> SpanReader:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for start in range(0, len(examples), 20):
            optimizer.zero_grad()
            model.loss(examples[start : start + 20]).backward()
            optimizer.step()
    return model


def predict(model: SpanReader, examples: Sequence[Question]) -> list[dict[str, Any]]:
    with torch.inference_mode():
        return model.eval().predict(examples)


def log_probabilities(lengths: Sequence[int], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(len(lengths), max(lengths), generator=generator, dtype=torch.float64)
    ended = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
    return scores.masked_fill(ended, -torch.inf).log_softmax(1)


@pytest.mark.parametrize("longest", [1, 3, 7, 100])
def test_the_best_span_is_the_best_of_all_pairs(longest: int) -> None:
    lengths = [1, 2, 9, 17, 30] * 20
    start, end = log_probabilities(lengths, 1), log_probabilities(lengths, 2)
    spans, probabilities = best_spans(start, end, longest)
    for row, length in enumerate(lengths):
        pairs = [(i, j) for i in range(length) for j in range(i, min(length, i + longest))]
        i, j = max(pairs, key=lambda pair: float(start[row, pair[0]] + end[row, pair[1]]))
        assert spans[row] == (i, j + 1)
        assert log(probabilities[row]) == pytest.approx(float(start[row, i] + end[row, j]))


def test_attention_is_what_the_formula_says_for_each_pair_of_tokens() -> None:
    torch.manual_seed(0)
    attention = BiAttention(5)
    for weight in attention.parameters():
        torch.nn.init.normal_(weight)
    scores = attention.scores
    joined = torch.cat([scores.first.weight[0], scores.second.weight[0], scores.product])
    passage, question = torch.randn(3, 7, 5), torch.randn(3, 4, 5)
    sizes = [(7, 4), (5, 1), (1, 3)]  # tokens of each passage and question
    mask = torch.arange(7) < torch.tensor([p for p, _ in sizes])[:, None]
    question_mask = torch.arange(4) < torch.tensor([q for _, q in sizes])[:, None]
    result = attention(passage, question, mask, question_mask)
    for row, (p, q) in enumerate(sizes):
        c, u = passage[row, :p, None].expand(p, q, 5), question[row, None, :q].expand(p, q, 5)
        similarity = torch.cat([c, u, c * u], dim=-1) @ joined + scores.first.bias  # (p, q)
        asked = similarity.softmax(1) @ question[row, :q]
        hit = similarity.max(1).values.softmax(0) @ passage[row, :p]
        c = passage[row, :p]
        expected = torch.cat([c, asked, c * asked, c * hit], dim=1)
        torch.testing.assert_close(result[row, :p], expected, atol=1e-5, rtol=1e-5)


def test_words_are_matched_as_written_and_in_lower_case() -> None:
    result = matches(("The", "River", "bank", "ÉTÉ"), ("the", "River", "été"))
    assert result.tolist() == [[0, 1], [1, 1], [0, 0], [0, 1]]


def test_matches_are_read_by_the_model() -> None:
    examples = [make_question("zzz ?", "a b zzz d"), make_question("yyy ?", "a b zzz d")]
    model = make_model([make_question("a a b", "b d d", "d")])  # zzz and yyy are both unknown to it
    (start, _), (other, _) = (model([e.texts[0]], [e.texts[1]]) for e in examples)
    assert (start - other).abs().max() > 1e-4


def test_questions_whose_answer_follows_a_cue_are_learned() -> None:
    train, dev = cue_questions(240, seed=1), cue_questions(80, seed=2)
    # Windows of 14 of about 20 tokens: what is learned in them holds for whole passages.
    model = learn(make_model(train, max_tokens=14, hidden=16), train, epochs=12)
    scores = TASK.score(dev, predict(model, dev))
    assert scores["exact"] >= 0.98
    assert scores["f1"] >= scores["exact"]


@pytest.mark.parametrize("placement", [None, "input", "output", "both"])
def test_an_answer_does_not_depend_on_what_else_is_in_the_batch(placement: str | None) -> None:
    long = " ".join(f"the river{i} bank" for i in range(9))
    passages = ["one", "two words", ODD, long, "a b c d e", long]
    examples = [make_question(f"{'what ' * n} is {p[:9]} ?", p) for n, p in enumerate(passages)]
    more = {} if placement is None else {"elmo": tiny_elmo(), "placement": placement}
    model = make_model([make_question("a b", "b a", "b")], **more).eval()
    for scores in (model.start, model.end):
        torch.nn.init.normal_(scores.weight, std=9.0)  # far from a tie
    asked, read = zip(*(example.texts for example in examples), strict=True)
    together, answers = torch.stack(model(asked, read)), predict(model, examples)
    for row, example in enumerate(examples):
        alone = torch.stack(model(asked[row : row + 1], read[row : row + 1]))[:, 0]
        length = len(example.offsets)
        torch.testing.assert_close(together[:, row, :length].exp(), alone.exp(), atol=1e-5, rtol=0)
        (answer,) = predict(model, [example])
        assert answer["answer"] == answers[row]["answer"]
        assert answer["probability"] == pytest.approx(answers[row]["probability"], abs=1e-5)
    # Each question is read: two on the same passage do not get the same.
    assert (together[:, 3] - together[:, 5]).abs().max() > 1e-3


def test_long_passages_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = cue_questions(9, seed=4)
    model = make_model(examples)
    expected = [result["answer"] for result in predict(model, examples)]
    read: list[int] = []
    forward = model.forward
    monkeypatch.setattr(span_qa, "MAX_BATCH_TOKENS", 50)

    def counted(questions: Sequence[Tokens], passages: Sequence[Tokens]) -> Any:
        read.append(len(passages))
        return forward(questions, passages)

    monkeypatch.setattr(model, "forward", counted)
    assert [result["answer"] for result in predict(model, examples)] == expected
    assert sum(read) == 9
    assert max(read) == 2


def test_elmo_is_mixed_where_it_is_placed() -> None:
    examples = cue_questions(4, seed=3)
    for placement, mixes in [("input", 1), ("output", 1), ("both", 2)]:
        model = make_model(examples, elmo=tiny_elmo(), placement=placement)
        model.loss(examples).backward()
        gammas = [p for name, p in model.named_parameters() if name.endswith(".gamma")]
        assert len(gammas) == mixes
        assert all(gamma.grad is not None and gamma.grad.abs() > 0 for gamma in gammas)


def test_the_loss_is_the_mean_over_questions_of_any_length() -> None:
    texts = [("what ?", "one two three", "two three"), ("who is it ?", "me", "me")]
    texts.append(("how ?", ODD, "naïve\u00a0 café”,"))
    examples = [make_question(*text) for text in texts]
    model = make_model(examples).eval()
    losses = []
    for example in examples:
        start, end = model([example.texts[0]], [example.texts[1]])
        first, after = example.span or (0, 0)
        losses.append(-(start[0, first] + end[0, after - 1]).item())
    assert losses[1] == 0.0  # a passage of one token leaves no choice
    assert model.loss(examples).item() == pytest.approx(sum(losses) / 3, abs=1e-5)


def test_an_answer_is_cut_out_of_the_passage_as_it_was_written() -> None:
    right = "naïve\u00a0 café”,\n\tthey\u2003said"
    examples = [make_question("who is naïve ?", ODD, right), make_question("where ?", ODD, "中 文")]
    result = predict(learn(make_model(examples), examples, epochs=40), examples)
    assert [answer["answer"] for answer in result] == [right, "中 文"]
    for answer in result:
        assert ODD[answer["start"] : answer["end"]] == answer["answer"]
        assert 0.5 < answer["probability"] <= 1
    assert TASK.score(examples, result) == {"f1": 1.0, "exact": 1.0}


def test_answers_are_not_longer_than_requested() -> None:
    examples = [make_question("what ?", "a b c d e f g h", "b c d e f")]
    for longest, expected in [(5, 5), (20, 5), (3, 3), (1, 1)]:
        model = learn(make_model(examples, max_answer_tokens=longest), examples, epochs=30)
        (result,) = predict(model, examples)
        tokens = result["answer"].split()
        assert len(tokens) <= expected
        assert longest < 5 or tokens == list("bcdef")


@pytest.mark.parametrize("longest", [1, 2, 5, 10, 24])
def test_a_window_has_the_answer_in_it(longest: int) -> None:
    passage = " ".join(f"w{i}" for i in range(61))
    begins = set()
    for first in range(61):
        for after in range(first + 1, min(first + 8, 61) + 1):
            example = replace(make_question("?", passage), span=(first, after))
            tokens, span = window(example, longest)
            begin = int(tokens[0][1:])
            assert tokens == example.texts[1][begin : begin + longest]
            assert len(tokens) == longest
            answer = tokens[span[0] : span[1]]
            right = example.texts[1][first:after]
            assert answer == right[: len(answer)]
            assert len(answer) == len(right) or span[1] == longest
            if len(right) <= longest // 2:
                assert answer == right
                begins.add(begin)
    # Few of them, so that the questions of a passage share their vectors.
    assert len(begins) <= 61 / max(longest // 2, 1) + 1
    assert all(after - before <= longest for before, after in pairwise(sorted(begins)))


@pytest.mark.parametrize("longest", [0, 61, 100])
def test_a_passage_that_is_short_enough_is_not_cut(longest: int) -> None:
    example = make_question("?", "w " * 60 + "x", "x")
    assert window(example, longest) == (example.texts[1], (60, 61))


def test_a_file_is_read_with_and_without_its_answers(tmp_path: Path) -> None:
    answer = {"text": "river", "answer_start": 4}
    entry = {"id": "q1", "question": "Where's it?", "answers": [answer]}
    paragraph = {"context": "The river's bank.", "qas": [entry]}
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    (known,) = TASK.read(str(path), QuestionSettings(), BadLines(), True)
    assert known.texts == (("Where", "'s", "it", "?"), ("The", "river", "'s", "bank", "."))
    assert (known.answers, known.span) == (("river",), (1, 2))
    (unknown,) = TASK.read(str(path), QuestionSettings(), BadLines(), False)
    assert unknown == replace(known, answers=(), span=None)
    model = make_model([known])
    assert predict(model, [unknown]) == predict(model, [known])


def test_predictions_are_written_as_squads_script_reads_them() -> None:
    examples = [make_question("?", "a b", where=name) for name in ("first", "zweite", "last")]
    result = [
        {"answer": answer, "start": 0, "end": 1, "probability": 1} for answer in ('"a"', "中", "")
    ]
    text = "".join(TASK.write(examples, result))
    assert json.loads(text) == {"first": '"a"', "zweite": "中", "last": ""}
    assert text.endswith("\n")
    assert "中" in text
    assert "中" in text
