"""Our own format: a folder with `config.json`, `model.safetensors` and often `vocab.txt`.

A model on Unicode characters has its dictionaries in `characters.txt` and `words.txt`, one entry
per line; only a newline ends it. The user dictionary of jieba with which the training text was
segmented is in `jieba.txt`. Weights are stored as float32 or float16 and are float32 in memory.

`elmokit.integrations.transformers` writes the same folder. If it has a task on top, the names of
the biLM's tensors begin with `elmo.`, and there are a scalar mix and a classifier beside them:

    elmo.token_encoder.characters, …              the biLM
    elmo.mix.weights, elmo.mix.gamma              kept as metadata
    classifier.weight, classifier.bias            left out
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save, save_file

from elmokit.config import BiLMConfig
from elmokit.errors import InvalidInput, MissingFile, UnsupportedFormat, explained, located
from elmokit.formats.checkpoint import (
    JIEBA,
    Checkpoint,
    Tensors,
    check_finite,
    new_model_folder,
    split_dictionary,
)
from elmokit.io.atomic import write_file
from elmokit.io.jsonfile import read_json, read_text
from elmokit.io.paths import check_regular
from elmokit.text.chinese import CHINESE, with_dictionary
from elmokit.text.dictionaries import Dictionaries
from elmokit.text.unicode import is_unicode
from elmokit.text.vocabulary import Vocabulary

CONFIG, WEIGHTS, VOCABULARY = "config.json", "model.safetensors", "vocab.txt"
CHARACTERS, WORDS = "characters.txt", "words.txt"
FORMAT, VERSION = "elmokit", 1
PREFIX, MIX, CLASSIFIER = "elmo.", "mix.", "classifier."  # of a model with a task on top


def is_native(folder: Path) -> bool:
    """Tell whether a folder's config.json says that it is a model of elmokit."""
    is_complete = (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()
    return is_complete and read_json(folder / CONFIG).get("format") == FORMAT


def read(folder: Path) -> Checkpoint:
    """Read a native model folder."""
    values = read_json(folder / CONFIG)
    if values.get("format") != FORMAT:
        raise UnsupportedFormat(f"{folder / CONFIG} is not the configuration of an elmokit model")
    if values.get("format_version") != VERSION:
        raise UnsupportedFormat(
            f"{folder / CONFIG} has format version {reprlib.repr(values.get('format_version'))}; "
            f"this elmokit reads version {VERSION}"
        )
    if not isinstance(values.get("model"), dict):
        raise UnsupportedFormat(f"{folder / CONFIG} lacks the object 'model'")
    with located(folder / CONFIG):
        config = BiLMConfig.from_dict(values["model"])
    tensors, mix = _split_head(read_tensors(folder / WEIGHTS)[0], folder / WEIGHTS)
    metadata = metadata_of(values, folder)
    metadata |= _mix_metadata(mix, config.num_layers + 1, folder / WEIGHTS)
    file = _lookup(folder, VOCABULARY, config.vocabulary_size or config.token_encoder == "words")
    words = Vocabulary.read(file).words if file else None
    entries = _read_dictionaries(folder, config) if config.token_encoder == "unicode" else None
    return Checkpoint(
        config, tensors, words, metadata, str(folder), "native", entries, str(folder / WEIGHTS)
    )


def metadata_of(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the metadata in config.json; words of `jieba.txt` become part of the tokenizer."""
    metadata = values.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    training = metadata.get("training")
    if isinstance(training, dict) and training.get("dictionary") is not None:
        if not (folder / JIEBA).is_file():
            raise MissingFile(f"{folder} lacks {JIEBA}, the dictionary of its tokenizer")
        metadata["training"] = {**training, "tokenizer": with_dictionary(CHINESE, folder / JIEBA)}
        del metadata["training"]["dictionary"]
    return metadata


def write(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    dtype: Literal["float32", "float16"] = "float32",
    overwrite: bool = False,
) -> None:
    """Write a native model folder, atomically."""
    tensors = {
        name: stored_as(dtype, tensor, f"the tensor {name!r}")
        for name, tensor in sorted(checkpoint.tensors.items())
    }
    metadata, words = split_dictionary(checkpoint.metadata)
    values: dict[str, Any] = {"format": FORMAT, "format_version": VERSION, "model_type": "elmo"}
    values |= {"model": checkpoint.config.to_dict(), "metadata": metadata}
    dictionaries = checkpoint.dictionaries or Dictionaries()
    with new_model_folder(folder, overwrite=overwrite) as temporary:
        text = json.dumps(values, indent=2, ensure_ascii=False)
        # UTF-8 cannot hold lone surrogates; Python escapes them the way JSON does.
        (temporary / CONFIG).write_bytes(f"{text}\n".encode("utf-8", "backslashreplace"))
        with explained(f"cannot write {folder / WEIGHTS}", SafetensorError):  # as on a full disk
            save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
        if checkpoint.vocabulary is not None:
            Vocabulary(checkpoint.vocabulary).write(temporary / VOCABULARY)
        for name, entries in ((CHARACTERS, dictionaries.characters), (WORDS, dictionaries.words)):
            if entries is not None:
                write_lines(temporary / name, entries)
        if words:
            write_lines(temporary / JIEBA, words.split("\n"))


def stored_as(dtype: str, array: NDArray[np.float32], what: str) -> NDArray[Any]:
    """Convert an array to the dtype of a file; raise if that cannot hold its values."""
    if dtype not in ("float32", "float16"):
        raise InvalidInput(f"dtype must be float32 or float16, not {dtype!r}")
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(array, np.dtype(dtype))
    if not np.isfinite(stored).all():
        raise InvalidInput(f"{what} has values that {dtype} cannot hold")
    return stored


def read_tensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read a safetensors file: its tensors as float32, and its metadata."""
    tensors: Tensors = {}
    check_regular(path)
    problem, kinds = f"{path} is not a safetensors file that can be read", (TypeError, ValueError)
    with (
        explained(problem, SafetensorError, OSError, *kinds, raising=UnsupportedFormat),
        safe_open(path, framework="numpy") as file,
        np.errstate(over="ignore"),  # Infinities are found when the model is built.
    ):
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            tensor = file.get_tensor(name)
            if tensor.dtype.kind != "f":
                raise UnsupportedFormat(f"{path}: the tensor {name!r} is not floating point")
            tensors[name] = tensor.astype(np.float32, copy=False)
        return tensors, file.metadata() or {}


def write_tensors(path: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    """Write a safetensors file that `read_tensors` reads, atomically."""
    write_file(path, save(tensors, metadata))


def write_lines(path: Path, entries: Sequence[str]) -> None:
    """Write one entry per line; raise for one that cannot be a line of UTF-8 text."""
    for entry in entries:
        if "\n" in entry or not is_unicode(entry):
            raise InvalidInput(f"the entry {entry!r} cannot be a line of {path.name}")
    path.write_text("".join(f"{entry}\n" for entry in entries), encoding="utf-8", newline="")


def read_lines(path: Path) -> list[str]:
    """Return the entries that `write_lines` has written."""
    text = read_text(path)
    return text.removesuffix("\n").split("\n") if text else []


def _split_head(tensors: Tensors, path: Path) -> tuple[Tensors, Tensors]:
    """Return the tensors of the biLM, and those of the scalar mix that was trained on top of it."""
    if any(name.startswith(PREFIX) for name in tensors):
        for name in (name for name in tensors if not name.startswith((PREFIX, CLASSIFIER))):
            raise UnsupportedFormat(f"{path} has a tensor {name!r} beside an ELMo and a classifier")
        inner = {name: value for name, value in tensors.items() if name.startswith(PREFIX)}
        tensors = {name.removeprefix(PREFIX): value for name, value in inner.items()}
    mix = {name: value for name, value in tensors.items() if name.startswith(MIX)}
    return {name: value for name, value in tensors.items() if name not in mix}, mix


def _mix_metadata(mix: Tensors, layers: int, path: Path) -> dict[str, Any]:
    """Return a trained scalar mix in the form that models of AllenNLP have it."""
    if not mix:
        return {}
    shapes = {name: tensor.shape for name, tensor in mix.items()}
    if shapes != {f"{MIX}weights": (layers,), f"{MIX}gamma": ()}:
        raise UnsupportedFormat(f"{path}: a scalar mix needs {layers} weights and a gamma")
    for name, tensor in mix.items():
        check_finite(tensor, f"{path}: the tensor {name!r}")
    weights, gamma = mix[f"{MIX}weights"].tolist(), mix[f"{MIX}gamma"].item()
    return {"scalar_mixes": [{"weights": weights, "gamma": gamma, "layer_norm": False}]}


def _lookup(folder: Path, name: str, needed: object) -> Path | None:
    """Return a file of the folder, None if it is neither there nor needed."""
    if (folder / name).is_file():
        return folder / name
    if needed:
        raise MissingFile(f"{folder} lacks {name}, which its model needs")
    return None


def _read_dictionaries(folder: Path, config: BiLMConfig) -> Dictionaries:
    files = ((CHARACTERS, config.character_dim), (WORDS, config.word_dim))
    paths = [_lookup(folder, name, columns) if columns else None for name, columns in files]
    with located(folder):
        return Dictionaries(*(None if path is None else read_lines(path) for path in paths))
