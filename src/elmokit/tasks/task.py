"""What a task is: plain functions that read, learn, score and write, and the list of all tasks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from elmokit.errors import ElmokitError

if TYPE_CHECKING:
    from typing import TypeAlias

    from torch import Tensor

    from elmokit.data.labeled import BadLines
    from elmokit.tasks.layers.embedder import Inputs
    from elmokit.tasks.settings import TrainSettings

TaskName: TypeAlias = Literal[
    "classifier",
    "tagger",
    "pair",
    "relation",
    "question",
    "coreference",
    "translate",
    "summarize",
]
TASKS: tuple[TaskName, ...] = get_args(TaskName)
# Modules of tasks that are not in `elmokit.tasks.models.<task>`.
MODULES = {"translate": "seq2seq.model", "summarize": "seq2seq.model"}


class TaskModel(Protocol):
    """What training expects of a task's `nn.Module`."""

    def loss(self, batch: Sequence[Any]) -> Tensor:
        """Return the mean loss of a batch of examples, a scalar."""
        ...

    def predict(self, batch: Sequence[Any]) -> list[Any]:
        """Return a prediction for each example, as JSON takes it."""
        ...


@dataclass(frozen=True)
class Task:
    """One kind of task, from its files to its scores.

    The settings that its functions take are an instance of its class `settings`.
    """

    name: TaskName
    settings: type[TrainSettings]
    """Class of the settings, with the defaults of the task."""
    read: Callable[[str, Any, BadLines, bool], Iterator[Any]]
    """Read the examples of a file; the last argument tells whether it must have the answers."""
    learn: Callable[[Sequence[Any], Any], dict[str, Any]]
    """Return what the training examples determine, such as the labels, as JSON takes it."""
    model: Callable[[Inputs, Any, dict[str, Any]], Any]
    """Build a new model, an `nn.Module` that is a TaskModel, from inputs, settings and what was
    learned from the training examples."""
    score: Callable[[Sequence[Any], Sequence[Any]], dict[str, float]]
    """Return scores from 0 to 1 of predictions for examples with known answers; early stopping
    watches the first."""
    write: Callable[[Sequence[Any], Sequence[Any]], Iterator[str]]
    """Yield the text of a file of predictions in pieces."""


def find_task(name: str) -> Task:
    """Return the task of that name; its module is imported only now."""
    if name not in TASKS:
        raise ElmokitError(f"unknown task {name!r}: choose one of {', '.join(TASKS)}")
    module = importlib.import_module(f"elmokit.tasks.{MODULES.get(name, f'models.{name}')}")
    task: Task = module.TASKS[name] if hasattr(module, "TASKS") else module.TASK
    return task
