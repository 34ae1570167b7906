"""The names of simple_elmo give what they gave there."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import save_training, with_softmax
from reference import Reference, make_reference
from tiny import WORDS, complaint, difference

import elmokit
from elmokit.errors import InvalidInput
from elmokit.formats.detect import read_checkpoint
from elmokit.simple_elmo import ElmoModel

TEXTS = [["the", "river", "bank", "."], ["naïve"], [], ["中文", "bank"]]
CLOSE = 1e-5


@pytest.fixture(scope="module")
def reference() -> Reference:
    return make_reference()


@pytest.fixture
def model(tmp_path: Path, reference: Reference) -> ElmoModel:
    result = ElmoModel()
    result.load(str(reference.save(tmp_path).parent))
    return result


def top_scores(reference: Reference, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the vocabulary for each word: (words, vocabulary) per direction."""
    top = reference.embed(words, boundaries=True)[-1]
    weight, bias = reference.stored["softmax/W"], reference.stored["softmax/b"]
    forward, backward = np.split(top, 2, axis=1)
    return forward[:-2] @ weight.T + bias, backward[2:] @ weight.T + bias


# ---------------------------------------------------------------------- vectors
def test_vectors_are_padded_with_zeros(model: ElmoModel, reference: Reference) -> None:
    layers = [reference.embed(text) if text else np.zeros((3, 0, 12)) for text in TEXTS]
    expected = {
        "all": layers,
        "top": [result[-1:] for result in layers],
        "average": [result.mean(0, keepdims=True) for result in layers],
    }
    for name, arrays in expected.items():
        result = model.get_elmo_vectors(TEXTS, layers=name)
        assert result.dtype == np.float64
        assert result.shape == ((4, 3, 4, 12) if name == "all" else (4, 4, 12))
        rows = result if name == "all" else result[:, None]
        for row, array in zip(rows, arrays, strict=True):
            assert difference(row[:, : array.shape[1]], array) < CLOSE
            assert not row[:, array.shape[1] :].any()
    np.testing.assert_array_equal(
        model.get_elmo_vectors(TEXTS), model.get_elmo_vectors(TEXTS, layers="average")
    )


def test_means_have_length_1_and_do_not_count_padding(
    model: ElmoModel, reference: Reference
) -> None:
    for name, shape in (("average", (4, 12)), ("top", (4, 12)), ("all", (4, 3, 12))):
        result = model.get_elmo_vector_average(TEXTS, layers=name)
        assert result.dtype == np.float64
        assert result.shape == shape
        assert not result[2].any()  # nothing was said
        for i in (0, 1, 3):
            layers = reference.embed(TEXTS[i])
            chosen = {"average": layers.mean(0), "top": layers[-1], "all": layers}[name]
            mean = chosen.mean(axis=-2)
            assert difference(result[i], mean / np.sqrt((mean**2).sum())) < CLOSE


def test_a_sentence_has_the_same_vectors_in_every_call_and_batch(
    tmp_path: Path, reference: Reference
) -> None:
    reference.save(tmp_path)
    small, large = ElmoModel(), ElmoModel()
    small.load(tmp_path, max_batch_size=1)
    large.load(tmp_path)
    first = large.get_elmo_vectors(TEXTS)
    assert difference(large.get_elmo_vectors(TEXTS, warmup=False), first) < CLOSE
    assert difference(small.get_elmo_vectors(TEXTS), first) < CLOSE


def test_a_string_is_the_list_of_its_characters(model: ElmoModel) -> None:
    np.testing.assert_array_equal(
        model.get_elmo_vectors(["bank"]), model.get_elmo_vectors([list("bank")])
    )
    assert model.get_elmo_vectors([]).shape == (0, 0, 12)


# ---------------------------------------------------------------------- names
def test_arguments_have_the_names_and_defaults_of_the_original() -> None:
    expected = {
        "load": {"directory": ..., "max_batch_size": 32, "limit": 100, "full": False},
        "get_elmo_vectors": {"texts": ..., "warmup": True, "layers": "average", "session": None},
        "get_elmo_vector_average": {
            "texts": ...,
            "warmup": True,
            "layers": "average",
            "session": None,
        },
        "get_elmo_substitutes": {"data": ..., "topn": 3, "nodelimiters": True},
    }
    for name, target in expected.items():
        result = list(inspect.signature(getattr(ElmoModel, name)).parameters.values())[1:]
        defaults = {p.name: p.default for p in result if p.kind is not p.VAR_KEYWORD}
        assert {
            k: ... if v is inspect.Parameter.empty else v for k, v in defaults.items()
        } == target


def test_a_loaded_model_has_the_attributes_of_the_original(
    tmp_path: Path, reference: Reference
) -> None:
    model = elmokit.simple_elmo.ElmoModel()
    assert model.load(str(reference.save(tmp_path).parent), 5) == "The model is now loaded."
    assert (model.batch_size, model.vector_size, model.n_layers, model.max_chars) == (5, 12, 3, 50)


# ---------------------------------------------------------------------- folders
def test_weights_are_taken_and_with_full_the_checkpoint(tmp_path: Path) -> None:
    trained, exported = with_softmax(make_reference(seed=1)), make_reference(seed=2)
    save_training(trained, tmp_path)
    exported.save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "weights.hdf5", tmp_path / "model.hdf5")
    shutil.copy(tmp_path / "other" / "weights.hdf5", tmp_path / "more.hdf5")
    model = ElmoModel()
    model.load(tmp_path)
    assert (
        difference(
            model.get_elmo_vectors([["bank"]], layers="top")[0], exported.embed(["bank"])[-1]
        )
        < CLOSE
    )
    model.load(tmp_path, full=True)
    assert (
        difference(model.get_elmo_vectors([["bank"]], layers="top")[0], trained.embed(["bank"])[-1])
        < CLOSE
    )


# ---------------------------------------------------------------------- substitutes
def test_substitutes_are_the_words_with_the_best_scores(tmp_path: Path) -> None:
    reference = with_softmax(make_reference())
    model = ElmoModel()
    model.load(save_training(reference, tmp_path), full=True)
    lines = ["the  river xyz .", "naïve", ""]
    result = model.get_elmo_substitutes(lines, topn=4)
    assert [[word["word"] for word in line] for line in result] == [
        ["the", "river", "<UNK>", "."],
        ["naïve"],
        [],
    ]
    for line, sentence in zip(lines, result, strict=True):
        for direction, scores in zip(
            ("forward", "backward"), top_scores(reference, line.split()), strict=True
        ):
            for word, row in zip(sentence, scores, strict=True):
                best = [k for k in np.argsort(-row) if WORDS[k] not in ("<S>", "</S>")][:4]
                assert sorted(word) == ["backward", "forward", "word"]
                assert word[direction]["candidates"] == best
                assert word[direction]["candidate_words"] == [WORDS[k] for k in best]
                np.testing.assert_allclose(word[direction]["logp"], row[best], atol=1e-4)
    json.dumps(result)  # plain numbers and strings


def test_sentence_boundaries_are_substitutes_if_asked_for(tmp_path: Path) -> None:
    reference = with_softmax(make_reference())
    model = ElmoModel()
    model.load(save_training(reference, tmp_path), full=True)
    [[word]] = model.get_elmo_substitutes(["bank"], topn=len(WORDS), nodelimiters=False)
    assert sorted(word["forward"]["candidate_words"]) == sorted(WORDS)
    [[word]] = model.get_elmo_substitutes(["bank"], topn=len(WORDS) - 2)
    assert {"<S>", "</S>"}.isdisjoint(word["forward"]["candidate_words"])


# ---------------------------------------------------------------------- refusals
def test_what_cannot_be_done_is_reported(tmp_path: Path, model: ElmoModel) -> None:
    assert "call load first" in complaint(lambda: ElmoModel().get_elmo_vectors([["a"]]))
    for wrong in ("first", 0, None):
        assert "layers must be one of average, top, all" in complaint(
            lambda: model.get_elmo_vectors([["a"]], layers=wrong)  # type: ignore[arg-type]  # noqa: B023
        )
    assert "list of sentences" in complaint(lambda: model.get_elmo_vector_average("a b"))
    assert "cannot predict words" in complaint(lambda: model.get_elmo_substitutes(["a"]))
    make_reference().save(tmp_path / "exported")
    sentence = complaint(lambda: ElmoModel().load(tmp_path / "exported", full=True))
    assert "full=True needs a model with a softmax" in sentence
    model.load(save_training(with_softmax(make_reference()), tmp_path / "run"), full=True)
    assert "topn must be 1 to 7" in complaint(lambda: model.get_elmo_substitutes(["a"], topn=8))
    for data in ("a b", [["a", "b"]], ["a b", ("a", "b")]):
        with pytest.raises(InvalidInput, match="data must be a list of strings"):
            model.get_elmo_substitutes(data)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- the original
THEIRS = """
import json, sys
import numpy as np
import tensorflow as tf
from simple_elmo import ElmoModel
folder, out, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
model, arrays = ElmoModel(), {}
model.load(folder)
for layers in ("average", "top", "all"):
    arrays["vectors_" + layers] = model.get_elmo_vectors(texts, warmup=False, layers=layers)
    arrays["means_" + layers] = model.get_elmo_vector_average(texts, warmup=False, layers=layers)
tf.compat.v1.reset_default_graph()
model = ElmoModel()
model.load(folder, max_batch_size=1, full=True)
words = model.get_elmo_substitutes([" ".join(text) for text in texts] + ["end"], topn=3)
np.savez(out, substitutes=json.dumps(words), **arrays)
"""


@pytest.mark.slow
def test_the_original_gives_the_same(shared: Path, tmp_path: Path, tensorflow_python: str) -> None:
    folder = Path(shutil.copytree(shared / "golden" / "tf_checkpoint", tmp_path / "model"))
    options = json.loads((folder / "options.json").read_text())
    options["char_cnn"]["n_characters"] = 262
    (folder / "options.json").write_text(json.dumps(options))
    texts = [["The", "man", "said", "."], ["He", "was", "the", "bank"], ["A", "naïve", "中文", ","]]
    command = [tensorflow_python, "-c", THEIRS, str(folder), str(tmp_path / "out.npz")]
    subprocess.run([*command, json.dumps(texts)], check=True, capture_output=True)
    theirs = np.load(tmp_path / "out.npz")
    model = ElmoModel()
    model.load(folder)
    for layers in ("average", "top", "all"):
        vectors = model.get_elmo_vectors(texts, layers=layers)
        means = model.get_elmo_vector_average(texts, layers=layers)
        assert vectors.dtype == theirs[f"vectors_{layers}"].dtype
        assert means.shape == theirs[f"means_{layers}"].shape
        np.testing.assert_allclose(vectors, theirs[f"vectors_{layers}"], atol=1e-6)
        if layers != "all":  # there it mixes layers and words up
            np.testing.assert_allclose(means, theirs[f"means_{layers}"], atol=1e-6)
    model.load(folder, full=True)
    assert read_checkpoint(folder).vocabulary == model.vocab.words  # type: ignore[union-attr]
    expected = json.loads(str(theirs["substitutes"]))
    result = model.get_elmo_substitutes([" ".join(text) for text in texts], topn=3)
    for ours, other in zip(result, expected[:3], strict=True):
        assert [word["word"] for word in ours] == [word["word"] for word in other]
        # It reads one word only: it has read all there is before the first and after the last.
        assert_same(ours[0]["forward"], other[0]["forward"])
        assert_same(ours[-1]["backward"], other[-1]["backward"])


def assert_same(ours: dict[str, list[Any]], theirs: dict[str, list[Any]]) -> None:
    """The same candidates; theirs come in any order."""
    order = [theirs["candidates"].index(i) for i in ours["candidates"]]
    assert [theirs["candidate_words"][k] for k in order] == ours["candidate_words"]
    np.testing.assert_allclose([theirs["logp"][k] for k in order], ours["logp"], atol=2e-4)
