"""Tokens with a label each, for probes: reading them, and what guessing gets without any vectors.

    CoNLL, CoNLL-U ─► TaggedText ─► majority label, each word's majority label ─► Score

The labels are those of a column as they stand, spans not translated. The texts are in memory, their
vectors never are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import intern

import numpy as np
from numpy.typing import NDArray

from elmokit.data.columns import read_tagged
from elmokit.data.labeled import BadLines
from elmokit.errors import ElmokitError
from elmokit.io.lines import FilePath, name_of

MOST_LABELS = 2000  # lemmas and other open classes are not for a linear classifier


@dataclass(frozen=True)
class TaggedText:
    """Sentences and the labels of their tokens."""

    sentences: list[tuple[str, ...]] = field(default_factory=list)
    labels: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """All tokens."""
        return sum(map(len, self.sentences))

    def words(self) -> list[str]:
        """All tokens, one after the other."""
        return [word for sentence in self.sentences for word in sentence]

    def tags(self) -> list[str]:
        """Their labels."""
        return [label for labels in self.labels for label in labels]


@dataclass(frozen=True)
class Score:
    """How many tokens of a text get the right label."""

    name: str
    accuracy: float
    unseen: float | None
    """Of the words that the training text does not have; None if there are none."""

    @classmethod
    def of(cls, name: str, right: NDArray[np.bool_], seen: NDArray[np.bool_]) -> Score:
        """From what is right and which words were seen, a value a token."""
        unseen = right[~seen]
        return cls(name, float(right.mean()), float(unseen.mean()) if len(unseen) else None)


def read_tagged_text(
    path: FilePath,
    *,
    column: str | int | None = None,
    token_column: str | int | None = None,
    kind: str = "auto",
    bad: BadLines | None = None,
) -> TaggedText:
    """The sentences of a file and their labels, as `elmokit.data.columns` reads them."""
    text = TaggedText()
    for example in read_tagged(
        path,
        column=column,
        token_column=token_column,
        kind=kind,
        scheme="plain",
        bad=bad or BadLines(),
    ):
        text.sentences.append(tuple(map(intern, example.texts[0])))
        text.labels.append(tuple(map(intern, example.tags or ())))
    if not text.tokens:
        raise ElmokitError(f"{name_of(path)} has no sentences that can be used")
    return text


def label_names(train: TaggedText) -> list[str]:
    """The labels to learn, sorted; there must be some, but not too many."""
    names = sorted(set(train.tags()))
    if len(names) < 2:
        raise ElmokitError(
            f"all tokens of the training text have the label {names[0]!r}: there is nothing to "
            "learn; perhaps another --column is meant"
        )
    if len(names) > MOST_LABELS:
        raise ElmokitError(
            f"the column has {len(names):,} different labels, and a probe takes at most "
            f"{MOST_LABELS:,}: name another one with --column"
        )
    return names


def label_numbers(text: TaggedText, names: Sequence[str]) -> list[NDArray[np.int64]]:
    """Each token's place among the names, -1 for a label that is not there; a row a sentence."""
    place = {name: number for number, name in enumerate(names)}
    return [np.array([place.get(label, -1) for label in row], np.int64) for row in text.labels]


# ---------------------------------------------------------------------- guessing
def seen_words(train: TaggedText, text: TaggedText) -> NDArray[np.bool_]:
    """Which tokens of a text are, as they are written, words of the training text: (tokens,)."""
    known = set(train.words())
    return np.array([word in known for word in text.words()], bool)


def majority_label(train: TaggedText) -> str:
    """The label that most tokens have."""
    return _most_frequent(Counter(train.tags()))


def word_majorities(train: TaggedText) -> tuple[dict[str, str], str]:
    """Each word's most frequent label, and the one for words that are not seen.

    That is the most frequent label of the words that stand in the text once: new words are like
    them. Where there are none, it is the most frequent label of all.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, label in zip(train.words(), train.tags(), strict=True):
        counts[word][label] += 1
    once = Counter(next(iter(c)) for c in counts.values() if c.total() == 1)
    unseen = _most_frequent(once) if once else majority_label(train)
    return {word: _most_frequent(c) for word, c in counts.items()}, unseen


def _most_frequent(counts: Counter[str]) -> str:
    """Of labels that are equally frequent the first in the alphabet."""
    return min(counts, key=lambda label: (-counts[label], label))


def guessed_scores(train: TaggedText, dev: TaggedText) -> list[Score]:
    """What the majority label and each word's majority label get on the dev text."""
    seen, gold = seen_words(train, dev), np.array(dev.tags())
    majorities, unseen = word_majorities(train)
    guesses = np.array([majorities.get(word, unseen) for word in dev.words()])
    return [
        Score.of("majority label", gold == majority_label(train), seen),
        Score.of("word's majority", gold == guesses, seen),
    ]
