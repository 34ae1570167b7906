"""Sentences that come and go while others are read have the vectors that they have alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny import difference, tiny_elmo

import elmokit
from elmokit.embed import Embedder
from elmokit.model.fast.rows import Rows
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE

WORDS = "the river bank was closed all night , and he sat on it".split()


@pytest.fixture(scope="module", params=["tiny", "english", "float16"])
def elmo(request: pytest.FixtureRequest) -> Embedder:
    if request.param == "tiny":
        return tiny_elmo()
    return elmokit.load(precision="float32" if request.param == "english" else "float16")


def random_sentences(count: int) -> list[list[str]]:
    random = np.random.default_rng(count)
    return [list(random.choice(WORDS, n)) for n in random.integers(0, 30, count)]


def read_all(
    elmo: Embedder, sentences: list[list[str]], steps: int, beside: int, framed: bool
) -> dict[int, Any]:
    """The layers of all sentences, of which up to `beside` are read together."""
    waiting = list(range(len(sentences)))
    results: dict[int, Any] = {}
    with elmo.engine.lock, torch.inference_mode():
        rows = Rows(elmo.engine.packed())
        indices: dict[Any, int] = {}
        while waiting or rows.rows:
            begin = [waiting.pop(0) for _ in range(min(beside - len(rows.rows), len(waiting)))]
            vectors = [elmo.engine.token_vectors([sentences[i]]) for i in begin]
            indices.update(zip(rows.add(vectors, framed=framed), begin, strict=True))
            for row in rows.read(steps):
                results[indices[row]] = row.layers.numpy()
    return results


@pytest.mark.parametrize(("steps", "beside"), [(1, 3), (4, 5), (7, 1), (24, 8)])
def test_layers_do_not_depend_on_when_others_begin(elmo: Embedder, steps: int, beside: int) -> None:
    sentences = random_sentences(13)
    results = read_all(elmo, sentences, steps, beside, framed=False)
    for i, sentence in enumerate(sentences):
        alone = elmo.embed_tokens(sentence).layers
        assert results[i].shape == alone.shape
        assert difference(results[i], alone) < 5e-6


def test_boundaries_are_read_from_the_state_of_a_model_that_has_read_nothing(
    elmo: Embedder,
) -> None:
    sentences = random_sentences(5)
    framed = [[BEGIN_SENTENCE, *sentence, END_SENTENCE] for sentence in sentences]
    results = read_all(elmo, framed, steps=5, beside=3, framed=True)
    for i, sentence in enumerate(sentences):
        alone = elmo.embed_tokens(sentence, boundaries=True).layers
        assert difference(results[i], alone) < 5e-6


def test_a_sentence_that_is_left_out_does_not_change_the_others(elmo: Embedder) -> None:
    sentences = [sentence for sentence in random_sentences(9) if len(sentence) > 6]
    with elmo.engine.lock, torch.inference_mode():
        rows = Rows(elmo.engine.packed())
        begun = rows.add([elmo.engine.token_vectors([sentence]) for sentence in sentences])
        assert rows.read(4) == []
        kept = begun[1::2]
        rows.keep(kept)
        done = rows.read(100)
    assert set(done) == set(kept)
    assert rows.rows == []
    for row, sentence in zip(kept, sentences[1::2], strict=True):
        assert difference(row.layers.numpy(), elmo.embed_tokens(sentence).layers) < 5e-6
