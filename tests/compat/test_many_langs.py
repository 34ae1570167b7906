"""The names of ELMoForManyLangs give what they gave there."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from many_langs_reference import SENTENCES, ManyLangs, make_many_langs
from tiny import difference

from elmokit.errors import ElmokitError
from elmokit.manylangs import Embedder


@pytest.fixture
def reference() -> ManyLangs:
    return make_many_langs()


@pytest.fixture
def embedder(tmp_path: Path, reference: ManyLangs) -> Embedder:
    return Embedder(str(reference.save(tmp_path)))


def test_every_output_layer_is_that_of_the_original(shared: Path) -> None:
    golden = shared / "golden" / "many_langs"
    sentences = json.loads((golden / "sentences.json").read_text(encoding="utf-8"))
    embedder = Embedder(golden)
    with np.load(golden / "expected.npz") as stored:
        expected = [stored[f"layers_{number}"] for number in range(len(sentences))]
    for layer in (0, 1, 2, -1, -2):
        for found, layers in zip(embedder.sents2elmo(sentences, layer), expected, strict=True):
            wanted = {-1: layers.mean(0), -2: layers}.get(layer)
            wanted = layers[layer] if wanted is None else wanted
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, wanted, atol=1e-6, rtol=2.4e-7)


def test_output_layers_are_those_of_a_plain_reading(
    embedder: Embedder, reference: ManyLangs
) -> None:
    layers = [reference.embed(sentence) for sentence in SENTENCES]
    expected = {
        0: [found[0] for found in layers],
        1: [found[1] for found in layers],
        2: [found[2] for found in layers],
        -1: [found.mean(0) for found in layers],
        -2: layers,
    }
    for output_layer, wanted in expected.items():
        found = embedder.sents2elmo(SENTENCES, output_layer=output_layer)
        assert isinstance(found, list)
        for one, other in zip(found, wanted, strict=True):
            assert difference(one, other) < 2e-6
    for one, other in zip(embedder.sents2elmo(SENTENCES), expected[-1], strict=True):
        assert difference(one, other) < 2e-6


def test_sentences_come_back_in_their_order_whatever_the_batch_is(
    tmp_path: Path, reference: ManyLangs
) -> None:
    sentences = [["水"] * length for length in (5, 1, 3, 0, 7, 2)]
    for batch_size in (1, 2, 64):
        found = Embedder(reference.save(tmp_path), batch_size=batch_size).sents2elmo(sentences)
        assert [array.shape for array in found] == [(len(s), 12) for s in sentences]
        assert difference(found[4], reference.embed(sentences[4]).mean(0)) < 2e-6


def test_the_arguments_have_the_names_and_defaults_of_the_original() -> None:
    made = inspect.signature(Embedder).parameters
    assert list(made)[:2] == ["model_dir", "batch_size"]
    assert made["batch_size"].default == 64
    called = inspect.signature(Embedder.sents2elmo).parameters
    assert list(called) == ["self", "sents", "output_layer"]
    assert called["output_layer"].default == -1


def test_a_string_is_the_list_of_its_characters(embedder: Embedder) -> None:
    [found] = embedder.sents2elmo(["今天水"])
    [expected] = embedder.sents2elmo([["今", "天", "水"]])
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ElmokitError, match="sents must be a list of sentences"):
        embedder.sents2elmo("今天")
    assert embedder.sents2elmo([]) == []


@pytest.mark.parametrize("layer", [3, -3, 1.5, "top", None, True])
def test_another_output_layer_is_refused(embedder: Embedder, layer: int) -> None:
    with pytest.raises(
        ElmokitError, match=r"output_layer must be 0 to 2, -1 \(average\) or -2 \(all\)"
    ):
        embedder.sents2elmo([["水"]], layer)
