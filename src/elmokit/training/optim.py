"""Optimizers and gradient clipping, fused into few passes over the weights on a CPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn


def make_optimizer(
    groups: Iterable[dict[str, Any]],
    *,
    name: Literal["adagrad", "adamw"] = "adamw",
    lr: float,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
) -> torch.optim.Optimizer:
    """Return Adagrad as in the original ELMo, or AdamW, for parameter groups as torch has them."""
    groups = [group for group in groups if group["params"]]
    fused = all(p.device.type == "cpu" for group in groups for p in group["params"]) or None
    if name == "adagrad":
        return torch.optim.Adagrad(groups, lr=lr, initial_accumulator_value=1.0, fused=fused)
    return torch.optim.AdamW(groups, lr=lr, betas=betas, weight_decay=weight_decay, fused=fused)


def clip_gradients(model: nn.Module, max_norm: float) -> Tensor:
    """Scale the gradient down to `max_norm` if its norm is larger; return the norm before."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm: Tensor = torch.stack([g.norm() for g in grads]).norm()
    if norm > max_norm:  # Most steps need no scaling, and it reads and writes every weight.
        torch._foreach_mul_(grads, max_norm / (norm + 1e-6))
    return norm


def count_parameters(model: nn.Module) -> int:
    """Return the number of weights that are trained."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
