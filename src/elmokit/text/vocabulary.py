"""The vocabulary: words that a softmax predicts, or that a model on word ids takes as input.

A file has one word per line, whose position is its id; `<S>`, `</S>` and `<UNK>` come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError, UnsupportedFormat, located
from elmokit.io.jsonfile import decode
from elmokit.io.lines import read_blocks
from elmokit.io.paths import check_regular
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmokit.text.unicode import is_unicode

UNKNOWN = "<UNK>"
SPECIAL = (BEGIN_SENTENCE, END_SENTENCE, UNKNOWN)
MAX_BYTES = 1 << 30  # size of a vocabulary file, decompressed


class Vocabulary:
    """An ordered list of distinct words with their ids."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)
        self.ids = {word: index for index, word in enumerate(self.words)}
        missing = [word for word in SPECIAL if word not in self.ids]
        if missing:
            raise UnsupportedFormat(f"the vocabulary lacks {', '.join(missing)}")
        if len(self.ids) != len(self.words):
            repeated = next(word for i, word in enumerate(self.words) if self.ids[word] != i)
            raise UnsupportedFormat(f"the vocabulary has the word {repeated!r} twice")
        self.unknown = self.ids[UNKNOWN]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self.ids

    def encode(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Return the ids of words, that of `<UNK>` for unknown ones: (words,)."""
        ids, unknown = self.ids, self.unknown
        return np.fromiter((ids.get(word, unknown) for word in words), np.int32, len(words))

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """Read `vocab.txt` or `vocab.txt.gz`; only a newline ends a word."""
        check_regular(path)
        content = bytearray()
        for block in read_blocks(path):  # decompressed, if it is a .gz
            content += block
            if len(content) > MAX_BYTES:
                raise UnsupportedFormat(f"{path} is too large for a list of words")
        lines = decode(bytes(content), path).removesuffix("\n").split("\n")
        with located(path, raising=ElmokitError):
            return cls(line.removesuffix("\r") for line in lines)

    def write(self, path: Path) -> None:
        """Write `vocab.txt`; raise for a word that it cannot hold."""
        for word in self.words:
            if "\n" in word or word.endswith("\r") or not is_unicode(word):
                raise ElmokitError(f"the word {word!r} cannot be a line of a vocabulary file")
        path.write_text("\n".join(self.words) + "\n", encoding="utf-8", newline="")


class WordIndexer:
    """Converts words to rows of one id, for models whose token vectors are a table."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def encode(self, words: Sequence[str]) -> NDArray[np.int32]:
        return self.vocabulary.encode(words)[:, None]
