"""Tiny models with random weights, loaded the way users load theirs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference import Reference, make_options, make_reference

import elmokit
from elmokit import BiLM, BiLMConfig
from elmokit.data.labeled import BadLines, Reading
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.text.vocabulary import Vocabulary

WORDS = ["<S>", "</S>", "<UNK>", "the", "river", "bank", "中文", "naïve", "."]


def load_reference(reference: Reference, **settings: Any) -> Embedder:
    """The reference's weights in an Embedder, by way of its files."""
    with tempfile.TemporaryDirectory() as folder:
        return elmokit.load(reference.save(Path(folder)), **settings)


def tiny_elmo(*, seed: int = 0, **settings: Any) -> Embedder:
    """A model on characters with two layers of 10 cells and 12 columns."""
    return load_reference(make_reference(seed=seed), **settings)


def word_elmo(*, seed: int = 0, **settings: Any) -> Embedder:
    """A model on word ids, with `WORDS` as its vocabulary."""
    options = make_options(words=len(WORDS))
    return load_reference(make_reference(options, seed=seed, vocabulary=WORDS), **settings)


def make_reading(options: dict[str, Any]) -> Reading:
    """How to read examples: by whitespace, without bad lines, unless the options say otherwise.

    They are taken out of the options, which are then those of the columns.
    """
    names = [name for name in Reading.__dataclass_fields__ if name in options]
    own = {name: options.pop(name) for name in names}
    return Reading(**{"tokenize": str.split, "bad": BadLines(), **own})


SOFTMAX_WORDS = ["<S>", "</S>", "<UNK>", "the", "river", "bank", "boat", "sat", "on", "he", "."]


def softmax_elmo(**settings: Any) -> Embedder:
    """A model with a softmax over `SOFTMAX_WORDS` whose predictions are far from uniform."""
    torch.manual_seed(3)
    config = BiLMConfig(
        filters=((1, 8), (3, 16)),
        character_dim=6,
        lstm_dim=24,
        projection_dim=12,
        vocabulary_size=len(SOFTMAX_WORDS),
    )
    model = BiLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return Embedder(model, vocabulary=Vocabulary(SOFTMAX_WORDS), **settings)


def difference(result: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative where the expected number is above 1."""
    assert result.shape == expected.shape
    return float((np.abs(result - expected) / np.maximum(1.0, np.abs(expected))).max(initial=0.0))


def complaint(action: Callable[[], object]) -> str:
    """What an action refuses to do, in its words; empty if it does it. Other errors pass."""
    try:
        action()
    except ElmokitError as error:
        return str(error)
    return ""
