"""The senses of running text: which words an inventory knows, and which sense each has there.

Running text has no lemmas. A word is looked up in lower case as it stands, then without an English
ending (`ENDINGS`); irregular forms such as "went" are not found. Words of several tokens are found
as they stand, the longest first. As the part of speech is not known, the senses of all count.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from typing import TYPE_CHECKING

import numpy as np

from elmokit.analysis.senses.inventory import MIX, WITH_FREQUENCY, Inventory
from elmokit.analysis.senses.mix import nearest
from elmokit.analysis.senses.sums import vector_of

if TYPE_CHECKING:
    from elmokit.store import LayerStore

# An ending and what a lemma may have in its place, tried in this order.
ENDINGS = (
    ("ies", "y"),
    ("s", ""),
    ("es", ""),
    ("ied", "y"),
    ("ed", "e"),
    ("ed", ""),
    ("ing", "e"),
    ("ing", ""),
)
SHORTEST_STEM = 2
LONGEST_WORD = 5  # tokens


@dataclass(frozen=True)
class Tag:
    """A word of a text with its sense."""

    start: int
    end: int
    """The word is `tokens[start:end]`."""
    lemma: str
    sense: str
    score: float
    """Its probability among the word's senses; for a layer or the average the cosine."""


def lemma_of(word: str, known: Container[str]) -> str | None:
    """The lemma of a word among those known, or none.

    >>> [lemma_of(word, {"bank", "stop", "city"}) for word in ("Banks", "stopped", "cities", "go")]
    ['bank', 'stop', 'city', None]
    """
    word = word.lower()
    if word in known:
        return word
    for ending, other in ENDINGS:
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < SHORTEST_STEM:
            continue
        if stem + other in known:
            return stem + other
        if stem[-1] == stem[-2] and stem[:-1] in known:  # stopp-ed
            return stem[:-1]
    return None


def known_words(
    tokens: Sequence[str], known: Container[str], longest: int = LONGEST_WORD
) -> Iterator[tuple[int, int, str]]:
    """Start, end and lemma of each word of a sentence that is known; they do not overlap."""
    start = 0
    while start < len(tokens):
        for end in range(min(start + longest, len(tokens)), start, -1):
            lemma = _lemma_of_tokens(tokens[start:end], known)
            if lemma is not None:
                yield start, end, lemma
                break
        start = end


def _lemma_of_tokens(tokens: Sequence[str], known: Container[str]) -> str | None:
    if len(tokens) == 1:
        return lemma_of(tokens[0], known)
    joined = (between.join(tokens).lower() for between in ("_", " "))
    return next((lemma for lemma in joined if lemma in known), None)


def tag_sentences(
    store: LayerStore,
    inventory: Inventory,
    sentences: Iterable[Sequence[str]],
    method: str = WITH_FREQUENCY,
) -> Iterator[tuple[Sequence[str], list[Tag]]]:
    """The tokens of each sentence and the senses of those of its words that are known."""
    number = inventory.methods.index(method)
    longest = min(LONGEST_WORD, inventory.longest_word)
    sentences, texts = tee(sentences)
    for tokens, layers in zip(sentences, store.stream(texts), strict=True):
        tags = []
        for start, end, lemma in known_words(tokens, inventory.lemmas, longest):
            rows = inventory.rows(lemma)
            scores = inventory.scores(rows, vector_of(layers, start, end))[number]
            best = nearest(scores)
            if method in (MIX, WITH_FREQUENCY):
                scores = np.exp(scores - scores.max())
                scores /= scores.sum()
            tags.append(Tag(start, end, lemma, inventory.senses[rows[best]], float(scores[best])))
        yield tokens, tags
