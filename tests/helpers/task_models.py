"""Task models of AllenNLP around the reference's weights, written with nothing of elmokit."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference import CELL, Reference

PREFIX = "text_field_embedder.token_embedder_elmo._elmo."
MIXES = [([0.5, -0.25, 0.125], 0.75), ([-1.0, 0.0, 2.0], 1.5)]  # weights, gamma

Tensors = dict[str, np.ndarray]


def elmo_tensors(reference: Reference) -> Tensors:
    """The reference's arrays as AllenNLP's ELMo has them."""
    stored, encoder = reference.stored, "_elmo_lstm._token_embedder."
    characters = np.pad(stored["char_embed"], ((1, 0), (0, 0)))  # id 0 is a padded word's
    tensors = {f"{encoder}_char_embedding_weights": characters}
    cnn = reference.options["char_cnn"]
    for i in range(len(cnn["filters"])):
        kernel = stored[f"CNN/W_cnn_{i}"][0]  # (width, char_dim, filters)
        tensors[f"{encoder}char_conv_{i}.weight"] = kernel.transpose(2, 1, 0)
        tensors[f"{encoder}char_conv_{i}.bias"] = stored[f"CNN/b_cnn_{i}"]
    for k in range(cnn["n_highway"]):
        high = f"CNN_high_{k}/"
        for part, name in (("W", "weight"), ("b", "bias")):
            both = [stored[f"{high}{part}_transform"].T, -stored[f"{high}{part}_carry"].T]
            tensors[f"{encoder}_highways._layers.{k}.{name}"] = np.concatenate(both)
    tensors[f"{encoder}_projection.weight"] = stored["CNN_proj/W_proj"].T
    tensors[f"{encoder}_projection.bias"] = stored["CNN_proj/b_proj"]
    for way, name in enumerate(("forward", "backward")):
        for layer in range(reference.layers):
            tensors |= layer_tensors(reference, way, layer, f"{name}_layer_{layer}")
    return {name: np.ascontiguousarray(array) for name, array in tensors.items()}


def layer_tensors(reference: Reference, way: int, layer: int, name: str) -> Tensors:
    """One LSTM: gates input, forget, memory, output, and 1 in the forget gate's bias."""
    weight, bias, projection = (
        reference.stored[CELL.format(way=way, layer=layer, part=part)]
        for part in ("W_0", "B", "W_P_0")
    )
    i, j, f, o = np.split(weight.T, 4)
    gates = np.concatenate([i, f, j, o])
    b_i, b_j, b_f, b_o = np.split(bias, 4)
    place, size = f"_elmo_lstm._elmo_lstm.{name}", reference.size
    return {
        f"{place}.input_linearity.weight": gates[:, :size],
        f"{place}.state_linearity.weight": gates[:, size:],
        f"{place}.state_linearity.bias": np.concatenate([b_i, b_f + 1, b_j, b_o]),
        f"{place}.state_projection.weight": projection.T,
    }


def mix_tensors() -> Tensors:
    """The trained mixes."""
    tensors = {}
    for k, (weights, gamma) in enumerate(MIXES):
        tensors[f"scalar_mix_{k}.gamma"] = np.array([gamma], np.float32)
        for j, weight in enumerate(weights):
            tensors[f"scalar_mix_{k}.scalar_parameters.{j}"] = np.array([weight], np.float32)
    return tensors


def state_of(reference: Reference, prefix: str = PREFIX) -> dict[str, torch.Tensor]:
    """The state dict of a task model: its ELMo and what else a tagger has."""
    arrays = elmo_tensors(reference) | mix_tensors()
    state = {prefix + name: torch.from_numpy(array) for name, array in arrays.items()}
    rest = torch.nn.ModuleDict({"encoder": torch.nn.LSTM(12, 4), "norm": torch.nn.BatchNorm1d(4)})
    return {**rest.state_dict(), **state, "class.weight": torch.arange(4)}


def settings_of(options_file: str = "/nowhere/elmo_options.json", **more: Any) -> dict[str, Any]:
    """The configuration of a tagger."""
    entry = {"type": "elmo_token_embedder", "options_file": options_file, **more}
    embedders = {"tokens": {"type": "embedding"}, "elmo": entry}
    return {
        "dataset_reader": {"type": "conll2003"},
        "model": {"type": "crf_tagger", "text_field_embedder": {"token_embedders": embedders}},
    }


def save_task_model(
    reference: Reference,
    folder: Path,
    *,
    state: dict[str, torch.Tensor] | None = None,
    settings: dict[str, Any] | None = None,
    files: dict[str, Any] | None = None,
) -> Path:
    """A folder as AllenNLP packs it; `files` are JSON objects by their paths in it."""
    (folder / "vocabulary").mkdir(parents=True)
    (folder / "vocabulary" / "labels.txt").write_text("N\nV\n")
    for name, values in ({"config.json": settings or settings_of()} | (files or {})).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(values))
    torch.save(state_of(reference) if state is None else state, folder / "weights.th")
    return folder


def pack(folder: Path, archive: Path) -> Path:
    """The folder's contents as model.tar.gz has them, at the top."""
    with tarfile.open(archive, "w:gz") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, file.name)
    return archive
