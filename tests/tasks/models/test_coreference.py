"""Pronouns of GAP: which of two names is meant."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from heads import (
    EXPECTED_MOVEMENTS,
    PLACEMENTS,
    complete,
    learn,
    make_model,
    movements,
    right,
    scores_of,
    watched,
)
from tiny import complaint, tiny_elmo

from elmokit.data.examples import Pronoun
from elmokit.data.labeled import BadLines
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.layers.spans import bucket
from elmokit.tasks.models.coreference import (
    NUM_VALUES,
    TASK,
    cut_sentences,
    name_features,
    read_passages,
)

NAMES = "Ann Eve Zoe Mia Ida".split()
COLORS = "red green blue".split()
SWAPPED = {"A": "B", "B": "A", "NEITHER": "NEITHER"}


def make_pronoun(text: str, first: str, second: str, label: str | None = None) -> Pronoun:
    """A passage with a sentence on each line; the pronoun is its last "she"."""
    sentences = tuple(tuple(line.split()) for line in text.strip().split("\n"))
    tokens = [token for sentence in sentences for token in sentence]
    spans = []
    for name in (first, second):
        words = name.split()
        places = [i for i in range(len(tokens)) if tokens[i : i + len(words)] == words]
        spans.append((places[0], places[0] + len(words)))
    pronoun = max(i for i, token in enumerate(tokens) if token.lower() in ("she", "he"))
    return Pronoun(sentences, "here", "test-1", pronoun, spans[0], spans[1], label)


def cue_passages(count: int, *, seed: int) -> list[Pronoun]:
    """The pronoun refers to the name that wore its color."""
    choice = random.Random(seed)
    examples = []
    for _ in range(count):
        one, other = choice.sample(NAMES, 2)
        label = choice.choice(["A", "B", "NEITHER"])
        worn = choice.sample(COLORS, 3)
        liked = worn[["A", "B", "NEITHER"].index(label)]
        lines = [f"{one} wore {worn[0]} .", f"{other} wore {worn[1]} ."]
        if choice.random() < 0.5:
            lines.reverse()
        lines.append(f"{liked} she liked .")
        examples.append(make_pronoun("\n".join(lines), one, other, label))
    return examples


def swapped(example: Pronoun) -> Pronoun:
    return replace(example, first=example.second, second=example.first)


def test_the_name_whose_cue_agrees_is_found() -> None:
    examples = cue_passages(300, seed=1)
    model = make_model(TASK, examples, hidden=32)
    heldout = cue_passages(150, seed=2)
    assert right(model, heldout) < 0.6
    assert right(learn(model, examples, epochs=18, lr=0.005), heldout) > 0.97


def test_swapped_names_have_swapped_scores() -> None:
    examples = cue_passages(10, seed=3)
    model = make_model(TASK, examples, elmo=tiny_elmo())
    scores = scores_of(model, examples)
    mirrored = scores_of(model, [swapped(example) for example in examples])
    torch.testing.assert_close(mirrored[:, [1, 0, 2]], scores, atol=1e-6, rtol=0)
    assert (scores[:, 0] - scores[:, 1]).abs().min() > 0


def test_a_passage_has_the_same_scores_alone_and_in_any_batch() -> None:
    examples = cue_passages(8, seed=4)
    examples.append(replace(examples[0], texts=(("she",),), pronoun=0, first=(0, 1), second=(0, 1)))
    long = "Ann Lee wore red .\n" + "Eve wore blue and went away .\n" * 9 + "Then she ran ."
    examples.append(make_pronoun(long, "Ann Lee", "Eve", "A"))
    model = make_model(TASK, examples, elmo=tiny_elmo(), placement="both")
    together = scores_of(model, examples)
    for row, example in enumerate(examples):
        torch.testing.assert_close(scores_of(model, [example])[0], together[row], atol=1e-5, rtol=0)


def test_the_biLM_reads_sentences_and_their_vectors_are_joined_in_order() -> None:  # noqa: N802
    examples = cue_passages(3, seed=5)
    examples.append(make_pronoun("Ann saw Eve and she ran .", "Ann", "Eve"))
    settings = complete(TASK, placement="both")
    inputs = Inputs(settings, NAMES, elmo=tiny_elmo()).eval()
    result = read_passages(inputs, examples)
    for row, example in enumerate(examples):
        alone = [inputs([sentence]) for sentence in example.texts]
        count = sum(map(len, example.texts))
        assert result.mask[row].tolist() == [i < count for i in range(result.mask.shape[1])]
        vectors = torch.cat([sentence.vectors[0] for sentence in alone])
        late = torch.cat([sentence.late[0] for sentence in alone if sentence.late is not None])
        torch.testing.assert_close(result.vectors[row, :count], vectors, atol=1e-5, rtol=0)
        assert result.late is not None
        torch.testing.assert_close(result.late[row, :count], late, atol=1e-5, rtol=0)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_elmo_joins_where_it_is_placed(placement: str) -> None:
    result = movements(TASK, cue_passages(6, seed=6), "lstm", placement)
    assert result == EXPECTED_MOVEMENTS[placement]


def test_names_are_their_first_and_last_token_and_their_mean() -> None:
    passage = "Yesterday Ann van Lee met Eve .\nThen she ran ."
    examples = [make_pronoun(passage, "Ann van Lee", "Eve", "A"), *cue_passages(4, seed=11)]
    model = make_model(TASK, examples)
    [(_, states)], [(first, _), (second, _)], [(pronouns, _)] = watched(
        model, examples, "lstm", "name", "pronoun"
    )
    tokens = states[0]
    ann = torch.cat([tokens[1], tokens[3], tokens[1:4].mean(0)])
    eve = torch.cat([tokens[5], tokens[5], tokens[5]])
    torch.testing.assert_close(first[0], ann, atol=1e-6, rtol=0)
    torch.testing.assert_close(second[0], eve, atol=1e-6, rtol=0)
    torch.testing.assert_close(pronouns[0], tokens[8], atol=1e-6, rtol=0)


def test_features_describe_both_names() -> None:
    example = make_pronoun(
        "Yesterday Ann van Lee met Eve .\nLee sang in a van .\nThen Eve ran and she fell .",
        "Ann van Lee",
        "Eve",
    )
    assert (example.first, example.second, example.pronoun) == ((1, 4), (5, 6), 17)
    assert name_features(example) == [
        # 14 tokens behind, 2 sentences, second token, once more as Lee; farther, the first
        [bucket(14), 3 + 2, 1, 1, 0, 1],
        [bucket(12), 3 + 2, 3, 1, 1, 0],
    ]


def test_each_feature_has_its_own_rows() -> None:
    examples = cue_passages(5, seed=12)
    model = make_model(TASK, examples)
    [[(rows, _)]] = watched(model, examples, "features")
    for result, example in zip(rows.tolist(), examples, strict=True):
        for row, features in zip(result, name_features(example), strict=True):
            assert row == [sum(NUM_VALUES[:k]) + value for k, value in enumerate(features)]


def test_features_of_names_behind_the_pronoun() -> None:
    example = Pronoun(
        (("When", "she", "ran", ",", "Ann", "fell", "."), ("Eve", "Roe", "did", "not", ".")),
        "here", "x", 1, (4, 5), (7, 9), None,
    )  # fmt: skip
    assert name_features(example) == [[bucket(-3), 3, 3, 0, 1, 1], [bucket(-6), 3 - 1, 0, 0, 0, 0]]


def test_features_stay_below_their_number_of_values() -> None:
    lines = "Ann met Eve .\n" * 40
    for text in (f"{lines}Then she ran .", f"Then she ran .\n{lines}"):
        example = make_pronoun(text, "Ann", "Eve")
        for features in name_features(example):
            assert all(0 <= value < most for value, most in zip(features, NUM_VALUES, strict=True))


def test_passages_are_cut_into_sentences_and_no_token_is_lost() -> None:
    tokens = tuple(
        "Mrs. Lee left at 5 p.m. on Monday . `` Why ? '' she asked . Nobody knew".split()
    )
    sentences = cut_sentences(tokens)
    assert [" ".join(sentence) for sentence in sentences] == [
        "Mrs. Lee left at 5 p.m. on Monday .",
        "`` Why ? '' she asked .",
        "Nobody knew",
    ]
    odd = ("甲。乙", "她", "走", "。", "丙", "...", "!", "a.B", "?", "x")
    assert sum(cut_sentences(odd), ()) == odd
    assert cut_sentences(("she",)) == (("she",),)


def test_training_data_with_one_answer_is_refused() -> None:
    alike = [replace(example, label="A") for example in cue_passages(3, seed=7)]
    message = complaint(lambda: TASK.learn(alike, complete(TASK)))
    assert message == (
        "the training data has only the label 'A': there is nothing to choose between"
    )


def test_other_labels_are_refused() -> None:
    settings = complete(TASK)
    for learned in ({}, {"labels": ["A", "B"]}, {"labels": ["A", "B", "C"]}):
        message = complaint(partial(TASK.model, Inputs(settings, []), settings, learned))
        assert message == "the model's labels must be A, B, NEITHER"


def test_positions_count_the_tokens_of_all_sentences(tmp_path: Path) -> None:
    path = tmp_path / "gap.tsv"
    text = "Ann Lee met Eve. Then she ran."
    path.write_text(
        "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
        f"x-1\t{text}\tshe\t22\tAnn Lee\t0\tFALSE\tEve\t12\tTRUE\thttp://example.org\n"
    )
    (example,) = TASK.read(str(path), complete(TASK), BadLines(), True)
    assert example.texts == (("Ann", "Lee", "met", "Eve", "."), ("Then", "she", "ran", "."))
    assert (example.pronoun, example.first, example.second) == (6, (0, 2), (3, 4))
    assert (example.label, example.identifier) == ("B", "x-1")
    (unlabeled,) = TASK.read(str(path), complete(TASK), BadLines(), False)
    assert unlabeled.label is None


def test_scores_are_those_of_gap_with_f1_first() -> None:
    examples = cue_passages(5, seed=9)
    gold = ["A", "B", "NEITHER", "A", "B"]
    examples = [replace(e, label=label) for e, label in zip(examples, gold, strict=True)]
    he = make_pronoun("Bob met Tim .\nThen he ran .", "Bob", "Tim", "A")
    result = [
        {"label": label, "probability": 1.0} for label in ("A", "A", "B", "NEITHER", "B", "A")
    ]
    scores = TASK.score([*examples, he], result)
    # 3 of the 5 names that were chosen are right, and 3 of the 5 that should have been
    assert next(iter(scores)) == "f1"
    assert scores["f1"] == pytest.approx(3 / 5)
    assert scores["accuracy"] == pytest.approx(3 / 6)
    assert scores["f1_masculine"] == 1
    assert scores["f1_feminine"] == pytest.approx(2 / 4)


def test_answers_are_written_as_gaps_own_scorer_reads_them() -> None:
    examples = [
        replace(example, identifier=f"development-{i}")
        for i, example in enumerate(cue_passages(3, seed=10), start=1)
    ]
    result = [{"label": label, "probability": 0.5} for label in ("A", "B", "NEITHER")]
    assert "".join(TASK.write(examples, result)) == (
        "development-1\tTRUE\tFALSE\ndevelopment-2\tFALSE\tTRUE\ndevelopment-3\tFALSE\tFALSE\n"
    )
