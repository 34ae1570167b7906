"""Measure how many senses are found: precision, recall and F1 as Raganato's scorer counts them.

An answer is correct if it is one of the senses that the instance has. Precision is over instances
with an answer, recall over all. A word that the inventory does not know gets WordNet's first sense
if WordNet's index is given, and otherwise no answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from elmokit.analysis.geometry import Array
from elmokit.analysis.senses.build import MOST_FREQUENT, embed_tagged
from elmokit.analysis.senses.data import PARTS_OF_SPEECH, Instance, TaggedSentence
from elmokit.analysis.senses.inventory import Inventory, Word, nearest
from elmokit.analysis.uses import Model, as_store

FIRST_SENSE = "first sense"
ALL = "all"


@dataclass
class Tally:
    """How many instances of a set one method has answered, and how many correctly."""

    instances: int = 0
    answered: int = 0
    correct: int = 0

    def add(self, answer: str | None, instance: Instance) -> None:
        """Count an answer."""
        self.instances += 1
        self.answered += answer is not None
        self.correct += answer in instance.keys

    @property
    def precision(self) -> float:
        """Share of the answers that are correct."""
        return self.correct / self.answered if self.answered else 0.0

    @property
    def recall(self) -> float:
        """Share of the instances with a correct answer."""
        return self.correct / self.instances if self.instances else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

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
            tallies = self.tallies.setdefault(method, {ALL: Tally()})
            tallies[ALL].add(answer, instance)
            if instance.pos:
                tallies.setdefault(instance.pos, Tally()).add(answer, instance)

    @property
    def parts_of_speech(self) -> list[str]:
        """Parts of speech of the instances, nouns first."""
        present = {pos: True for tallies in self.tallies.values() for pos in tallies if pos != ALL}
        usual = [pos for pos in dict.fromkeys(PARTS_OF_SPEECH.values()) if pos in present]
        return [*usual, *(pos for pos in present if pos not in usual)]

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
        first_senses: WordNet's first senses (see `read_first_senses`): answers for words that the
            inventory does not know, and one more method to score.
    """
    scores = SenseScores()
    for _, instances in embed_tagged(as_store(model), sentences):
        for instance, vector in instances:
            answers = find_answers(inventory, first_senses or {}, instance, vector)
            if first_senses is not None:
                answers[FIRST_SENSE] = first_senses.get((instance.lemma, instance.pos))
            scores.add(answers, instance)
    return scores


def find_answers(
    inventory: Inventory, first_senses: dict[Word, str], instance: Instance, vector: Array
) -> dict[str, str | None]:
    """Return the sense that each method finds for a use with the vector (L + 1, dim)."""
    rows = inventory.rows(instance.lemma, instance.pos)
    methods = [*inventory.methods, MOST_FREQUENT]
    if len(rows) == 0:
        return dict.fromkeys(methods, first_senses.get((instance.lemma, instance.pos)))
    best = [*map(nearest, inventory.scores(rows, vector)), 0]  # The most frequent sense is first.
    return {method: inventory.senses[rows[i]] for method, i in zip(methods, best, strict=True)}


def score_first_senses(
    sentences: Iterable[TaggedSentence], first_senses: dict[Word, str]
) -> SenseScores:
    """Score WordNet's first senses alone."""
    scores = SenseScores()
    for instance in (instance for sentence in sentences for instance in sentence.instances):
        scores.add({FIRST_SENSE: first_senses.get((instance.lemma, instance.pos))}, instance)
    return scores
