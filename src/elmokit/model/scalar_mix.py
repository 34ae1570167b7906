"""The scalar mix: a task's own weighted average of the layers, scaled.

mix = gamma * sum over l of softmax(w)_l h_l
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.errors import InvalidInput


class ScalarMix(nn.Module):
    """Learned softmax weights over the layers, and a learned scale."""

    def __init__(
        self,
        num_layers: int,
        *,
        layer_norm: bool = False,
        trainable: bool = True,
        initial: Sequence[float] | None = None,
        gamma: float = 1.0,
        l2: float = 0.0,
        only: int | None = None,
    ) -> None:
        """Create a mix.

        Args:
            num_layers: number of layers to mix, L + 1 for a model of L LSTM layers.
            layer_norm: normalize each layer over its tokens before mixing.
            trainable: learn the weights and the scale; False keeps the initial ones.
            initial: initial weights before the softmax (default: zeros, which is the average).
            gamma: initial scale.
            l2: lambda of `penalty`, which pulls the weights towards the average.
            only: use this layer alone; its scale is still learned.
        """
        super().__init__()
        if initial is not None and len(initial) != num_layers:
            raise InvalidInput(f"{len(initial)} initial weights were given for {num_layers} layers")
        if only is not None and not -num_layers <= only < num_layers:
            raise InvalidInput(f"there is no layer {only}; choose from 0 to {num_layers - 1}")
        weights = torch.zeros(num_layers) if initial is None else torch.tensor(initial).float()
        self.num_layers, self.layer_norm, self.l2 = num_layers, layer_norm, l2
        self.only = None if only is None else only % num_layers
        self.weights = nn.Parameter(weights, requires_grad=trainable and only is None)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)), requires_grad=trainable)

    def proportions(self) -> Tensor:
        """Return the share of each layer; they sum to 1: (num_layers,)."""
        if self.only is not None:
            return torch.eye(self.num_layers, device=self.weights.device)[self.only]
        return torch.softmax(self.weights, dim=0)

    def penalty(self) -> Tensor:
        """Return lambda * |w|^2, to be added to a task's loss."""
        return self.l2 * self.weights.square().sum()

    def forward(self, hidden_states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix (num_layers, ..., dim) into (..., dim); mask (...) is True where there is a token."""
        if len(hidden_states) != self.num_layers:
            raise InvalidInput(
                f"this mix has weights for {self.num_layers} layers but got {len(hidden_states)}"
            )
        if self.only is not None:
            layer = hidden_states[self.only]
            return self.gamma * (normalize(layer, mask) if self.layer_norm else layer)
        if self.layer_norm:
            hidden_states = torch.stack([normalize(layer, mask) for layer in hidden_states])
        return self.gamma * torch.einsum("l,l...->...", self.proportions(), hidden_states)


def normalize(layer: Tensor, mask: Tensor | None) -> Tensor:
    """Give all numbers of the tokens in (..., dim) together mean 0 and variance 1.

    Padding, where the mask (...) is False, becomes 0; None means that there is none.
    """
    if mask is None:
        mask = torch.ones(layer.shape[:-1], dtype=torch.bool, device=layer.device)
    is_token = mask.unsqueeze(-1).to(layer.dtype)  # 1 or 0: (..., 1)
    count = (is_token.sum() * layer.shape[-1]).clamp_min(1)
    mean = (layer * is_token).sum() / count
    variance = ((layer - mean).square() * is_token).sum() / count
    return (layer - mean) * torch.rsqrt(variance + 1e-12) * is_token
