"""Task models with and without ELMo: the last step of the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.tasks.folder import TrainedTask, load_task
    from elmokit.tasks.run import Predictions, Scores, TrainResult, predict, score, train
    from elmokit.tasks.settings import RunOptions

__all__ = [
    "Predictions", "RunOptions", "Scores", "TrainResult", "TrainedTask", "load_task", "predict",
    "score", "train",
]  # fmt: skip

if not TYPE_CHECKING:  # A type checker would accept any misspelled name.

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'elmokit.tasks' has no attribute {name!r}")
        from elmokit.tasks import folder, run  # They import torch.

        return getattr(run if hasattr(run, name) else folder, name)
