"""The format of ELMoForManyLangs (44 languages), both ways.

    config.json          its `config_path` names the configuration, often by somebody else's path
    char.dic, word.dic   a line an entry, `token<TAB>id`; a line with the id alone is U+3000
    token_embedder.pkl   state dict of what makes token vectors
    encoder.pkl          state dict of the LSTMs

The names and shapes of both state dicts are the two tables below. The forget gate's constant is in
the stored bias. Where a configuration is not to be found, the one of all published models is taken.
"""

from __future__ import annotations

import json
import ntpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.config import PUBLISHED_FILTERS, BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint, Tensors
from elmokit.formats.containers import state_dict
from elmokit.formats.model_folder import new_model_folder, published_metadata
from elmokit.formats.weight_map import Array, Row, Shape, read_rows, same, write_rows
from elmokit.io.jsonfile import read_json, read_text
from elmokit.io.paths import is_file
from elmokit.text.dictionaries import Dictionaries

CONFIG, CHARACTERS, WORDS = "config.json", "char.dic", "word.dic"
TOKENS, LAYERS = PARTS = ("token_embedder.pkl", "encoder.pkl")
CHARACTER_TABLE = "char_emb_layer.embedding.weight"
WORD_TABLE = "word_emb_layer.embedding.weight"
IDEOGRAPHIC_SPACE = "\u3000"
LONGEST_FOR_LSTM = 500  # characters of a word with its marks; the original has no bound there
PUBLISHED: dict[str, Any] = {  # cnn_50_100_512_4096_sample.json
    "encoder": {
        "name": "elmo",
        "projection_dim": 512,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 4096,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [list(pair) for pair in PUBLISHED_FILTERS],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
    "classifier": {"name": "sampled_softmax", "n_samples": 8192},
    "dropout": 0.1,
}

WRITTEN = {  # what the format has no words for
    "token_encoder": "unicode",
    "forget_bias": 0.0,
    "skip_connections": True,
    "project_state": True,
}


# ---------------------------------------------------------------------- names
def token_rows(config: BiLMConfig) -> list[Row]:
    """Every tensor of `token_embedder.pkl` for a model of this configuration."""
    size, read = config.character_dim, 0  # columns of a character, columns read from all
    rows: list[Row] = []
    if config.word_dim:
        rows.append(same(WORD_TABLE, (config.n_words, config.word_dim), "words"))
    if size:
        rows.append(same(CHARACTER_TABLE, (config.n_characters, size), "characters"))
    if config.has_filters:
        read = config.n_filters
        for i, (width, number) in enumerate(config.filters):
            place = f"convolutions.{i}"
            rows += _linear(place, (number, size, width), place)
        for k in range(config.highway_layers):
            rows.append(_highway(k, "weight", (2 * read, read)))
            rows.append(_highway(k, "bias", (2 * read,)))
    elif size:
        read = 2 * size
        for way in ("", "_reverse"):
            for side in ("ih", "hh"):
                weight, bias = f"weight_{side}_l0{way}", f"bias_{side}_l0{way}"
                shape = (4 * size, size)
                rows.append(same(f"char_lstm.{weight}", shape, f"character_lstm.{weight}"))
                rows.append(same(f"char_lstm.{bias}", shape[:1], f"character_lstm.{bias}"))
    rows += _linear("projection", (config.projection_dim, config.word_dim + read), "projection")
    return [row._replace(ours=tuple(f"token_encoder.{name}" for name in row.ours)) for row in rows]


def layer_rows(config: BiLMConfig) -> list[Row]:
    """Every tensor of `encoder.pkl` for a model of this configuration."""
    cells, size = config.lstm_dim, config.projection_dim
    rows = []
    for way in ("forward", "backward"):
        for layer in range(config.num_layers):
            theirs, ours = f"{way}_layer_{layer}", f"{way}_layers.{layer}"
            gates, state = (4 * cells, size), f"{theirs}.state_linearity"
            rows += [
                _gates(f"{theirs}.input_linearity.weight", gates, f"{ours}.input_weight"),
                _gates(f"{state}.weight", gates, f"{ours}.recurrent_weight"),
                _gates(f"{state}.bias", gates[:1], f"{ours}.bias"),
                same(f"{theirs}.state_projection.weight", (size, cells), f"{ours}.projection"),
            ]
    return rows


def _linear(name: str, shape: Shape, ours: str) -> list[Row]:
    """A weight and its bias, as they are."""
    bias = same(f"{name}.bias", shape[:1], f"{ours}.bias")
    return [same(f"{name}.weight", shape, f"{ours}.weight"), bias]


def _highway(number: int, part: str, shape: Shape) -> Row:
    """They: rows of the transform, then of the gate, which is the share of the input.

    With us the gate is the share of the transform: sigmoid(-x) = 1 - sigmoid(x).
    """
    ours = tuple(f"highways.{number}.{kind}.{part}" for kind in ("transform", "gate"))

    def read(array: Array) -> tuple[Array, ...]:
        transform, gate = np.split(array, 2)
        return transform, -gate

    def write(transform: Array, gate: Array) -> Array:
        return np.concatenate([transform, -gate])

    return Row(f"highways._layers.{number}.{part}", shape, ours, read, write)


def _gates(name: str, shape: Shape, ours: str) -> Row:
    """They order the gates input, forget, memory, output; we input, forget, output, memory."""

    def swapped(array: Array) -> Array:
        i, f, third, fourth = np.split(array, 4)
        return np.concatenate([i, f, fourth, third])

    return Row(name, shape, (ours,), lambda array: (swapped(array),), swapped)


# ---------------------------------------------------------------------- reading
def read(folder: Path) -> Checkpoint:
    """Read a model folder of ELMoForManyLangs."""
    tokens = state_dict.read(folder / TOKENS)
    options, origin = _find_options(folder, tokens)
    try:
        config, dictionaries = _config(folder, options)
    except KeyError as error:
        raise ElmokitError(f"{folder / origin} lacks {error.args[0]!r}") from None
    except (TypeError, AttributeError):
        raise ElmokitError(
            f"{folder / origin} does not have the layout of an ELMoForManyLangs configuration"
        ) from None
    tensors: Tensors = {}
    for table, found, name in (
        (token_rows(config), tokens, TOKENS),
        (layer_rows(config), state_dict.read(folder / LAYERS), LAYERS),
    ):
        tensors |= read_rows(
            table,
            state_dict.shapes_of(found),
            found.__getitem__,
            folder / name,
            known_by="its configuration and dictionaries",
        )
    return Checkpoint(
        config=config,
        tensors=tensors,
        metadata={"options": options, "configuration": origin, **published_metadata(folder)},
        source=str(folder),
        format="many_langs",
        dictionaries=dictionaries,
    )


def _find_options(folder: Path, tokens: Tensors) -> tuple[dict[str, Any], str]:
    """The configuration that `config.json` names, here or beside it, or the published one."""
    named = read_json(folder / CONFIG).get("config_path")
    if not isinstance(named, str) or not ntpath.basename(named):
        raise ElmokitError(f"{folder / CONFIG} does not name a configuration as config_path")
    for name in (named, ntpath.basename(named)):  # ntpath knows both kinds of slashes
        if is_file(folder / name):
            return read_json(folder / name), ntpath.basename(named)
    columns = {
        part: tokens[table].shape[-1] if table in tokens and tokens[table].ndim else 0
        for part, table in (("char_dim", CHARACTER_TABLE), ("word_dim", WORD_TABLE))
    }
    options = PUBLISHED | {"token_embedder": PUBLISHED["token_embedder"] | columns}
    return options, f"the published one, as there is no {ntpath.basename(named)}"


def _config(folder: Path, options: Mapping[str, Any]) -> tuple[BiLMConfig, Dictionaries]:
    lstm, token = options["encoder"], options["token_embedder"]
    if lstm["name"].lower() != "elmo":
        raise ElmokitError(f"{folder}: the encoder {lstm['name']!r} is no ELMo's; 'elmo' is read")
    reader = token["name"].lower()
    found = {
        part: _read_dictionary(folder / name) if token[part] > 0 else None
        for part, name in (("char_dim", CHARACTERS), ("word_dim", WORDS))
    }
    try:
        dictionaries = Dictionaries(found["char_dim"], found["word_dim"])
        values = {
            "token_encoder": "unicode",
            "character_encoder": reader,
            "character_dim": token["char_dim"],
            "n_characters": len(found["char_dim"] or []),
            "word_dim": token["word_dim"],
            "n_words": len(found["word_dim"] or []),
            "max_characters": token.get("max_characters_per_token", 50),
            "lstm_dim": lstm["dim"],
            "projection_dim": lstm["projection_dim"],
            "num_layers": lstm["n_layers"],
            "cell_clip": lstm.get("cell_clip") or 0.0,
            "projection_clip": lstm.get("proj_clip") or 0.0,
            "forget_bias": 0.0,
            "dropout": options.get("dropout", 0.1),
        }
        if reader == "lstm":
            values["max_characters"] = LONGEST_FOR_LSTM
        elif token["char_dim"]:
            values["filters"] = token["filters"]
            values["activation"] = token.get("activation", "relu")
            values["highway_layers"] = token.get("n_highway") or 0
        return BiLMConfig.from_dict(values), dictionaries
    except ElmokitError as error:
        raise ElmokitError(f"{folder}: {error}") from None


def _read_dictionary(path: Path) -> list[str]:
    """The entries by id; only a newline ends a line, and only a tab a column."""
    if not path.is_file():
        raise ElmokitError(f"there is no {path}, which the configuration of its model asks for")
    entries: list[tuple[int, str]] = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        token, _, last = line.removesuffix("\r").rpartition("\t")
        if last.isascii() and last.isdigit() and len(last) < 10 and "\t" not in token:
            entries.append((int(last), token or IDEOGRAPHIC_SPACE))
        elif line.removesuffix("\r"):
            raise ElmokitError(f"{path}: line {number} is not a token, a tab and its id")
    entries.sort()
    if [number for number, _ in entries] != list(range(len(entries))):
        raise ElmokitError(f"{path}: the ids are not 0 to {len(entries) - 1}, each once")
    return [token for _, token in entries]


# ---------------------------------------------------------------------- writing
def write(checkpoint: Checkpoint, folder: Path, *, overwrite: bool = False) -> None:
    """Write a model folder that ELMoForManyLangs reads."""
    config = checkpoint.config
    for name, wanted in WRITTEN.items():
        if getattr(config, name) != wanted:
            raise ElmokitError(
                f"the many_langs format has {name} {wanted!r}, this model {getattr(config, name)!r}"
            )
    dictionaries = checkpoint.dictionaries or Dictionaries()
    options = _options(config)
    sizes = (config.character_dim, config.word_dim, config.projection_dim, config.lstm_dim)
    name = "_".join([config.character_encoder, *map(str, sizes)]) + ".json"
    with new_model_folder(folder, overwrite=overwrite) as making:
        for file, values in ((CONFIG, {"config_path": name}), (name, options)):
            (making / file).write_text(json.dumps(values, indent=2) + "\n")
        for file, entries in ((CHARACTERS, dictionaries.characters), (WORDS, dictionaries.words)):
            if entries is not None:
                text = "".join(f"{entry}\t{i}\n" for i, entry in enumerate(entries))
                (making / file).write_text(text, encoding="utf-8", newline="")
        for file, rows in ((TOKENS, token_rows(config)), (LAYERS, layer_rows(config))):
            state_dict.write(dict(write_rows(rows, checkpoint.tensors)), making / file)


def _options(config: BiLMConfig) -> dict[str, Any]:
    token = {
        "name": config.character_encoder,
        "activation": config.activation,
        "filters": [list(pair) for pair in config.filters],
        "n_highway": config.highway_layers,
        "word_dim": config.word_dim,
        "char_dim": config.character_dim,
        "max_characters_per_token": config.max_characters,
    }
    lstm = {
        "name": "elmo",
        "projection_dim": config.projection_dim,
        "cell_clip": config.cell_clip,
        "proj_clip": config.projection_clip,
        "dim": config.lstm_dim,
        "n_layers": config.num_layers,
    }
    return PUBLISHED | {"encoder": lstm, "token_embedder": token, "dropout": config.dropout}
