"""The format of ELMoForManyLangs (44 languages), read and written.

    config.json          its `config_path` names the configuration, often a path on another computer
    char.dic, word.dic   one entry per line, `token<TAB>id`; a line with only an id is U+3000
    token_embedder.pkl   state dict of the token encoder
    encoder.pkl          state dict of the LSTMs

The constant of the forget gate is part of the stored bias. If the configuration is missing, that of
the published models is used, which all share.
"""

from __future__ import annotations

import json
import ntpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.config import PRESETS, BiLMConfig
from elmokit.errors import MissingFile, UnsupportedFormat, located
from elmokit.formats import bilm
from elmokit.formats.checkpoint import Checkpoint, Tensors, check_fixed, new_model_folder
from elmokit.formats.containers import state_dict
from elmokit.formats.weight_map import Array, Row, Shape, read_rows, same, write_rows
from elmokit.io.jsonfile import read_json, read_text
from elmokit.io.paths import file_inside
from elmokit.text.dictionaries import Dictionaries

CONFIG, CHARACTERS, WORDS = "config.json", "char.dic", "word.dic"
TOKENS, LAYERS = PARTS = ("token_embedder.pkl", "encoder.pkl")
CHARACTER_TABLE = "char_emb_layer.embedding.weight"
WORD_TABLE = "word_emb_layer.embedding.weight"
IDEOGRAPHIC_SPACE = "\u3000"
MAX_LSTM_CHARACTERS = 500  # per word with its marks; the original has no limit
FIXED: dict[str, Any] = {  # fields that the format cannot store
    "token_encoder": "unicode",
    "forget_bias": 0.0,
    "skip_connections": True,
    "project_state": True,
}


# ---------------------------------------------------------------------- names
def token_rows(config: BiLMConfig) -> list[Row]:
    """Return the map of every tensor of `token_embedder.pkl` for a configuration."""
    size, read = config.character_dim, 0  # of one character vector; of what the word gives
    rows: list[Row] = []
    if config.word_dim:
        rows.append(same(WORD_TABLE, (config.n_words, config.word_dim), "words"))
    if size:
        rows.append(same(CHARACTER_TABLE, (config.n_characters, size), "characters"))
    if config.has_filters:
        read = config.n_filters
        for i, (width, count) in enumerate(config.filters):
            rows += _linear(f"convolutions.{i}", (count, size, width))
        for k in range(config.highway_layers):
            rows += [_highway(k, "weight", (2 * read, read)), _highway(k, "bias", (2 * read,))]
    elif size:
        read = 2 * size
        for direction in ("", "_reverse"):
            for side in ("ih", "hh"):
                for part, shape in (("weight", (4 * size, size)), ("bias", (4 * size,))):
                    name = f"{part}_{side}_l0{direction}"
                    rows.append(same(f"char_lstm.{name}", shape, f"character_lstm.{name}"))
    rows += _linear("projection", (config.projection_dim, config.word_dim + read))
    return [row._replace(ours=tuple(f"token_encoder.{name}" for name in row.ours)) for row in rows]


def layer_rows(config: BiLMConfig) -> list[Row]:
    """Return the map of every tensor of `encoder.pkl` for a configuration."""
    cells, size = config.lstm_dim, config.projection_dim
    rows = []
    for direction in ("forward", "backward"):
        for layer in range(config.num_layers):
            theirs, ours = f"{direction}_layer_{layer}", f"{direction}_layers.{layer}"
            gates, state = (4 * cells, size), f"{theirs}.state_linearity"
            rows += [
                _gates(f"{theirs}.input_linearity.weight", gates, f"{ours}.input_weight"),
                _gates(f"{state}.weight", gates, f"{ours}.recurrent_weight"),
                _gates(f"{state}.bias", gates[:1], f"{ours}.bias"),
                same(f"{theirs}.state_projection.weight", (size, cells), f"{ours}.projection"),
            ]
    return rows


def _linear(name: str, shape: Shape) -> list[Row]:
    """Return the rows of a weight and its bias, which are stored unchanged under the same name."""
    weight, bias = f"{name}.weight", f"{name}.bias"
    return [same(weight, shape, weight), same(bias, shape[:1], bias)]


def _highway(layer: int, part: str, shape: Shape) -> Row:
    """Return the row of a highway layer: a transform, and a gate that changes its sign.

    Their gate weights the input and ours the transform: sigmoid(-x) = 1 - sigmoid(x).
    """
    ours = tuple(f"highways.{layer}.{kind}.{part}" for kind in ("transform", "gate"))

    def read(array: Array) -> tuple[Array, ...]:
        transform, gate = np.split(array, 2)
        return transform, -gate

    def write(transform: Array, gate: Array) -> Array:
        return np.concatenate([transform, -gate])

    return Row(f"highways._layers.{layer}.{part}", shape, ours, read, write)


def _gates(name: str, shape: Shape, ours: str) -> Row:
    """Return the row of an LSTM tensor, whose last two gates (memory, output) change places."""

    def swap(array: Array) -> Array:
        i, f, third, fourth = np.split(array, 4)
        return np.concatenate([i, f, fourth, third])

    return Row(name, shape, (ours,), lambda array: (swap(array),), swap)


# ---------------------------------------------------------------------- reading
def read(folder: Path) -> Checkpoint:
    """Read a model folder of ELMoForManyLangs."""
    tokens = state_dict.read(folder / TOKENS)
    options, origin = _find_options(folder, tokens)
    try:
        config, dictionaries = _config(folder, options)
    except KeyError as error:
        raise UnsupportedFormat(f"{folder / origin} lacks {error.args[0]!r}") from None
    except (TypeError, AttributeError):
        problem = "does not have the layout of an ELMoForManyLangs configuration"
        raise UnsupportedFormat(f"{folder / origin} {problem}") from None
    tensors: Tensors = {}
    known_by = "its configuration and dictionaries"
    for table, stored, file in (
        (token_rows(config), tokens, folder / TOKENS),
        (layer_rows(config), state_dict.read(folder / LAYERS), folder / LAYERS),
    ):
        shapes = {name: array.shape for name, array in stored.items()}
        tensors |= read_rows(table, shapes, stored.__getitem__, file, known_by=known_by)
    metadata = {"options": options, "configuration": origin, **bilm.published_metadata(folder)}
    return Checkpoint(config, tensors, None, metadata, str(folder), "many_langs", dictionaries)


def _find_options(folder: Path, tokens: Tensors) -> tuple[dict[str, Any], str]:
    """Return the configuration that `config.json` names, or the published one, and its name."""
    named = read_json(folder / CONFIG).get("config_path")
    if not isinstance(named, str) or not ntpath.basename(named):
        raise UnsupportedFormat(f"{folder / CONFIG} does not name a configuration as config_path")
    name = ntpath.basename(named)  # ntpath splits at both kinds of slashes.
    if file := file_inside(folder, named, name):
        return read_json(file), name
    columns = {
        part: tokens[table].shape[-1] if table in tokens and tokens[table].ndim else 0
        for part, table in (("char_dim", CHARACTER_TABLE), ("word_dim", WORD_TABLE))
    }
    options = PUBLISHED | {"token_embedder": PUBLISHED["token_embedder"] | columns}
    return options, f"published (there is no {name})"


def _config(folder: Path, options: Mapping[str, Any]) -> tuple[BiLMConfig, Dictionaries]:
    lstm, token = options["encoder"], options["token_embedder"]
    if (name := lstm["name"]).lower() != "elmo":
        raise UnsupportedFormat(f"{folder}: unsupported encoder {name!r}: only 'elmo' is supported")
    character_encoder = token["name"].lower()
    entries = {
        part: _read_dictionary(folder / name) if token[part] > 0 else None
        for part, name in (("char_dim", CHARACTERS), ("word_dim", WORDS))
    }
    with located(folder):
        dictionaries = Dictionaries(entries["char_dim"], entries["word_dim"])
        values = FIXED | bilm.lstm_values(lstm)
        values |= {
            "character_encoder": character_encoder,
            "character_dim": token["char_dim"],
            "n_characters": len(entries["char_dim"] or []),
            "word_dim": token["word_dim"],
            "n_words": len(entries["word_dim"] or []),
            "max_characters": token.get("max_characters_per_token", 50),
            "dropout": options.get("dropout", 0.1),
        }
        if character_encoder == "lstm":
            values["max_characters"] = MAX_LSTM_CHARACTERS
        elif token["char_dim"]:
            values |= bilm.cnn_values(token)
        return BiLMConfig.from_dict(values), dictionaries


def _read_dictionary(path: Path) -> list[str]:
    """Return the entries by id; only a newline ends a line, and only a tab a column."""
    if not path.is_file():
        raise MissingFile(f"there is no {path}, which the configuration of its model requires")
    entries: list[tuple[int, str]] = []
    for line_number, line in enumerate(read_text(path).split("\n"), 1):
        token, _, last = line.removesuffix("\r").rpartition("\t")
        if last.isascii() and last.isdigit() and len(last) < 10 and "\t" not in token:
            entries.append((int(last), token or IDEOGRAPHIC_SPACE))
        elif line.removesuffix("\r"):
            raise UnsupportedFormat(f"{path}: line {line_number} is not a token, a tab and its id")
    entries.sort()
    if [i for i, _ in entries] != list(range(len(entries))):
        raise UnsupportedFormat(f"{path}: the ids are not 0 to {len(entries) - 1}, each once")
    return [token for _, token in entries]


# ---------------------------------------------------------------------- writing
def write(checkpoint: Checkpoint, folder: Path, *, overwrite: bool = False) -> None:
    """Write a model folder that ELMoForManyLangs reads."""
    config = checkpoint.config
    check_fixed(config, "many_langs", FIXED)
    dictionaries = checkpoint.dictionaries or Dictionaries()
    options = _options(config)
    sizes = (config.character_dim, config.word_dim, config.projection_dim, config.lstm_dim)
    name = "_".join([config.character_encoder, *map(str, sizes)]) + ".json"
    with new_model_folder(folder, overwrite=overwrite) as temporary:
        for file, values in ((CONFIG, {"config_path": name}), (name, options)):
            (temporary / file).write_text(json.dumps(values, indent=2) + "\n")
        for file, entries in ((CHARACTERS, dictionaries.characters), (WORDS, dictionaries.words)):
            if entries is not None:
                text = "".join(f"{entry}\t{i}\n" for i, entry in enumerate(entries))
                (temporary / file).write_text(text, encoding="utf-8", newline="")
        for file, rows in ((TOKENS, token_rows(config)), (LAYERS, layer_rows(config))):
            state_dict.write(dict(write_rows(rows, checkpoint.tensors)), temporary / file)


def _options(config: BiLMConfig) -> dict[str, Any]:
    """Return a configuration of ELMoForManyLangs, whose training had the classifier."""
    values = config.to_dict()
    own = {"name": "character_encoder", "word_dim": "word_dim", "char_dim": "character_dim"}
    lstm = {theirs: values[ours] for theirs, ours in {**bilm.SIZES, **bilm.CLIPS}.items()}
    return {
        "encoder": {"name": "elmo", **lstm},
        "token_embedder": {theirs: values[ours] for theirs, ours in {**own, **bilm.CNN}.items()},
        "classifier": {"name": "sampled_softmax", "n_samples": 8192},
        "dropout": config.dropout,
    }


PUBLISHED = _options(  # cnn_50_100_512_4096_sample.json; the dictionaries differ.
    BiLMConfig(**FIXED, **PRESETS["original"], character_dim=50, word_dim=100, n_words=1)
)
