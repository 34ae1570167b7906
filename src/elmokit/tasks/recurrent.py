"""The task's own bidirectional LSTM, and how its outputs become one vector for each text."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiLSTM(nn.Module):
    """A stack of bidirectional LSTMs over padded texts, with dropout before each and at the end."""

    def __init__(self, inputs: int, hidden: int, *, depth: int = 1, dropout: float = 0.0) -> None:
        """`hidden` cells in each direction: the outputs have 2 * hidden columns."""
        super().__init__()
        self.lstm = nn.LSTM(
            inputs,
            hidden,
            num_layers=depth,
            bidirectional=True,
            batch_first=True,
            dropout=dropout if depth > 1 else 0.0,
        )
        self.dropout = nn.Dropout(dropout)
        self.dim = 2 * hidden
        for name, weight in self.lstm.named_parameters():
            if name.startswith("weight_hh"):
                for gate in weight.detach().chunk(4):
                    nn.init.orthogonal_(gate)
            elif name.startswith("bias_hh"):
                nn.init.zeros_(weight)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(texts, tokens, inputs) to (texts, tokens, 2 * hidden), 0 where padded.

        Every text must have a token; the mask is True at its first tokens.
        """
        lengths = mask.sum(1).cpu()
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=vectors.shape[1]
        )
        return self.dropout(outputs)  # type: ignore[no-any-return]


class Pooling(nn.Module):
    """(texts, tokens, dim) to (texts, dim): the maximum, the mean, or a learned weighted mean."""

    def __init__(self, dim: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.scores = nn.Linear(dim, 1) if kind == "attention" else None

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Over the tokens where the mask (texts, tokens) is True."""
        real = mask.unsqueeze(-1)  # (texts, tokens, 1)
        if self.scores is not None:
            weights = self.scores(vectors).masked_fill(~real, -torch.inf).softmax(1)
            return (weights * vectors).sum(1)  # type: ignore[no-any-return]
        if self.kind == "max":
            return vectors.masked_fill(~real, -torch.inf).max(1).values
        return (vectors * real).sum(1) / real.sum(1)
