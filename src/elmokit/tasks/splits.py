"""Files to the examples that a model learns from, is measured by, or predicts for."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from elmokit.data.labelled import BadLines
from elmokit.errors import ElmokitError
from elmokit.tasks.settings import Settings
from elmokit.tasks.task import Task


@dataclass(frozen=True)
class Data:
    """Examples to learn from and examples to measure by."""

    train: list[Any]
    dev: list[Any]
    facts: dict[str, Any]
    """What the training examples fix, such as the labels."""
    bad: str
    """What was left out, in a sentence; empty if nothing was."""

    def with_part(self, part: float, seed: int) -> Data:
        """The same with some of the training examples, chosen by a seed."""
        if part == 1:
            return self
        count = max(1, round(part * len(self.train)))
        chosen = np.random.default_rng([seed, 7]).permutation(len(self.train))[:count]
        return replace(self, train=[self.train[number] for number in sorted(chosen)])

    @property
    def texts(self) -> Iterator[Sequence[str]]:
        """All texts that get vectors."""
        return (text for example in [*self.train, *self.dev] for text in example.texts)

    def fingerprint(self) -> str:
        """A hash of all examples, wherever they were read from."""
        total = hashlib.sha256()
        for examples in (self.train, self.dev):
            for example in examples:
                values = {k: v for k, v in vars(example).items() if k != "where"}
                total.update(repr(values).encode("utf-8", "surrogatepass"))
            total.update(b"|")
        return total.hexdigest()[:16]


def read_data(
    task: Task,
    settings: Settings,
    train: str,
    dev: str | None,
    *,
    dev_fraction: float = 0.1,
    skip_bad: bool = False,
) -> Data:
    """Read the examples; without dev data, some of them are drawn to be set apart."""
    bad = BadLines(skip=skip_bad)
    examples = list(task.read(train, settings, bad, True))
    if dev is None:
        order = np.random.default_rng(0).permutation(len(examples))
        apart = set(order[: max(1, round(dev_fraction * len(examples)))].tolist())
        held = [example for number, example in enumerate(examples) if number in apart]
        examples = [example for number, example in enumerate(examples) if number not in apart]
    else:
        held = list(task.read(dev, settings, bad, True))
    _refuse_nothing(train, examples)
    facts = task.learn(examples, settings)
    held = with_known_answers(held, facts, bad)
    _refuse_nothing(dev or train, held)
    return Data(examples, held, facts, bad.summary())


def _refuse_nothing(path: str, examples: list[Any]) -> None:
    if not examples:
        raise ElmokitError(f"{path} has no examples")


def with_known_answers(examples: list[Any], facts: dict[str, Any], bad: BadLines) -> list[Any]:
    """The examples whose labels or tags the training data has; the others are bad lines."""
    kept = []
    for example in examples:
        answers = getattr(example, "tags", None) or [getattr(example, "label", None)]
        known = facts.get("tags") or facts.get("labels")
        unknown = [a for a in answers if known and a is not None and a not in known]
        if unknown:
            bad(example.where, f"{unknown[0]!r} does not stand in the training data")
        else:
            kept.append(example)
    return kept


def read_examples(
    task: Task,
    settings: Settings,
    path: str,
    *,
    facts: dict[str, Any] | None = None,
    skip_bad: bool = False,
    quiet: bool = False,
) -> list[Any]:
    """The examples of a file for a trained model.

    Args:
        task: the model's.
        settings: the model's.
        path: of the file.
        facts: what the model knows, if the file must have the answers; None if it need not.
        skip_bad: leave bad lines out and count them.
        quiet: do not say how many.
    """
    bad = BadLines(skip=skip_bad)
    examples = list(task.read(path, settings, bad, facts is not None))
    if facts is not None:
        examples = with_known_answers(examples, facts, bad)
    if (left_out := bad.summary()) and not quiet:
        print(f"elmokit: {left_out}", file=sys.stderr)
    _refuse_nothing(path, examples)
    return examples
