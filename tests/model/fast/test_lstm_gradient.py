"""The hand-written backward pass of the LSTM stacks against autograd and finite differences."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor

from elmokit.config import BiLMConfig
from elmokit.model.fast import lstm_gradient
from elmokit.model.fast.lstm_gradient import run_both_stacks
from elmokit.model.lstm import LSTMLayer

STEPS, ROWS = 4, 3


class Case:
    """Two stacks with every kind of input that a gradient can reach."""

    def __init__(
        self,
        config: BiLMConfig,
        steps: int = STEPS,
        rows: int = ROWS,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        torch.manual_seed(0)
        self.config, self.steps, self.rows = config, steps, rows
        shape = (2, steps * rows, config.projection_dim)
        layers = [LSTMLayer(config).to(dtype) for _ in range(2 * config.num_layers)]
        self.stacks = layers[: config.num_layers], layers[config.num_layers :]
        for parameter in self.parameters():
            parameter.data.mul_(2).add_(torch.randn(parameter.shape).to(dtype) * 0.1)
        self.inputs = torch.randn(shape).to(dtype).requires_grad_()
        self.starts = [
            (
                torch.randn(2, rows, config.projection_dim).to(dtype) * 0.1,
                torch.randn(2, rows, config.lstm_dim).to(dtype) * 0.1,
            )
            for _ in range(config.num_layers)
        ]
        self.masks = [(torch.rand(shape) > 0.3).to(dtype) / 0.7 for _ in range(config.num_layers)]

    def parameters(self) -> list[Tensor]:
        return [p for direction in self.stacks for layer in direction for p in layer.parameters()]

    def leaves(self) -> list[Tensor]:
        return [*self.parameters(), self.inputs]

    def plain(self) -> tuple[Tensor, list[Tensor]]:
        """The top outputs and the states at the end, as `LSTMLayer` and autograd give them."""
        tops: list[Tensor] = []
        ends: list[list[Tensor]] = []
        for direction in range(2):
            x = self.inputs[direction]
            ends.append([])
            for i, layer in enumerate(self.stacks[direction]):
                dropped = x * self.masks[i][direction]
                start = tuple(tensor[direction] for tensor in self.starts[i])
                y, end = layer(dropped, [self.rows] * self.steps, start)
                x = y + x if i and self.config.skip_connections else y
                ends[direction].extend(end)
            tops.append(x)
        return torch.stack(tops), [torch.stack(pair) for pair in zip(*ends, strict=True)]

    def by_hand(self) -> tuple[Tensor, list[Tensor]]:
        top, ends = run_both_stacks(
            self.config, self.stacks, self.inputs, self.starts, masks=self.masks
        )
        return top, [tensor for state in ends for tensor in state]


def config(**fields: object) -> BiLMConfig:
    sizes = {"lstm_dim": 5, "projection_dim": 3, "num_layers": 2}
    return BiLMConfig.from_dict(sizes | fields)


CONFIGS = {
    "no clips": config(cell_clip=0, projection_clip=0),
    "clips that take effect": config(cell_clip=0.3, projection_clip=0.2, num_layers=3),
    "no projection": config(lstm_dim=3, project_state=False, cell_clip=0.3),
    "no skip": config(skip_connections=False),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_results_and_every_gradient_are_those_of_autograd(name: str) -> None:
    case = Case(CONFIGS[name])
    results, gradients = [], []
    for run in (case.plain, case.by_hand):
        torch.manual_seed(1)
        top, ends = run()
        results.append([top, *ends])
        gradients.append(torch.autograd.grad((top * torch.randn_like(top)).sum(), case.leaves()))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_in_single_precision_they_are_those_of_autograd_in_double(name: str) -> None:
    """On most processors the weights are in blocks then."""
    single, double = (Case(CONFIGS[name], dtype=d) for d in (torch.float32, torch.float64))
    actual = []
    for case, run in ((single, single.by_hand), (double, double.plain)):
        top, ends = run()
        grads = torch.autograd.grad(top.square().sum(), case.leaves())
        actual.append([tensor.double() for tensor in (top, *ends, *grads)])
    torch.testing.assert_close(actual[0], actual[1], rtol=1e-4, atol=1e-5)


def test_consecutive_windows_use_the_same_memory() -> None:
    case = Case(CONFIGS["clips that take effect"])
    first = torch.autograd.grad(case.by_hand()[0].square().sum(), case.leaves())
    buffers = lstm_gradient._spare[case.stacks[0][0]]
    again = torch.autograd.grad(case.by_hand()[0].square().sum(), case.leaves())
    assert lstm_gradient._spare[case.stacks[0][0]] is buffers
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    gone = weakref.ref(buffers)
    del case, buffers
    gc.collect()
    assert gone() is None  # with the model


def test_windows_that_await_their_gradients_have_their_own_memory() -> None:
    case = Case(CONFIGS["no clips"])
    alone = torch.autograd.grad(case.by_hand()[0].square().sum(), case.leaves())
    tops = [case.by_hand()[0] for _ in range(2)]
    case.inputs.data.mul_(2)
    case.by_hand()
    for top in tops:
        actual = torch.autograd.grad(top.square().sum(), case.leaves())
        torch.testing.assert_close(actual, alone, rtol=0, atol=0)


def test_the_clips_take_effect() -> None:
    case = Case(CONFIGS["clips that take effect"])
    h, c, *_ = case.by_hand()[1]
    assert (h.abs() == 0.2).any()
    assert (c.abs() == 0.3).any()


@pytest.mark.parametrize("name", ["clips that take effect", "no projection"])
def test_gradients_agree_with_finite_differences(name: str) -> None:
    case = Case(CONFIGS[name], steps=2, rows=2)
    factors = torch.randn_like(case.by_hand()[0])

    def value() -> Tensor:
        return (case.by_hand()[0] * factors).sum()

    leaves, step = case.leaves(), 1e-6
    for leaf, grad in zip(leaves, torch.autograd.grad(value(), leaves), strict=True):
        numbers, actual = leaf.data.view(-1), torch.empty_like(grad).flatten()
        for position in range(len(numbers)):
            here = numbers[position].item()
            sides = []
            for there in (here + step, here - step):
                numbers[position] = there
                sides.append(value().item())
            numbers[position] = here
            actual[position] = (sides[0] - sides[1]) / (2 * step)
        torch.testing.assert_close(grad.flatten(), actual, rtol=1e-5, atol=1e-7)


def test_gradients_are_computed_once() -> None:
    top = Case(CONFIGS["no skip"]).by_hand()[0].sum()
    top.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        top.backward()


def test_the_gradient_of_one_direction_alone_is_right() -> None:
    case = Case(CONFIGS["no clips"])
    leaves = [*case.stacks[0][0].parameters(), case.inputs]
    plain = torch.autograd.grad(case.plain()[0][0].square().sum(), leaves)
    by_hand = torch.autograd.grad(case.by_hand()[0][0].square().sum(), leaves)
    torch.testing.assert_close(plain, by_hand, rtol=0, atol=1e-12)
    assert not by_hand[-1][1].any()


def test_states_are_detached_and_do_not_keep_other_steps_in_memory() -> None:
    case = Case(CONFIGS["no clips"])
    for state in case.by_hand()[1]:
        assert not state.requires_grad
        assert state.untyped_storage().nbytes() == state.numel() * state.element_size()


def test_one_thread_and_two_give_the_same_numbers() -> None:
    case = Case(CONFIGS["clips that take effect"])
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(case.by_hand())
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)
