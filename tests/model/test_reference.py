"""Both paths through the model give what the plain reference gives, for any model and any text."""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference, make_options, make_reference
from tiny import WORDS as KNOWN
from tiny import difference, load_reference

from elmokit.embed import Embedder
from elmokit.model.batch import make_batch
from elmokit.model.bilm import BiLMState
from elmokit.model.fast.inference import FastBiLM

TOLERANCE, EXACT = 2e-5, 1e-9  # of float32 and of float64
WORDS = st.one_of(
    st.sampled_from(KNOWN),
    st.text(st.characters(exclude_categories=()), max_size=12),  # any: lone surrogates too
    st.text("aäß語🙂", min_size=30, max_size=70),  # cut inside and between characters
    st.sampled_from(
        ["", "👩‍👩‍👧‍👦", "e\u0301\u0327", "\ud83d", "\udcffx", "q" * 48, "q" * 49, "\0", " "]
    ),
)
SENTENCES = st.lists(st.lists(WORDS, max_size=6), min_size=1, max_size=4)
EXAMPLES = settings(max_examples=25)


@st.composite
def references(draw: st.DrawFn) -> Reference:
    """A model of any shape with random weights."""
    project_state = draw(st.booleans())
    size = draw(st.integers(1, 6))
    filters = draw(
        st.lists(st.tuples(st.integers(1, 7), st.integers(1, 4)), min_size=1, max_size=3)
    )
    max_characters = draw(st.sampled_from([8, 20, 50]))
    if draw(st.booleans()):  # a filter as wide as the word, or nearly
        filters.append((max_characters - draw(st.integers(0, 2)), 2))
    project_tokens = draw(st.booleans())
    if not project_tokens:
        size = sum(i for _, i in filters)
    words = draw(st.sampled_from([0, 0, len(KNOWN)]))
    options = make_options(
        layers=draw(st.integers(1, 3)),
        cells=draw(st.integers(1, 8)) if project_state else size,
        size=size,
        cell_clip=draw(st.sampled_from([0, 0.3, 3])),
        proj_clip=draw(st.sampled_from([0, 0.2, 3])),
        skip=draw(st.booleans()),
        char_dim=draw(st.integers(1, 5)),
        filters=[list(pair) for pair in filters],
        highways=draw(st.integers(0, 2)),
        activation=draw(st.sampled_from(["relu", "tanh"])),
        max_characters=max_characters,
        words=words,
    )
    return make_reference(
        options,
        seed=draw(st.integers(0, 2**32 - 1)),
        scale=draw(st.sampled_from([0.5, 1.0, 2.0])),
        project_tokens=project_tokens,
        project_state=project_state,
        vocabulary=KNOWN if words else None,
    )


def training_layers(elmo: Embedder, sentences: list[list[str]]) -> list[np.ndarray]:
    output = elmo.model(make_batch(sentences, elmo.indexer))
    return [
        output.hidden_states[:, row, : len(sentence)].detach().numpy()
        for row, sentence in enumerate(sentences)
    ]


@EXAMPLES
@given(references(), SENTENCES)
def test_training_and_inference_give_the_vectors_of_the_reference(
    reference: Reference, sentences: list[list[str]]
) -> None:
    elmo = load_reference(reference)
    inference = [sentence.layers for sentence in elmo.embed(sentences)]
    training = training_layers(elmo, sentences)
    for sentence, fast, slow in zip(sentences, inference, training, strict=True):
        expected = reference.embed(sentence)
        assert difference(slow, expected) < TOLERANCE
        assert difference(fast, expected) < TOLERANCE
        assert difference(fast, slow) < 1e-5


@EXAMPLES
@given(references(), SENTENCES)
def test_kept_boundaries_have_the_vectors_of_the_reference(
    reference: Reference, sentences: list[list[str]]
) -> None:
    elmo = load_reference(reference)
    output = elmo.model(make_batch(sentences, elmo.indexer), boundaries=True)
    for row, actual in enumerate(elmo.embed(sentences, boundaries=True)):
        expected = reference.embed(sentences[row], boundaries=True)
        assert actual.tokens == ["<S>", *sentences[row], "</S>"]
        assert difference(actual.layers, expected) < TOLERANCE
        slow = output.hidden_states[:, row, : len(actual.tokens)].detach().numpy()
        assert difference(slow, expected) < TOLERANCE
        assert output.lengths[row] == len(actual.tokens)


@EXAMPLES
@given(references(), st.lists(SENTENCES, min_size=1, max_size=4))
def test_a_carried_state_gives_the_vectors_of_the_reference(
    reference: Reference, batches: list[list[list[str]]]
) -> None:
    rows = len(batches[0])
    batches = [batch[:rows] for batch in batches]  # later batches may be smaller, not larger
    elmo = load_reference(reference)
    exact = copy.deepcopy(elmo.model).double()
    expected = reference.embed_batches(batches, rows)
    fast_state: BiLMState | Literal["carry"] | None = "carry"
    states: list[BiLMState | Literal["carry"] | None] = ["carry", "carry"]
    for batch, target in zip(batches, expected, strict=True):
        fast, fast_state = elmo.embed_batch(batch, state=fast_state)
        with torch.no_grad():
            outputs = [
                model(make_batch(batch, elmo.indexer), state=state)
                for model, state in zip((exact, elmo.model), states, strict=True)
            ]
        states = [output.state for output in outputs]
        for row, sentence in enumerate(batch):
            double, single = (o.hidden_states[:, row, : len(sentence)].numpy() for o in outputs)
            assert difference(double, target[row]) < EXACT
            # A state that is carried on may enlarge the rounding of float32.
            rounding = difference(single, target[row])
            assert difference(fast[row].layers, target[row]) < max(TOLERANCE, 4 * rounding)


def test_the_reference_does_clip() -> None:
    """Otherwise the tests above would not notice a model without them."""
    sentence = ["the", "river", "bank"] * 3
    free = make_reference(make_options(cell_clip=0, proj_clip=0), scale=2.0).embed(sentence)
    cell = make_reference(make_options(cell_clip=0.3, proj_clip=0), scale=2.0).embed(sentence)
    both = make_reference(make_options(cell_clip=0.3, proj_clip=0.2), scale=2.0).embed(sentence)
    assert difference(free, cell) > 0.1
    assert difference(cell, both) > 0.1


@settings(EXAMPLES, max_examples=10)
@given(references(), SENTENCES)
def test_training_without_dropout_is_the_same_as_evaluation(
    reference: Reference, sentences: list[list[str]]
) -> None:
    elmo = load_reference(reference)
    evaluated = training_layers(elmo, sentences)
    elmo.model.dropout.p = 0.0
    elmo.model.train()
    for actual, expected in zip(training_layers(elmo, sentences), evaluated, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_dropout_changes_the_layers_in_training_only() -> None:
    elmo = load_reference(make_reference())
    sentence = [["the", "river", "bank"]]
    [evaluated] = training_layers(elmo, sentence)
    elmo.model.dropout.p = 0.5
    np.testing.assert_array_equal(training_layers(elmo, sentence)[0], evaluated)
    elmo.model.train()
    torch.manual_seed(0)
    assert difference(training_layers(elmo, sentence)[0][1:], evaluated[1:]) > 1e-3
    np.testing.assert_array_equal(training_layers(elmo, sentence)[0][0], evaluated[0])


@pytest.mark.parametrize("is_slow", [False, True])
def test_the_buffer_of_gates_may_be_of_any_size(
    monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    monkeypatch.setattr("elmokit.model.kernels.linear.mkl_is_slow", lambda: is_slow)
    reference = make_reference()
    sentences = [["the"] * n for n in (7, 3, 0, 12, 1)]
    expected = [reference.embed(sentence) for sentence in sentences]
    for floats in (1, 100, 500, 10**6):
        for name, value in (("REUSED_GATE_FLOATS", floats), ("NEW_GATE_FLOATS", floats)):
            monkeypatch.setattr(f"elmokit.model.fast.inference.{name}", value)
        monkeypatch.setattr("elmokit.model.fast.inference.NEW_GATE_ROWS", 1)
        for actual, target in zip(
            load_reference(reference).embed(sentences), expected, strict=True
        ):
            assert difference(actual.layers, target) < TOLERANCE


def test_words_are_encoded_the_same_in_groups_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = make_reference(make_options(filters=[[1, 3], [3, 4], [50, 2]]))
    words = ["a", "abc" * 20, "", "<S>", "naïve", "b", "ab" * 12]
    expected = np.array([reference.token_vector(word) for word in words])
    for size in (1, 2, 3, 256):
        monkeypatch.setattr("elmokit.model.fast.inference.ENCODER_WORDS", size)
        elmo = load_reference(reference)
        actual = elmo.embed_tokens(words, layers=0).vectors[:, : elmo.config.projection_dim]
        assert difference(actual, expected) < TOLERANCE


def test_a_snapshot_for_inference_does_not_change_with_its_model() -> None:
    elmo = load_reference(make_reference())
    boundaries = torch.from_numpy(elmo.indexer.encode(["<S>", "</S>"]))
    fast = FastBiLM(elmo.model, boundaries)
    vectors, lengths = torch.randn(5, elmo.config.projection_dim), torch.tensor([3, 2])
    before = fast.run(vectors, lengths).clone()
    with torch.no_grad():
        for parameter in elmo.model.parameters():
            parameter.mul_(2.0)
    torch.testing.assert_close(fast.run(vectors, lengths), before, rtol=0, atol=0)


@pytest.mark.parametrize(("precision", "least"), [("float16", 0.9999), ("int8", 0.99)])
def test_smaller_weights_change_the_direction_of_vectors_only_slightly(
    precision: str, least: float
) -> None:
    options = make_options(cells=64, size=16, filters=[[1, 8], [2, 16], [3, 24]], highways=2)
    reference = make_reference(options, scale=1.0)
    sentences = [["the", "river", "bank", "naïve", "中文", "."], ["boats"], ["a"] * 20]
    elmo = load_reference(reference, precision=precision)
    for sentence, actual in zip(sentences, elmo.embed(sentences), strict=True):
        expected = reference.embed(sentence)
        assert np.isfinite(actual.layers).all()
        norms = np.linalg.norm(actual.layers, axis=2) * np.linalg.norm(expected, axis=2)
        cosine = (actual.layers * expected).sum(axis=2) / norms
        assert cosine.min() > least
        assert difference(actual.layers, expected) > 0  # it did run with smaller weights
