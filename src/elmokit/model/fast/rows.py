"""Sentences that are read together although they come and go at different times.

The forward and the backward layers of a biLM do not see each other, so a sentence can be read part
by part, from both of its ends at the same time. Between two parts, others begin in the places of
those that have ended: a service always has as many rows as there are clients, while a batch of the
same sentences shrinks until its longest one is done.

    forward    a b c d│e f g h│i         ►        each part reads so many tokens from the left
    backward         ◄        a│b c d e│f g h i   and as many from the right
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elmokit.model.bilm import BiLMState
from elmokit.model.fast.inference import FastBiLM


@dataclass(eq=False)
class Row:
    """A sentence that is being read."""

    vectors: Tensor
    """Token vectors: (tokens, projection_dim)."""
    layers: Tensor
    """Hidden states, as far as they are known: (L + 1, tokens, dim)."""
    read: int = 0
    """Number of tokens that each direction has read."""

    @property
    def is_done(self) -> bool:
        """Whether all hidden states are known."""
        return self.read == len(self.vectors)


class Rows:
    """The sentences that a model reads together; one caller at a time."""

    def __init__(self, model: FastBiLM) -> None:
        self.model = model
        self.rows: list[Row] = []
        self._state = BiLMState.zeros(model.config, 0, model.device)

    def add(self, sentences: Sequence[Tensor], *, framed: bool = False) -> list[Row]:
        """Begin to read sentences of these token vectors: (tokens, projection_dim) each.

        Args:
            sentences: The token vectors.
            framed: Whether they include those of `<S>` and `</S>`.
        """
        config, device = self.model.config, self.model.device
        shape = config.num_layers + 1, config.dim
        new = [
            Row(vectors, torch.empty(shape[0], len(vectors), shape[1], device=device))
            for vectors in sentences
        ]
        start = BiLMState.zeros(config, 1, device) if framed else BiLMState(*self.model.start)
        starts = start.map(lambda tensor: tensor.expand(len(new), -1))
        self._state = BiLMState.cat([self._state, starts])
        self.rows += new
        return new

    def read(self, steps: int) -> list[Row]:
        """Read up to so many tokens of each sentence; return those that are done."""
        done = self._remove_done()  # sentences without tokens
        if not self.rows:
            return done
        lengths, lefts, rights = [], [], []
        for row in self.rows:
            end = len(row.vectors) - row.read
            n = min(steps, end)
            lengths.append(n)
            lefts.append(row.vectors[row.read : row.read + n])
            rights.append(row.vectors[end - n : end])
        hidden_states, self._state = self.model.run_parts(
            (torch.cat(lefts), torch.cat(rights)), torch.tensor(lengths), self._state
        )
        size = self.model.config.projection_dim
        for row, part in zip(self.rows, torch.split(hidden_states, lengths, dim=1), strict=True):
            n, end = part.shape[1], len(row.vectors) - row.read
            row.layers[:, row.read : row.read + n, :size] = part[:, :, :size]
            row.layers[:, end - n : end, size:] = part[:, :, size:]
            row.read += n
        return done + self._remove_done()

    def _remove_done(self) -> list[Row]:
        done = [row for row in self.rows if row.is_done]
        if done:
            self.keep([row for row in self.rows if not row.is_done])
        return done

    def keep(self, rows: Collection[Row]) -> None:
        """Go on with these rows only."""
        kept = set(rows)
        places = [i for i, row in enumerate(self.rows) if row in kept]
        self.rows = [self.rows[i] for i in places]
        index = torch.tensor(places, dtype=torch.long, device=self.model.device)
        self._state = self._state.map(lambda tensor: tensor[index])
