"""Read tokens with a label each for probes, and score guesses that need no vectors."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import chain
from sys import intern
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.data.columns import read_tagged
from elmokit.data.labeled import BadLines, Reading
from elmokit.errors import ElmokitError
from elmokit.io.lines import FilePath, name_of

MAX_LABELS = 2000  # Lemmas and other open classes are not for a linear classifier.


@dataclass(frozen=True)
class TaggedText:
    """Sentences and the labels of their tokens."""

    sentences: list[tuple[str, ...]] = field(default_factory=list)
    labels: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Number of tokens."""
        return sum(map(len, self.sentences))

    def words(self) -> list[str]:
        """Return all tokens."""
        return list(chain.from_iterable(self.sentences))

    def tags(self) -> list[str]:
        """Return the labels of all tokens."""
        return list(chain.from_iterable(self.labels))


@dataclass(frozen=True)
class Score:
    """The accuracy of a classifier or a guess on the dev text."""

    name: str
    accuracy: float
    unseen: float | None
    """The same for words that the training text does not have; None if there are none."""

    @classmethod
    def of(cls, name: str, correct: NDArray[np.bool_], seen: NDArray[np.bool_]) -> Score:
        """Score from which tokens are correct (tokens,) and which words were seen (tokens,)."""
        unseen = correct[~seen]
        return cls(name, float(correct.mean()), float(unseen.mean()) if len(unseen) else None)


def read_tagged_text(
    path: FilePath,
    *,
    column: str | int | None = None,
    token_column: str | int | None = None,
    kind: str = "auto",
    bad: BadLines | None = None,
) -> TaggedText:
    """Read the sentences of a file and their labels as they are; spans are not converted.

    Args:
        path: A CoNLL or CoNLL-U file, also .gz, .xz, .zst.
        column: Column of the label: a number from 1, negative from the end, or a name of CoNLL-U
            (default: UPOS in CoNLL-U, the last one in CoNLL).
        token_column: Column of the tokens (default: FORM in CoNLL-U, the first one in CoNLL).
        kind: Kind of file; "auto" decides by its extension.
        bad: Whether bad lines are skipped, and their count (default: raise at the first).
    """
    text, reading = TaggedText(), Reading(str.split, bad or BadLines())
    columns: Any = {"label_column": column, "text_column": token_column}
    for example in read_tagged(path, reading, **columns, kind=kind, scheme="plain"):
        text.sentences.append(tuple(map(intern, example.texts[0])))
        text.labels.append(tuple(map(intern, example.tags or ())))
    if not text.num_tokens:
        raise ElmokitError(f"{name_of(path)} has no usable sentences")
    return text


def label_names(train: TaggedText) -> list[str]:
    """Return the labels to learn, sorted; raise if there is only one or too many."""
    names = sorted(set(train.tags()))
    if len(names) < 2:
        raise ElmokitError(
            f"all tokens of the training text have the label {names[0]!r}, so there is nothing to "
            "learn: name another column with --column"
        )
    if len(names) > MAX_LABELS:
        raise ElmokitError(
            f"the column has {len(names):,} different labels, and a probe takes at most "
            f"{MAX_LABELS:,}: name another one with --column"
        )
    return names


def seen_words(train: TaggedText, text: TaggedText) -> NDArray[np.bool_]:
    """Tell which tokens of a text the training text has, as they are written: (tokens,)."""
    known = set(train.words())
    return np.array([word in known for word in text.words()], bool)


def word_majorities(train: TaggedText) -> tuple[dict[str, str], str]:
    """Return each word's most frequent label, and that of words that occur once, if any."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, label in zip(train.words(), train.tags(), strict=True):
        counts[word][label] += 1
    once = Counter(next(iter(c)) for c in counts.values() if c.total() == 1)
    unseen = most_frequent(once or Counter(train.tags()))  # New words are like rare ones.
    return {word: most_frequent(c) for word, c in counts.items()}, unseen


def most_frequent(counts: Counter[str]) -> str:
    """Return the most frequent label; of equally frequent ones the first in the alphabet."""
    return min(counts, key=lambda label: (-counts[label], label))


def score_guesses(train: TaggedText, dev: TaggedText) -> list[Score]:
    """Score the majority label and each word's majority label on the dev text."""
    seen, gold = seen_words(train, dev), np.array(dev.tags())
    majorities, unseen = word_majorities(train)
    guesses = np.array([majorities.get(word, unseen) for word in dev.words()])
    return [
        Score.of("majority label", gold == most_frequent(Counter(train.tags())), seen),
        Score.of("word's majority", gold == guesses, seen),
    ]
