"""Exported graphs in onnxruntime give the vectors of elmokit and of the plain references."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import ROOT, blocks
from many_langs_reference import SENTENCES, make_many_langs
from reference import make_options, make_reference
from tiny import SOFTMAX_WORDS, WORDS, complaint, difference, softmax_elmo

import elmokit
from elmokit.analysis.uses import read_uses
from elmokit.cli.main import main
from elmokit.embed import Embedder
from elmokit.model.batch import make_batch
from elmokit.model.kernels.linear import mkl_is_slow

pytest.importorskip("onnx", reason="onnx is not installed: elmokit[onnx]")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: elmokit[onnx]")

from elmokit.integrations import onnx as exporting
from elmokit.integrations.onnx import encode, export, run

VOCABULARY = [
    "The",
    "river",
    "bank",
    "closed",
    "all",
    "night",
    "naïve",
    "中文",
    "🙂",
    "a" * 70,
    ".",
]
LENGTHS = [[1], [5, 3, 0, 1], [0], [0, 0], [40, 2, 7, 7, 1], [3] * 17]


def sentences_of(lengths: list[int], words: list[str] = VOCABULARY) -> list[list[str]]:
    """Sentences of random words."""
    random = np.random.default_rng(sum(lengths))
    return [[str(word) for word in random.choice(words, length)] for length in lengths]


def relative_difference(a: Any, b: Any) -> float:
    """Largest difference of a value, as a share of it if it is above 1."""
    return float((np.abs(a - b) / np.maximum(1, np.abs(b))).max(initial=0))


def exact_layers(elmo: Embedder, sentences: list[list[str]]) -> Any:
    """The layers in float64: no two programs in float32 can be nearer than their rounding."""
    model = copy.deepcopy(elmo.model).double()
    with torch.no_grad():
        return model(make_batch(sentences, elmo.engine.indexer)).hidden_states.numpy()


def test_the_largest_distance_is_that_of_one_vector_and_a_share_of_its_length() -> None:
    expected = np.array([[[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]])
    vectors = np.array([[[3.0, 4.1], [0.34, 0.43], [0.0, 0.0]]])
    assert exporting.largest_distance(vectors, expected) == pytest.approx(0.05 / 0.5)
    assert exporting.largest_distance(expected, expected) == 0


def assert_like_reference(graph: Path, elmo: Embedder, reference: Any, sentences: Any) -> None:
    result = run(str(graph), encode(elmo, sentences))["layers"]
    for i, sentence in enumerate(sentences):
        if sentence:
            assert difference(result[:, i, : len(sentence)], reference.embed(sentence)) < 2e-6
        assert not result[:, i, len(sentence) :].any()


def test_the_included_model_gives_the_same_vectors_for_any_batch_and_length(
    tmp_path: Path,
) -> None:
    result = export("english", tmp_path / "elmo.onnx")
    assert result.max_difference < 2e-6
    assert result.graph_bytes == (tmp_path / "elmo.onnx").stat().st_size < 30e6
    elmo = elmokit.load()
    english = [list(use.tokens) for use in read_uses(ROOT / "examples" / "senses.tsv")]
    # Of all kernels, oneDNN's for AVX2 round most: they add the products one after the other.
    rounds_more = mkl_is_slow() and torch.backends.cpu.get_cpu_capability() == "AVX2"
    ordinary = [(english[:count], 5e-6 if rounds_more else 4e-6) for count in (1, 7, 50)]
    # LSTMs amplify the rounding of text that makes no sense, see docs/explanation/guarantees.md.
    for sentences, bound in [*ordinary, *((sentences_of(each), 5e-6) for each in LENGTHS)]:
        exact = exact_layers(elmo, sentences)
        layers = run(str(tmp_path / "elmo.onnx"), encode(elmo, sentences))["layers"]
        assert relative_difference(layers, exact) < bound
        own = elmo.layers_of(sentences).hidden_states.numpy()
        assert relative_difference(own, exact) < bound  # It rounds as much.
        assert exporting.largest_distance(layers, own) < 2e-6
        assert exporting.largest_distance(layers, exact) < 2e-6
    half = export("english", tmp_path / "half.onnx", dtype="float16")
    assert half.graph_bytes < 0.51 * result.graph_bytes
    assert 1e-7 < half.max_difference < 1e-3


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"layers": 1, "highways": 0, "activation": "tanh"}, {}),
        ({"layers": 3, "skip": False, "cell_clip": 0, "proj_clip": 0}, {}),
        ({"cell_clip": 0.1, "proj_clip": 0.05, "max_characters": 12}, {}),
        ({"size": 10}, {"project_state": False}),
        ({"filters": [[1, 2], [5, 4]]}, {"project_tokens": False}),
    ],
)
def test_all_kinds_of_networks_are_like_the_reference(
    tmp_path: Path, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    reference = make_reference(make_options(**options), **settings)
    weights = reference.save(tmp_path)
    assert export(weights, tmp_path / "elmo.onnx").outputs == ["layers"]
    sentences = sentences_of([5, 3, 0, 1])
    assert_like_reference(tmp_path / "elmo.onnx", elmokit.load(weights), reference, sentences)


def test_a_model_on_words_is_like_the_reference(tmp_path: Path) -> None:
    reference = make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)
    weights = reference.save(tmp_path)
    export(weights, tmp_path / "elmo.onnx")
    sentences = sentences_of([4, 1, 6], [*WORDS[3:], "unknown"])
    assert_like_reference(tmp_path / "elmo.onnx", elmokit.load(weights), reference, sentences)
    description = json.loads((tmp_path / "elmo.json").read_text())
    assert description["vocabulary"] == WORDS
    assert description["test"]["word_ids"][1][0] == WORDS.index("中文")


@pytest.mark.parametrize("kind", ["cnn", "lstm"])
@pytest.mark.parametrize("part", ["both", "characters", "words"])
def test_a_model_on_unicode_characters_is_like_the_reference(
    tmp_path: Path, kind: str, part: str
) -> None:
    missing: dict[str, dict[str, Any]] = {
        "characters": {"words": None},
        "words": {"characters": None},
    }
    reference = make_many_langs(name=kind, **missing.get(part, {}))
    folder = tmp_path / "model"
    reference.save(folder)
    export(folder, tmp_path / "elmo.onnx")
    elmo = elmokit.load(folder)
    for sentences in ([*SENTENCES, []], SENTENCES[:1]):
        assert_like_reference(tmp_path / "elmo.onnx", elmo, reference, sentences)
    description = json.loads((tmp_path / "elmo.json").read_text())
    assert set(description["dictionaries"]) == {"characters", "words"}


def test_the_softmax_gives_the_surprisal_of_each_word(tmp_path: Path) -> None:
    elmo = softmax_elmo()
    elmo.save_pretrained(tmp_path / "model")
    result = export(tmp_path / "model", tmp_path / "elmo.onnx", softmax=True)
    assert result.outputs == ["layers", "forward_log_probabilities", "backward_log_probabilities"]
    sentences = [["he", "sat", "on", "the", "bank", "."], ["the", "boat"], ["river"]]
    outputs = run(str(tmp_path / "elmo.onnx"), encode(elmo, sentences))
    for i, sentence in enumerate(sentences):
        (surprisal,) = elmo.surprisal([sentence])
        ids = [SOFTMAX_WORDS.index(word) for word in sentence]
        for name in ("forward", "backward"):
            rows = outputs[f"{name}_log_probabilities"][i, : len(sentence)]
            assert np.abs(np.exp(rows).sum(axis=1) - 1).max() < 1e-5
            bits = -rows[range(len(ids)), ids] / np.log(2)
            assert difference(bits, getattr(surprisal, name)) < 1e-5


def test_the_description_has_all_that_makes_the_inputs_and_tests_them(tmp_path: Path) -> None:
    reference = make_reference()
    export(reference.save(tmp_path), tmp_path / "elmo.onnx")
    description = json.loads((tmp_path / "elmo.json").read_text(encoding="utf-8"))
    test, rule = description["test"], description["characters"]
    expected = np.zeros((3, 3, 5, 12))
    for i, sentence in enumerate(test["tokens"]):
        for j, word in enumerate(sentence):
            middle = [byte + rule["first_byte"] for byte in word.encode()]
            ids = [rule["begin_word"], *middle[: rule["max_characters"] - 2], rule["end_word"]]
            ids += [rule["padding"]] * (rule["max_characters"] - len(ids))
            assert test["character_ids"][i][j] == ids
        if sentence:
            expected[:, i, : len(sentence)] = reference.embed(sentence)
    layers = np.array(test["layers"]).reshape(test["shape"])
    assert difference(layers, expected) < 2e-6
    assert test["lengths"] == [5, 1, 0]
    for example in description["tokenizer"]["examples"]:
        assert elmokit.tokenize(example["text"]) == example["tokens"]


def test_the_javascript_of_the_documentation_makes_the_same_inputs(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (block,) = (b.text for b in blocks(ROOT / "docs/how-to/onnx.md") if b.language == "javascript")
    code = block.partition("const session")[0].partition("\n")[2]  # without onnxruntime-web
    sentences = [
        "She didn't see John's well-known boat at 10:30, did she?",
        "Übermut: naïve 中 (yes)!",
    ]
    tokens = [elmokit.tokenize(sentence) for sentence in sentences] + [["a" * 70, "🙂"]]
    (tmp_path / "encode.mjs").write_text(
        "const ort = { Tensor: class { constructor(t, data) { this.data = data; } } };\n"
        f"{code}\nconst made = encode({json.dumps(tokens)});\n"
        "const ids = [made.character_ids, made.lengths].map((t) => [...t.data].map(Number));\n"
        f"console.log(JSON.stringify([{json.dumps(sentences)}.map(tokenize), ...ids]));",
        encoding="utf-8",
    )
    command = [node, str(tmp_path / "encode.mjs")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    split, ids, lengths = json.loads(done.stdout)
    assert split == tokens[:2]
    expected = encode(elmokit.load(), tokens)
    assert ids == expected["character_ids"].ravel().tolist()
    assert lengths == expected["lengths"].tolist()


def test_the_command_writes_both_files_and_replaces_them_only_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, graph = str(make_reference().save(tmp_path)), tmp_path / "elmo.onnx"
    assert main(["export", weights, str(graph), "--dtype", "float16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "float16 weights; vectors differ by at most" in lines[0]
    assert lines[1] == f"{tmp_path / 'elmo.json'}: inputs, tokenizer and a test vector"
    before = graph.read_bytes()
    assert main(["export", weights, str(graph)]) == 2
    assert "elmo.onnx already exists: choose another name" in capsys.readouterr().err
    assert graph.read_bytes() == before
    assert main(["export", weights, str(graph), "--overwrite"]) == 0
    assert graph.read_bytes() != before
    graph.unlink()
    assert "elmo.json already exists" in complaint(lambda: export(weights, graph))


def test_what_cannot_be_exported_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = make_reference().save(tmp_path)
    graph = tmp_path / "elmo.onnx"
    assert "ends in .onnx, not" in complaint(lambda: export(weights, tmp_path / "elmo.json"))
    assert "has no softmax" in complaint(lambda: export(weights, graph, softmax=True))
    assert "there is no folder" in complaint(lambda: export(weights, tmp_path / "no" / "elmo.onnx"))
    monkeypatch.setattr(exporting, "MAX_BYTES", 1000)
    assert "more than an ONNX file can have" in complaint(lambda: export(weights, graph))
    monkeypatch.undo()
    monkeypatch.setattr(exporting, "TOLERANCE", {"float32": -1.0})
    assert "gives different vectors" in complaint(lambda: export(weights, graph))
    assert not graph.exists()
    assert not graph.with_suffix(".json").exists()


def test_a_file_of_the_model_is_never_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    softmax_elmo().save_pretrained(model)
    before = (model / "config.json").read_bytes()
    for output in (model / "config.onnx", tmp_path / "linked.onnx"):
        (tmp_path / "linked.json").unlink(missing_ok=True)
        (tmp_path / "linked.json").symlink_to(model / "config.json")
        assert main(["export", str(model), str(output), "--overwrite"]) == 2
        assert "would overwrite the input" in capsys.readouterr().err
    assert (model / "config.json").read_bytes() == before
