"""Token encoders: from the ids of a word to its context-independent vector (layer 0).

    CharCNN          characters ─► convolutions ─► maximum ─► highway layers ─► projection
    WordTable        word ─► row of a table
    UnicodeEncoder   both of these for Unicode characters, side by side ─► projection

All take rows of ids of distinct words and return (words, projection_dim).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from elmokit.config import BiLMConfig
from elmokit.model.kernels.char_tables import make_table, max_over_windows
from elmokit.text.characters import PADDING_ID
from elmokit.text.dictionaries import HEADER


class Highway(nn.Module):
    """g * relu(transform(x)) + (1 - g) * x with g = sigmoid(gate(x))."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(size, size)
        self.transform = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        """(words, size) to (words, size)."""
        gate = torch.sigmoid(self.gate(x))  # (words, size)
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class CharCNN(nn.Module):
    """Encoder of the original ELMo: from the bytes of a word to its vector."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.max_characters = config.max_characters
        self.characters = nn.Parameter(torch.empty(config.n_characters, config.character_dim))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.character_dim, filters, width) for width, filters in config.filters
        )
        n, size = config.n_filters, config.projection_dim
        self.highways = nn.Sequential(*(Highway(n) for _ in range(config.highway_layers)))
        self.projection = nn.Linear(n, size) if config.project_tokens else None
        self.max_width = max(width for width, _ in config.filters)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights as the original training did."""
        if self.characters.is_meta:  # On the meta device normal_ would import torch's compiler.
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
        """Encode character ids (words, max_characters) as vectors (words, projection_dim).

        Words sorted by length take less time: each half is cut to its longest word.
        """
        characters = self.padded_characters()
        halves = [half for half in ids.tensor_split(2) if len(half)] or [ids]
        parts = [trim(half, self.max_width) for half in halves]  # (words, length) each
        maxima = self._look_up if ids.device.type == "cpu" else self._convolve
        x = activate(maxima(parts, characters), self.activation)  # (words, n_filters)
        vectors: Tensor = self.highways(x)
        return vectors if self.projection is None else self.projection(vectors)

    def padded_characters(self) -> Tensor:
        """Return the character vectors behind a row of zeros, as id 0 is "no word here"."""
        return functional.pad(self.characters, (0, 0, 1, 0))  # (n_characters + 1, character_dim)

    def _convolve(self, parts: list[Tensor], characters: Tensor) -> Tensor:
        """Return the maxima of the convolutions over all words: (words, n_filters)."""
        maxima = []
        for ids in parts:
            x = functional.embedding(ids, characters).transpose(1, 2)  # (words, dim, length)
            maxima.append(torch.cat([c(x).amax(dim=2) for c in self.convolutions], dim=1))
        return torch.cat(maxima)

    def _look_up(self, parts: list[Tensor], characters: Tensor) -> Tensor:
        """Return the same as `_convolve` from a table, which is faster on a CPU.

        All filters use the widest window, which padding behind the word makes room for. Without
        padding each width has its own number of windows.
        """
        convolutions: list[Any] = list(self.convolutions)
        maxima = []
        with torch.autocast(characters.device.type, enabled=False):
            table = make_table(characters, convolutions)  # (characters, max_width, n_filters)
            for ids in parts:
                if ids.shape[1] < self.max_characters:
                    maxima.append(max_over_windows(ids, table))
                else:
                    tables = [make_table(characters, [c]) for c in convolutions]
                    maxima.append(torch.cat([max_over_windows(ids, t) for t in tables], dim=1))
            return torch.cat(maxima) + torch.cat([c.bias for c in convolutions])


class WordTable(nn.Module):
    """A vector for each word of a vocabulary."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.empty(config.n_words, config.projection_dim))
        nn.init.uniform_(self.words, -1.0, 1.0)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up word ids (words, 1): (words, projection_dim)."""
        return functional.embedding(ids[:, 0], self.words)


class UnicodeEncoder(nn.Module):
    """Encoder of ELMoForManyLangs: from dictionary ids of a word and its characters to its vector.

    The word's own vector stands before what was read from the characters: the maxima of
    convolutions through highway layers, or the last states of an LSTM. Either may be absent.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        size = config.character_dim
        self.words = make_embedding(config.n_words, config.word_dim)
        self.characters = make_embedding(config.n_characters, size)
        self.character_lstm = None
        filters = config.filters if config.has_filters else ()
        self.convolutions = nn.ModuleList(nn.Conv1d(size, n, width) for width, n in filters)
        self.max_width = max((width for width, _ in filters), default=0)
        self.activation = config.activation
        read_dim = config.n_filters if config.has_filters else 2 * size
        if size and not config.has_filters:
            self.character_lstm = nn.LSTM(size, size, bidirectional=True, batch_first=True)
        num_highways = config.highway_layers if config.has_filters else 0
        self.highways = nn.Sequential(*(Highway(read_dim) for _ in range(num_highways)))
        self.projection = nn.Linear(config.word_dim + read_dim, config.projection_dim)

    def forward(self, ids: Tensor) -> Tensor:
        """Encode ids (words, 2 + characters) as vectors (words, projection_dim)."""
        x = self.highways(self.read_characters(ids))  # (words, read_dim)
        vectors: Tensor = self.projection(self.with_words(ids, x))
        return vectors

    def read_characters(self, ids: Tensor) -> Tensor:
        """Return what is read from the characters, before any highway layer: (words, read_dim)."""
        if self.characters is None:
            return self.projection.weight.new_zeros(len(ids), 0)
        lengths, ids = ids[:, 1], ids[:, HEADER:]
        longest = int(lengths.max())
        # Windows of padding alone are all equal: one of them behind the longest word is enough.
        x = functional.embedding(ids[:, : longest + self.max_width], self.characters)
        if self.character_lstm is not None:
            packed = pack_padded_sequence(
                x[:, :longest], lengths.cpu(), batch_first=True, enforce_sorted=False
            )
            _, (states, _) = self.character_lstm(packed)  # (2, words, character_dim)
            # Forward after the last character, and backward after the first.
            return torch.cat([states[0], states[1]], dim=1)
        maxima = [convolution(x.transpose(1, 2)).amax(dim=2) for convolution in self.convolutions]
        return activate(torch.cat(maxima, dim=1), self.activation)  # (words, n_filters)

    def with_words(self, ids: Tensor, x: Tensor) -> Tensor:
        """Put the words' own vectors before x (words, read_dim): (words, word_dim + read_dim)."""
        if self.words is None:
            return x
        return torch.cat([functional.embedding(ids[:, 0], self.words), x], dim=1)


ENCODERS: dict[str, Callable[[BiLMConfig], nn.Module]] = {
    "characters": CharCNN,
    "words": WordTable,
    "unicode": UnicodeEncoder,
}


def activate(x: Tensor, activation: str) -> Tensor:
    """Apply "relu" or "tanh"."""
    return torch.relu(x) if activation == "relu" else torch.tanh(x)


def trim(ids: Tensor, max_width: int) -> Tensor:
    """Cut columns of padding that cannot change any maximum: ids are (words, max_characters).

    Windows of padding alone are all equal, so one of the widest filter is enough.
    """
    used = (ids != PADDING_ID).any(dim=0).nonzero()
    longest = int(used[-1]) + 1 if len(used) else 0
    return ids[:, : min(ids.shape[1], longest + max_width)]


def make_embedding(rows: int, columns: int) -> nn.Parameter | None:
    """Return a vector for each entry of a dictionary, None if the model has no such dictionary."""
    if not columns:
        return None
    return nn.Parameter(torch.empty(rows, columns).uniform_(-1.0, 1.0))
