"""Find the senses of words by an inventory: tag running text, and measure on sense-tagged text.

A word of running text is looked up in lower case as it is written, then without an English ending;
irregular forms such as "went" are not found. The senses of all parts of speech are candidates.
Precision, recall and F1 are counted as Raganato's scorer does: an answer is correct if it is one of
the senses that the instance has.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import tee
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.senses.build import MOST_FREQUENT, embed_tagged
from elmokit.analysis.senses.data import PARTS_OF_SPEECH, Instance, TaggedSentence
from elmokit.analysis.senses.inventory import MIX, WITH_FREQUENCY, Inventory, Word, nearest
from elmokit.analysis.uses import Model, as_store, span_vector

# Endings and what a lemma may have in their place, tried in this order.
ENDINGS = {"ies": ["y"], "s": [""], "es": [""], "ied": ["y"], "ed": ["e", ""], "ing": ["e", ""]}
MIN_STEM = 2  # characters
MAX_WORD = 5  # tokens
FIRST_SENSE = "first sense"
ALL = "all"


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
        SentenceTags(tokens, list(tag_sentence(inventory, tokens, layers, method)))
        for tokens, layers in zip(sentences, as_store(model).stream(texts), strict=True)
    )


def tag_sentence(
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


# ---------------------------------------------------------------------- scores
@dataclass
class Tally:
    """How many instances of a set one method has answered, and how many correctly."""

    instances: int = 0
    answered: int = 0
    correct: int = 0

    @property
    def precision(self) -> float:
        """Share of the answers that are correct."""
        return self.correct / max(self.answered, 1)

    @property
    def recall(self) -> float:
        """Share of the instances with a correct answer."""
        return self.correct / max(self.instances, 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.correct / max(self.answered + self.instances, 1)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and scores, for JSON."""
        scores = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return {**asdict(self), **scores}


@dataclass
class SenseScores:
    """The scores of each method, on all instances and by part of speech."""

    tallies: dict[str, dict[str, Tally]] = field(default_factory=dict)
    """Counts by method and by part of speech, or "all"."""

    def add(self, answers: dict[str, str | None], instance: Instance) -> None:
        """Count the answer of each method for an instance."""
        for method, answer in answers.items():
            tallies = self.tallies.setdefault(method, {})
            for part in {ALL: True, instance.pos or ALL: True}:
                tally = tallies.setdefault(part, Tally())
                tally.instances += 1
                tally.answered += answer is not None
                tally.correct += answer in instance.keys

    @property
    def parts_of_speech(self) -> list[str]:
        """Parts of speech of the instances, nouns first."""
        present = dict.fromkeys(pos for tallies in self.tallies.values() for pos in tallies)
        usual = [pos for pos in dict.fromkeys(PARTS_OF_SPEECH.values()) if pos in present]
        return [*usual, *(pos for pos in present if pos not in (*usual, ALL))]

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and scores of each method, for JSON."""
        return {
            method: {pos: tally.to_dict() for pos, tally in tallies.items()}
            for method, tallies in self.tallies.items()
        }


def score_senses(
    model: Model,
    inventory: Inventory,
    sentences: Iterable[TaggedSentence],
    first_senses: dict[Word, str] | None = None,
) -> SenseScores:
    """Score every method of an inventory on sense-tagged sentences.

    Args:
        model: The model that the inventory was built with.
        inventory: The senses.
        sentences: Sense-tagged sentences, such as a `TaggedCorpus`.
        first_senses: WordNet's first senses, for unknown words and as one more method to score.
    """
    scores = SenseScores()
    methods = [*inventory.methods, MOST_FREQUENT]
    for _, instances in embed_tagged(as_store(model), sentences):
        for instance, vector in instances:
            word = instance.lemma, instance.pos
            rows = inventory.rows(*word)
            known = (first_senses or {}).get(word)
            answers: dict[str, str | None] = dict.fromkeys(methods, known)
            if len(rows):  # The most frequent sense is first.
                best = [*map(nearest, inventory.scores(rows, vector)), 0]
                answers = {m: inventory.senses[rows[i]] for m, i in zip(methods, best, strict=True)}
            if first_senses is not None:
                answers[FIRST_SENSE] = first_senses.get(word)
            scores.add(answers, instance)
    return scores


def score_first_senses(
    sentences: Iterable[TaggedSentence], first_senses: dict[Word, str]
) -> SenseScores:
    """Score WordNet's first senses alone."""
    scores = SenseScores()
    for sentence in sentences:
        for instance in sentence.instances:
            scores.add({FIRST_SENSE: first_senses.get((instance.lemma, instance.pos))}, instance)
    return scores
