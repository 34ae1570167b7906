"""Sentence pairs: a model that compares two texts token by token."""

from __future__ import annotations

import random
from dataclasses import replace
from math import log
from pathlib import Path

import pytest
import torch
from heads import (
    EXPECTED_MOVEMENTS,
    PLACEMENTS,
    complete,
    differ,
    learn,
    make_model,
    movements,
    predict,
    right,
    scores_of,
    watched,
)
from tiny import complaint, tiny_elmo

from elmokit.data.examples import Labeled
from elmokit.data.labeled import BadLines
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.models.pair import TASK

COLORS = "red green blue black".split()
AROUND = "the house is and was now".split()


def make_pair(first: str, second: str, label: str | None = None) -> Labeled:
    return Labeled((tuple(first.split()), tuple(second.split())), "here", label)


def color_pairs(count: int, *, seed: int) -> list[Labeled]:
    """Texts of unequal length that have one color each, at any position: the same or not."""
    choice = random.Random(seed)
    examples = []
    for _ in range(count):
        first, second = choice.choices(COLORS, k=2)
        if choice.random() < 0.4:
            second = first
        texts = []
        for color in (first, second):
            words = choice.choices(AROUND, k=choice.randint(1, 5))
            words.insert(choice.randint(0, len(words)), color)
            texts.append(" ".join(words))
        label = "same" if first == second else "different"
        examples.append(make_pair(texts[0], texts[1], label))
    return examples


def test_whether_two_texts_name_the_same_thing_is_learned() -> None:
    examples = color_pairs(250, seed=1)
    model = make_model(TASK, examples)
    heldout = [example for example in color_pairs(200, seed=2) if example not in examples]
    assert right(model, heldout) < 0.75
    assert right(learn(model, examples, epochs=16), heldout) > 0.97


def test_a_pair_has_the_same_scores_alone_and_in_any_batch() -> None:
    examples = [*color_pairs(9, seed=3), make_pair("red", "blue", "same")]
    examples.append(make_pair("red " * 30, "the house is green", "different"))
    model = make_model(TASK, examples, elmo=tiny_elmo(), placement="both")
    together = scores_of(model, examples)
    for row, example in enumerate(examples):
        torch.testing.assert_close(scores_of(model, [example])[0], together[row], atol=1e-5, rtol=0)
    mirrored = scores_of(model, examples[::-1]).flip(0)
    torch.testing.assert_close(mirrored, together, atol=1e-5, rtol=0)


def test_each_text_is_read_and_their_order_counts() -> None:
    example = make_pair("the house is red", "now green", "a")
    model = make_model(TASK, [example, replace(example, label="b")] * 2)
    scores = scores_of(model, [example])
    for other in (
        make_pair("the house is green", "now green"),
        make_pair("the house is red", "now red"),
        make_pair("now green", "the house is red"),
    ):
        assert differ(scores, scores_of(model, [other]))


def test_words_are_read_with_whether_the_other_text_has_them() -> None:
    examples = [make_pair("The zzz is", "a Zzz the", "a"), make_pair("red", "red", "b")]
    model = make_model(TASK, examples)
    [[(read, _)]] = watched(model, examples, "encoder")
    assert read[:, :, model.inputs.dim :].tolist() == [  # as it is written, and in lower case
        [[0, 1], [0, 1], [0, 0]],
        [[1, 1], [0, 0], [0, 0]],
        [[0, 0], [0, 1], [0, 1]],
        [[1, 1], [0, 0], [0, 0]],
    ]


def test_tokens_are_compared_with_what_they_are_aligned_to() -> None:
    examples = [make_pair("the house is red", "now green", "a"), make_pair("red", "blue", "b")]
    model = make_model(TASK, examples, elmo=tiny_elmo(), placement="output")
    [(_, encoded)], [(compared, _)] = watched(model, examples, "encoder", "compare")
    late = model.inputs(
        [text for position in (0, 1) for text in (e.texts[position] for e in examples)]
    )
    states = torch.cat([encoded, late.late], dim=-1)  # both first texts, then both second ones
    for first, example in enumerate(examples):
        second = first + len(examples)
        a, b = (states[row, : len(example.texts[row // 2])] for row in (first, second))
        for row, own, other in ((first, a, b), (second, b, a)):
            aligned = (own @ other.T).softmax(1) @ other
            expected = torch.cat([own, aligned, own - aligned, own * aligned], dim=1)
            torch.testing.assert_close(compared[row, : len(own)], expected, atol=1e-5, rtol=0)


def test_the_loss_is_the_mean_of_minus_log_p_of_the_right_labels() -> None:
    examples = color_pairs(12, seed=4)
    model = make_model(TASK, examples).eval()
    expected = 0.0
    for example, result in zip(examples, predict(model, examples), strict=True):
        probability = result["probability"]  # there are two labels
        expected -= log(probability if result["label"] == example.label else 1 - probability)
    assert model.loss(examples).item() == pytest.approx(expected / len(examples), abs=1e-4)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_elmo_joins_where_it_is_placed(placement: str) -> None:
    examples = color_pairs(6, seed=5)
    result = movements(TASK, examples, "encoder", placement)
    assert result == EXPECTED_MOVEMENTS[placement]


def test_dropout_is_on_in_training_alone() -> None:
    examples = color_pairs(6, seed=6)
    model = make_model(TASK, examples, dropout=0.5)
    assert not differ(scores_of(model, examples), scores_of(model, examples))
    model.train()
    assert differ(model(examples), model(examples))


def test_training_data_with_one_label_is_refused() -> None:
    alike = [make_pair("a", "b", "same")] * 3
    message = complaint(lambda: TASK.learn(alike, complete(TASK)))
    assert message == (
        "the training data has only the label 'same': there is nothing to choose between"
    )
    assert "no labels" in complaint(lambda: TASK.learn([make_pair("a", "b")], complete(TASK)))


@pytest.mark.parametrize(
    "learned", [{}, {"labels": ["same"]}, {"labels": "ab"}, {"labels": ["same", "same"]}]
)
def test_a_model_without_labels_to_choose_between_is_refused(learned: dict[str, object]) -> None:
    settings = complete(TASK)
    message = complaint(lambda: TASK.model(Inputs(settings, []), settings, learned))
    assert message == "the model has no labels to choose between"


def test_pairs_are_read_from_named_columns_and_long_texts_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("id\tone\tother\tverdict\n7\ta b c d\te\tyes\n8\tf g\th i j\tno\n")
    columns = {"text_column": "one", "second_column": "other", "label_column": "verdict"}
    settings = complete(TASK, **columns, max_tokens=2)
    first, second = TASK.read(str(path), settings, BadLines(), True)
    assert (first.texts, first.label) == ((("a", "b"), ("e",)), "yes")
    assert (second.texts, second.label) == ((("f", "g"), ("h", "i")), "no")
    whole = next(TASK.read(str(path), complete(TASK, **columns), BadLines(), True))
    assert whole.texts[0] == ("a", "b", "c", "d")


def test_pairs_to_predict_need_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("premise\thypothesis\na b\tc\n")
    (example,) = TASK.read(str(path), complete(TASK), BadLines(), False)
    assert (example.texts, example.label) == ((("a", "b"), ("c",)), None)
    assert "label" in complaint(
        lambda: list(TASK.read(str(path), complete(TASK), BadLines(), True))
    )


def test_scores_are_accuracy_and_the_mean_f1_of_the_labels() -> None:
    examples = [make_pair("a", "b", label) for label in ("yes", "yes", "no", "no")]
    result = [{"label": label, "probability": 0.5} for label in ("yes", "no", "no", "no")]
    # yes: precision 1, recall 1/2; no: precision 2/3, recall 1
    expected = {"accuracy": 3 / 4, "macro_f1": (2 / 3 + 4 / 5) / 2}
    scores = TASK.score(examples, result)
    assert scores == pytest.approx(expected)
    assert next(iter(scores)) == "accuracy"  # what early stopping watches


def test_labels_are_written_one_a_line_with_their_probability() -> None:
    examples = [make_pair("a b", "c"), make_pair("d", "e f")]
    result = [{"label": "yes", "probability": 0.98765}, {"label": "no", "probability": 0.5}]
    assert "".join(TASK.write(examples, result)) == "yes\t0.9877\ta b\tc\nno\t0.5000\td\te f\n"
