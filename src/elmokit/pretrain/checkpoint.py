"""The model and the LSTM states of a pretraining run, beside what every run saves.

The rest of a checkpoint is in `elmokit.training.checkpoint`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.formats import native
from elmokit.formats.checkpoint import Checkpoint
from elmokit.io.atomic import sync
from elmokit.model.bilm import BiLMState
from elmokit.training import checkpoint as training
from elmokit.training.checkpoint import checkpoints, restore
from elmokit.training.checkpoint import read_metadata as facts_of

__all__ = ["checkpoints", "facts_of", "publish", "restore", "save", "state_of"]


def save(
    folder: Path,
    step: int,
    metadata: dict[str, Any],
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: BiLMState,
) -> None:
    """Write a checkpoint that also has the LSTM states."""
    extra = _state_tensors(state)
    training.save(folder, step, metadata, model=model, optimizer=optimizer, extra=extra)


def publish(model: Checkpoint, folder: Path) -> None:
    """Make a model the one that `elmokit.load(folder)` gives, file by file.

    The three of them together are in `training/best` before.
    """
    best = folder / "training" / "best"
    native.write(model, best, overwrite=True)
    for name in (native.WEIGHTS, native.VOCABULARY, native.CONFIG):
        making = folder / f".{name}.part"
        making.unlink(missing_ok=True)
        shutil.copyfile(best / name, making)
        sync(making)
        making.replace(folder / name)


def _state_tensors(state: BiLMState) -> dict[str, Tensor]:
    return {
        f"state.{way}.{layer}.{name}": tensor
        for way, layers in (("forward", state.forward), ("backward", state.backward))
        for layer, pair in enumerate(layers)
        for name, tensor in zip("hc", pair, strict=True)
    }


def state_of(tensors: dict[str, Tensor], layers: int, device: torch.device) -> BiLMState:
    """The LSTM states among a checkpoint's tensors."""
    ways = (
        [
            (
                tensors[f"state.{way}.{layer}.h"].to(device),
                tensors[f"state.{way}.{layer}.c"].to(device),
            )
            for layer in range(layers)
        ]
        for way in ("forward", "backward")
    )
    return BiLMState(*ways)
