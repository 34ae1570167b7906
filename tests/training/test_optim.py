"""The norm of a gradient and its clipping, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from elmokit.training.optim import clip_gradients


def gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


@pytest.mark.parametrize("scale", [100.0, 1e-4], ids=["long", "short"])
def test_a_long_gradient_is_scaled_down_and_a_short_one_is_left(scale: float) -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 7, bias=False))
    theirs = nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 7, bias=False))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 40)
    for model in (ours, theirs):
        (scale * model(x).square().sum()).backward()
    before = [gradient(parameter).clone() for parameter in ours.parameters()]
    norm = clip_gradients(ours, 2.0)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs.parameters(), 2.0))
    assert (norm > 2.0) == (scale > 1)
    parameters = zip(ours.parameters(), theirs.parameters(), before, strict=True)
    for result, expected, whole in parameters:
        torch.testing.assert_close(gradient(result), gradient(expected))
        assert torch.equal(gradient(result), whole) == (scale < 1)
