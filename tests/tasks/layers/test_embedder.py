from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from elmokit.embed import Embedder
from elmokit.tasks.layers.embedder import Inputs, known_words
from elmokit.tasks.settings import TrainSettings

TEXTS = [("the", "bank", "of", "England"), ("a", "bank")]


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return elmokit.load()


def settings(**given: Any) -> TrainSettings:
    own = TrainSettings(**{"dropout": 0.0, "elmo_dropout": 0.0, **given})
    return own.with_word_dim(has_vectors=False)


class Vectors:
    """Three static vectors."""

    dim, source = 2, "three"
    vectors = np.array([[1, 2], [3, 4], [5, 6]], np.float32)

    def rows(self, words: list[str]) -> np.ndarray:
        return np.array([{"the": 0, "bank": 1, "a": 2}.get(word, -1) for word in words])


def test_static_learned_and_character_vectors_are_concatenated() -> None:
    own = settings(word_dim=3, char_dim=4)
    inputs = Inputs(own, ["bank", "the"], vectors=Vectors())  # type: ignore[arg-type]
    result = inputs(TEXTS)
    assert result.vectors.shape == (2, 4, 2 + 3 + 4)
    assert inputs.dim == 9
    assert result.mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert result.vectors[0, 0, :2].tolist() == [1, 2]
    assert result.vectors[0, 1, :2].tolist() == [3, 4]
    assert result.vectors[0, 3, :2].tolist() == [0, 0]  # not in the file: a learned vector, 0 first
    assert inputs.learned is not None
    assert torch.equal(result.vectors[0, 1, 2:5], inputs.learned.weight[1])  # bank
    assert torch.equal(result.vectors[1, 0, 2:5], inputs.learned.weight[0])  # "a" is unknown
    assert torch.equal(result.vectors[0, 1], result.vectors[1, 1])
    assert not result.vectors[1, 2:].any()


def test_a_word_that_looks_like_a_boundary_does_not_shift_the_others() -> None:
    inputs = Inputs(settings(word_dim=3), ["</S>", "bank", "the"])
    result = inputs([("</S>", "the", "bank")]).vectors
    assert inputs.learned is not None
    assert torch.equal(result[0], inputs.learned.weight[[1, 3, 2]])


def test_elmo_at_the_input_is_the_scaled_mean_of_the_layers_at_first(elmo: Embedder) -> None:
    inputs = Inputs(settings(word_dim=2), [], elmo=elmo)
    result = inputs(TEXTS)
    expected = elmo.embed_tokens(list(TEXTS[0]), layers="average").vectors
    np.testing.assert_allclose(result.vectors[0, :, 2:].detach(), expected, atol=1e-5)
    assert result.late is None
    assert inputs.late_dim == 0


def test_each_placement_has_its_own_mix(elmo: Embedder) -> None:
    inputs = Inputs(settings(word_dim=0, placement="both"), [], elmo=elmo)
    assert inputs.elmo is not None
    inputs.elmo.mixes[0].weights.data = torch.tensor([100.0, 0.0, 0.0])
    inputs.elmo.mixes[1].weights.data = torch.tensor([0.0, 0.0, 100.0])
    result = inputs(TEXTS)
    layers = elmo.embed_tokens(list(TEXTS[0])).layers
    np.testing.assert_allclose(result.vectors[0].detach(), layers[0], atol=1e-5)
    assert result.late is not None
    np.testing.assert_allclose(result.late[0].detach(), layers[2], atol=1e-5)
    assert result.join(torch.zeros(2, 4, 7)).shape == (2, 4, 7 + elmo.dim)
    assert set(inputs.mixes()) == {"input", "output"}
    assert inputs.mixes()["output"]["weights"] == [0, 0, 1]


@pytest.mark.parametrize(("layers", "index"), [("0", 0), ("1", 1), ("top", 2)])
def test_one_layer_alone_can_be_chosen(elmo: Embedder, layers: str, index: int) -> None:
    inputs = Inputs(settings(word_dim=0, layers=layers), [], elmo=elmo)
    expected = elmo.embed_tokens(list(TEXTS[0]), layers=index).vectors
    np.testing.assert_allclose(inputs(TEXTS).vectors[0].detach(), expected, atol=1e-5)


def test_the_average_is_not_learned(elmo: Embedder) -> None:
    inputs = Inputs(settings(layers="average"), [], elmo=elmo)
    assert inputs.elmo is not None
    assert not inputs.elmo.mixes[0].weights.requires_grad
    assert inputs.elmo.mixes[0].gamma.requires_grad


def test_elmo_at_the_output_alone_leaves_the_input_without_it(elmo: Embedder) -> None:
    inputs = Inputs(settings(word_dim=3, placement="output"), [], elmo=elmo)
    result = inputs(TEXTS)
    assert result.vectors.shape[-1] == inputs.dim == 3
    assert result.late is not None
    assert result.late.shape[-1] == inputs.late_dim == elmo.dim


def test_a_frozen_bilm_is_not_among_the_weights(elmo: Embedder) -> None:
    frozen = Inputs(settings(word_dim=2), [], elmo=elmo)
    assert sum(p.numel() for p in frozen.parameters()) == 2 + 3 + 1  # unknown word, mix, scale
    tuned = Inputs(settings(word_dim=2, tune_elmo=True), [], elmo=elmo)
    assert sum(p.numel() for p in tuned.parameters()) > 1_000_000


def test_corrections_of_static_vectors_are_learned_for_known_words_alone() -> None:
    own = replace(settings(word_dim=0), tune_words=True)
    inputs = Inputs(own, ["bank"], vectors=Vectors())  # type: ignore[arg-type]
    assert torch.equal(inputs(TEXTS).vectors[1], torch.tensor([[5.0, 6], [3, 4], [0, 0], [0, 0]]))
    inputs(TEXTS).vectors.sum().backward()
    assert inputs.correction is not None
    assert inputs.correction.weight.grad is not None
    assert inputs.correction.weight.grad.tolist() == [[0, 0], [2, 2]]


def test_words_that_occur_more_than_once_are_known() -> None:
    texts = [("a", "rare", "bank"), ("a", "bank")]
    assert known_words(texts, settings(word_dim=5)) == ["a", "bank"]
    assert known_words(texts, settings(word_dim=0)) == []


def test_the_penalty_pulls_the_weights_to_the_average(elmo: Embedder) -> None:
    inputs = Inputs(settings(l2=0.5), [], elmo=elmo)
    assert inputs.elmo is not None
    inputs.elmo.mixes[0].weights.data = torch.tensor([1.0, 0.0, -2.0])
    assert inputs.penalty().item() == pytest.approx(2.5)
    assert Inputs(settings(l2=0.5), []).penalty().item() == 0
