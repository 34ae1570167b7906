"""A step of the optimizer, against torch's own clipping and its optimizers of several passes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from elmokit.pretrain.run import clipped_step, gradient_norm

KINDS = {
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "initial_accumulator_value": 1.0}),
    "adamw": (torch.optim.AdamW, {"lr": 0.1, "betas": (0.9, 0.99), "weight_decay": 0.01}),
}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 7, bias=False))


def losses(module: nn.Module) -> list[Tensor]:
    """Of a large gradient, a small one, and a large one again."""
    torch.manual_seed(1)
    return [scale * module(torch.randn(5, 40)).square().sum() for scale in (100.0, 1e-4, 3.0)]


@pytest.mark.parametrize("fused", [True, None], ids=["one pass", "several"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_gradient_is_scaled_down_and_a_short_one_is_taken_as_it_is(
    kind: str, fused: bool | None
) -> None:
    optimizer_of, settings = KINDS[kind]
    ours, theirs = model(), model()
    own = optimizer_of(ours.parameters(), fused=fused, **settings)
    other = optimizer_of(theirs.parameters(), foreach=False, **settings)
    clipped = []
    for number in range(3):
        for module, optimizer in ((ours, own), (theirs, other)):
            optimizer.zero_grad()
            losses(module)[number].backward()
        norm = gradient_norm(ours)  # type: ignore[arg-type]
        clipped_step(own, norm, 2.0)
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), 2.0)
        other.step()
        torch.testing.assert_close(norm, expected)
        clipped.append(bool(norm > 2))
        for found, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    assert clipped == [True, False, True]
