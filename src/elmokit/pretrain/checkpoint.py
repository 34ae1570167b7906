"""What pretraining saves beside weights and optimizer: LSTM states, and the model to load."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import Tensor

from elmokit.formats import native
from elmokit.formats.checkpoint import Checkpoint
from elmokit.io.atomic import atomic_file
from elmokit.model.bilm import BiLMState


def publish(model: Checkpoint, folder: Path) -> None:
    """Make a model the one that `elmokit.load(folder)` returns, replacing file by file.

    If this is interrupted, the complete model is in `training/best`.
    """
    best = folder / "training" / "best"
    native.write(model, best, overwrite=True)
    for name in (native.WEIGHTS, native.VOCABULARY, native.CONFIG):
        with (
            (best / name).open("rb") as source,
            atomic_file(folder / name) as target,
        ):
            shutil.copyfileobj(source, target)


def state_tensors(state: BiLMState) -> dict[str, Tensor]:
    """Return the LSTM states under the names that they have in a checkpoint."""
    return {
        f"state.{direction}.{layer}.{name}": tensor
        for direction, layers in (("forward", state.forward), ("backward", state.backward))
        for layer, pair in enumerate(layers)
        for name, tensor in zip("hc", pair, strict=True)
    }


def read_state(tensors: dict[str, Tensor], num_layers: int, device: torch.device) -> BiLMState:
    """Return the LSTM states among the tensors of a checkpoint."""
    directions = (
        [
            (
                tensors[f"state.{direction}.{layer}.h"].to(device),
                tensors[f"state.{direction}.{layer}.c"].to(device),
            )
            for layer in range(num_layers)
        ]
        for direction in ("forward", "backward")
    )
    return BiLMState(*directions)
