"""The state of a training run on the disk: tensors in safetensors, the rest in JSON, no pickle.

A checkpoint is a folder `step-N` that appears whole or not at all; the last two are kept. It holds
everything the next step depends on: weights, optimizer, LSTM states and the position. Random
numbers need no state, as each step's are derived from the seed and its number.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import ElmokitError
from elmokit.formats import native
from elmokit.formats.checkpoint import Checkpoint
from elmokit.io.atomic import atomic_file, atomic_folder
from elmokit.io.jsonfile import read_json
from elmokit.model.bilm import BiLMState

KEPT = 2
TENSORS, FACTS = "state.safetensors", "state.json"
_NAME = re.compile(r"step-(\d+)")


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, the oldest first."""
    found = [(int(m[1]), p) for p in folder.glob("step-*") if (m := _NAME.fullmatch(p.name))]
    return [path for _, path in sorted(found)]


def save(
    folder: Path,
    step: int,
    facts: dict[str, Any],
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: BiLMState | None = None,
) -> None:
    """Write a checkpoint and remove all but the last two."""
    from safetensors.torch import save_file

    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    names = _names(model, optimizer)
    for number, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            tensors[f"optimizer.{key}.{names[number]}"] = torch.as_tensor(value)
    tensors |= {} if state is None else _state_tensors(state)
    with atomic_folder(folder / f"step-{step:08d}", overwrite=True) as making:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, making / TENSORS)
        text = json.dumps(facts, indent=2, ensure_ascii=False)
        (making / FACTS).write_text(text + "\n", encoding="utf-8")
    for old in checkpoints(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def facts_of(path: Path) -> dict[str, Any]:
    """What a checkpoint says about its run."""
    return read_json(path / FACTS)


def restore(path: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Put a checkpoint's weights and optimizer state in place and give all its tensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path / TENSORS)
    except (SafetensorError, OSError) as error:
        raise ElmokitError(
            f"{path} cannot be read ({error}): remove it, and the run goes on from the one before"
        ) from None
    own = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    model.load_state_dict(own)
    names = _names(model, optimizer)
    entries: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, kind, name = key.split(".", 2)
            entries.setdefault(names.index(name), {})[kind] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": entries})
    return tensors


def _names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """The names of an optimizer's parameters, in its own order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]


def publish(model: Checkpoint, folder: Path) -> None:
    """Make a model the one that `elmokit.load(folder)` gives, file by file.

    The three of them together are in `training/best` before.
    """
    best = folder / "training" / "best"
    native.write(model, best, overwrite=True)
    for name in (native.WEIGHTS, native.VOCABULARY, native.CONFIG):
        with (
            (best / name).open("rb") as source,
            atomic_file(folder / name, temporary=folder / f".{name}.part") as target,
        ):
            shutil.copyfileobj(source, target)


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
