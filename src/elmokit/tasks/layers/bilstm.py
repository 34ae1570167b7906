"""The task's own bidirectional LSTM, and how its outputs become one vector for each text."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BiLSTM(nn.Module):
    """A stack of bidirectional LSTMs over padded texts, with dropout between them and at the end.

    Two LSTMs on padded batches train several times faster on a CPU than torch's packed sequences.
    """

    def __init__(self, inputs: int, hidden: int, *, depth: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim = 2 * hidden
        widths = [inputs] + [self.dim] * (depth - 1)
        self.forwards = nn.ModuleList(make_lstm(width, hidden) for width in widths)
        self.backwards = nn.ModuleList(make_lstm(width, hidden) for width in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Map (texts, tokens, inputs) to (texts, tokens, 2 * hidden), 0 where the mask is False."""
        index = reversed_index(mask).unsqueeze(-1)  # (texts, tokens, 1)
        for forward_lstm, backward_lstm in zip(self.forwards, self.backwards, strict=True):
            backward = backward_lstm(vectors.gather(1, index.expand_as(vectors)))[0]
            backward = backward.gather(1, index.expand_as(backward))  # (texts, tokens, hidden)
            both = torch.cat([forward_lstm(vectors)[0], backward], dim=-1)
            vectors = self.dropout(both.masked_fill(~mask.unsqueeze(-1), 0.0))
        return vectors


def make_lstm(inputs: int, hidden: int) -> nn.LSTM:
    """Return an LSTM of one direction with orthogonal recurrent weights."""
    lstm = nn.LSTM(inputs, hidden, batch_first=True)
    weights = dict(lstm.named_parameters())
    for gate in weights["weight_hh_l0"].detach().chunk(4):
        nn.init.orthogonal_(gate)
    nn.init.zeros_(weights["bias_hh_l0"])
    return lstm


def reversed_index(mask: Tensor) -> Tensor:
    """Return for each position of a reversed text the position of its token; padding stays.

    >>> reversed_index(torch.tensor([[True, True, True, False]])).tolist()
    [[2, 1, 0, 3]]
    """
    positions = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - positions, positions)


class Pooling(nn.Module):
    """Map (texts, tokens, dim) to (texts, dim) by maximum, mean, or a learned weighted mean."""

    def __init__(self, dim: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.scores = nn.Linear(dim, 1) if kind == "attention" else None

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        real = mask.unsqueeze(-1)  # (texts, tokens, 1)
        if self.scores is not None:
            weights = self.scores(vectors).masked_fill(~real, -torch.inf).softmax(1)
            return (weights * vectors).sum(1)  # type: ignore[no-any-return]
        if self.kind == "max":
            return vectors.masked_fill(~real, -torch.inf).max(1).values
        return (vectors * real).sum(1) / real.sum(1)
