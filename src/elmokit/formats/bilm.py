"""The bilm-tf / AllenNLP format, read and written: `options.json` and `weights.hdf5`.

    options.json    sizes and switches
    weights.hdf5    the datasets of `rows` below; few files have a softmax
    vocab.txt       one word per line, for a model on words or with a softmax; also vocab.txt.gz
    meta.json       metadata, in archives of the NLPL repository
    token_vectors.hdf5   `embedding` alone, which bilm-tf cached (`dump_token_embeddings`)

The options of the training script give 261 characters, those for prediction 262; the tensor always
has 261 rows. Highway layers and both projections may each be missing. A model on words has
`embedding` instead of the character tensors, one row for each line of its vocabulary, perhaps after
one for padding. So have token vectors, with the layers (`RNN_…`) of the weights file beside them.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError, MissingFile, UnsupportedFormat, located
from elmokit.formats.checkpoint import Checkpoint, check_fixed, new_model_folder
from elmokit.formats.containers.hdf5 import open_hdf5, read_dataset, shapes_of
from elmokit.formats.weight_map import Array, Row, Shape, read_rows, same, transposed, write_rows
from elmokit.io.jsonfile import read_json
from elmokit.text.vocabulary import Vocabulary

OPTIONS, WEIGHTS, VOCABULARY = "options.json", "weights.hdf5", "vocab.txt"
TABLE = "embedding"
CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell"  # direction, layer
CHARACTERS = 261
FIXED = {"forget_bias": 1.0, "n_characters": CHARACTERS}  # fields that the format cannot store
# The options and our fields for them; ELMoForManyLangs has the same ones.
SIZES = {"dim": "lstm_dim", "projection_dim": "projection_dim", "n_layers": "num_layers"}
CLIPS = {"cell_clip": "cell_clip", "proj_clip": "projection_clip"}
CNN = {"activation": "activation", "filters": "filters", "n_highway": "highway_layers"}
CNN |= {"max_characters_per_token": "max_characters"}


# ---------------------------------------------------------------------- names
def rows(config: BiLMConfig) -> list[Row]:
    """Return the map of every dataset of `weights.hdf5` for a configuration."""
    words, size = config.vocabulary_size, config.projection_dim
    on_words = [same(TABLE, (config.n_words, size), "token_encoder.words")]
    table = on_words if config.token_encoder == "words" else _character_rows(config)
    for direction in (0, 1):
        for layer in range(config.num_layers):
            table += _lstm_rows(config, direction, layer)
    if words:
        table.append(same("softmax/W", (words, size), "softmax.weight"))
        table.append(same("softmax/b", (words,), "softmax.bias"))
    return table


def _character_rows(config: BiLMConfig) -> list[Row]:
    n, size, dim = config.n_filters, config.projection_dim, config.character_dim
    table = [same("char_embed", (config.n_characters, dim), "characters")]
    for i, (width, count) in enumerate(config.filters):
        kernel = same(f"CNN/W_cnn_{i}", (1, width, dim, count), f"convolutions.{i}.weight")
        kernel = kernel._replace(  # to (filters, character_dim, width)
            read=lambda array: (array[0].transpose(2, 1, 0),),
            write=lambda array: array.transpose(2, 1, 0)[None],
        )
        table += [kernel, same(f"CNN/b_cnn_{i}", (count,), f"convolutions.{i}.bias")]
    for k in range(config.highway_layers):
        for theirs, ours in (("carry", "gate"), ("transform", "transform")):
            weight, bias = (f"highways.{k}.{ours}.{part}" for part in ("weight", "bias"))
            table.append(transposed(f"CNN_high_{k}/W_{theirs}", (n, n), weight))
            table.append(same(f"CNN_high_{k}/b_{theirs}", (n,), bias))
    if config.project_tokens:
        table.append(transposed("CNN_proj/W_proj", (n, size), "projection.weight"))
        table.append(same("CNN_proj/b_proj", (size,), "projection.bias"))
    return [row._replace(ours=(f"token_encoder.{row.ours[0]}",)) for row in table]


def _lstm_rows(config: BiLMConfig, direction: int, layer: int) -> list[Row]:
    """Map W_0, (2 size, 4 cells), to input and recurrent weights, (4 cells, size) each."""
    name = ("forward", "backward")[direction]
    theirs, ours = CELL.format(direction, layer), f"{name}_layers.{layer}"
    cells, size = config.lstm_dim, config.projection_dim

    def read(array: Array) -> tuple[Array, ...]:
        ordered = _gates(array, _TO_OURS)
        return ordered[:size].T, ordered[size:].T

    def write(from_input: Array, recurrent: Array) -> Array:
        return _gates(np.concatenate([from_input.T, recurrent.T]), _TO_THEIRS)

    both = (f"{ours}.input_weight", f"{ours}.recurrent_weight")
    bias = same(f"{theirs}/B", (4 * cells,), f"{ours}.bias")._replace(
        read=lambda array: (_gates(array, _TO_OURS),), write=lambda array: _gates(array, _TO_THEIRS)
    )
    table = [Row(f"{theirs}/W_0", (2 * size, 4 * cells), both, read, write), bias]
    if config.project_state:
        table.append(transposed(f"{theirs}/W_P_0", (cells, size), f"{ours}.projection"))
    return table


# Their order of the gates is input, memory, forget, output; ours input, forget, output, memory.
_TO_OURS, _TO_THEIRS = (0, 2, 3, 1), (0, 3, 1, 2)


def _gates(array: Array, order: tuple[int, ...]) -> Array:
    """Reorder four blocks of columns (or of a vector)."""
    blocks = np.split(array, 4, axis=-1)
    return np.concatenate([blocks[k] for k in order], axis=-1)


# ---------------------------------------------------------------------- reading
def read(weights: Path, options_file: Path | None = None) -> Checkpoint:
    """Read an HDF5 file of weights, or of token vectors, and the files that belong to it."""
    with ExitStack() as stack:
        file = stack.enter_context(open_hdf5(weights))
        shapes = shapes_of(file)
        files = dict.fromkeys(shapes, file)
        where, layers_from = str(weights), weights
        if set(shapes) == {TABLE}:  # Token vectors only: the layers are in another file.
            layers_from = _layers_beside(weights)
            where += f" with {layers_from.name}"
            layers = stack.enter_context(open_hdf5(layers_from))
            more = {n: shape for n, shape in shapes_of(layers).items() if n.startswith("RNN_")}
            shapes, files = shapes | more, files | dict.fromkeys(more, layers)
        options_file = options_file or find_options(layers_from)
        options = read_json(options_file)
        used, words = options, options.get("n_tokens_vocab")
        metadata = {"options": options, **published_metadata(weights.parent)}
        if layers_from != weights:
            used, words = {n: value for n, value in options.items() if n != "char_cnn"}, None
            metadata["layers_from"] = layers_from.name
        config = config_of(used, shapes, options_file)
        tensors = read_rows(
            rows(config), shapes, lambda n: read_dataset(files[n], n), where, kind="dataset"
        )
    vocabulary = vocabulary_of(find_vocabulary(weights.parent), config)
    checkpoint = Checkpoint(config, tensors, vocabulary, metadata, str(weights), "bilm")
    return without_padding(checkpoint, words)


def _layers_beside(table: Path) -> Path:
    matches = []
    beside = {*table.parent.glob("[!.]*.hdf5"), *table.parent.glob("[!.]*.h5")}
    for path in sorted(beside - {table}):
        with open_hdf5(path) as file, suppress(OSError, RuntimeError, KeyError, ValueError):
            matches += [path] if "RNN_0" in file else []
    if len(matches) == 1:
        return matches[0]
    only = f"{table} has token vectors only"
    if not matches:
        raise MissingFile(f"{only}: put the weights file of its model beside it")
    names = ", ".join(file.name for file in matches)
    raise UnsupportedFormat(f"{only}, and several files beside it have layers: {names}; keep one")


def without_padding(checkpoint: Checkpoint, words: object = None) -> Checkpoint:
    """Remove a word table's first row if it is for padding; the options may give its `words`."""
    name, rows = "token_encoder.words", checkpoint.config.n_words
    if checkpoint.config.token_encoder != "words" or len(checkpoint.vocabulary or []) != rows - 1:
        return checkpoint
    table = checkpoint.tensors[name]
    if words == rows and table[0].any():  # There is no padding row: the vocabulary lacks a word.
        return checkpoint
    config = replace(checkpoint.config, n_words=rows - 1)
    tensors = {**checkpoint.tensors, name: table[1:].copy()}
    return replace(checkpoint, config=config, tensors=tensors)


def published_options(lstm: dict[str, Any], cnn: dict[str, Any]) -> dict[str, Any]:
    """Return options of these sizes; the rest is what all published models share."""
    reading = {"activation": "relu", "max_characters_per_token": 50, "n_characters": CHARACTERS + 1}
    running = {"cell_clip": 3, "proj_clip": 3, "use_skip_connections": True}
    return {"lstm": lstm | running, "char_cnn": cnn | reading}


def find_options(weights: Path) -> Path:
    """Return the options file of a weights file: named like it, `options.json`, or the only one."""
    named = [weights.stem.replace("weights", "options") + ".json", OPTIONS]
    others = sorted(weights.parent.glob("*options*.json"))
    if chosen := _choose([weights.with_name(name) for name in named], others):
        return chosen
    if others:
        names = ", ".join(file.name for file in others)
        raise UnsupportedFormat(f"{weights} may belong to {names}: rename one to {named[0]}")
    raise MissingFile(f"there is no options.json beside {weights}; the two files belong together")


def config_of(options: Mapping[str, Any], shapes: Mapping[str, Shape], path: Path) -> BiLMConfig:
    """Return the configuration; what the options leave open follows from the datasets."""
    try:
        values = lstm_values(options["lstm"]) | {"dropout": options.get("dropout", 0.1)}
        values["skip_connections"] = options["lstm"].get("use_skip_connections") or False
        if "char_cnn" in options:
            cnn = options["char_cnn"]
            count = cnn.get("n_characters", CHARACTERS + 1)
            if count not in (CHARACTERS, CHARACTERS + 1):
                shown = reprlib.repr(count)
                raise UnsupportedFormat(f"{path}: n_characters must be 261 or 262, not {shown}")
            values |= cnn_values(cnn) | {"character_dim": cnn["embedding"]["dim"]}
        else:
            values |= {"token_encoder": "words", "n_words": shapes[TABLE][0]}
        if "softmax/W" in shapes:
            values["vocabulary_size"] = shapes["softmax/W"][0]
    except KeyError as error:
        raise UnsupportedFormat(f"{path} (or the weights beside it) lacks {error}") from None
    except (TypeError, AttributeError, IndexError):
        raise UnsupportedFormat(f"{path} does not have the layout of a bilm options file") from None
    with located(path):
        config = BiLMConfig.from_dict(values)
    # A projection may be missing if it would not change the size.
    tokens = "CNN_proj/W_proj" in shapes or config.n_filters != config.projection_dim
    state = f"{CELL.format(0, 0)}/W_P_0" in shapes or config.lstm_dim != config.projection_dim
    return replace(config, project_tokens=tokens, project_state=state)


def lstm_values(lstm: Mapping[str, Any]) -> dict[str, Any]:
    """Return our fields for the options of the LSTMs."""
    values = {ours: lstm[theirs] for theirs, ours in SIZES.items()}
    return values | {ours: lstm.get(theirs) or 0.0 for theirs, ours in CLIPS.items()}


def cnn_values(cnn: Mapping[str, Any]) -> dict[str, Any]:
    """Return our fields for the options of the convolutions."""
    return {
        "filters": cnn["filters"],
        "activation": cnn.get("activation", "relu"),
        "highway_layers": cnn.get("n_highway") or 0,
        "max_characters": cnn.get("max_characters_per_token", 50),
    }


def find_vocabulary(folder: Path) -> Path:
    """Return `vocab.txt`, `vocab.txt.gz` or the only file like them; it may not exist."""
    standard = [folder / VOCABULARY, folder / f"{VOCABULARY}.gz"]
    return _choose(standard, _vocabularies(folder)) or standard[0]


def _choose(standard: list[Path], others: list[Path]) -> Path | None:
    """Return the first standard file that exists, else the only other one."""
    existing = (path for path in standard if path.is_file())
    return next(existing, others[0] if len(others) == 1 else None)


def _vocabularies(folder: Path) -> list[Path]:
    paths = sorted([*folder.glob("*vocab*.txt"), *folder.glob("*vocab*.txt.gz")])
    return [path for path in paths if not path.name.startswith(".")]  # macOS adds ._* files.


def published_metadata(folder: Path) -> dict[str, Any]:
    """Return the contents of `meta.json`, which archives of the NLPL repository have."""
    with suppress(ElmokitError):  # The file is missing or of another kind.
        return {"meta": read_json(folder / "meta.json")}
    return {}


def vocabulary_of(path: Path, config: BiLMConfig) -> list[str] | None:
    """Return the words of a vocabulary file, None if it does not exist or no tensor needs it."""
    if not path.is_file():
        if config.token_encoder == "words":
            names = ", ".join(file.name for file in _vocabularies(path.parent))
            hint = f"; rename the right one of {names} to it" if names else ""
            raise MissingFile(f"a model on words needs its vocabulary: there is no {path}{hint}")
        return None
    if not config.vocabulary_size and config.token_encoder == "characters":
        return None
    return Vocabulary.read(path).words


# ---------------------------------------------------------------------- writing
def write(checkpoint: Checkpoint, folder: Path, *, overwrite: bool = False) -> None:
    """Write a folder with `options.json`, `weights.hdf5` and, with a vocabulary, `vocab.txt`."""
    import h5py

    config = checkpoint.config
    if config.token_encoder == "unicode":
        raise UnsupportedFormat("the bilm format cannot hold dictionaries of Unicode characters")
    check_fixed(config, "bilm", FIXED)
    with new_model_folder(folder, overwrite=overwrite) as temporary:
        (temporary / OPTIONS).write_text(json.dumps(_options(config), indent=2) + "\n")
        with h5py.File(temporary / WEIGHTS, "w") as file:
            for name, array in write_rows(rows(config), checkpoint.tensors):
                file.create_dataset(name, data=array)
        if checkpoint.vocabulary is not None:
            Vocabulary(checkpoint.vocabulary).write(temporary / VOCABULARY)


def _options(config: BiLMConfig) -> dict[str, Any]:
    values = config.to_dict()
    lstm = {theirs: values[ours] for theirs, ours in SIZES.items()}
    # bilm-tf would clip at 0.
    lstm |= {theirs: values[ours] or None for theirs, ours in CLIPS.items()}
    lstm["use_skip_connections"] = config.skip_connections
    options: dict[str, Any] = {"bidirectional": True, "dropout": config.dropout, "lstm": lstm}
    if config.vocabulary_size or config.n_words:
        options["n_tokens_vocab"] = config.vocabulary_size or config.n_words
    if config.token_encoder == "characters":
        cnn = {theirs: values[ours] for theirs, ours in CNN.items()}
        cnn |= {"embedding": {"dim": config.character_dim}, "n_characters": CHARACTERS + 1}
        options["char_cnn"] = cnn
    return options
