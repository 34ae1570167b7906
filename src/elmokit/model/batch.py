"""Sentences to tensors, the input of the model: each distinct word once, and a row for each token.

The token encoder sees `features` (one row per distinct word), the LSTMs see the vectors that
`index` gathers from it. Rows 0 and 1 of the features are the sentence boundaries.
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
    """A batch of sentences as the model takes it."""

    features: Tensor
    """Ids of the distinct words; rows 0 and 1 are `<S>` and `</S>`: (words, columns)."""
    index: Tensor
    """Row of each token in `features`, 0 where padded: (sentences, tokens)."""
    lengths: Tensor
    """Number of tokens of each sentence, without boundaries: (sentences,)."""

    def to(self, device: torch.device | str) -> TokenBatch:
        """Return the batch on another device."""
        return TokenBatch(self.features.to(device), self.index.to(device), self.lengths.to(device))

    @property
    def mask(self) -> Tensor:
        """True where there is a token: (sentences, tokens)."""
        return token_mask(self.lengths, self.index.shape[1])


def make_batch(sentences: Sequence[Sequence[str]], indexer: Indexer) -> TokenBatch:
    """Collect the distinct words of tokenized sentences and index them."""
    refuse_strings(sentences)
    rows = {BEGIN_SENTENCE: 0, END_SENTENCE: 1}
    flat = [rows.setdefault(word, len(rows)) for sentence in sentences for word in sentence]
    lengths = torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)
    longest = max((len(sentence) for sentence in sentences), default=0)
    index = torch.zeros(len(sentences), longest, dtype=torch.long)  # (sentences, tokens)
    index[token_mask(lengths, longest)] = torch.tensor(flat, dtype=torch.long)
    return TokenBatch(torch.from_numpy(indexer.encode(list(rows))), index, lengths)


def token_mask(lengths: Tensor, tokens: int) -> Tensor:
    """Return True where a sentence has a token: lengths (sentences,) to (sentences, tokens)."""
    return torch.arange(tokens, device=lengths.device) < lengths[:, None]


def with_boundaries(batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """Return index (sentences, tokens + 2) and lengths with `<S>` and `</S>` around sentences."""
    sentences, tokens = batch.index.shape
    index = batch.index.new_zeros(sentences, tokens + 2)  # Row 0 is <S>, and row 1 </S>.
    index[:, 1:-1] = batch.index
    index.scatter_(1, batch.lengths[:, None] + 1, 1)
    return index, batch.lengths + 2
