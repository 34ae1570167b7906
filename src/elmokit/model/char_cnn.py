"""Token encoders: ids of a word to its context-independent vector (layer 0).

`CharCNN` builds it from characters (convolutions, maximum, highway layers, projection);
`WordTable` looks it up; `UnicodeEncoder` in a module of its own does some of both. All take rows of
ids of distinct words and give (words, projection_dim).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import BiLMConfig
from elmokit.text.characters import PADDING_ID


class Highway(nn.Module):
    """g * relu(transform(x)) + (1 - g) * x with g = sigmoid(gate(x))."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(size, size)
        self.transform = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        """(words, size) to (words, size)."""
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class CharCNN(nn.Module):
    """Characters to a token vector."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.max_characters = config.max_characters
        self.characters = nn.Parameter(torch.empty(config.n_characters, config.character_dim))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.character_dim, number, width) for width, number in config.filters
        )
        self.highways = nn.ModuleList(
            Highway(config.n_filters) for _ in range(config.highway_layers)
        )
        self.projection = (
            nn.Linear(config.n_filters, config.projection_dim) if config.project_tokens else None
        )
        self.widest = max(width for width, _ in config.filters)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initial weights as the original training used them."""
        if self.characters.is_meta:  # shapes only; there normal_ would import torch's compiler
            return
        nn.init.uniform_(self.characters, -1.0, 1.0)
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            if self.activation == "relu":
                nn.init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                fan_in = convolution.kernel_size[0] * convolution.in_channels
                nn.init.normal_(convolution.weight, 0.0, fan_in**-0.5)
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        for highway in self.highways:
            assert isinstance(highway, Highway)
            for linear in (highway.gate, highway.transform):
                nn.init.normal_(linear.weight, 0.0, linear.in_features**-0.5)
            nn.init.constant_(highway.gate.bias, -2.0)
            nn.init.zeros_(highway.transform.bias)
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, 0.0, self.projection.in_features**-0.5)
            nn.init.zeros_(self.projection.bias)

    def forward(self, ids: Tensor) -> Tensor:
        """Character ids (words, max_characters) to vectors (words, projection_dim)."""
        ids = trim(ids, self.widest)  # (words, trimmed)
        table = functional.pad(self.characters, (0, 0, 1, 0))  # row 0: no word, no vector
        x = functional.embedding(ids, table).transpose(1, 2)  # (words, character_dim, trimmed)
        maxima = [convolution(x).amax(dim=2) for convolution in self.convolutions]
        x = torch.cat(maxima, dim=1)  # (words, n_filters)
        x = torch.relu(x) if self.activation == "relu" else torch.tanh(x)
        for highway in self.highways:
            x = highway(x)
        return x if self.projection is None else self.projection(x)


def trim(ids: Tensor, widest: int) -> Tensor:
    """Cut columns of padding that cannot change any maximum.

    A filter of width w takes its maximum over all windows. Windows of padding alone are all
    equal, so one is enough: the longest word's characters plus the widest filter remain.
    """
    used = (ids != PADDING_ID).any(dim=0).nonzero()
    longest = int(used[-1]) + 1 if len(used) else 0
    return ids[:, : min(ids.shape[1], longest + widest)]


class WordTable(nn.Module):
    """A vector for each word of a vocabulary."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.empty(config.n_words, config.projection_dim))
        nn.init.uniform_(self.words, -1.0, 1.0)

    def forward(self, ids: Tensor) -> Tensor:
        """Word ids (words, 1) to vectors (words, projection_dim)."""
        return functional.embedding(ids[:, 0], self.words)
