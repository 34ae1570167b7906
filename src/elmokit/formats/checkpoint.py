"""`Checkpoint`, what every format reads and writes, its checks, and the folder it is written to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError, UnsupportedFormat
from elmokit.io.atomic import atomic_folder, check_replaceable
from elmokit.io.jsonfile import try_json
from elmokit.io.paths import is_folder
from elmokit.text.chinese import CHINESE
from elmokit.text.dictionaries import Dictionaries

Tensors = dict[str, NDArray[np.float32]]
Shapes = Mapping[str, tuple[int, ...]]
JIEBA = "jieba.txt"  # the user dictionary of a Chinese tokenizer, in a native folder
# All files that the native, the bilm and the many_langs format write.
MODEL_FILES = (
    *("config.json", "model.safetensors", "vocab.txt", "characters.txt", "words.txt", JIEBA),
    *("options.json", "weights.hdf5"),
    *("char.dic", "word.dic", "token_embedder.pkl", "encoder.pkl", "cnn_*.json", "lstm_*.json"),
)

PARTS = {  # How the names of the tensors of a part begin.
    "token_encoder.characters": "characters",
    "token_encoder.words": "words",
    "token_encoder.character_lstm": "character LSTM",
    "token_encoder.convolutions": "convolutions",
    "token_encoder.highways": "highway layers",
    "token_encoder.projection": "token projection",
    "forward_layers": "forward LSTMs",
    "backward_layers": "backward LSTMs",
    "softmax": "softmax",
}


@dataclass(frozen=True)
class Checkpoint:
    """A model as plain data, between files and memory."""

    config: BiLMConfig
    tensors: Tensors
    """Tensors by the names of the model's parameters."""
    vocabulary: list[str] | None = None
    """Words of the softmax or of the word table, by id."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """How the model was trained and where it comes from, as far as its files tell."""
    source: str = "memory"
    """Path or name of the model, for messages."""
    format: str = "native"
    dictionaries: Dictionaries | None = None
    """Characters and words of a model on Unicode characters, by id."""
    weights: str = ""
    """File of the tensors, if that is not the source."""

    def fingerprint(self) -> str:
        """Return a hash of the configuration, dictionaries and weights except the softmax."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps(self.config.to_dict(), sort_keys=True).encode())
        if self.dictionaries is not None:
            digest.update(json.dumps(asdict(self.dictionaries)).encode())
        for name in sorted(self.tensors):
            if not name.startswith("softmax."):
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(self.tensors[name]).data)
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """Describe a checkpoint whose tensors have been checked, as JSON takes it."""
        by_part = dict.fromkeys(PARTS.values(), 0)
        for name, tensor in self.tensors.items():
            part = next(label for prefix, label in PARTS.items() if name.startswith(prefix))
            by_part[part] += tensor.size
        return {
            "model": self.source,
            "format": self.format,
            "num_layers": self.config.num_layers,
            "dim": self.config.dim,
            "parameters": sum(by_part.values()),
            "parameters_by_part": {part: count for part, count in by_part.items() if count},
            "vocabulary_size": None if self.vocabulary is None else len(self.vocabulary),
            "fingerprint": self.fingerprint(),
            "config": self.config.to_dict(),
            "metadata": split_dictionary(self.metadata)[0],
        }


def tokenizer_of(metadata: Mapping[str, Any]) -> str:
    """Return the tokenizer that fits a model: "chinese" if it was trained with it, else "elmokit".

    The words of a user dictionary follow the name: see `elmokit.text.chinese`.
    """
    training = metadata.get("training")
    name = training.get("tokenizer") if isinstance(training, Mapping) else None
    is_chinese = isinstance(name, str) and name.partition("\n")[0] == CHINESE
    return str(name) if is_chinese else "elmokit"


def split_dictionary(metadata: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the metadata for config.json, and the words for `jieba.txt`."""
    name, _, words = tokenizer_of(metadata).partition("\n")
    if not words:
        return metadata, ""
    training = {**metadata["training"], "tokenizer": name, "dictionary": JIEBA}
    return {**metadata, "training": training}, words


def check_tensors(checkpoint: Checkpoint, expected: Shapes) -> None:
    """Raise unless the tensors are finite and have the names and shapes of `expected_shapes`."""
    where = checkpoint.weights or checkpoint.source
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    check_shapes(shapes, expected, where, "tensor", "the fields of its configuration")
    for name, tensor in checkpoint.tensors.items():
        check_finite(tensor, f"{where}: the tensor {name!r}")
    _check_sizes(checkpoint)


def check_shapes(shapes: Shapes, expected: Shapes, where: object, kind: str, known_by: str) -> None:
    """Raise unless the tensors of a file have exactly the expected names and shapes.

    `kind` is what its format calls a tensor, `known_by` what determined the expected ones.
    """
    if extra := min(shapes.keys() - expected.keys(), default=""):
        raise UnsupportedFormat(f"{where} has a {kind} {extra!r} that {known_by} do not describe")
    for name, shape in expected.items():
        if name not in shapes:
            raise UnsupportedFormat(f"{where} lacks the {kind} {name!r}")
        if shapes[name] != shape:
            raise UnsupportedFormat(
                f"{where}: the {kind} {name!r} has the shape {list(shapes[name])} "
                f"but {known_by} need {list(shape)}"
            )


def check_finite(tensor: NDArray[np.float32], what: str) -> None:
    """Raise if a value is infinite or NaN; `what` names the tensor."""
    # A finite sum proves finite values; only if it is not (or overflows), look at each of them.
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(tensor.sum()) and not np.isfinite(tensor).all():
            raise UnsupportedFormat(f"{what} has values that are not finite (NaN)")


def check_fixed(config: BiLMConfig, format: str, fixed: Mapping[str, Any]) -> None:
    """Raise if a field has another value than the one that a format has for all models."""
    for name, value in fixed.items():
        if (ours := getattr(config, name)) != value:
            raise UnsupportedFormat(
                f"the {format} format has {name} {value!r}, but this model has {ours!r}"
            )


def _check_sizes(checkpoint: Checkpoint) -> None:
    """Raise unless vocabulary and dictionaries have as many entries as their tensors have rows."""
    config, source = checkpoint.config, checkpoint.source
    vocabulary, words = checkpoint.vocabulary, len(checkpoint.vocabulary or [])
    table = config.n_words if config.token_encoder == "words" else 0
    for part, size in (("softmax", config.vocabulary_size), ("table of word vectors", table)):
        if vocabulary is not None and size not in (0, words):
            counts = f"{words} words but the {part} has {size}"
            raise UnsupportedFormat(f"{source}: the vocabulary has {counts}")
    if config.token_encoder == "unicode":
        dictionaries = asdict(checkpoint.dictionaries or Dictionaries())
        sizes = {"characters": config.character_dim, "words": config.word_dim}
        for name, entries in dictionaries.items():
            count, rows = len(entries or []), getattr(config, f"n_{name}") if sizes[name] else 0
            if count != rows:
                counts = f"{count} entries but the model has {rows}"
                raise UnsupportedFormat(f"{source}: the dictionary of {name} has {counts}")


@contextmanager
def renamed(temporary: Path, path: str | Path) -> Iterator[None]:
    """Name `path` in the errors of the block instead of a temporary folder."""
    try:
        yield
    except ElmokitError as error:
        raise type(error)(str(error).replace(str(temporary), str(path))) from None


def new_model_folder(folder: Path, *, overwrite: bool = False) -> AbstractContextManager[Path]:
    """Like `atomic_folder`, but replace only a folder that is empty or has a model in it."""
    names = MODEL_FILES if overwrite else None
    check_replaceable(folder, names)
    own, options = try_json(folder / "config.json"), try_json(folder / "options.json")
    # Of any format that is written.
    is_model = own.get("model_type") == "elmo" or "config_path" in own or "lstm" in options
    if is_folder(folder) and any(folder.iterdir()) and not is_model:
        raise ElmokitError(f"{folder} is not a biLM, so it is not replaced")
    return atomic_folder(folder, replace=names)
