"""Which ids a model's token encoder takes for a word: the last step of the text room."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.text.characters import CharacterIndexer
from elmokit.text.dictionaries import Dictionaries, UnicodeIndexer
from elmokit.text.vocabulary import Vocabulary, WordIndexer


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


def refuse_strings(sentences: Sequence[Sequence[str]]) -> None:
    """A string is a sequence too, of its characters, which is never what was meant."""
    for sentence in [sentences, *sentences]:
        if isinstance(sentence, str):
            raise ElmokitError(
                f"give a sentence as a list of tokens, not as the string {reprlib.repr(sentence)}"
            )
