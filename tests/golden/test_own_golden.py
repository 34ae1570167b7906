"""The golden files that ship with the repository: see make_own.py for how they were made."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit.model.batch import make_batch

FOLDER = Path(__file__).parent / "own"


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    return json.loads((FOLDER / "sentences.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def expected(sentences: list[list[str]]) -> list[np.ndarray]:
    with np.load(FOLDER / "expected.npz") as file:
        return [file[f"layers_{i}"] for i in range(len(sentences))]


def test_a_loaded_model_gives_the_expected_vectors(
    sentences: list[list[str]], expected: list[np.ndarray]
) -> None:
    elmo = elmokit.load(FOLDER)
    for actual, target in zip(elmo.embed(sentences), expected, strict=True):
        np.testing.assert_allclose(actual.layers, target, atol=1e-6, rtol=1e-6)


def test_the_training_path_gives_the_expected_vectors(
    sentences: list[list[str]], expected: list[np.ndarray]
) -> None:
    elmo = elmokit.load(FOLDER / "weights.hdf5")
    with torch.no_grad():
        layers = elmo.model(make_batch(sentences, elmo.indexer)).hidden_states.numpy()
    for row, target in enumerate(expected):
        actual = layers[:, row, : len(sentences[row])]
        np.testing.assert_allclose(actual, target, atol=1e-6, rtol=1e-6)


def test_the_golden_vectors_tell_words_and_contexts_apart(
    sentences: list[list[str]], expected: list[np.ndarray]
) -> None:
    """Vectors that hardly differ would prove little."""
    first, second = sentences[0].index("bank"), sentences[1].index("bank")
    np.testing.assert_allclose(expected[0][0, first], expected[1][0, second], atol=1e-12)
    assert np.abs(expected[0][1:, first] - expected[1][1:, second]).min(axis=1).max() > 1e-3
    assert np.abs(expected[0]).max() > 0.5
