"""Tag running text with senses: which words an inventory knows, and which sense each has.

Running text has no lemmas. A word is looked up in lower case as it is written, then without an
English ending (`ENDINGS`); irregular forms such as "went" are not found. Words of several tokens
are found as they are written, the longest first. As the part of speech is unknown, the senses of
all parts of speech are candidates.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import tee
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.senses.inventory import MIX, WITH_FREQUENCY, Inventory, nearest
from elmokit.analysis.uses import Model, as_store, span_vector

# Endings and what a lemma may have in their place, tried in this order.
ENDINGS = {"ies": ["y"], "s": [""], "es": [""], "ied": ["y"], "ed": ["e", ""], "ing": ["e", ""]}
MIN_STEM = 2  # characters
MAX_WORD = 5  # tokens


@dataclass(frozen=True)
class Tag:
    """A word of a sentence with its sense."""

    start: int
    end: int
    """The word is `tokens[start:end]`."""
    lemma: str
    """The word as the inventory has it."""
    sense: str
    score: float
    """Its probability among the word's senses; for a layer or the average its cosine."""


@dataclass(frozen=True)
class SentenceTags:
    """A sentence with the senses of those of its words that the inventory knows."""

    tokens: Sequence[str]
    tags: list[Tag]

    def to_dict(self) -> dict[str, Any]:
        """Return the tokens and senses, for JSON."""
        return {"tokens": list(self.tokens), "senses": [asdict(tag) for tag in self.tags]}


def tag_senses(
    model: Model,
    inventory: Inventory,
    sentences: Iterable[Sequence[str]],
    method: str = WITH_FREQUENCY,
) -> Iterator[SentenceTags]:
    """Yield each tokenized sentence with the senses of the words that the inventory knows.

    Args:
        model: The model that the inventory was built with.
        inventory: The senses.
        sentences: Tokenized sentences, of any number.
        method: How to choose a sense: "layer 0" and so on, "average", "mix" or "mix + frequency".
    """
    inventory.check_method(method)
    sentences, texts = tee(sentences)
    return (
        SentenceTags(tokens, list(_tag(inventory, tokens, layers, method)))
        for tokens, layers in zip(sentences, as_store(model).stream(texts), strict=True)
    )


def _tag(
    inventory: Inventory, tokens: Sequence[str], layers: NDArray[Any], method: str
) -> Iterator[Tag]:
    """Yield the words with senses of a sentence with the layers (L + 1, tokens, dim)."""
    for start, end, lemma in known_words(tokens, inventory.lemmas):
        senses = inventory.rows(lemma)
        methods = inventory.scores(senses, span_vector(layers, start, end))
        scores = methods[inventory.methods.index(method)]
        best = nearest(scores)
        if method in (MIX, WITH_FREQUENCY):
            scores = np.exp(scores - scores.max())
            scores /= scores.sum()
        yield Tag(start, end, lemma, inventory.senses[senses[best]], float(scores[best]))


def find_lemma(word: str, known: Container[str]) -> str | None:
    """Return the lemma of a word among the known ones, or None.

    >>> known = {"bank", "stop", "city"}
    >>> [find_lemma(word, known) for word in ("Banks", "stopped", "cities", "go")]
    ['bank', 'stop', 'city', None]
    """
    word = word.lower()
    if word in known:
        return word
    for ending, replacement in ((end, new) for end, forms in ENDINGS.items() for new in forms):
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < MIN_STEM:
            continue
        if stem + replacement in known:
            return stem + replacement
        if stem[-1] == stem[-2] and stem[:-1] in known:  # stopp-ed
            return stem[:-1]
    return None


def known_words(tokens: Sequence[str], known: Container[str]) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and lemma of each known word of a sentence, without overlaps."""
    start = 0
    while start < len(tokens):
        for end in range(min(start + MAX_WORD, len(tokens)), start, -1):
            joined = (separator.join(tokens[start:end]).lower() for separator in ("_", " "))
            lemma = next((word for word in joined if word in known), None)
            if lemma is None and end == start + 1:
                lemma = find_lemma(tokens[start], known)
            if lemma is not None:
                yield start, end, lemma
                break
        start = end
