"""Sentences to batches: which go together, each distinct word once, and where it stands.

The token encoder sees `features` (a row for each distinct word), the LSTMs see the vectors
gathered through `index`. Rows 0 and 1 of the features are the sentence boundaries, so that the
model can put them around every sentence without knowing any words.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE, CharacterIndexer
from elmokit.text.dictionaries import Dictionaries, UnicodeIndexer
from elmokit.text.vocabulary import Vocabulary, WordIndexer

if TYPE_CHECKING:
    from torch import Tensor

SIDE_BY_SIDE, LONG_BATCH = 16, 8  # so many long sentences in a batch, if 8 times its tokens do


class Indexer(Protocol):
    """What turns words into the rows of ids that a token encoder takes."""

    def encode(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Ids of each word: (words, columns)."""
        ...


def make_indexer(
    config: BiLMConfig, vocabulary: Vocabulary | None, dictionaries: Dictionaries | None = None
) -> Indexer:
    """What turns words into the ids that a model takes."""
    if config.token_encoder == "characters":
        return CharacterIndexer(config.max_characters)
    if config.token_encoder == "unicode":
        if dictionaries is None:
            raise ElmokitError("a model on Unicode characters needs its dictionaries")
        longest = config.max_characters
        return UnicodeIndexer(dictionaries, max_characters=longest, padded=config.has_filters)
    if vocabulary is None:
        raise ElmokitError("a model on words needs its vocabulary")
    return WordIndexer(vocabulary)


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


def make_batches(
    lengths: Sequence[int], batch_tokens: int, batch_size: int | None
) -> Iterator[list[int]]:
    """Numbers of the sentences that go together: of similar length, bounded in tokens.

    Long sentences get some more, so that there are several of them side by side.
    """
    order = sorted(range(len(lengths)), key=lambda number: (lengths[number], number))
    batch: list[int] = []
    tokens = 0
    for number in order:
        more = tokens + lengths[number]
        full = len(batch) == batch_size or more > LONG_BATCH * batch_tokens
        full = full or (more > batch_tokens and len(batch) >= SIDE_BY_SIDE)
        if batch and full:
            yield batch
            batch, tokens = [], 0
        batch.append(number)
        tokens += lengths[number]
    if batch:
        yield batch


def refuse_strings(sentences: Sequence[Sequence[str]]) -> None:
    """A string is a sequence too, of its characters, which is never what was meant."""
    for sentence in [sentences, *sentences]:
        if isinstance(sentence, str):
            raise ElmokitError(
                f"give a sentence as a list of tokens, not as the string {reprlib.repr(sentence)}"
            )
