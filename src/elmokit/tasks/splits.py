"""From files to the examples that a model learns from, is measured on, or predicts for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from elmokit.data.labeled import BadLines
from elmokit.errors import ElmokitError
from elmokit.tasks.settings import RunOptions, TrainSettings
from elmokit.tasks.task import Learned, Task


@dataclass(frozen=True)
class Data:
    """Examples to learn from and examples to measure on."""

    train: list[Any]
    dev: list[Any]
    learned: Learned
    skipped: str  # a sentence about the lines that were skipped; empty if none were

    def with_fraction(self, fraction: float, seed: int) -> Data:
        if fraction == 1:
            return self
        count = max(1, round(fraction * len(self.train)))
        chosen = np.random.default_rng([seed, 7]).permutation(len(self.train))[:count]
        return replace(self, train=[self.train[i] for i in sorted(chosen)])

    @property
    def texts(self) -> Iterator[Sequence[str]]:
        return (text for example in [*self.train, *self.dev] for text in example.texts)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all examples that does not depend on their files."""
        total = hashlib.sha256()
        for examples in (self.train, self.dev):
            for example in examples:
                values = {k: v for k, v in vars(example).items() if k != "where"}
                total.update(repr(values).encode("utf-8", "surrogatepass"))
            total.update(b"|")
        return total.hexdigest()[:16]


def read_data(task: Task, settings: TrainSettings, options: RunOptions) -> Data:
    """Read training and dev examples; without a dev file, hold out some of the training data."""
    bad, train, dev = BadLines(skip=options.skip_bad), options.train, options.dev
    examples = list(task.read(train, settings, bad, True))
    if dev is None:
        order = np.random.default_rng(0).permutation(len(examples))
        count = max(1, round(options.dev_fraction * len(examples)))
        dev_examples = [examples[i] for i in sorted(order[:count])]
        examples = [examples[i] for i in sorted(order[count:])]
    else:
        dev_examples = list(task.read(dev, settings, bad, True))
    if not examples:
        raise ElmokitError(f"{train} has no examples")
    learned = task.learn(examples, settings)
    dev_examples = with_known_answers(dev_examples, learned, bad)
    if not dev_examples:
        raise ElmokitError(f"{dev or train} has no examples")
    return Data(examples, dev_examples, learned, bad.summary())


def with_known_answers(examples: list[Any], learned: dict[str, Any], bad: BadLines) -> list[Any]:
    """Return the examples whose labels or tags are in the training data; report the others."""
    known = learned.get("tags") or learned.get("labels")
    kept = []
    for example in examples:
        answers = getattr(example, "tags", None) or [getattr(example, "label", None)]
        unknown = [a for a in answers if known and a is not None and a not in known]
        if unknown:
            bad(example.where, f"{unknown[0]!r} is not in the training data")
        else:
            kept.append(example)
    return kept
