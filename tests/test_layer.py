"""ELMo inside a task model: what is learned, what is saved, what is left alone."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from tiny import difference, tiny_elmo

from elmokit import ElmoLayer
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.model.bilm import BiLMOutput
from elmokit.model.scalar_mix import ScalarMix

SENTENCES = [["the", "river", "bank", "."], [], ["naïve"]]


@pytest.fixture
def elmo() -> Embedder:
    return tiny_elmo()


def mix_of(layer: ElmoLayer, index: int) -> ScalarMix:
    mix = layer.mixes[index]
    assert isinstance(mix, ScalarMix)
    return mix


def step(layer: ElmoLayer, lr: float = 0.1) -> None:
    """One step of an optimizer on all that the layer would have trained."""
    optimizer = torch.optim.SGD(layer.parameters(), lr=lr)
    layer(SENTENCES).outputs[0].square().sum().backward()
    optimizer.step()


def test_a_frozen_layer_has_only_its_mixes_to_save_and_to_train(elmo: Embedder) -> None:
    layer = ElmoLayer(elmo, outputs=2)
    names = ["mixes.0.weights", "mixes.0.gamma", "mixes.1.weights", "mixes.1.gamma"]
    assert list(layer.state_dict()) == names
    assert [name for name, _ in layer.named_parameters()] == names
    before = {name: value.clone() for name, value in elmo.model.state_dict().items()}
    step(layer)
    assert all(torch.equal(value, before[name]) for name, value in elmo.model.state_dict().items())
    assert all(parameter.grad is None for parameter in elmo.model.parameters())


def test_the_outputs_are_mixes_of_the_embedders_layers(elmo: Embedder) -> None:
    layer = ElmoLayer(elmo, outputs=2, dropout=0.5).eval()
    with torch.no_grad():
        mix_of(layer, 1).weights.copy_(torch.tensor([0.0, 1.0, 2.0]))
        mix_of(layer, 1).gamma.fill_(3.0)
    actual = layer(SENTENCES)
    assert [output.shape for output in actual.outputs] == [(3, 4, 12), (3, 4, 12)]
    share = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    for row, sentence in enumerate(elmo.embed(SENTENCES)):
        length = len(sentence.tokens)
        one, two = (output[row, :length].detach().numpy() for output in actual.outputs)
        assert difference(one, sentence.layers.mean(axis=0)) < 1e-5
        assert difference(two, 3 * np.einsum("l,ltd->td", share, sentence.layers)) < 1e-5


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_padding_is_zero_and_the_mask_says_where(
    elmo: Embedder, trainable: bool, layer_norm: bool
) -> None:
    layer = ElmoLayer(elmo, trainable=trainable, layer_norm=layer_norm)
    actual = layer(SENTENCES)
    assert actual.mask.sum(1).tolist() == [4, 0, 1]
    assert (actual.outputs[0][~actual.mask] == 0).all()
    assert (actual.outputs[0][actual.mask] != 0).any()


def test_the_content_of_padding_does_not_reach_the_outputs(elmo: Embedder) -> None:
    layer, kept = ElmoLayer(elmo).eval(), elmo.layers_of(SENTENCES)
    expected = layer.mix(kept).outputs[0]
    garbage = kept.hidden_states.masked_fill(~kept.mask[None, :, :, None], 7.0)
    assert torch.equal(layer.mix(BiLMOutput(garbage, kept.lengths)).outputs[0], expected)


def test_dropout_is_applied_in_training_only(elmo: Embedder) -> None:
    layer = ElmoLayer(elmo, dropout=0.5)
    whole = layer.eval()(SENTENCES).outputs[0]
    assert torch.equal(layer(SENTENCES).outputs[0], whole)
    torch.manual_seed(0)
    dropped = layer.train()(SENTENCES).outputs[0]
    zero = (dropped == 0) & (whole != 0)
    assert 0.3 < zero.sum() / (whole != 0).sum() < 0.7
    torch.testing.assert_close(dropped[~zero], 2 * whole[~zero])  # the others make up for it


def test_a_trainable_layer_trains_the_bilm_and_the_embedder_notices(elmo: Embedder) -> None:
    layer = ElmoLayer(elmo, trainable=True, dropout=0.0)
    assert any(name.startswith("bilm.") for name in layer.state_dict())
    before = elmo.embed(SENTENCES)[0].layers
    step(layer)
    assert all(parameter.grad is not None for parameter in elmo.model.parameters())
    after = elmo.embed(SENTENCES)[0].layers
    for i in range(3):
        assert difference(after[i], before[i]) > 1e-4
    trained = layer.hidden_states(SENTENCES).hidden_states[:, 0].detach().numpy()
    assert difference(after, trained) < 1e-5  # not some of the old weights and some of the new
    with torch.no_grad():
        assert (
            difference(layer.eval().hidden_states(SENTENCES).hidden_states[:, 0].numpy(), trained)
            < 1e-5
        )


def test_weights_changed_through_data_are_seen_after_the_cache_is_cleared(
    elmo: Embedder,
) -> None:
    before = elmo.embed(SENTENCES)[0].layers
    for parameter in elmo.model.parameters():
        parameter.data.mul_(1.5)  # torch does not count this as a change
    elmo.clear_cache()
    after = elmo.embed(SENTENCES)[0].layers
    assert difference(after, before) > 1e-2
    slow = ElmoLayer(elmo, trainable=True).eval().hidden_states(SENTENCES).hidden_states[:, 0]
    assert difference(after, slow.detach().numpy()) < 1e-5


def test_a_trainable_layer_has_the_dropout_of_the_bilm_in_training_only(elmo: Embedder) -> None:
    layer = ElmoLayer(elmo, trainable=True, dropout=0.0)
    elmo.model.dropout.p = 0.5
    torch.manual_seed(0)
    trained = [layer.train()(SENTENCES).outputs[0] for _ in range(2)]
    assert not torch.equal(*trained)
    evaluated = [layer.eval()(SENTENCES).outputs[0] for _ in range(2)]
    assert torch.equal(*evaluated)


def test_one_layer_can_be_used_alone(elmo: Embedder) -> None:
    actual = ElmoLayer(elmo, layer=1).eval()([SENTENCES[0]]).outputs[0][0].detach().numpy()
    assert difference(actual, elmo.embed_tokens(SENTENCES[0], layers=1).vectors) < 1e-6
    with pytest.raises(ElmokitError, match="there is no layer 3"):
        ElmoLayer(elmo, layer=3)


def test_the_penalty_is_the_sum_over_the_mixes(elmo: Embedder) -> None:
    layer = ElmoLayer(elmo, outputs=2, l2=0.01)
    with torch.no_grad():
        mix_of(layer, 0).weights.copy_(torch.tensor([1.0, 2.0, 3.0]))
        mix_of(layer, 1).weights.copy_(torch.tensor([0.0, -1.0, 0.0]))
    assert layer.penalty().item() == pytest.approx(0.01 * 14 + 0.01 * 1)


def test_two_mixes_learn_different_weights(elmo: Embedder) -> None:
    """One is to become layer 0, the other the top layer."""
    layer = ElmoLayer(elmo, outputs=2, dropout=0.0)
    kept = elmo.layers_of(SENTENCES)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        one, two = layer.mix(kept).outputs
        loss = (one - kept.hidden_states[0]).square().sum() + (
            two - kept.hidden_states[2]
        ).square().sum()
        loss.backward()
        optimizer.step()
    first, second = (mix_of(layer, i).proportions().detach() for i in range(2))
    assert first[0] > 0.8
    assert second[2] > 0.8
    assert mix_of(layer, 0).gamma.item() == pytest.approx(1.0, abs=0.2)


def test_a_layer_can_be_copied_and_saved_whole(elmo: Embedder) -> None:
    layer = ElmoLayer(elmo, trainable=True).eval()
    expected = layer(SENTENCES).outputs[0]
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(SENTENCES).outputs[0], expected)
    assert isinstance(twin.elmo, Embedder)
    assert twin.bilm is twin.elmo.model
    step(twin)
    assert not torch.allclose(twin(SENTENCES).outputs[0], expected, atol=1e-4)
    assert torch.equal(layer(SENTENCES).outputs[0], expected)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    restored = torch.load(file, weights_only=False)
    assert torch.equal(restored(SENTENCES).outputs[0], expected)


@pytest.mark.parametrize("trainable", [False, True])
def test_strings_instead_of_tokens_raise(elmo: Embedder, trainable: bool) -> None:
    layer = ElmoLayer(elmo, trainable=trainable)
    for wrong in (["the river bank"], "the river bank", [["the"], "bank"]):
        with pytest.raises(ElmokitError, match="as a list of tokens, not as the string"):
            layer(wrong)


def test_a_layer_without_outputs_raises(elmo: Embedder) -> None:
    with pytest.raises(ElmokitError, match="outputs must be at least 1, not 0"):
        ElmoLayer(elmo, outputs=0)
