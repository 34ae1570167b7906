"""Choose the indexer that makes the ids of a model's token encoder: the last step of text/."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.errors import InvalidInput
from elmokit.text.characters import CharacterIndexer
from elmokit.text.dictionaries import Dictionaries, UnicodeIndexer
from elmokit.text.vocabulary import Vocabulary, WordIndexer


class Indexer(Protocol):
    """Converts words to the rows of ids that a token encoder takes."""

    def encode(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Return the ids of each word: (words, columns)."""


def make_indexer(
    config: BiLMConfig,
    vocabulary: Vocabulary | None,
    dictionaries: Dictionaries | None = None,
    *,
    padded: bool = False,
) -> Indexer:
    """Return the indexer for a model; with `padded`, all of its rows have as many columns."""
    if config.token_encoder == "characters":
        return CharacterIndexer(config.max_characters)
    if config.token_encoder == "unicode":
        if dictionaries is None:
            raise InvalidInput("a model on Unicode characters needs its dictionaries")
        padded = padded or config.has_filters
        return UnicodeIndexer(dictionaries, max_characters=config.max_characters, padded=padded)
    if vocabulary is None:
        raise InvalidInput("a model on words needs its vocabulary")
    return WordIndexer(vocabulary)


def refuse_strings(sentences: Sequence[Sequence[str]]) -> None:
    """Raise if a sentence is a string, whose tokens would be its characters."""
    for sentence in [sentences, *sentences]:
        if isinstance(sentence, str):
            raise InvalidInput(
                f"give a sentence as a list of tokens, not as the string {reprlib.repr(sentence)}"
            )
