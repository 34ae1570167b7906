"""Task models of AllenNLP that contain an ELMo: its biLM and its trained scalar mixes.

    config.json    has an entry with `options_file`, often a path on another computer
    weights.th     state dict of the whole task model; best.th in a folder that was not packed
    fta/           the files that the configuration names, in older archives
    vocabulary/    of the task, not of the ELMo

Names in the state dict, after a prefix such as `text_field_embedder.token_embedder_elmo._elmo.`,
and our names for them:

    _elmo_lstm._token_embedder._char_embedding_weights             characters; row 0 is padding
    _elmo_lstm._token_embedder.char_conv_0.{weight, bias}          convolutions.0
    _elmo_lstm._token_embedder._highways._layers.0.{weight, bias}  transform, minus the gate
    _elmo_lstm._token_embedder._projection.{weight, bias}          projection
    _elmo_lstm._elmo_lstm.forward_layer_0.input_linearity.weight   input_weight
    _elmo_lstm._elmo_lstm.forward_layer_0.state_linearity.weight   recurrent_weight
    _elmo_lstm._elmo_lstm.forward_layer_0.state_linearity.bias     bias, including the forget bias
    _elmo_lstm._elmo_lstm.forward_layer_0.state_projection.weight  projection
    scalar_mix_0.gamma, scalar_mix_0.scalar_parameters.0           the first mix, its layer 0

ELMoForManyLangs copied these modules, so that gates and highway layers are stored alike: the rows
here are those of `many_langs.py` under other names.
"""

from __future__ import annotations

import ntpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.config import BiLMConfig
from elmokit.errors import UnsupportedFormat
from elmokit.formats import bilm, many_langs
from elmokit.formats.checkpoint import Checkpoint, Tensors
from elmokit.formats.containers import state_dict
from elmokit.formats.weight_map import Array, Row, padded, read_rows
from elmokit.io.jsonfile import read_json
from elmokit.io.paths import file_inside

CONFIG, WEIGHTS = "config.json", ("weights.th", "best.th")
BILM = "_elmo_lstm."
CHARACTER_TABLE = "_token_embedder._char_embedding_weights"
CACHED_WORDS = "_word_embedding.weight"  # of vocab_to_cache, computed from the other tensors
MIX = re.compile(r"scalar_mix_(\d{1,4})\.(?:gamma|scalar_parameters\.(\d{1,4}))")
RENAMED = {  # prefixes of names: many_langs, AllenNLP
    many_langs.CHARACTER_TABLE: CHARACTER_TABLE,
    "convolutions.": "_token_embedder.char_conv_",
    "highways.": "_token_embedder._highways.",
    "projection.": "_token_embedder._projection.",
}
INFERRED = "inferred from the weights; activation, clips and max_characters as published"


# ---------------------------------------------------------------------- names
def rows(config: BiLMConfig) -> list[Row]:
    """Return the map of every tensor after `_elmo_lstm.` for a configuration."""
    layers = (
        _with_forget_bias(row, config.forget_bias) if row.theirs.endswith(".bias") else row
        for row in many_langs.layer_rows(config)
    )
    return [
        *map(_renamed, many_langs.token_rows(config)),
        *(row._replace(theirs=f"_elmo_lstm.{row.theirs}") for row in layers),
    ]


def _renamed(row: Row) -> Row:
    old, new = next(pair for pair in RENAMED.items() if row.theirs.startswith(pair[0]))
    row = row._replace(theirs=new + row.theirs.removeprefix(old))
    return padded(row) if row.theirs == CHARACTER_TABLE else row


def _with_forget_bias(row: Row, forget_bias: float) -> Row:
    """Add the constant of the forget gate, the second of ours, to their bias."""
    by_gate = np.array([[0], [forget_bias], [0], [0]], np.float32)

    def read(array: Array) -> tuple[Array, ...]:
        (bias,) = row.read(array)
        return ((bias.reshape(4, -1) - by_gate).reshape(-1),)

    def write(array: Array) -> Array:
        return row.write((array.reshape(4, -1) + by_gate).reshape(-1))

    return row._replace(read=read, write=write)


# ---------------------------------------------------------------------- reading
def read(folder: Path) -> Checkpoint:
    """Read the ELMo of a task model."""
    path = next(folder / name for name in WEIGHTS if (folder / name).is_file())
    settings = read_json(folder / CONFIG)

    def of_elmo(names: list[str]) -> list[str]:
        prefix = _find_prefix(names, path)
        return [n for n in names if n.startswith((prefix + BILM, f"{prefix}scalar_mix_"))]

    def is_other(entry: tuple[str, object]) -> bool:
        return f"token_embedder_{entry[0].rpartition('.')[2]}." not in prefix

    stored = state_dict.read(path, choose=of_elmo)
    prefix = _find_prefix(list(stored), path)
    # First the entry whose path, such as `token_embedders.elmo`, matches `token_embedder_elmo.`.
    entries = sorted(_entries(settings), key=is_other)
    of_bilm = {name: array for name, array in stored.items() if name.startswith(prefix + BILM)}
    of_bilm.pop(prefix + BILM + CACHED_WORDS, None)
    tensors = {name.removeprefix(prefix + BILM): array for name, array in of_bilm.items()}
    options, origin = _find_options(folder, entries) or (_options_of(tensors, path), INFERRED)
    # bilm.config_of looks for these datasets: AllenNLP always projects tokens and states.
    projections = {"CNN_proj/W_proj": (), f"{bilm.CELL.format(0, 0)}/W_P_0": ()}
    config = bilm.config_of(options, projections, folder / CONFIG)
    normed = bool(entries) and entries[0][1].get("do_layer_norm") is True
    mixes = _mixes(stored, prefix, config.num_layers + 1, normed, path)
    metadata = {"options": options, "configuration": origin, "scalar_mixes": mixes}
    table = (row._replace(theirs=prefix + BILM + row.theirs) for row in rows(config))
    shapes, known_by = {name: a.shape for name, a in of_bilm.items()}, "the ELMo's options"
    ours = read_rows(table, shapes, stored.__getitem__, path, known_by=known_by)
    return Checkpoint(config, ours, metadata=metadata, source=str(folder), format="allennlp")


def _find_prefix(names: list[str], path: Path) -> str:
    ending = BILM + CHARACTER_TABLE
    prefixes = [name.removesuffix(ending) for name in names if name.endswith(ending)]
    if not prefixes:
        raise UnsupportedFormat(f"{path} is a task model without an ELMo on characters")
    if len(prefixes) > 1:
        shown = ", ".join(repr(prefix.rstrip(".")) for prefix in prefixes[:5])
        raise UnsupportedFormat(f"{path} contains {len(prefixes)} ELMos instead of one: {shown}")
    return prefixes[0]


def _entries(settings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every part of a configuration that names options, with its dotted path."""
    waiting: list[tuple[str, Any]] = [("", settings)]
    while waiting:
        path, part = waiting.pop(0)
        if not isinstance(part, dict):
            continue
        if isinstance(part.get("options_file"), str):
            yield path, part
        waiting += [(f"{path}.{key}".lstrip("."), value) for key, value in part.items()]


def _find_options(
    folder: Path, entries: list[tuple[str, Mapping[str, Any]]]
) -> tuple[dict[str, Any], str] | None:
    """Return the options that the configuration names, and their file name; None if not found."""
    for path, entry in entries:
        named = entry["options_file"]
        name = ntpath.basename(named)  # ntpath splits at both kinds of slashes.
        if file := file_inside(folder, f"fta/{path}.options_file", named, name):
            return read_json(file), name
    return None


def _options_of(tensors: Tensors, path: Path) -> dict[str, Any]:
    """Infer the options from the shapes; take the rest from what all published models share."""

    def shape(name: str, dimensions: int) -> tuple[int, ...]:
        if name not in tensors or tensors[name].ndim != dimensions:
            raise UnsupportedFormat(f"{path} lacks {BILM + name!r} with {dimensions} dimensions")
        return tensors[name].shape

    def count(pattern: str) -> int:
        return sum(re.fullmatch(pattern, name) is not None for name in tensors)

    encoder = "_token_embedder."
    filters = []
    for i in range(count(rf"{encoder}char_conv_\d+\.weight")):
        size, _, width = shape(f"{encoder}char_conv_{i}.weight", 3)
        filters.append([width, size])
    size, cells = shape("_elmo_lstm.forward_layer_0.state_projection.weight", 2)
    layers = count(r"_elmo_lstm\.forward_layer_\d+\.state_projection\.weight")
    lstm = {"dim": cells, "projection_dim": size, "n_layers": layers}
    highways = count(rf"{encoder}_highways\._layers\.\d+\.weight")
    table = {"dim": shape(CHARACTER_TABLE, 2)[1]}
    cnn = {"embedding": table, "filters": filters, "n_highway": highways}
    return bilm.published_options(lstm, cnn)


def _mixes(
    stored: Tensors, prefix: str, num_layers: int, normed: bool, path: Path
) -> list[dict[str, Any]]:
    """Return the trained mixes as metadata: gamma, and the weight of each layer before softmax."""
    mixes: dict[int, dict[int, float]] = {}  # mix: layer: weight, with gamma as layer -1
    for name, array in stored.items():
        if match := MIX.fullmatch(name.removeprefix(prefix)):
            if array.size != 1 or not np.isfinite(array).all():
                raise UnsupportedFormat(f"{path}: the tensor {name!r} is not one finite number")
            mixes.setdefault(int(match[1]), {})[int(match[2] or -1)] = float(array.item())
    for mix in mixes.values():
        if sorted(mix) != list(range(-1, num_layers)):
            raise UnsupportedFormat(f"{path}: a scalar mix needs {num_layers} weights and a gamma")
    return [
        {"weights": [mix[k] for k in range(num_layers)], "gamma": mix[-1], "layer_norm": normed}
        for _, mix in sorted(mixes.items())
    ]
