"""The bilm-tf / AllenNLP format: `options.json` and `weights.hdf5`, both ways.

The tensors' names and shapes are in `names.py`; here are the options and the HDF5 file. Files of
the training script say 261 characters, files for prediction 262: the tensor has 261 rows either
way. Highway layers, the token projection and the state projection may each be missing.

A model on words has `embedding`, a row for each line of its vocabulary, perhaps after one for
padding, in place of the tensors of characters. A file with `embedding` alone (bilm-tf's
`dump_token_embeddings`) has the token vectors of some words: together with the LSTMs of the
weights beside it, it is such a model too.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint, Tensors
from elmokit.formats.files import new_model_folder, published_facts, read_json
from elmokit.formats.hdf5 import open_hdf5, shapes_of
from elmokit.formats.names import bilm_table
from elmokit.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    import h5py

SUFFIXES = (".hdf5", ".h5")
OPTIONS, WEIGHTS, VOCABULARY = "options.json", "weights.hdf5", "vocab.txt"
TABLE = "embedding"
CHARACTERS = 261


def read(weights: Path, options_file: Path | None = None) -> Checkpoint:
    """Read an HDF5 file of weights, or of token vectors, and the files that belong to it."""
    with open_hdf5(weights) as file:
        shapes = shapes_of(file, weights)
        if set(shapes) == {TABLE}:
            return _read_with_table(file, shapes[TABLE], weights)
        options_file = options_file or find_options(weights)
        options = read_json(options_file)
        config = config_of(options, shapes, options_file)
        tensors = _read_tensors(file, config, weights, shapes)
    vocabulary = vocabulary_of(find_vocabulary(weights.parent), config)
    facts = {"options": options, **published_facts(weights.parent)}
    found = Checkpoint(config, tensors, vocabulary, facts, str(weights), "bilm")
    return _without_padding(found, options.get("n_tokens_vocab"))


def _read_with_table(table: h5py.File, shape: tuple[int, ...], path: Path) -> Checkpoint:
    """A model on words: token vectors of one file, the layers of the weights beside it."""
    weights = _layers_beside(path)
    options_file = find_options(weights)
    options = read_json(options_file)
    with open_hdf5(weights) as file:
        shapes = {
            name: s for name, s in shapes_of(file, weights).items() if name.startswith("RNN_")
        }
        shapes[TABLE] = shape
        on_words = {name: value for name, value in options.items() if name != "char_cnn"}
        config = config_of(on_words, shapes, options_file)
        datasets = {name: (table if name == TABLE else file)[name] for name in shapes}
        tensors = _read_tensors(datasets, config, f"{path} with {weights.name}", shapes)
    vocabulary = vocabulary_of(find_vocabulary(path.parent), config)
    facts = {"options": options, "layers_from": weights.name}
    return _without_padding(Checkpoint(config, tensors, vocabulary, facts, str(path), "bilm"), None)


def _layers_beside(table: Path) -> Path:
    """The file beside a table of token vectors that has the layers of the model."""
    beside = sorted(file for s in SUFFIXES for file in table.parent.glob(f"[!.]*{s}"))
    found = [path for path in beside if path != table and _has_layers(path)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(file.name for file in found)
        raise ElmokitError(f"{table} has token vectors only: which of {names} has its layers?")
    raise ElmokitError(f"{table} has token vectors only: no weights of the layers lie beside it")


def _has_layers(path: Path) -> bool:
    with open_hdf5(path) as file:
        try:
            return "RNN_0" in file
        except (OSError, RuntimeError, KeyError, ValueError):
            return False


def _without_padding(found: Checkpoint, words: object) -> Checkpoint:
    """Without the row for padded words, which some tables have before all others."""
    name, rows = "token_encoder.words", found.config.n_words
    if found.config.token_encoder != "words" or len(found.vocabulary or []) != rows - 1:
        return found
    table = found.tensors[name]
    if words == rows and table[0].any():  # then it is the vocabulary that lacks a word
        return found
    config = replace(found.config, n_words=rows - 1)
    return replace(found, config=config, tensors={**found.tensors, name: table[1:].copy()})


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
            for row in bilm_table(config):
                array = row.write(*(checkpoint.tensors[name] for name in row.ours))
                file.create_dataset(row.theirs, data=np.ascontiguousarray(array, np.float32))
        if checkpoint.vocabulary is not None:
            text = Vocabulary(checkpoint.vocabulary).text()
            (making / VOCABULARY).write_text(text, encoding="utf-8", newline="")


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


def _read_tensors(
    file: Mapping[str, h5py.Dataset],
    config: BiLMConfig,
    path: Path | str,
    shapes: Mapping[str, tuple[int, ...]],
) -> Tensors:
    """All datasets by our names; shapes are compared before anything is read into memory."""
    table = bilm_table(config)
    unknown = sorted(set(shapes) - {row.theirs for row in table})
    if unknown:
        raise ElmokitError(f"{path} has a dataset {unknown[0]!r} that its options do not describe")
    tensors: Tensors = {}
    for row in table:
        if row.theirs not in shapes:
            raise ElmokitError(f"{path} lacks the dataset {row.theirs!r}")
        if shapes[row.theirs] != row.shape:
            raise ElmokitError(
                f"{path}: the dataset {row.theirs!r} has the shape {list(shapes[row.theirs])} "
                f"where its options give {list(row.shape)}"
            )
        try:
            with np.errstate(over="ignore"):  # infinities are found when the model is built
                array = file[row.theirs][...].astype(np.float32, copy=False)
        except (OSError, RuntimeError, ValueError):
            raise ElmokitError(f"{path}: the dataset {row.theirs!r} is damaged") from None
        except MemoryError:
            raise ElmokitError(f"{path}: the dataset {row.theirs!r} is too large") from None
        for name, part in zip(row.ours, row.read(array), strict=True):
            tensors[name] = np.ascontiguousarray(part)
    return tensors


def config_of(
    options: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], path: Path
) -> BiLMConfig:
    """Our configuration; what the options leave open is read off the datasets."""
    try:
        lstm = options["lstm"]
        values = {
            "lstm_dim": lstm["dim"],
            "projection_dim": lstm["projection_dim"],
            "layers": lstm["n_layers"],
            "cell_clip": lstm.get("cell_clip") or 0.0,
            "projection_clip": lstm.get("proj_clip") or 0.0,
            "skip_connections": lstm.get("use_skip_connections") or False,
            "project_state": "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0" in shapes,
            "dropout": options.get("dropout", 0.1),
        }
        if "char_cnn" in options:
            values |= _character_values(options["char_cnn"], shapes, path)
        else:
            values |= {"token_encoder": "words", "n_words": shapes[TABLE][0]}
        if "softmax/W" in shapes:
            values["vocabulary_size"] = shapes["softmax/W"][0]
    except KeyError as error:
        raise ElmokitError(f"{path} (or the weights beside it) lacks {error.args[0]!r}") from None
    except (TypeError, AttributeError, IndexError):
        raise ElmokitError(f"{path} does not have the layout of a bilm options file") from None
    try:
        return BiLMConfig.from_dict(values)
    except ElmokitError as error:
        raise ElmokitError(f"{path}: {error}") from None


def _character_values(
    cnn: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], path: Path
) -> dict[str, Any]:
    number = cnn.get("n_characters", CHARACTERS + 1)
    if number not in (CHARACTERS, CHARACTERS + 1):
        raise ElmokitError(f"{path}: n_characters must be 261 or 262, not {reprlib.repr(number)}")
    return {
        "character_dim": cnn["embedding"]["dim"],
        "filters": cnn["filters"],
        "activation": cnn.get("activation", "relu"),
        "highway_layers": cnn.get("n_highway") or 0,
        "max_characters": cnn.get("max_characters_per_token", 50),
        "project_tokens": "CNN_proj/W_proj" in shapes,
    }


def _options(config: BiLMConfig) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bidirectional": True,
        "dropout": config.dropout,
        "lstm": {
            "cell_clip": config.cell_clip or None,  # to bilm-tf, 0 would be a clip
            "dim": config.lstm_dim,
            "n_layers": config.layers,
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
