"""The bilm-tf / AllenNLP format: `options.json` and `weights.hdf5`, both ways.

    options.json    sizes and switches
    weights.hdf5    the datasets of `rows` below; a softmax in it is rare
    vocab.txt       a word a line, where the model is on words or has a softmax; also vocab.txt.gz
    meta.json       in archives of the NLPL repository, what is known of the model

Files of the training script say 261 characters, files for prediction 262: the tensor has 261 rows
either way. Highway layers, the token projection and the state projection may each be missing. A
model on words has `embedding`, a row for each line of its vocabulary, perhaps after one for
padding, in place of the tensors of characters. A file with `embedding` alone is another format:
see `token_vectors.py`.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.containers.hdf5 import open_hdf5, read_dataset, shapes_of
from elmokit.formats.model_folder import new_model_folder, published_metadata
from elmokit.formats.weight_map import Array, Row, Shape, read_rows, same, transposed, write_rows
from elmokit.io.jsonfile import read_json
from elmokit.text.vocabulary import Vocabulary

SUFFIXES = (".hdf5", ".h5")
OPTIONS, WEIGHTS, VOCABULARY = "options.json", "weights.hdf5", "vocab.txt"
TABLE = "embedding"
CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell"  # direction, layer
CHARACTERS = 261


# ---------------------------------------------------------------------- names
def rows(config: BiLMConfig) -> list[Row]:
    """Every dataset of `weights.hdf5` for a model of this configuration."""
    words, size = config.vocabulary_size, config.projection_dim
    on_words = [same(TABLE, (config.n_words, size), "token_encoder.words")]
    table = on_words if config.token_encoder == "words" else _character_rows(config)
    for way in (0, 1):
        for layer in range(config.num_layers):
            table += _lstm_rows(config, way, layer)
    if words:
        table.append(same("softmax/W", (words, size), "softmax.weight"))
        table.append(same("softmax/b", (words,), "softmax.bias"))
    return table


def _character_rows(config: BiLMConfig) -> list[Row]:
    n, size, dim = config.n_filters, config.projection_dim, config.character_dim
    table = [same("char_embed", (config.n_characters, dim), "characters")]
    for i, (width, number) in enumerate(config.filters):
        table.append(_convolution(i, (1, width, dim, number)))
        table.append(same(f"CNN/b_cnn_{i}", (number,), f"convolutions.{i}.bias"))
    for k in range(config.highway_layers):
        for theirs, ours in (("carry", "gate"), ("transform", "transform")):
            weight, bias = (f"highways.{k}.{ours}.{part}" for part in ("weight", "bias"))
            table.append(transposed(f"CNN_high_{k}/W_{theirs}", (n, n), weight))
            table.append(same(f"CNN_high_{k}/b_{theirs}", (n,), bias))
    if config.project_tokens:
        table.append(transposed("CNN_proj/W_proj", (n, size), "projection.weight"))
        table.append(same("CNN_proj/b_proj", (size,), "projection.bias"))
    return [row._replace(ours=(f"token_encoder.{row.ours[0]}",)) for row in table]


def _convolution(number: int, shape: Shape) -> Row:
    """[1, width, characters, filters] to [filters, characters, width]."""
    return Row(
        f"CNN/W_cnn_{number}",
        shape,
        (f"convolutions.{number}.weight",),
        lambda array: (array[0].transpose(2, 1, 0),),
        lambda array: array.transpose(2, 1, 0)[None],
    )


def _lstm_rows(config: BiLMConfig, way: int, layer: int) -> list[Row]:
    """W_0, [input + recurrent, 4 cells], is two matrices [4 cells, size] with us."""
    theirs, ours = CELL.format(way, layer), f"{('forward', 'backward')[way]}_layers.{layer}"
    cells, size = config.lstm_dim, config.projection_dim

    def read(array: Array) -> tuple[Array, ...]:
        ordered = _gates(array, _TO_OURS)
        return ordered[:size].T, ordered[size:].T

    def write(from_input: Array, recurrent: Array) -> Array:
        return _gates(np.concatenate([from_input.T, recurrent.T]), _TO_THEIRS)

    both = (f"{ours}.input_weight", f"{ours}.recurrent_weight")
    bias = same(f"{theirs}/B", (4 * cells,), f"{ours}.bias")._replace(
        read=lambda array: (_gates(array, _TO_OURS),),
        write=lambda array: _gates(array, _TO_THEIRS),
    )
    table = [Row(f"{theirs}/W_0", (2 * size, 4 * cells), both, read, write), bias]
    if config.project_state:
        table.append(transposed(f"{theirs}/W_P_0", (cells, size), f"{ours}.projection"))
    return table


# They order the gates input, memory, forget, output; we input, forget, output, memory.
_TO_OURS, _TO_THEIRS = (0, 2, 3, 1), (0, 3, 1, 2)


def _gates(array: Array, order: tuple[int, ...]) -> Array:
    """Reorder four blocks of columns (or of a vector)."""
    blocks = np.split(array, 4, axis=-1)
    return np.concatenate([blocks[k] for k in order], axis=-1)


# ---------------------------------------------------------------------- reading
def read(weights: Path, options_file: Path | None = None) -> Checkpoint:
    """Read an HDF5 file of weights and the files that belong to it."""
    with open_hdf5(weights) as file:
        shapes = shapes_of(file, weights)
        options_file = options_file or find_options(weights)
        options = read_json(options_file)
        config = config_of(options, shapes, options_file)
        tensors = read_rows(
            rows(config),
            shapes,
            lambda name: read_dataset(file, name, weights),
            weights,
            kind="dataset",
        )
    vocabulary = vocabulary_of(find_vocabulary(weights.parent), config)
    metadata = {"options": options, **published_metadata(weights.parent)}
    found = Checkpoint(config, tensors, vocabulary, metadata, str(weights), "bilm")
    return without_padding(found, options.get("n_tokens_vocab"))


def without_padding(found: Checkpoint, words: object = None) -> Checkpoint:
    """Without the row for padded words, which some tables have before all others.

    `words` is the number of rows that the options give, if they do.
    """
    name, number = "token_encoder.words", found.config.n_words
    if found.config.token_encoder != "words" or len(found.vocabulary or []) != number - 1:
        return found
    table = found.tensors[name]
    if words == number and table[0].any():  # then it is the vocabulary that lacks a word
        return found
    config = replace(found.config, n_words=number - 1)
    return replace(found, config=config, tensors={**found.tensors, name: table[1:].copy()})


def find_options(weights: Path) -> Path:
    """The file that differs from the weights in that word only, or the only one there is."""
    named = [weights.stem.replace("weights", "options") + ".json", OPTIONS]
    for candidate in map(weights.with_name, named):
        if candidate.is_file():
            return candidate
    others = sorted(weights.parent.glob("*options*.json"))
    if len(others) == 1:
        return others[0]
    if others:
        names = ", ".join(file.name for file in others)
        raise ElmokitError(f"which of {names} belongs to {weights}? Name it {named[0]}")
    raise ElmokitError(f"there is no options.json beside {weights}; the two files belong together")


def config_of(options: Mapping[str, Any], shapes: Mapping[str, Shape], path: Path) -> BiLMConfig:
    """Our configuration; what the options leave open is read off the datasets."""
    try:
        lstm = options["lstm"]
        values = {
            "lstm_dim": lstm["dim"],
            "projection_dim": lstm["projection_dim"],
            "num_layers": lstm["n_layers"],
            "cell_clip": lstm.get("cell_clip") or 0.0,
            "projection_clip": lstm.get("proj_clip") or 0.0,
            "skip_connections": lstm.get("use_skip_connections") or False,
            "dropout": options.get("dropout", 0.1),
        }
        if "char_cnn" in options:
            values |= _character_values(options["char_cnn"], path)
        else:
            values |= {"token_encoder": "words", "n_words": shapes[TABLE][0]}
        if "softmax/W" in shapes:
            values["vocabulary_size"] = shapes["softmax/W"][0]
    except KeyError as error:
        raise ElmokitError(f"{path} (or the weights beside it) lacks {error.args[0]!r}") from None
    except (TypeError, AttributeError, IndexError):
        raise ElmokitError(f"{path} does not have the layout of a bilm options file") from None
    try:
        config = BiLMConfig.from_dict(values)
    except ElmokitError as error:
        raise ElmokitError(f"{path}: {error}") from None
    return replace(  # a projection may be missing where it would change no size
        config,
        project_tokens="CNN_proj/W_proj" in shapes or config.n_filters != config.projection_dim,
        project_state=f"{CELL.format(0, 0)}/W_P_0" in shapes
        or config.lstm_dim != config.projection_dim,
    )


def _character_values(cnn: Mapping[str, Any], path: Path) -> dict[str, Any]:
    number = cnn.get("n_characters", CHARACTERS + 1)
    if number not in (CHARACTERS, CHARACTERS + 1):
        raise ElmokitError(f"{path}: n_characters must be 261 or 262, not {reprlib.repr(number)}")
    return {
        "character_dim": cnn["embedding"]["dim"],
        "filters": cnn["filters"],
        "activation": cnn.get("activation", "relu"),
        "highway_layers": cnn.get("n_highway") or 0,
        "max_characters": cnn.get("max_characters_per_token", 50),
    }


def find_vocabulary(folder: Path) -> Path:
    """`vocab.txt`, packed or not, else the only file that is called a vocabulary.

    Where there is none, or no saying which, it is the `vocab.txt` that there should be.
    """
    named = [folder / VOCABULARY, folder / f"{VOCABULARY}.gz"]
    if found := [path for path in named if path.is_file()]:
        return found[0]
    others = _vocabularies(folder)
    return others[0] if len(others) == 1 else named[0]


def _vocabularies(folder: Path) -> list[Path]:
    found = sorted([*folder.glob("*vocab*.txt"), *folder.glob("*vocab*.txt.gz")])
    return [path for path in found if not path.name.startswith(".")]  # ._* is macOS's


def vocabulary_of(path: Path, config: BiLMConfig) -> list[str] | None:
    """The words of a vocabulary file, where there is one and a tensor refers to it."""
    if not path.is_file():
        if config.token_encoder == "words":
            names = ", ".join(file.name for file in _vocabularies(path.parent))
            others = f"; name the one of {names} that it is so" if names else ""
            raise ElmokitError(f"a model on words needs its vocabulary: there is no {path}{others}")
        return None
    if not config.vocabulary_size and config.token_encoder == "characters":
        return None  # a word list that no tensor of this model refers to
    return Vocabulary.read(path).words


# ---------------------------------------------------------------------- writing
def write(checkpoint: Checkpoint, folder: Path, *, overwrite: bool = False) -> None:
    """Write `options.json`, `weights.hdf5` and, with a vocabulary, `vocab.txt` as a new folder."""
    import h5py

    config = checkpoint.config
    if config.token_encoder == "unicode":
        raise ElmokitError("the bilm format has no dictionaries of Unicode characters and words")
    if config.forget_bias != 1.0:
        raise ElmokitError(
            f"the bilm format has a forget bias of 1.0, this model has {config.forget_bias}"
        )
    if config.token_encoder == "characters" and config.n_characters != CHARACTERS:
        raise ElmokitError(
            f"the bilm format has {CHARACTERS} characters, this model has {config.n_characters}"
        )
    with new_model_folder(folder, overwrite=overwrite) as making:
        (making / OPTIONS).write_text(json.dumps(_options(config), indent=2) + "\n")
        with h5py.File(making / WEIGHTS, "w") as file:
            for name, array in write_rows(rows(config), checkpoint.tensors):
                file.create_dataset(name, data=array)
        if checkpoint.vocabulary is not None:
            text = Vocabulary(checkpoint.vocabulary).text()
            (making / VOCABULARY).write_text(text, encoding="utf-8", newline="")


def _options(config: BiLMConfig) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bidirectional": True,
        "dropout": config.dropout,
        "lstm": {
            "cell_clip": config.cell_clip or None,  # to bilm-tf, 0 would be a clip
            "dim": config.lstm_dim,
            "n_layers": config.num_layers,
            "proj_clip": config.projection_clip or None,
            "projection_dim": config.projection_dim,
            "use_skip_connections": config.skip_connections,
        },
    }
    if config.vocabulary_size or config.n_words:
        options["n_tokens_vocab"] = config.vocabulary_size or config.n_words
    if config.token_encoder == "characters":
        options["char_cnn"] = {
            "activation": config.activation,
            "embedding": {"dim": config.character_dim},
            "filters": [list(pair) for pair in config.filters],
            "max_characters_per_token": config.max_characters,
            "n_characters": CHARACTERS + 1,
            "n_highway": config.highway_layers,
        }
    return options
