"""From raw text to a trained biLM: corpus ─► windows ─► loss in both directions ─► checkpoint.

`pretrain`, `adapt` and `evaluate` are what the commands of these names call. Torch is imported when
one of them is first used.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from elmokit.errors import ElmokitError
from elmokit.pretrain.settings import AdaptSettings, PretrainSettings

if TYPE_CHECKING:
    from elmokit.pretrain.adaptation import adapt
    from elmokit.pretrain.evaluation import evaluate
    from elmokit.pretrain.train import pretrain

__all__ = [
    "AdaptSettings", "OtherProcessFailed", "PretrainSettings", "adapt", "evaluate", "pretrain",
]  # fmt: skip

MODULES = {"adapt": "adaptation", "evaluate": "evaluation", "pretrain": "train"}


class OtherProcessFailed(ElmokitError):
    """Another process of the same run has failed and reports the error."""


if not TYPE_CHECKING:  # A type checker would accept any misspelled name.

    def __getattr__(name: str) -> object:
        if name not in MODULES:
            raise AttributeError(f"module 'elmokit.pretrain' has no attribute {name!r}")
        # OpenMP reads this once, when torch is imported. By default its threads spin for long
        # while they wait, which makes training several times slower as soon as anything else runs
        # on the machine; OMP_WAIT_POLICY=passive wakes them thousands of times per step.
        if name != "evaluate":
            os.environ.setdefault("GOMP_SPINCOUNT", "20000")
        return getattr(import_module(f"elmokit.pretrain.{MODULES[name]}"), name)
