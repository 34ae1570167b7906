"""What a task is: plain functions that read, learn, score and write, and the table of all tasks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from torch import Tensor

from elmokit.errors import ElmokitError

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.data.labelled import BadLines
    from elmokit.tasks.layers.embedder import Inputs
    from elmokit.tasks.settings import Settings

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
# The modules of tasks that are not `elmokit.tasks.models.<task>`.
MODULES = {"translate": "seq2seq.model", "summarize": "seq2seq.model"}


class TaskModel(Protocol):
    """What training asks of a task's `nn.Module`."""

    def loss(self, batch: Sequence[Any]) -> Tensor:
        """The mean loss of some examples: a number."""
        ...

    def predict(self, batch: Sequence[Any]) -> list[Any]:
        """What the model says of each example; JSON takes it."""
        ...


@dataclass(frozen=True)
class Task:
    """One kind of task, from its files to its scores."""

    name: TaskName
    read: Callable[[str, Settings, BadLines, bool], Iterator[Any]]
    """Examples of a file; the last argument says whether it must have the answers."""
    learn: Callable[[Sequence[Any], Settings], dict[str, Any]]
    """What is fixed by the training examples, such as the labels; JSON takes it."""
    model: Callable[[Inputs, Settings, dict[str, Any]], Any]
    """A new model, an `nn.Module` that is a TaskModel."""
    score: Callable[[Sequence[Any], Sequence[Any]], dict[str, float]]
    """Scores from 0 to 1 of predictions for examples whose answers are known; early stopping
    watches the first."""
    write: Callable[[Sequence[Any], Sequence[Any]], Iterator[str]]
    """The text of a file of predictions, piece by piece."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that suit this task, where none are given."""


def find_task(name: str) -> Task:
    """The task of that name; its module is imported only now."""
    if name not in TASKS:
        raise ElmokitError(f"there is no task {name!r}: it may be one of {', '.join(TASKS)}")
    module = importlib.import_module(f"elmokit.tasks.{MODULES.get(name, f'models.{name}')}")
    task: Task = module.TASKS[name] if hasattr(module, "TASKS") else module.TASK
    return task
