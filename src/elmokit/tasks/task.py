"""What a task is: plain functions that read, learn, score and write, and the list of all tasks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from elmokit.data.examples import Example
from elmokit.data.labeled import BadLines, Reading
from elmokit.errors import ElmokitError
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.settings import SETTINGS, TaskName, TrainSettings

E = TypeVar("E", bound=Example)
Learned = dict[str, Any]  # what the training examples determine, such as the labels, as JSON


@dataclass(frozen=True)
class Task:
    """One kind of task, from its files to its scores."""

    name: TaskName
    settings: type[TrainSettings]
    """Class of the settings that its functions take, with the defaults of the task."""
    read: Callable[[str, Any, BadLines, bool], Iterator[Any]]
    """Read the examples of a file; the last argument tells whether it must have the answers."""
    learn: Callable[[Sequence[Any], Any], Learned]
    """Return what the training examples determine."""
    model: Callable[[Inputs, Any, Learned], Any]
    """Build a new model from inputs, settings and what was learned from the training examples.

    It is an `nn.Module` with the attribute `inputs`, and two methods that take a batch of examples:
    `loss` returns their mean loss, and `predict` a list of predictions, as JSON takes them.
    """
    score: Callable[[Sequence[Any], Sequence[Any]], dict[str, float]]
    """Return scores from 0 to 1 of predictions for examples with known answers; early stopping
    watches the first."""
    write: Callable[[Sequence[Any], Sequence[Any]], Iterator[str]]
    """Yield the text of a file of predictions in pieces."""


def find_task(name: str) -> Task:
    """Return the task of that name; its module is imported only now."""
    if name not in SETTINGS:
        raise ElmokitError(f"unknown task {name!r:.80}: choose one of {', '.join(SETTINGS)}")
    own = "seq2seq.model" if name in ("translate", "summarize") else f"models.{name}"
    module = importlib.import_module(f"elmokit.tasks.{own}")
    task: Task = module.TASKS[name] if hasattr(module, "TASKS") else module.TASK
    return task


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
