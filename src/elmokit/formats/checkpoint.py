"""A model between files and memory: configuration, named tensors, words, metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.text.dictionaries import Dictionaries

Tensors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Checkpoint:
    """What every format reads and writes."""

    config: BiLMConfig
    tensors: Tensors
    """By the names of the model's parameters."""
    vocabulary: list[str] | None = None
    """The words of the softmax or of the word table, by id."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """How the model was trained and where it comes from, as far as its files say."""
    source: str = "memory"
    """What to call it in a message: its path or name."""
    format: str = "native"
    dictionaries: Dictionaries | None = None
    """What a model on Unicode characters looks its characters and words up in."""
    weights: str = ""
    """The file of the tensors, where that is not the source."""

    def fingerprint(self) -> str:
        """A hash of the configuration, the dictionaries and all weights that decide the vectors."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps(self.config.to_dict(), sort_keys=True).encode())
        if self.dictionaries is not None:
            digest.update(json.dumps(asdict(self.dictionaries)).encode())
        for name in sorted(self.tensors):
            if not name.startswith("softmax."):
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(self.tensors[name]).data)
        return digest.hexdigest()


def tokenizer_of(metadata: Mapping[str, Any]) -> str:
    """The tokenizer for a model of these metadata: "chinese" if it was trained with that.

    A model that was trained on text with spaces between its tokens does not say who put them there.
    """
    training = metadata.get("training")
    named = training.get("tokenizer") if isinstance(training, Mapping) else None
    return "chinese" if named == "chinese" else "elmokit"


def check_tensors(checkpoint: Checkpoint, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless the tensors are exactly the `expected` ones, of their shapes and finite.

    `elmokit.model.bilm.expected_shapes` gives them for a configuration.
    """
    where = checkpoint.weights or checkpoint.source
    for name in checkpoint.tensors:
        if name not in expected:
            raise ElmokitError(f"{where} has a tensor {name!r} that its configuration does not")
    for name, shape in expected.items():
        if name not in checkpoint.tensors:
            raise ElmokitError(f"{where} lacks the tensor {name!r}")
        tensor = checkpoint.tensors[name]
        if tensor.shape != shape:
            raise ElmokitError(
                f"{where}: the tensor {name!r} has the shape {list(tensor.shape)} "
                f"where its configuration gives {list(shape)}"
            )
        if not is_finite(tensor):
            raise ElmokitError(f"{where}: the tensor {name!r} has values that are not finite (NaN)")
    _check_dictionaries(checkpoint)
    if checkpoint.vocabulary is None:
        return
    words = len(checkpoint.vocabulary)
    sizes = {"softmax": checkpoint.config.vocabulary_size}
    if checkpoint.config.token_encoder == "words":
        sizes["table of word vectors"] = checkpoint.config.n_words
    for part, size in sizes.items():
        if size not in (0, words):
            raise ElmokitError(
                f"{checkpoint.source}: the vocabulary has {words} words but the {part} {size}"
            )


def is_finite(tensor: NDArray[np.float32]) -> bool:
    """Whether no value is infinite or NaN."""
    # The sum is finite unless something in it is not (or it overflows: then look closely).
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(tensor.sum()) or np.isfinite(tensor).all())


def _check_dictionaries(checkpoint: Checkpoint) -> None:
    config, found = checkpoint.config, checkpoint.dictionaries or Dictionaries()
    if config.token_encoder != "unicode":
        return
    for name, entries, rows in (
        ("characters", found.characters, config.n_characters if config.character_dim else 0),
        ("words", found.words, config.n_words if config.word_dim else 0),
    ):
        if len(entries or []) != rows:
            raise ElmokitError(
                f"{checkpoint.source}: the dictionary of {name} has {len(entries or [])} entries "
                f"but the model {rows}"
            )
