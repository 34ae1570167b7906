"""Token vectors from dictionaries: the same numbers in every way of computing them."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from many_langs_reference import SENTENCES, make_many_langs
from tiny import complaint, difference

import elmokit
from elmokit.config import BiLMConfig
from elmokit.embed import Embedder
from elmokit.model.batch import make_batch
from elmokit.model.bilm import BiLM
from elmokit.model.encoders import UnicodeEncoder
from elmokit.model.fast import inference
from elmokit.text.dictionaries import Dictionaries
from elmokit.text.indexers import make_indexer

KINDS: dict[str, dict[str, Any]] = {
    "cnn": {},
    "cnn without words": {"words": None, "activation": "tanh"},
    "words alone": {"characters": None},
    "lstm": {"name": "lstm"},
}


@pytest.fixture(params=KINDS)
def elmo(request: pytest.FixtureRequest, tmp_path: Path) -> Embedder:
    return elmokit.load(make_many_langs(**KINDS[request.param]).save(tmp_path))


def words_of(lengths: range) -> list[str]:
    return ["aBé水今"[i % 5] * i for i in lengths]


# ---------------------------------------------------------------------- numbers
@pytest.mark.parametrize("kind", KINDS)
def test_a_word_of_any_length_has_the_vector_of_a_plain_reading(tmp_path: Path, kind: str) -> None:
    reference = make_many_langs(**KINDS[kind])
    elmo = elmokit.load(reference.save(tmp_path))
    words = words_of(range(30))
    expected = np.array([reference.token_vector(word) for word in words])
    together = elmo.embed([words], layers=0)[0].vectors
    alone = np.concatenate([elmo.embed([[word]], layers=0)[0].vectors for word in words])
    for actual in (together, alone):
        assert difference(actual, np.concatenate([expected, expected], axis=1)) < 2e-6
    with torch.no_grad():
        slow = elmo.model.token_encoder(torch.from_numpy(elmo.indexer.encode(words)))
    assert difference(slow.numpy(), expected) < 2e-6


def test_many_words_are_encoded_piece_by_piece_to_the_same_vectors(
    elmo: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*words_of(range(40)), "ab", "水"]
    expected = elmo.embed([words], layers=0)[0].vectors
    elmo.clear_cache()
    monkeypatch.setattr(inference, "ENCODER_WORDS", 3)
    np.testing.assert_allclose(elmo.embed([words], layers=0)[0].vectors, expected, atol=2e-6)


def test_the_module_and_the_fast_model_agree_and_carry_the_same_state(elmo: Embedder) -> None:
    sentences = SENTENCES[:3]
    with torch.no_grad():
        slow = elmo.model(make_batch(sentences, elmo.indexer), state="carry")
    for i, sentence in enumerate(elmo.embed(sentences)):
        actual = slow.hidden_states[:, i, : len(sentences[i])]
        assert difference(actual.numpy(), sentence.layers) < 1e-5
    _, state = elmo.embed_batch(sentences, state="carry")
    assert state is not None
    assert slow.state is not None
    for (h, c), (other_h, other_c) in zip(state.backward, slow.state.backward, strict=True):
        torch.testing.assert_close(h, other_h, atol=1e-5, rtol=0)
        torch.testing.assert_close(c, other_c, atol=1e-5, rtol=0)


def test_a_sentence_has_the_same_vectors_in_any_batch(elmo: Embedder) -> None:
    alone = [elmo.embed([sentence])[0].layers for sentence in SENTENCES]
    elmo.clear_cache()
    for batch_size in (1, 2, None):
        actual = elmo.embed([*SENTENCES[::-1], ["b" * 400]], batch_size=batch_size)[:-1]
        for one, sentence in zip(alone, actual[::-1], strict=True):
            assert difference(sentence.layers, one) < 1e-5


@pytest.mark.parametrize(("precision", "bound"), [("float16", 0.02), ("int8", 0.5)])
def test_smaller_weights_give_nearly_the_same_vectors(
    tmp_path: Path, precision: Any, bound: float
) -> None:
    folder = make_many_langs().save(tmp_path)
    exact = elmokit.load(folder).embed_tokens(SENTENCES[0]).layers
    actual = elmokit.load(folder, precision=precision).embed_tokens(SENTENCES[0]).layers
    assert 1e-6 < difference(actual, exact) < bound


# ---------------------------------------------------------------------- everything around it
def test_each_distinct_word_is_encoded_once(
    elmo: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    elmo.embed([["ab"]])  # the engine is there
    rows: list[int] = []
    packed = elmo.engine.packed()
    encode = packed.encode

    def counting(ids: torch.Tensor) -> torch.Tensor:
        rows.append(len(ids))
        return encode(ids)

    monkeypatch.setattr(packed, "encode", counting)
    elmo.embed([["ab", "水", "水", "今天"], ["水", "ab"]])
    elmo.embed([["今天", "B"]])
    assert rows == [2, 1]


def test_gradients_reach_every_weight_and_are_those_of_finite_differences(elmo: Embedder) -> None:
    model = copy.deepcopy(elmo.model).double()
    batch = make_batch([["ab", "水"], ["今天x", "B", "ab"]], elmo.indexer)
    weights = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def loss() -> torch.Tensor:
        value: torch.Tensor = (model.token_encoder(batch.features) @ weights).sin().sum()
        return value

    loss().backward()
    for name, parameter in model.token_encoder.named_parameters():
        assert parameter.grad is not None, name
        position = int(parameter.grad.abs().argmax())
        expected = float(parameter.grad.view(-1)[position])
        with torch.no_grad():
            around = []
            for step in (1e-6, -1e-6):
                parameter.view(-1)[position] += step
                around.append(float(loss()))
                parameter.view(-1)[position] -= step
        assert expected == pytest.approx((around[0] - around[1]) / 2e-6, rel=1e-3, abs=1e-6), name
        assert expected != 0.0, name


def test_the_layer_of_a_task_model_trains_it(elmo: Embedder) -> None:
    for trainable in (False, True):
        layer = elmokit.ElmoLayer(elmo, dropout=0.0, trainable=trainable)
        actual = layer([["ab", "水"], ["今天"]])
        assert actual.outputs[0].shape == (2, 2, 12)
        actual.outputs[0].sum().backward()
        gradients = [p.grad is not None for p in elmo.model.token_encoder.parameters()]
        assert all(gradients) if trainable else not any(gradients)


def test_copies_and_pickles_keep_the_dictionaries(elmo: Embedder) -> None:
    expected = elmo.embed_tokens(SENTENCES[0]).layers
    for other in (copy.deepcopy(elmo), pickle.loads(pickle.dumps(elmo))):
        np.testing.assert_array_equal(other.embed_tokens(SENTENCES[0]).layers, expected)
        assert other.fingerprint() == elmo.fingerprint()


def test_poolings_and_boundaries_work_as_for_other_models(elmo: Embedder) -> None:
    actual = elmo.embed_tokens(["ab", "水"], boundaries=True)
    assert actual.tokens == ["<S>", "ab", "水", "</S>"]
    plain = elmo.embed_tokens(["ab", "水"])
    assert difference(actual.layers[:, 1:-1], plain.layers) < 1e-6
    mean = elmo.sentence_vectors([["ab", "水"]])[0]
    np.testing.assert_allclose(mean, plain.layers.mean((0, 1)), atol=1e-6)
    assert "has no softmax" in complaint(lambda: elmo.surprisal("ab"))


def test_a_new_model_has_finite_vectors_for_any_word() -> None:
    values = {"token_encoder": "unicode", "character_dim": 4, "n_characters": 7, "lstm_dim": 8}
    dictionaries = Dictionaries(["<oov>", "<pad>", "<bow>", "<eow>", "<bos>", "<eos>", "a"])
    for reader in ("cnn", "lstm"):
        config = BiLMConfig.from_dict({**values, "character_encoder": reader, "projection_dim": 4})
        elmo = Embedder(BiLM(config), dictionaries=dictionaries)
        assert isinstance(elmo.model.token_encoder, UnicodeEncoder)
        assert np.isfinite(elmo.embed_tokens(["a", "b", "a" * 100]).layers).all()
    assert "needs its dictionaries" in complaint(lambda: make_indexer(config, None))
