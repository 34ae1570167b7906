"""Packed weights and word vectors, in threads and forked processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from children import HANGS
from tiny import complaint

import elmokit
from elmokit.config import BiLMConfig
from elmokit.embed import Embedder
from elmokit.model.batch import make_batch
from elmokit.model.bilm import BiLM
from elmokit.model.kernels.linear import mkl_is_slow
from elmokit.text.vocabulary import Vocabulary


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
    done = subprocess.run([sys.executable, "-c", FORK, lock], timeout=HANGS, check=False)
    assert done.returncode == 0


def test_an_engine_is_forgotten_with_its_model() -> None:
    from elmokit.engine import _engines

    before = len(_engines)
    elmo = elmokit.load()
    assert len(_engines) == before + 1
    del elmo
    assert len(_engines) == before


@pytest.mark.parametrize("threads", [1, 2])
def test_the_included_model_gives_the_same_bytes_in_any_batch_on_amd_processors(
    threads: int,
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        elmo = elmokit.load()
        sentences = [f"{'ñx' * i} The same sentence , {i} times".split() * 3 for i in range(1, 30)]
        together = elmo.embed(sentences)
        elmo.clear_cache()  # The words are encoded alone too.
        for one, other in zip(sentences, together, strict=True):
            difference = abs(elmo.embed_tokens(one).layers - other.layers).max()
            assert difference == 0 if mkl_is_slow() else difference < 1e-4
    finally:
        torch.set_num_threads(before)


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


# ---- words in advance


def words_elmo(cache_bytes: int = 1 << 20, seed: int = 0) -> Embedder:
    torch.manual_seed(seed)
    shape = BiLMConfig(
        filters=((1, 8), (2, 8)), lstm_dim=16, projection_dim=8, vocabulary_size=2003
    )
    words = [f"word{i}" for i in range(2000)]
    return Embedder(
        BiLM(shape), vocabulary=Vocabulary(["<S>", "</S>", "<UNK>", *words]),
        cache_bytes=cache_bytes,
    )  # fmt: skip


def count_encoded(elmo: Embedder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of words of each later call of the encoder."""
    encode, counts = elmo.engine.packed().encode, []

    def counting(ids: torch.Tensor) -> torch.Tensor:
        counts.append(len(ids))
        return encode(ids)

    monkeypatch.setattr(elmo.engine.packed(), "encode", counting)
    return counts


def test_warm_words_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cold, elmo = words_elmo(), words_elmo()
    assert elmo.warm_up() == 2003
    counts = count_encoded(elmo, monkeypatch)
    warm = elmo.embed_tokens(["word1", "word1999", "word7"])
    assert not counts
    expected = cold.embed_tokens(["word1", "word1999", "word7"])
    np.testing.assert_allclose(warm.layers, expected.layers, atol=1e-6)
    elmo.embed_tokens(["word1", "novel"])
    assert counts == [1]


def test_words_in_advance_are_those_that_fit() -> None:
    elmo = words_elmo(cache_bytes=0)  # room for 1,000 short words
    count = elmo.warm_up()
    assert 500 < count < 2003
    assert list(elmo.engine._words.rows)[3:5] == ["word0", "word1"]
    assert elmo.engine._words.bytes <= elmo.engine._words.max_bytes


def test_a_file_keeps_the_words_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "words"
    assert words_elmo().warm_up(["one", "two", "two"], file=file) == 2
    content = file.read_bytes()
    elmo = words_elmo()
    counts = count_encoded(elmo, monkeypatch)
    assert elmo.warm_up(file=file) == 2
    vectors = elmo.embed_tokens(["two", "one"]).layers
    assert not counts
    np.testing.assert_array_equal(vectors[0], words_elmo().embed_tokens(["two", "one"]).layers[0])
    assert file.read_bytes() == content
    other = words_elmo(seed=1)
    assert "does not have the word vectors of" in complaint(lambda: other.warm_up(file=file))
    file.write_text("my notes")
    assert "is not a safetensors file" in complaint(lambda: words_elmo().warm_up(file=file))
    assert file.read_text() == "my notes"


def test_a_model_without_a_vocabulary_needs_words(elmo: Embedder) -> None:
    assert "has no vocabulary" in complaint(elmo.warm_up)
    assert elmo.warm_up(["a", "b"]) == 2


def test_load_can_warm_up(tmp_path: Path) -> None:
    words_elmo().save_pretrained(tmp_path / "model")
    elmo = elmokit.load(tmp_path / "model", warm=tmp_path / "words")
    assert len(elmo.engine._words.rows) == 2003
    assert (tmp_path / "words").is_file()
    assert len(elmokit.load(tmp_path / "model", warm=True).engine._words.rows) == 2003
    assert not elmokit.load(tmp_path / "model").engine.fill_cache([])[0]


# ---- few rows


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("blocked_from", [0, 2 << 20])
@pytest.mark.parametrize("small", [0, 200, 1 << 20])
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_few_sentences_agree_with_the_model(
    is_slow: bool, blocked_from: int, small: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.model.kernels.linear.BLOCKED_FROM", blocked_from)
    monkeypatch.setattr("elmokit.model.kernels.linear.SMALL_PRODUCT", small)
    for module in ("kernels.linear", "fast.inference"):
        monkeypatch.setattr(f"elmokit.model.{module}.mkl_is_slow", lambda: is_slow)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        elmo = words_elmo()
        sentences = [[f"word{i}" for i in range(n, 2 * n + 3)] for n in range(count)]
        with torch.no_grad():
            ids = make_batch(sentences, elmo.indexer)
            expected = elmo.model.eval()(ids).hidden_states
        for row, sentence in enumerate(elmo.embed(sentences)):
            length = len(sentence.tokens)
            np.testing.assert_allclose(sentence.layers, expected[:, row, :length], atol=2e-6)
    finally:
        torch.set_num_threads(threads)
