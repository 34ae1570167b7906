"""Token encoders: ids of a word to its context-independent vector (layer 0).

`CharCNN` builds it from characters (convolutions, maximum, highway layers, projection);
`WordTable` looks it up; `UnicodeEncoder` in a module of its own does some of both. All take rows of
ids of distinct words and give (words, projection_dim).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
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
        """Character ids (words, max_characters) to vectors (words, projection_dim).

        Words that are sorted by length run over little padding.
        """
        table = functional.pad(self.characters, (0, 0, 1, 0))  # row 0: no word, no vector
        halves = [half for half in ids.tensor_split(2) if len(half)] or [ids]
        parts = [trim(half, self.widest) for half in halves]  # (words, trimmed)
        if ids.device.type == "cpu":
            x = self._looked_up(parts, table)
        else:
            x = torch.cat([self._convolved(part, table) for part in parts])
        x = torch.relu(x) if self.activation == "relu" else torch.tanh(x)  # (words, n_filters)
        for highway in self.highways:
            x = highway(x)
        return x if self.projection is None else self.projection(x)

    def _convolved(self, ids: Tensor, table: Tensor) -> Tensor:
        """The maxima of the convolutions over words (words, length): (words, n_filters)."""
        x = functional.embedding(ids, table).transpose(1, 2)  # (words, character_dim, length)
        return torch.cat([convolution(x).amax(dim=2) for convolution in self.convolutions], dim=1)

    def _looked_up(self, parts: list[Tensor], table: Tensor) -> Tensor:
        """The same of some (words, length), for all their words together.

        There are few characters, so what each gives to each filter at each place of the window is
        computed once, and a window is a sum of rows. On a CPU that is faster, there and back. All
        filters take the widest window, unless a word is so long that no padding follows it.
        """
        convolutions: list[Any] = list(self.convolutions)
        with torch.autocast(parts[0].device.type, enabled=False):
            rows, found = _rows(table, convolutions), []
            for ids in parts:
                if ids.shape[1] < self.max_characters:
                    found.append(_LargestWindow.apply(ids, rows))  # type: ignore[no-untyped-call]
                else:
                    each = [_LargestWindow.apply(ids, _rows(table, [c])) for c in convolutions]  # type: ignore[no-untyped-call]
                    found.append(torch.cat(each, dim=1))
            return torch.cat(found) + torch.cat([c.bias for c in convolutions])


def _rows(table: Tensor, convolutions: list[nn.Conv1d]) -> Tensor:
    """What a character gives at each place of the widest window: (characters, width, filters)."""
    width = max(c.kernel_size[0] for c in convolutions)
    weights = [functional.pad(c.weight, (0, width - c.kernel_size[0])) for c in convolutions]
    weight = torch.cat(weights)  # (filters, character_dim, width)
    flat = weight.permute(1, 2, 0).flatten(1)  # (character_dim, width * filters)
    return torch.mm(table, flat).view(len(table), width, len(weight))


class _LargestWindow(torch.autograd.Function):
    """The largest sum of rows that a window of characters has, for each filter.

    The gradient goes to the rows of that one window. Where several are the largest they are almost
    always windows of the same characters, and so any of them has the same rows.
    """

    @staticmethod
    def forward(ctx: Any, ids: Tensor, rows: Tensor) -> Tensor:
        """ids (words, length), rows (characters, width, filters): (words, filters)."""
        _, width, filters = rows.shape
        windows = (ids * width).unfold(1, width, 1) + torch.arange(width)  # (words, windows, width)
        flat = functional.embedding_bag(windows.flatten(0, 1), rows.flatten(0, 1), mode="sum")
        sums = flat.view(*windows.shape[:2], filters)
        largest = sums.amax(dim=1)
        if not ctx.needs_input_grad[1]:
            return largest
        # `max` gives the places too, but takes five times as long as three passes in place do.
        places = torch.arange(sums.shape[1], dtype=sums.dtype)[:, None]
        where = sums.eq_(largest[:, None]).mul_(places).amax(dim=1)
        ctx.save_for_backward(windows, where)
        ctx.shape = rows.shape
        return largest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        windows, where = ctx.saved_tensors
        where = where.long()
        characters, width, filters = ctx.shape
        total = grad.new_zeros(characters * width, filters)
        for place in range(width):
            total.scatter_add_(0, windows[:, :, place].gather(1, where), grad)
        return None, total.view(ctx.shape)


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
