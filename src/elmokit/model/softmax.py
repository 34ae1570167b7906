"""The softmax over the vocabulary, shared by both directions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Softmax(nn.Module):
    """A linear layer from one direction's output to a logit for each word."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, size))
        self.bias = nn.Parameter(torch.zeros(words))
        nn.init.normal_(self.weight, 0.0, size**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, projection_dim) to logits (n, words)."""
        return functional.linear(x, self.weight, self.bias)
