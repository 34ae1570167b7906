"""The character encoder: sums of table rows give what torch's convolutions give, there and back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elmokit.config import BiLMConfig
from elmokit.model.encoders import CharCNN, trim
from elmokit.text.characters import CharacterIndexer

WORDS = ["a", "bank", "aaaa", "1990", "Donaudampfschifffahrtsgesellschaft", "naïve", "银行", "-"]


def encoder(**fields: object) -> CharCNN:
    torch.manual_seed(0)
    sizes = {"filters": [[1, 3], [2, 5], [4, 7]], "character_dim": 6, "projection_dim": 4}
    return CharCNN(BiLMConfig.from_dict(sizes | fields)).double()


def plain(model: CharCNN, ids: Tensor) -> Tensor:
    """The definition: convolutions over all characters, padding too, and autograd."""
    table = functional.pad(model.characters, (0, 0, 1, 0))
    x = functional.embedding(ids, table).transpose(1, 2)
    maxima = torch.cat([conv(x).amax(dim=2) for conv in model.convolutions], dim=1)
    x = torch.relu(maxima) if model.activation == "relu" else torch.tanh(maxima)
    for highway in model.highways:
        x = highway(x)
    return x if model.projection is None else model.projection(x)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("words", [WORDS, [*WORDS, "x-ray " * 10]], ids=["short", "no padding"])
def test_vectors_and_every_gradient_are_those_of_the_convolutions(
    activation: str, words: list[str]
) -> None:
    model = encoder(activation=activation)
    ids = torch.from_numpy(CharacterIndexer().encode(words))
    torch.manual_seed(1)
    weight = torch.randn(len(words), 4).double()
    results, gradients = [], []
    for run in (model, lambda ids: plain(model, ids)):
        vectors = run(ids)
        results.append(vectors)
        gradients.append(torch.autograd.grad((vectors * weight).sum(), list(model.parameters())))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("words", [WORDS, [*WORDS, "x-ray " * 10]], ids=["short", "no padding"])
def test_what_a_gpu_computes_is_the_same(words: list[str]) -> None:
    model = encoder()
    ids = trim(torch.from_numpy(CharacterIndexer().encode(words)), model.max_width)
    characters = model.padded_characters()
    convolved, looked_up = model._convolve([ids], characters), model._look_up([ids], characters)
    torch.testing.assert_close(convolved, looked_up, rtol=0, atol=1e-12)


def test_gradients_agree_with_finite_differences() -> None:
    model = encoder(activation="tanh")
    ids = torch.from_numpy(CharacterIndexer().encode(["play", "银行"]))
    assert torch.autograd.gradcheck(lambda *_: model(ids), list(model.parameters()))
