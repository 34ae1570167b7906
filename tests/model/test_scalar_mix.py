"""The scalar mix against its formulas, written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmokit.errors import ElmokitError
from elmokit.model.scalar_mix import ScalarMix

MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)


def random_layers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(1.0, 2.0, shape).astype(np.float32)


def normalized(layer: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A mean and a variance over all numbers of the real tokens of a layer."""
    real = layer[mask].astype(np.float64)
    result = np.zeros(layer.shape)
    result[mask] = (real - real.mean()) / real.std()
    return result


def test_a_new_mix_is_the_average() -> None:
    layers = random_layers(3, 2, 4, 5)
    mixed = ScalarMix(3)(torch.from_numpy(layers)).detach().numpy()
    np.testing.assert_allclose(mixed, layers.mean(axis=0), rtol=1e-5, atol=1e-6)


@settings(max_examples=30)
@given(
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=6),
    st.floats(-5, 5, width=32),
    st.integers(0, 2**31),
)
def test_a_mix_is_the_softmax_of_its_weights_times_gamma(
    weights: list[float], gamma: float, seed: int
) -> None:
    layers = random_layers(len(weights), 3, 2, seed=seed)
    mix = ScalarMix(len(weights), initial=weights, gamma=gamma)
    share = np.exp(np.array(weights) - max(weights))
    share /= share.sum()
    np.testing.assert_allclose(mix.proportions().detach().numpy(), share, rtol=1e-4, atol=1e-6)
    expected = gamma * sum(s * layer for s, layer in zip(share, layers, strict=True))
    actual = mix(torch.from_numpy(layers)).detach().numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("masked", [True, False])
def test_layer_norm_ignores_padding(masked: bool) -> None:
    layers = random_layers(3, 2, 4, 5)
    mask = MASK if masked else np.ones((2, 4), bool)
    mix = ScalarMix(3, layer_norm=True, initial=[1.0, 0.0, -1.0], gamma=2.0)
    share = np.exp([1.0, 0.0, -1.0]) / np.exp([1.0, 0.0, -1.0]).sum()
    layer = [normalized(layer, mask) for layer in layers]
    expected = 2.0 * sum(s * n for s, n in zip(share, layer, strict=True))
    given = torch.from_numpy(mask) if masked else None
    actual = mix(torch.from_numpy(layers), given).detach().numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_the_content_of_padding_does_not_change_a_layer_norm() -> None:
    layers = random_layers(3, 2, 4, 5)
    mix = ScalarMix(3, layer_norm=True)
    before = mix(torch.from_numpy(layers), torch.from_numpy(MASK))
    layers[:, ~MASK] = 1000.0
    after = mix(torch.from_numpy(layers), torch.from_numpy(MASK))
    assert torch.equal(before, after)
    assert (after[torch.from_numpy(~MASK)] == 0).all()


def test_layer_norm_of_nothing_and_of_a_constant_is_finite() -> None:
    mix = ScalarMix(2, layer_norm=True)
    nothing = mix(torch.randn(2, 1, 3, 4), torch.zeros(1, 3, dtype=torch.bool))
    assert (nothing == 0).all()
    assert torch.isfinite(mix(torch.ones(2, 1, 3, 4))).all()
    assert mix(torch.ones(2, 0, 0, 4)).shape == (0, 0, 4)


@pytest.mark.parametrize("only", [0, 1, 2, -1])
def test_a_mix_of_one_layer_is_that_layer_times_gamma(only: int) -> None:
    layers = random_layers(3, 2, 4, 5)
    mix = ScalarMix(3, only=only, gamma=1.5)
    actual = mix(torch.from_numpy(layers)).detach().numpy()
    np.testing.assert_allclose(actual, 1.5 * layers[only], rtol=1e-6)
    assert mix.proportions().tolist() == np.eye(3)[only].tolist()
    normal = ScalarMix(3, only=only, layer_norm=True)
    actual = normal(torch.from_numpy(layers), torch.from_numpy(MASK)).detach().numpy()
    np.testing.assert_allclose(actual, normalized(layers[only], MASK), rtol=1e-4, atol=1e-5)


def test_only_the_scale_of_a_single_layer_is_learned() -> None:
    mix = ScalarMix(3, only=1)
    mix(torch.randn(3, 2, 4)).sum().backward()
    assert mix.gamma.grad is not None
    assert not mix.weights.requires_grad


def test_a_frozen_mix_learns_nothing() -> None:
    mix = ScalarMix(3, trainable=False, initial=[1.0, 2.0, 3.0], gamma=0.5)
    assert not any(parameter.requires_grad for parameter in mix.parameters())
    share = np.exp([1.0, 2.0, 3.0]) / np.exp([1.0, 2.0, 3.0]).sum()
    np.testing.assert_allclose(mix.proportions().numpy(), share, rtol=1e-6)
    assert set(mix.state_dict()) == {"weights", "gamma"}


def test_the_gradients_of_a_mix_are_those_of_its_formula() -> None:
    torch.manual_seed(1)
    for norm in (False, True):
        mix = ScalarMix(3, layer_norm=norm).double()
        layers = torch.randn(3, 2, 4, 5, dtype=torch.double, requires_grad=True)
        weights = torch.randn(3, dtype=torch.double, requires_grad=True)
        gamma = torch.tensor(1.3, dtype=torch.double, requires_grad=True)

        def mixed(layers: Tensor, weights: Tensor, gamma: Tensor, mix: ScalarMix = mix) -> Tensor:
            parameters = {"weights": weights, "gamma": gamma}
            arguments = (layers, torch.from_numpy(MASK))
            return torch.func.functional_call(mix, parameters, arguments)

        assert torch.autograd.gradcheck(mixed, (layers, weights, gamma))


def test_the_penalty_is_lambda_times_the_square_and_pulls_to_the_average() -> None:
    mix = ScalarMix(3, initial=[1.0, -2.0, 0.5], l2=0.1)
    penalty = mix.penalty()
    assert penalty.item() == pytest.approx(0.1 * (1.0 + 4.0 + 0.25))
    penalty.backward()
    assert mix.weights.grad is not None
    np.testing.assert_allclose(mix.weights.grad, 0.2 * np.array([1.0, -2.0, 0.5]), rtol=1e-6)
    optimizer = torch.optim.SGD(mix.parameters(), lr=1.0)
    distance = [(mix.proportions() - 1 / 3).abs().max().item()]
    for _ in range(20):
        optimizer.zero_grad()
        mix.penalty().backward()
        optimizer.step()
        distance.append((mix.proportions() - 1 / 3).abs().max().item())
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 0.02 < distance[0]


def test_there_is_no_penalty_by_default() -> None:
    assert ScalarMix(3, initial=[1.0, 2.0, 3.0]).penalty().item() == 0.0


def test_wrong_arguments_of_a_mix_raise() -> None:
    with pytest.raises(ElmokitError, match="2 initial weights were given for 3 layers"):
        ScalarMix(3, initial=[1.0, 2.0])
    for only in (3, -4):
        with pytest.raises(ElmokitError, match=f"there is no layer {only}; choose from 0 to 2"):
            ScalarMix(3, only=only)
    with pytest.raises(ElmokitError, match="for 3 layers but got 2"):
        ScalarMix(3)(torch.zeros(2, 1, 4))
