"""Relations between two marked entities of a sentence."""

from __future__ import annotations

import random
from dataclasses import replace
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
    right,
    scores_of,
    watched,
)
from tiny import complaint, tiny_elmo

from elmokit.data.examples import Related, Span
from elmokit.data.labeled import BadLines
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.layers.spans import bucket
from elmokit.tasks.models.relation import TASK, EntityAttention

THINGS = "ball dog cup tree".split()
AROUND = "and now the of".split()


def make_related(
    text: str, first: Span, second: Span, label: str | None = None, identifier: str = "1"
) -> Related:
    return Related((tuple(text.split()),), "here", first, second, label, identifier)


def directed(count: int, *, seed: int) -> list[Related]:
    """Two of three things are marked; which of them comes first decides the direction.

    All sentences have the same words in the same places, but for the things' names.
    """
    choice = random.Random(seed)
    examples = []
    for _ in range(count):
        words, places = [], []
        for _ in range(3):
            words += choice.choices(AROUND, k=choice.randint(0, 3))
            places.append(len(words))
            words.append(choice.choice(THINGS))
        one, other = choice.sample(places, 2)
        label = "Near(e1,e2)" if one < other else "Near(e2,e1)"
        examples.append(make_related(" ".join(words), (one, one + 1), (other, other + 1), label))
    return examples


@pytest.mark.parametrize("pooling", ["max", "attention"])
def test_the_direction_of_a_relation_is_learned(pooling: str) -> None:
    examples = directed(150, seed=1)
    model = make_model(TASK, examples, pooling=pooling)
    heldout = directed(150, seed=2)
    assert right(model, heldout) < 0.75
    assert right(learn(model, examples, epochs=6), heldout) > 0.97


@pytest.mark.parametrize("pooling", ["max", "mean", "attention"])
def test_a_sentence_has_the_same_scores_alone_and_in_any_batch(pooling: str) -> None:
    examples = [*directed(8, seed=3), make_related("dog", (0, 1), (0, 1), "Near(e1,e2)")]
    examples.append(make_related("the dog " * 20, (2, 5), (38, 40), "Near(e2,e1)"))
    model = make_model(TASK, examples, elmo=tiny_elmo(), placement="both", pooling=pooling)
    together = scores_of(model, examples)
    for row, example in enumerate(examples):
        torch.testing.assert_close(scores_of(model, [example])[0], together[row], atol=1e-5, rtol=0)


@pytest.mark.parametrize("pooling", ["max", "mean", "attention"])
def test_scores_depend_on_which_tokens_are_marked_and_as_what(pooling: str) -> None:
    examples = directed(8, seed=4)
    model = make_model(TASK, examples, pooling=pooling)
    marked = make_related("the dog and the dog and the dog", (1, 2), (4, 5))
    scores = scores_of(model, [marked])
    for other in (
        replace(marked, first=(4, 5), second=(1, 2)),
        replace(marked, first=(0, 2)),
        replace(marked, second=(7, 8)),
    ):
        assert differ(scores, scores_of(model, [other]))


def test_both_entities_and_the_pooled_sentence_decide() -> None:
    examples = [
        make_related("the big dog of the tree", (1, 3), (5, 6), "Near(e1,e2)"),
        make_related("cup and ball", (2, 3), (0, 1), "Near(e2,e1)"),
    ]
    model = make_model(TASK, examples)
    [(read, states)], [(decided, _)] = watched(model, examples, "lstm", "top")
    words = read[:, :, : model.inputs.dim]  # without the places of the entities
    for row, example in enumerate(examples):
        parts = []
        for start, end in (example.first, example.second):
            parts += [words[row, start:end].mean(0), states[row, start:end].mean(0)]
        parts.append(states[row, : len(example.texts[0])].max(0).values)
        torch.testing.assert_close(decided[row], torch.cat(parts), atol=1e-6, rtol=0)


def test_each_token_is_read_with_its_distance_to_both_entities() -> None:
    example = make_related("the big dog of the tree", (1, 3), (5, 6), "Near(e1,e2)")
    examples = [example, replace(example, label="Near(e2,e1)")]
    model = make_model(TASK, examples)
    [[(read, _)]] = watched(model, examples, "lstm")
    first, second = (table.weight for table in model.distances)
    away = [(-1, -5), (0, -4), (0, -3), (1, -2), (2, -1), (3, 0)]
    expected = [torch.cat([first[bucket(one)], second[bucket(other)]]) for one, other in away]
    torch.testing.assert_close(read[0, :, model.inputs.dim :], torch.stack(expected))


def test_attention_weighs_tokens_by_their_relevance_to_the_entities() -> None:
    torch.manual_seed(0)
    attention = EntityAttention(3, 6, 4)
    states, entities = torch.randn(2, 5, 3), torch.randn(2, 6)
    lengths = (5, 2)
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    result = attention(states, mask, entities)
    for text, length in enumerate(lengths):
        asked = attention.entities.weight @ entities[text]
        rows = [
            attention.token.weight @ states[text, i] + attention.token.bias for i in range(length)
        ]
        scores = torch.stack([attention.score.weight[0] @ (row + asked).tanh() for row in rows])
        weights = scores.exp() / scores.exp().sum()
        expected = sum(weights[i] * states[text, i] for i in range(length))
        torch.testing.assert_close(result[text], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_elmo_joins_where_it_is_placed(placement: str) -> None:
    result = movements(TASK, directed(6, seed=5), "lstm", placement)
    assert result == EXPECTED_MOVEMENTS[placement]


def test_training_data_with_one_relation_is_refused() -> None:
    alike = [make_related("a b", (0, 1), (1, 2), "Other")] * 3
    message = complaint(lambda: TASK.learn(alike, complete(TASK)))
    assert message == (
        "the training data has only the label 'Other': there is nothing to choose between"
    )


@pytest.mark.parametrize("learned", [{}, {"labels": ["Other"]}])
def test_a_model_without_relations_is_refused(learned: dict[str, object]) -> None:
    settings = complete(TASK)
    message = complaint(lambda: TASK.model(Inputs(settings, []), settings, learned))
    assert message == "the model has no labels to choose between"


def test_marked_sentences_are_read_with_their_relations(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(
        '8\t"The <e1>old engine</e1> has a <e2>valve</e2>."\nComponent-Whole(e2,e1)\nComment:\n\n'
        '9\t"A <e1>cup</e1> near a <e2>tree</e2>."\nOther\nComment: none\n'
    )
    first, second = TASK.read(str(path), complete(TASK), BadLines(), True)
    assert first.texts == (("The", "old", "engine", "has", "a", "valve", "."),)
    assert (first.first, first.second) == ((1, 3), (5, 6))
    assert (first.label, first.identifier) == ("Component-Whole(e2,e1)", "8")
    assert (second.label, second.identifier) == ("Other", "9")
    path.write_text('8\t"The <e1>old engine</e1> has a <e2>valve</e2>."\n')
    (alone,) = TASK.read(str(path), complete(TASK), BadLines(), False)
    assert alone.label is None


def test_the_score_is_the_official_macro_f1_and_comes_first() -> None:
    gold = ["Has(e1,e2)", "Has(e1,e2)", "In(e1,e2)", "In(e2,e1)", "Other", "Other"]
    predicted = ["Has(e1,e2)", "Has(e2,e1)", "In(e1,e2)", "Other", "In(e1,e2)", "Other"]
    examples = [make_related("a b", (0, 1), (1, 2), label) for label in gold]
    scores = TASK.score(examples, [{"label": label, "probability": 1.0} for label in predicted])
    # Has: 1 of 2 predicted and 1 of 2 right ones; In the same, with a false one from Other
    assert list(scores) == ["macro_f1", "accuracy"]
    assert scores == pytest.approx({"macro_f1": 0.5, "accuracy": 0.5})
    better = [*predicted[:1], "Has(e1,e2)", *predicted[2:]]
    scores = TASK.score(examples, [{"label": label, "probability": 1.0} for label in better])
    assert scores == pytest.approx({"macro_f1": (1 + 0.5) / 2, "accuracy": 4 / 6})


def test_answers_are_written_as_the_official_scorer_reads_them() -> None:
    examples = [
        make_related("a b", (0, 1), (1, 2), identifier="8001"),
        make_related("a b", (0, 1), (1, 2), identifier="8002"),
    ]
    result = [{"label": "Has(e2,e1)", "probability": 0.9}, {"label": "Other", "probability": 0.4}]
    assert "".join(TASK.write(examples, result)) == "8001\tHas(e2,e1)\n8002\tOther\n"
