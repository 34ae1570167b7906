"""Convert words to ids of dictionaries: the second step for models on Unicode characters.

A model of ELMoForManyLangs looks up each character of a word, the word itself, or both. A row of
ids holds all of it, the word truncated to `max_characters - 2` characters:

    column   0         1                      2 …
    holds    word id   number of ids after it  begin mark, characters, end mark, padding …

The published models were trained with the two marks swapped: a word begins with `<eow>` and ends
with `<bow>`. This module does the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import UnsupportedFormat
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE

UNKNOWN, PADDING = "<oov>", "<pad>"
BEGIN_WORD, END_WORD = "<eow>", "<bow>"  # swapped, as trained
BOUNDARIES = {BEGIN_SENTENCE: "<bos>", END_SENTENCE: "<eos>"}
MARKS = (UNKNOWN, PADDING, BEGIN_WORD, END_WORD, *BOUNDARIES.values())
HEADER = 2  # columns before the characters


@dataclass(frozen=True)
class Dictionaries:
    """The characters and words that a model on Unicode characters knows; either may be None."""

    characters: list[str] | None = None
    """Characters and marks, by id."""
    words: list[str] | None = None
    """Words and marks, by id."""

    def __post_init__(self) -> None:
        needed = {"characters": MARKS, "words": (UNKNOWN,)}
        for name, marks in needed.items():
            entries = getattr(self, name)
            if entries is None:
                continue
            counts = Counter(entries)
            if len(counts) != len(entries):
                repeated = counts.most_common(1)[0][0]
                raise UnsupportedFormat(f"the dictionary of {name} has {repeated!r} twice")
            if missing := [mark for mark in marks if mark not in counts]:
                raise UnsupportedFormat(f"the dictionary of {name} lacks {', '.join(missing)}")


class UnicodeIndexer:
    """Converts words of any script to rows of ids; never raises.

    The sentence boundaries are `<S>` and `</S>` as everywhere in elmokit, or `<bos>` and `<eos>`
    as in the dictionaries. Nothing is lower-cased.
    """

    def __init__(self, dictionaries: Dictionaries, *, max_characters: int, padded: bool) -> None:
        """Truncate words to `max_characters`; if `padded`, every row has that length."""
        self.max_characters, self.padded = max_characters, padded
        self.characters = _ids(dictionaries.characters)
        self.words = _ids(dictionaries.words)

    def encode(self, words: Sequence[str]) -> NDArray[np.int32]:
        limit = self.max_characters - 2
        truncated = [BOUNDARIES.get(word) or word[:limit] for word in words]
        rows = []
        if known := self.characters:
            unknown, begin, end = (known[mark] for mark in (UNKNOWN, BEGIN_WORD, END_WORD))
            for word in truncated:
                characters = [word] if word in BOUNDARIES.values() else word
                rows.append([begin, *(known.get(c, unknown) for c in characters), end])
        columns = self.max_characters if rows and self.padded else max(map(len, rows), default=0)
        ids = np.zeros((len(words), HEADER + columns), np.int32)
        if self.words:
            ids[:, 0] = [self.words.get(word, self.words[UNKNOWN]) for word in truncated]
        if rows:
            ids[:, 1] = [len(row) for row in rows]
            ids[:, HEADER:] = self.characters[PADDING]
            for i, row in enumerate(rows):
                ids[i, HEADER : HEADER + len(row)] = row
        return ids


def _ids(entries: list[str] | None) -> dict[str, int]:
    return {entry: index for index, entry in enumerate(entries or [])}
