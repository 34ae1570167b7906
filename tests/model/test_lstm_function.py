"""The hand-written backward pass of the LSTM stacks against autograd and finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from elmokit.config import BiLMConfig
from elmokit.model.lstm import LSTMLayer
from elmokit.model.lstm_gradient import run_both_stacks

SHRINKING, EQUAL = [4, 4, 3, 1, 1], [3, 3, 3, 3]


class Case:
    """Two stacks in double precision with every kind of input that a gradient can reach."""

    def __init__(self, config: BiLMConfig, sizes: list[int]) -> None:
        torch.manual_seed(0)
        self.config, self.sizes = config, sizes
        count, rows, size = sum(sizes), sizes[0], config.projection_dim
        self.ways = tuple(
            [LSTMLayer(config).double() for _ in range(config.layers)] for _ in range(2)
        )
        for parameter in self.parameters():
            parameter.data.mul_(2).add_(torch.randn_like(parameter) * 0.1)
        self.inputs = [torch.randn(count, size).double().requires_grad_() for _ in range(2)]
        self.starts = [
            [
                tuple(
                    (torch.randn(rows, n).double() * 0.1).requires_grad_()
                    for n in (size, config.lstm_dim)
                )
                for _ in range(config.layers)
            ]
            for _ in range(2)
        ]
        self.masks = tuple(
            [(torch.rand(count, size) > 0.3).double() / 0.7 for _ in range(config.layers)]
            for _ in range(2)
        )

    def parameters(self) -> list[Tensor]:
        return [p for way in self.ways for layer in way for p in layer.parameters()]

    def leaves(self) -> list[Tensor]:
        states = [tensor for way in self.starts for state in way for tensor in state]
        return [*self.parameters(), *self.inputs, *states]

    def plain(self) -> list[Tensor]:
        """Every result as `LSTMLayer` and autograd give it."""
        tops, ends = [], []
        for way in range(2):
            x = self.inputs[way]
            for number, layer in enumerate(self.ways[way]):
                dropped = x * self.masks[way][number]
                y, end = layer(dropped, self.sizes, self.starts[way][number])
                x = y + x if number and self.config.skip_connections else y
                ends.extend(end)
            tops.append(x)
        return [*tops, *ends]

    def by_hand(self) -> list[Tensor]:
        tops, ends = run_both_stacks(
            self.ways,
            tuple(self.inputs),
            self.sizes,
            tuple(self.starts),
            skip=self.config.skip_connections,
            masks=self.masks,
        )
        return [*tops, *(tensor for way in ends for state in way for tensor in state)]


def config(**fields: object) -> BiLMConfig:
    sizes = {"lstm_dim": 5, "projection_dim": 3, "layers": 2}
    return BiLMConfig.from_dict(sizes | fields)


CONFIGS = {
    "no clips": config(cell_clip=0, projection_clip=0),
    "clips that bite": config(cell_clip=0.3, projection_clip=0.2, layers=3),
    "no projection": config(lstm_dim=3, project_state=False, cell_clip=0.3),
    "no skip": config(skip_connections=False),
}


@pytest.mark.parametrize("sizes", [SHRINKING, EQUAL])
@pytest.mark.parametrize("name", CONFIGS)
def test_results_and_every_gradient_are_those_of_autograd(name: str, sizes: list[int]) -> None:
    case = Case(CONFIGS[name], sizes)
    results, gradients = [], []
    for run in (case.plain, case.by_hand):
        torch.manual_seed(1)
        outputs = run()
        loss = sum((output * torch.randn_like(output)).sum() for output in outputs)
        results.append(outputs)
        gradients.append(torch.autograd.grad(loss, case.leaves()))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-12)


def test_the_clips_of_the_test_really_clip() -> None:
    case = Case(CONFIGS["clips that bite"], SHRINKING)
    first_layer_end = case.by_hand()[2:4]
    assert (first_layer_end[0].abs() == 0.2).any()
    assert (first_layer_end[1].abs() == 0.3).any()


@pytest.mark.parametrize("name", ["clips that bite", "no projection"])
def test_gradients_agree_with_finite_differences(name: str) -> None:
    case = Case(CONFIGS[name], [2, 1])
    assert torch.autograd.gradcheck(lambda *_: tuple(case.by_hand()), case.leaves())


def test_the_gradient_of_one_direction_alone_is_right() -> None:
    case = Case(CONFIGS["no clips"], EQUAL)
    leaves = [*case.ways[0][0].parameters(), case.inputs[0]]
    plain = torch.autograd.grad(case.plain()[0].square().sum(), leaves)
    by_hand = torch.autograd.grad(case.by_hand()[0].square().sum(), leaves)
    torch.testing.assert_close(plain, by_hand, rtol=0, atol=1e-12)


def test_one_thread_and_two_give_the_same_numbers() -> None:
    case = Case(CONFIGS["clips that bite"], SHRINKING)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(case.by_hand())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)
