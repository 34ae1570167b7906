"""How many senses are found: precision, recall and F1 as Raganato's scorer counts them.

An instance is right if the sense that was found is one of those it has. Precision is over those
for which a sense was found, recall over all. A word that the inventory does not know gets
WordNet's first sense, if the index is there, and else no answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elmokit.analysis.senses.data import PARTS_OF_SPEECH, Instance, TaggedSentence
from elmokit.analysis.senses.inventory import Inventory, Word
from elmokit.analysis.senses.mix import nearest
from elmokit.analysis.senses.sums import MOST_FREQUENT, embedded, vector_of
from elmokit.analysis.uses import Array

if TYPE_CHECKING:
    from elmokit.store import LayerStore

FIRST_SENSE = "first sense"
ALL = "all"


@dataclass
class Tally:
    """Counts of one method on one set of instances."""

    instances: int = 0
    answered: int = 0
    right: int = 0

    def add(self, answer: str | None, instance: Instance) -> None:
        """Count an answer."""
        self.instances += 1
        self.answered += answer is not None
        self.right += answer in instance.keys

    @property
    def precision(self) -> float:
        """Of those answered, how many are right."""
        return self.right / self.answered if self.answered else 0.0

    @property
    def recall(self) -> float:
        """Of all, how many are right."""
        return self.right / self.instances if self.instances else 0.0

    @property
    def f1(self) -> float:
        """Between the two."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "instances": self.instances,
            "answered": self.answered,
            "right": self.right,
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
        }


@dataclass
class SenseScores:
    """The scores of each method, on all instances and by part of speech."""

    tallies: dict[str, dict[str, Tally]] = field(default_factory=dict)
    """Method: part of speech, or "all": counts."""

    def add(self, answers: dict[str, str | None], instance: Instance) -> None:
        """Count what each method says of an instance."""
        for method, answer in answers.items():
            own = self.tallies.setdefault(method, {ALL: Tally()})
            own[ALL].add(answer, instance)
            if instance.pos:
                own.setdefault(instance.pos, Tally()).add(answer, instance)

    @property
    def parts_of_speech(self) -> list[str]:
        """Those that the instances have, nouns first."""
        found = {pos: True for own in self.tallies.values() for pos in own if pos != ALL}
        usual = [pos for pos in dict.fromkeys(PARTS_OF_SPEECH.values()) if pos in found]
        return [*usual, *(pos for pos in found if pos not in usual)]

    def rows(self) -> tuple[list[str], list[list[object]]]:
        """Names and rows of a table, in per cent."""
        parts = self.parts_of_speech
        names = ["", "precision", "recall", "F1", *parts]
        rows: list[list[object]] = []
        for method, own in self.tallies.items():
            whole = own[ALL]
            by_part = [own[pos].f1 for pos in parts]
            figures = [whole.precision, whole.recall, whole.f1, *by_part]
            rows.append([method, *(100 * figure for figure in figures)])
        return names, rows

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            method: {pos: tally.to_dict() for pos, tally in own.items()}
            for method, own in self.tallies.items()
        }


def answers_of(
    inventory: Inventory, first: dict[Word, str], instance: Instance, vector: Array
) -> dict[str, str | None]:
    """The sense that each method finds for a use with the vector (L + 1, dim)."""
    rows = inventory.rows(instance.lemma, instance.pos)
    if len(rows) == 0:
        fallback = first.get((instance.lemma, instance.pos))
        return dict.fromkeys([*inventory.methods, MOST_FREQUENT], fallback)
    scores = inventory.scores(rows, vector)
    found = {
        method: inventory.senses[rows[nearest(row)]]
        for method, row in zip(inventory.methods, scores, strict=True)
    }
    return {**found, MOST_FREQUENT: inventory.senses[rows[0]]}


def score_inventory(
    store: LayerStore,
    inventory: Inventory,
    sentences: Iterable[TaggedSentence],
    first: dict[Word, str] | None = None,
) -> SenseScores:
    """Score every method of an inventory, and WordNet's first senses if they are given."""
    scores = SenseScores()
    for sentence, layers in embedded(store, sentences):
        for instance in sentence.instances:
            vector = vector_of(layers, instance.start, instance.end)
            found = answers_of(inventory, first or {}, instance, vector)
            if first is not None:
                found[FIRST_SENSE] = first.get((instance.lemma, instance.pos))
            scores.add(found, instance)
    return scores


def score_first_senses(sentences: Iterable[TaggedSentence], first: dict[Word, str]) -> SenseScores:
    """Score WordNet's first senses alone."""
    scores = SenseScores()
    for sentence in sentences:
        for instance in sentence.instances:
            answer = first.get((instance.lemma, instance.pos))
            scores.add({FIRST_SENSE: answer}, instance)
    return scores
