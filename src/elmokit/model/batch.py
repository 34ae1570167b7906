"""Sentences as the model takes them: each distinct word once, and the row of each token.

The token encoder sees `features` (a row for each distinct word), the LSTMs see the vectors
gathered through `index`. Rows 0 and 1 of the features are the sentence boundaries, so that the
model can put them around every sentence without knowing any words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmokit.text.indexers import Indexer, refuse_strings


@dataclass(frozen=True)
class TokenBatch:
    """Sentences as a model takes them."""

    features: Tensor
    """Ids of the distinct words; rows 0 and 1 are `<S>` and `</S>`: (words, columns)."""
    index: Tensor
    """The row of each token in `features`, 0 where a sentence has ended: (sentences, tokens)."""
    lengths: Tensor
    """Tokens of each sentence, boundaries not counted: (sentences,)."""

    def to(self, device: torch.device | str) -> TokenBatch:
        """The same batch on another device."""
        return TokenBatch(self.features.to(device), self.index.to(device), self.lengths.to(device))

    @property
    def mask(self) -> Tensor:
        """True where there is a token: (sentences, tokens)."""
        steps = torch.arange(self.index.shape[1], device=self.lengths.device)
        return steps < self.lengths[:, None]


def make_batch(sentences: Sequence[Sequence[str]], indexer: Indexer) -> TokenBatch:
    """Collect the distinct words of some sentences and index them."""
    refuse_strings(sentences)
    rows = {BEGIN_SENTENCE: 0, END_SENTENCE: 1}
    flat = [rows.setdefault(word, len(rows)) for sentence in sentences for word in sentence]
    lengths = torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)
    longest = max((len(sentence) for sentence in sentences), default=0)
    index = torch.zeros(len(sentences), longest, dtype=torch.long)
    mask = torch.arange(longest) < lengths[:, None]
    index[mask] = torch.tensor(flat, dtype=torch.long)
    return TokenBatch(torch.from_numpy(indexer.encode(list(rows))), index, lengths)
