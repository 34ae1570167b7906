"""The token encoder of ELMoForManyLangs: Unicode characters and words of dictionaries to vectors.

A word's own vector stands first, what was read from its characters second (the maxima of
convolutions through highway layers, or the last states of an LSTM in both directions); a
projection makes the token vector of both. Either part may be absent.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from elmokit.config import BiLMConfig
from elmokit.model.char_cnn import Highway
from elmokit.text.dictionaries import HEADER


class UnicodeEncoder(nn.Module):
    """Rows of `UnicodeIndexer` to token vectors."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        size, read = config.character_dim, 0  # columns of a character, columns read from all
        self.words = table(config.n_words, config.word_dim)
        self.characters = table(config.n_characters, size)
        self.character_lstm = None
        filters = config.filters if config.has_filters else ()
        self.convolutions = nn.ModuleList(nn.Conv1d(size, n, width) for width, n in filters)
        self.widest = max((width for width, _ in filters), default=0)
        self.activation = config.activation
        if config.has_filters:
            read = config.n_filters
        elif size:
            read = 2 * size
            self.character_lstm = nn.LSTM(size, size, bidirectional=True, batch_first=True)
        highways = config.highway_layers if config.has_filters else 0
        self.highways = nn.ModuleList(Highway(read) for _ in range(highways))
        self.projection = nn.Linear(config.word_dim + read, config.projection_dim)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (words, 2 + characters) to vectors (words, projection_dim)."""
        x = self.read_characters(ids)
        for highway in self.highways:
            x = highway(x)
        vectors: Tensor = self.projection(self.with_words(ids, x))
        return vectors

    def read_characters(self, ids: Tensor) -> Tensor:
        """What the characters give, before any highway: (words, columns), none without them."""
        if self.characters is None:
            return self.projection.weight.new_zeros(len(ids), 0)
        lengths, ids = ids[:, 1], ids[:, HEADER:]
        longest = int(lengths.max())
        x = functional.embedding(ids[:, : longest + self.widest], self.characters)
        if self.character_lstm is not None:
            return last_states(self.character_lstm, x[:, :longest], lengths)
        # All windows of padding alone are equal: behind the longest word, one of them is enough.
        maxima = [convolution(x.transpose(1, 2)).amax(dim=2) for convolution in self.convolutions]
        joined = torch.cat(maxima, dim=1)  # (words, n_filters)
        return torch.relu(joined) if self.activation == "relu" else torch.tanh(joined)

    def with_words(self, ids: Tensor, x: Tensor) -> Tensor:
        """The words' own vectors before what their characters gave: (words, columns)."""
        if self.words is None:
            return x
        return torch.cat([functional.embedding(ids[:, 0], self.words), x], dim=1)


def table(rows: int, columns: int) -> nn.Parameter | None:
    """A vector for each entry of a dictionary; None where the model has no such dictionary."""
    if not columns:
        return None
    return nn.Parameter(torch.empty(rows, columns).uniform_(-1.0, 1.0))


def last_states(lstm: nn.LSTM, x: Tensor, lengths: Tensor) -> Tensor:
    """Forward after a word's last character beside backward after its first.

    Args:
        lstm: over the characters, in both directions.
        x: characters of each word, (words, characters, character_dim).
        lengths: how many of them are the word's, (words,).
    """
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    _, (states, _) = lstm(packed)  # (2, words, character_dim)
    return torch.cat([states[0], states[1]], dim=1)
