"""The scalar mix: a task's own weighted average of the layers, scaled.

mix = gamma * sum_j softmax(w)_j h_j
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.errors import ElmokitError


class ScalarMix(nn.Module):
    """Learned softmax weights over the layers and a scale."""

    def __init__(
        self,
        layers: int,
        *,
        layer_norm: bool = False,
        trainable: bool = True,
        initial: Sequence[float] | None = None,
        gamma: float = 1.0,
        l2: float = 0.0,
        only: int | None = None,
    ) -> None:
        """Make a mix.

        Args:
            layers: layers to mix, L + 1 for a model of L LSTM layers.
            layer_norm: normalise each layer over its real tokens before mixing.
            trainable: learn the weights and the scale; False keeps them as they start.
            initial: weights before the softmax; zeros (the average) when not given.
            gamma: the scale to start from.
            l2: lambda of `penalty`, which pulls the weights towards the average.
            only: take this layer alone; its scale is still learned.
        """
        super().__init__()
        if initial is not None and len(initial) != layers:
            raise ElmokitError(f"{len(initial)} initial weights were given for {layers} layers")
        if only is not None and not -layers <= only < layers:
            raise ElmokitError(f"there is no layer {only}; it may be 0 to {layers - 1}")
        start = torch.zeros(layers) if initial is None else torch.tensor(initial, dtype=torch.float)
        self.layers, self.layer_norm, self.l2 = layers, layer_norm, l2
        self.only = None if only is None else only % layers
        self.weights = nn.Parameter(start, requires_grad=trainable and only is None)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)), requires_grad=trainable)

    def proportions(self) -> Tensor:
        """The share of each layer, summing to 1: (layers,)."""
        if self.only is not None:
            return torch.eye(self.layers, device=self.weights.device)[self.only]
        return torch.softmax(self.weights, dim=0)

    def penalty(self) -> Tensor:
        """lambda * |w|^2, to be added to a task's loss."""
        return self.l2 * self.weights.square().sum()

    def forward(self, layers: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix layers (layers, ..., dim) into (..., dim); mask (...) is True at real tokens."""
        if len(layers) != self.layers:
            raise ElmokitError(f"this mix is over {self.layers} layers, {len(layers)} were given")
        if self.only is not None:
            chosen = layers[self.only]
            return self.gamma * (normalised(chosen, mask) if self.layer_norm else chosen)
        if self.layer_norm:
            layers = torch.stack([normalised(layer, mask) for layer in layers])
        return self.gamma * torch.einsum("l,l...->...", self.proportions(), layers)


def normalised(layer: Tensor, mask: Tensor | None) -> Tensor:
    """Mean 0 and variance 1 over all numbers of the real tokens; 0 elsewhere."""
    if mask is None:
        mask = torch.ones(layer.shape[:-1], dtype=torch.bool, device=layer.device)
    real = mask.unsqueeze(-1).to(layer.dtype)
    count = (real.sum() * layer.shape[-1]).clamp_min(1)
    mean = (layer * real).sum() / count
    variance = ((layer - mean).square() * real).sum() / count
    return (layer - mean) * torch.rsqrt(variance + 1e-12) * real
