"""The state of a training run on disk: tensors in safetensors, metadata in JSON, no pickle.

A checkpoint is a folder `step-N` that appears whole or not at all; the last two are kept. It holds
everything that the next step depends on: weights, optimizer state, and the position in the data.
Random numbers need no state, because each step derives them from the seed and its index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from elmokit.errors import ElmokitError, reason_of
from elmokit.io.atomic import atomic_folder, remove_files
from elmokit.io.jsonfile import as_json, read_json

KEPT = 2
FILES = TENSORS, METADATA = "state.safetensors", "state.json"
_NAME = re.compile(r"step-(\d+)")


def checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints of a folder, the oldest first."""
    matches = [(int(m[1]), p) for p in folder.glob("step-*") if (m := _NAME.fullmatch(p.name))]
    return [path for _, path in sorted(matches)]


def save(
    folder: Path,
    step: int,
    metadata: dict[str, Any],
    *,
    model: nn.Module,
    optimizer: Optimizer,
    extra: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the checkpoint `step-N` and remove all but the last two.

    `extra` has more tensors, under names that begin with neither "model." nor "optimizer.".
    """
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    names = _parameter_names(model, optimizer)
    for index, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            tensors[f"optimizer.{key}.{names[index]}"] = torch.as_tensor(value)
    tensors |= extra or {}
    with atomic_folder(folder / f"step-{step:08d}", replace=FILES) as making:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, making / TENSORS)
        (making / METADATA).write_text(as_json(metadata), encoding="utf-8")
    remove_old(folder)


def remove_old(folder: Path, *, kept: int = KEPT) -> None:
    """Remove all but the last checkpoints; a run that was killed may have left more than two."""
    for old in checkpoints(folder)[: -kept or None]:
        remove_files(old, FILES)


def remove_all(folder: Path) -> None:
    """Remove all checkpoints of a run, and their folder if it is then empty."""
    remove_old(folder, kept=0)
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def reading(checkpoint: Path) -> Iterator[dict[str, Any]]:
    """Yield the metadata of a checkpoint; errors in the block say that it is damaged."""
    try:
        yield read_json(checkpoint / METADATA)
    except ElmokitError:
        raise
    except Exception as error:
        raise ElmokitError(
            f"{checkpoint} cannot be read ({reason_of(error)}): remove it to resume from the one "
            "before"
        ) from error


def restore(checkpoint: Path, *, model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Load weights and optimizer state, in a block of `reading`; return all tensors."""
    tensors = load_file(checkpoint / TENSORS)
    weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    model.load_state_dict(weights)
    names = _parameter_names(model, optimizer)
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, kind, name = key.split(".", 2)
            state.setdefault(names.index(name), {})[kind] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return tensors


def _parameter_names(model: nn.Module, optimizer: Optimizer) -> list[str]:
    """Return the names of an optimizer's parameters, in the optimizer's order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
