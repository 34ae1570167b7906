"""Convert words to character ids: the second step of the flow, before the char-CNN.

A word is its UTF-8 bytes between two marks, truncated and padded to a fixed length. Ids are shifted
by one so that 0 means "no word".

    id      1..256   257               258             259            260          261
    means   a byte   sentence begins   sentence ends   word begins    word ends    padding
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BEGIN_SENTENCE, END_SENTENCE = "<S>", "</S>"
BEGIN_SENTENCE_ID, END_SENTENCE_ID, BEGIN_WORD_ID, END_WORD_ID, PADDING_ID = range(257, 262)


class CharacterIndexer:
    """Converts words of any script to rows of character ids; never raises.

    Bytes beyond `max_characters - 2` are dropped; lone surrogates have no bytes and are dropped.
    The words `<S>` and `</S>` are the sentence boundaries, as in the original systems.
    """

    def __init__(self, max_characters: int = 50) -> None:
        self.max_characters = max_characters

    def encode(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Return the character ids of each word: (words, max_characters)."""
        limit = self.max_characters - 2
        encoded = [word.encode("utf-8", "ignore")[:limit] for word in words]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        ids = np.full((len(words), self.max_characters), PADDING_ID, np.int32)
        ids[:, 0] = BEGIN_WORD_ID
        rows = np.repeat(np.arange(len(words)), lengths)
        starts = np.cumsum(lengths) - lengths
        columns = np.arange(len(rows)) - np.repeat(starts, lengths) + 1
        ids[rows, columns] = np.frombuffer(b"".join(encoded), np.uint8).astype(np.int32) + 1
        ids[np.arange(len(words)), lengths + 1] = END_WORD_ID
        for row, word in enumerate(words):
            if word in (BEGIN_SENTENCE, END_SENTENCE):
                mark = BEGIN_SENTENCE_ID if word == BEGIN_SENTENCE else END_SENTENCE_ID
                ids[row] = PADDING_ID
                ids[row, :3] = BEGIN_WORD_ID, mark, END_WORD_ID
        return ids
