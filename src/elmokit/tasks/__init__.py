"""Task models with and without ELMo: the last step of the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.tasks.folder import TrainedTask, load_task
    from elmokit.tasks.plan import TrainResult
    from elmokit.tasks.run import Predictions, Scores, predict, score, train

__all__ = [
    "Predictions",
    "Scores",
    "TrainResult",
    "TrainedTask",
    "load_task",
    "predict",
    "score",
    "train",
]

# public name: the module that defines it
MODULES = {
    "Predictions": "elmokit.tasks.run",
    "Scores": "elmokit.tasks.run",
    "TrainResult": "elmokit.tasks.plan",
    "TrainedTask": "elmokit.tasks.folder",
    "load_task": "elmokit.tasks.folder",
    "predict": "elmokit.tasks.run",
    "score": "elmokit.tasks.run",
    "train": "elmokit.tasks.run",
}

if not TYPE_CHECKING:  # A type checker would accept any misspelled name.

    def __getattr__(name: str) -> object:
        import importlib

        if name not in MODULES:
            raise AttributeError(f"module 'elmokit.tasks' has no attribute {name!r}")
        return getattr(importlib.import_module(MODULES[name]), name)
