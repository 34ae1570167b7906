"""Packed weights and word vectors, in threads and forked processes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Literal

import pytest
import torch

import elmokit
from elmokit.config import BiLMConfig
from elmokit.embed import Embedder
from elmokit.model.bilm import BiLM

TIMEOUT = 600  # seconds until a process counts as hanging, on a busy machine too


@pytest.fixture
def elmo() -> Embedder:
    torch.manual_seed(0)
    shape = BiLMConfig(filters=((1, 8), (2, 8)), lstm_dim=16, projection_dim=8, highway_layers=1)
    return Embedder(BiLM(shape), tokenizer="whitespace", cache_bytes=0)


def test_the_word_cache_is_bounded_in_bytes(elmo: Embedder) -> None:
    sentence = ["a", "b"]
    before = elmo.embed_tokens(sentence).layers
    words = elmo.engine._words
    assert set(words.rows) == {"a", "b"}
    long = [letter * 1_000_000 for letter in "cdefg"]
    vectors = elmo.embed([long, sentence])
    assert words.bytes <= words.max_bytes < 1_000_000
    assert not words.rows.keys() & set(long)
    assert abs(vectors[1].layers - before).max() < 1e-6
    assert abs(vectors[0].layers - elmo.embed_tokens(long).layers).max() < 1e-6


def test_many_words_are_forgotten_together(elmo: Embedder) -> None:
    words = [f"word{i}" for i in range(3_000)]
    once = elmo.embed_tokens(words).layers
    elmo.embed([words[:1500], words[1500:]])
    assert elmo.engine._words.bytes <= elmo.engine._words.max_bytes
    assert abs(elmo.embed_tokens(words).layers - once).max() < 1e-6


FORK = """
import os, sys, threading, time
import elmokit, torch
torch.set_num_threads(2)
elmo = elmokit.load()
sentence = "the same words in the parent and in the child"
expected = elmo.embed(sentence).layers
if sys.argv[1] == "held":
    threading.Thread(target=elmo.engine.lock.acquire).start()  # as if it were embedding
    while not elmo.engine.lock.locked():
        time.sleep(0.01)
child = os.fork()
if child == 0:
    difference = abs(elmo.embed(sentence).layers - expected).max()
    os._exit(0 if difference < 1e-5 and torch.get_num_threads() == 1 else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("lock", ["free", "held"])
def test_a_forked_process_can_embed(lock: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, lock], timeout=TIMEOUT, check=False)
    assert done.returncode == 0


def test_an_engine_is_forgotten_with_its_model() -> None:
    from elmokit.engine import _engines

    before = len(_engines)
    elmo = elmokit.load()
    assert len(_engines) == before + 1
    del elmo
    assert len(_engines) == before


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_rounded_weights_give_the_same_vectors_in_any_batch(
    precision: Literal["float16", "int8"],
) -> None:
    try:
        elmo = elmokit.load(precision=precision)
    except elmokit.ElmokitError as error:
        pytest.skip(str(error))
    sentences = [f"{'x' * i} The same sentence , {i} times".split() for i in range(1, 40)]
    together = elmo.embed(sentences)
    for one, other in zip(sentences, together, strict=True):
        assert abs(elmo.embed_tokens(one).layers - other.layers).max() < 1e-6
