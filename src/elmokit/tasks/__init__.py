"""Task models with and without ELMo: the last step of the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.cli.tasks import predict, score, train
    from elmokit.tasks.folder import TrainedTask, load_task

__all__ = ["TrainedTask", "load_task", "predict", "score", "train"]

# public name: the module that defines it
MODULES = {
    "TrainedTask": "elmokit.tasks.folder",
    "load_task": "elmokit.tasks.folder",
    "predict": "elmokit.cli.tasks",
    "score": "elmokit.cli.tasks",
    "train": "elmokit.cli.tasks",
}

if not TYPE_CHECKING:  # a type checker would take any misspelt name for granted

    def __getattr__(name: str) -> object:
        import importlib

        if name not in MODULES:
            raise AttributeError(f"module 'elmokit.tasks' has no attribute {name!r}")
        return getattr(importlib.import_module(MODULES[name]), name)
