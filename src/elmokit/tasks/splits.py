"""From files to the examples that a model learns from, is measured on, or predicts for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from elmokit.data.examples import Example
from elmokit.data.labeled import BadLines, Reading
from elmokit.errors import ElmokitError
from elmokit.tasks.settings import RunOptions, TrainSettings
from elmokit.tasks.task import Learned, Task

E = TypeVar("E", bound=Example)


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


def reader(
    read: Callable[..., Iterator[E]], *names: str, cut: bool = False
) -> Callable[[str, Any, BadLines, bool], Iterator[E]]:
    """Return the function of a task that reads a file, from a reader of `elmokit.data`.

    The reader gets the settings of these names; if `cut`, texts are cut to `max_tokens`.
    """

    def read_file(path: str, settings: Any, bad: BadLines, labeled: bool) -> Iterator[E]:
        target = getattr(settings, "tokenize_target", None)
        reading = Reading(settings.tokenize, bad, labeled, target)
        examples = read(path, reading, **{name: getattr(settings, name) for name in names})
        return cut_texts(examples, settings.max_tokens) if cut else examples

    return read_file


def cut_texts(examples: Iterable[E], max_tokens: int) -> Iterator[E]:
    """Yield the examples with at most `max_tokens` tokens of each text; 0 for no limit."""
    for example in examples:
        yield replace(example, texts=tuple(text[: max_tokens or None] for text in example.texts))
