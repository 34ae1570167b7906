"""The bilm-tf / AllenNLP format: `options.json` and `weights.hdf5`, both ways.

The tensors' names and shapes are in `names.py`; here are the options and the HDF5 file. Files of
the training script say 261 characters, files for prediction 262: the tensor has 261 rows either
way. Highway layers, the token projection and the state projection may each be missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint, Tensors
from elmokit.formats.files import new_folder, read_json
from elmokit.formats.names import bilm_table
from elmokit.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    import h5py

SUFFIXES = (".hdf5", ".h5")
OPTIONS, WEIGHTS, VOCABULARY = "options.json", "weights.hdf5", "vocab.txt"


def read(weights: Path) -> Checkpoint:
    """Read an HDF5 file of weights and the options beside it."""
    options_file = find_options(weights)
    options = read_json(options_file)
    with _open(weights) as file:
        shapes = {name: dataset.shape for name, dataset in _datasets(file, weights)}
        config = _config(options, shapes, options_file)
        tensors = _read_tensors(file, config, weights, shapes)
    return Checkpoint(
        config=config,
        tensors=tensors,
        vocabulary=_vocabulary(weights.parent / VOCABULARY, config),
        facts={"options": options},
        source=str(weights),
        format="bilm",
    )


def write(checkpoint: Checkpoint, folder: Path, *, overwrite: bool = False) -> None:
    """Write `options.json`, `weights.hdf5` and, with a vocabulary, `vocab.txt` as a new folder."""
    import h5py

    config = checkpoint.config
    if config.forget_bias != 1.0:
        raise ElmokitError(
            f"the bilm format has a forget bias of 1.0, this model has {config.forget_bias}"
        )
    with new_folder(folder, overwrite=overwrite) as making:
        (making / OPTIONS).write_text(json.dumps(_options(config), indent=2) + "\n")
        with h5py.File(making / WEIGHTS, "w") as file:
            for row in bilm_table(config):
                array = row.write(*(checkpoint.tensors[name] for name in row.ours))
                file.create_dataset(row.theirs, data=np.ascontiguousarray(array, np.float32))
        if checkpoint.vocabulary is not None:
            text = Vocabulary(checkpoint.vocabulary).text()
            (making / VOCABULARY).write_text(text, encoding="utf-8", newline="")


def find_options(weights: Path) -> Path:
    """`options.json` beside the weights, or the file that differs from them in that word only."""
    beside = [weights.with_name(OPTIONS)]
    beside.append(weights.with_name(weights.stem.replace("weights", "options") + ".json"))
    beside += sorted(weights.parent.glob("*options*.json"))
    for candidate in beside:
        if candidate.is_file():
            return candidate
    raise ElmokitError(f"there is no options.json beside {weights}; the two files belong together")


def _open(path: Path) -> h5py.File:
    import h5py

    try:
        return h5py.File(path, "r")
    except OSError as error:
        if not path.is_file():
            raise ElmokitError(f"there is no file {path}") from None
        reason = "it is truncated" if "truncated" in str(error) else "it is damaged or another kind"
        raise ElmokitError(f"{path} is not an HDF5 file that can be read: {reason}") from None


def _datasets(file: h5py.File, path: Path) -> Iterator[tuple[str, h5py.Dataset]]:
    """Every dataset that lies in the file itself; links elsewhere are refused, not followed."""
    import h5py

    def walk(group: h5py.Group, prefix: str) -> Iterator[tuple[str, h5py.Dataset]]:
        for name in group:
            full = f"{prefix}{name}"
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ElmokitError(f"{path}: {full!r} is a link; only plain datasets are read")
            item = group[name]
            if isinstance(item, h5py.Group):
                if full.count("/") > 8:
                    raise ElmokitError(f"{path}: groups are nested too deeply at {full!r}")
                yield from walk(item, f"{full}/")
            elif not isinstance(item, h5py.Dataset) or item.external:
                raise ElmokitError(f"{path}: {full!r} is not a plain dataset")
            else:
                yield full, item

    try:
        yield from walk(file, "")
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, UnicodeError):
        raise ElmokitError(f"{path} is damaged: its list of datasets cannot be read") from None


def _read_tensors(
    file: h5py.File, config: BiLMConfig, path: Path, shapes: Mapping[str, tuple[int, ...]]
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
        dataset = file[row.theirs]
        if dataset.dtype.kind != "f":
            raise ElmokitError(f"{path}: the dataset {row.theirs!r} holds no floating numbers")
        try:
            array = dataset[...].astype(np.float32, copy=False)
        except (OSError, RuntimeError, ValueError):
            raise ElmokitError(f"{path}: the dataset {row.theirs!r} is damaged") from None
        for name, part in zip(row.ours, row.read(array), strict=True):
            tensors[name] = np.ascontiguousarray(part)
    return tensors


def _config(
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
            "skip_connections": bool(lstm.get("use_skip_connections", False)),
            "project_state": "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0" in shapes,
            "dropout": options.get("dropout", 0.1),
        }
        if "char_cnn" in options:
            values |= _character_values(options["char_cnn"], shapes)
        else:
            values |= {"token_encoder": "words", "n_words": shapes["embedding"][0]}
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
    cnn: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    if cnn.get("n_characters", 262) not in (261, 262):
        raise ElmokitError(f"n_characters must be 261 or 262, not {cnn['n_characters']!r}")
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
            "cell_clip": config.cell_clip,
            "dim": config.lstm_dim,
            "n_layers": config.layers,
            "proj_clip": config.projection_clip,
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
            "n_characters": 262,
            "n_highway": config.highway_layers,
        }
    return options


def _vocabulary(path: Path, config: BiLMConfig) -> list[str] | None:
    if not path.is_file():
        if config.token_encoder == "words":
            raise ElmokitError(f"a model on words needs its vocabulary: there is no {path}")
        return None
    if not config.vocabulary_size and config.token_encoder == "characters":
        return None  # a word list that no tensor of this model refers to
    return Vocabulary.read(path).words
