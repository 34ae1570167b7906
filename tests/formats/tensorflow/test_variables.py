"""Training checkpoints of bilm-tf: weights and softmax, as the original has them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bundles import (
    save_module,
    save_training,
    trained_tensors,
    with_softmax,
    write_bundle,
)
from huggingface_hub.utils._paths import filter_repo_objects
from reference import Reference, make_options, make_reference
from small_text import make_sentences
from tiny import WORDS, complaint, difference

import elmokit
from elmokit.cli.main import main
from elmokit.formats.checkpoint import check_tensors
from elmokit.formats.containers import hf_hub
from elmokit.formats.detect import read_checkpoint
from elmokit.formats.tensorflow.variables import dataset_name
from elmokit.model.bilm import expected_shapes
from elmokit.pretrain import AdaptSettings, adapt
from elmokit.pretrain.corpus import prepare
from elmokit.pretrain.evaluation import text_losses

SENTENCES = [["the", "river", "bank", "."], ["naïve"], ["中文", "unseen", "x" * 60, "."]]


def word_reference() -> Reference:
    return make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)


VARIANTS: dict[str, Callable[[], Reference]] = {
    "as published": make_reference,
    "as trained": lambda: with_softmax(make_reference()),
    "one layer": lambda: with_softmax(make_reference(make_options(layers=1))),
    "three layers, tanh": lambda: make_reference(make_options(layers=3, activation="tanh")),
    "no highway": lambda: make_reference(make_options(highways=0)),
    "two highways": lambda: make_reference(make_options(highways=2)),
    "no token projection": lambda: make_reference(make_options(size=15), project_tokens=False),
    "no state projection": lambda: make_reference(make_options(cells=6), project_state=False),
    "words": lambda: with_softmax(word_reference()),
    "words, shared with the softmax": lambda: with_softmax(word_reference(), shared=True),
}


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with a model that has a softmax."""
    return save_training(with_softmax(make_reference()), tmp_path / "trained")


def write_trained(folder: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    """The checkpoint of `trained` again, with other variables."""
    tensors = trained_tensors(with_softmax(make_reference()))
    change(tensors)
    write_bundle(folder / "model.ckpt-117", tensors)


# ---------------------------------------------------------------------- vectors and words
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_training_folder_gives_the_vectors_of_its_model(tmp_path: Path, variant: str) -> None:
    reference = VARIANTS[variant]()
    elmo = elmokit.load(save_training(reference, tmp_path))
    for sentence, result in zip(SENTENCES, elmo.embed(SENTENCES), strict=True):
        assert difference(result.layers, reference.embed(sentence)) < 1e-5
    assert elmo.metadata["checkpoint"] == "model.ckpt-117"
    assert elmo.metadata["options"] == reference.options


@pytest.mark.parametrize("variant", ["as trained", "one layer", "words, shared with the softmax"])
def test_the_softmax_says_how_likely_a_word_is(tmp_path: Path, variant: str) -> None:
    reference = VARIANTS[variant]()
    elmo = elmokit.load(save_training(reference, tmp_path))
    tokens = ["the", "unseen", "bank", "."]
    weight = reference.stored.get("softmax/W", reference.stored.get("embedding"))
    top = reference.embed(tokens, boundaries=True)[-1]
    (surprisal,) = elmo.surprisal([tokens])
    for direction, result in enumerate((surprisal.forward, surprisal.backward)):
        for position, token in enumerate(tokens):
            row = top[
                position + 2 * direction,
                direction * reference.size : (direction + 1) * reference.size,
            ]
            logits = weight @ row + reference.stored["softmax/b"]
            shares = np.exp(logits) / np.exp(logits).sum()
            i = WORDS.index(token if token in WORDS else "<UNK>")
            assert result[position] == pytest.approx(-np.log2(shares[i]), abs=1e-4)
    assert [filling.word in WORDS[3:] for filling in elmo.fill("the ___ .", k=3)] == [True] * 3


def test_a_checkpoint_can_be_adapted_with_its_softmax(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(" ".join(s) + "\n" for s in make_sentences(40)))
    settings = AdaptSettings(
        tokenizer="whitespace", max_steps=2, batch_size=2, unroll=5, threads=1, quiet=True
    )
    result = adapt(str(trained), tmp_path / "text.txt", tmp_path / "adapted", settings)
    assert (result.step, result.stopped_by) == (2, 0)
    adapted = elmokit.load(tmp_path / "adapted")
    assert adapted.vocabulary is not None
    assert adapted.vocabulary.words == WORDS
    assert "adapted_from" in adapted.metadata


def test_a_text_is_evaluated_as_it_is_written(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training with bilm-tf reads the letters of `<unk>`, not those of `<UNK>`."""
    text = tmp_path / "text.txt"
    text.write_text("the <unk> bank .\n" * 3)
    command = ["evaluate", str(trained), str(text), "--quiet"]
    command += ["--tokenizer", "whitespace"]
    assert main([*command, "--state", "fresh"]) == 0
    result = float(re.findall(r"perplexity.* ([\d.]+)\n", capsys.readouterr().out)[0])
    elmo = elmokit.load(trained)
    as_written, otherwise = (
        elmo.perplexity([["the", word, "bank", "."]]).average for word in ("<unk>", "<UNK>")
    )
    assert result == pytest.approx(as_written, abs=0.006)
    assert abs(as_written - otherwise) > 0.02


def test_without_its_vocabulary_the_softmax_is_left_out(trained: Path) -> None:
    (trained / "vocab.txt").unlink()
    checkpoint = read_checkpoint(trained)
    check_tensors(checkpoint, expected_shapes(checkpoint.config))
    assert checkpoint.config.vocabulary_size == 0
    assert checkpoint.vocabulary is None
    assert not any("softmax" in name for name in checkpoint.tensors)


def test_it_is_converted_with_its_softmax(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(trained), str(tmp_path / "native")]) == 0
    assert "tensorflow format" in capsys.readouterr().out
    before, after = read_checkpoint(trained), read_checkpoint(tmp_path / "native")
    assert after.vocabulary == WORDS
    assert after.config == before.config
    assert after.metadata["converted_from"] == "tensorflow"
    for name, tensor in before.tensors.items():
        np.testing.assert_array_equal(after.tensors[name], tensor)


# ---------------------------------------------------------------------- which files
def test_the_checkpoint_that_is_named_is_taken_and_else_the_last(tmp_path: Path) -> None:
    for step in (9, 10, 8):
        save_training(make_reference(seed=step), tmp_path, f"model.ckpt-{step}")
    expected = {step: make_reference(seed=step).embed(["the"]) for step in (8, 9, 10)}

    def step_of(path: Path) -> int:
        result = elmokit.load(path).embed_tokens(["the"]).layers
        return next(step for step, layers in expected.items() if difference(result, layers) < 1e-5)

    assert step_of(tmp_path) == 8  # the last that was written
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/home/x/run/model.ckpt-9"\n')
    assert step_of(tmp_path) == step_of(tmp_path / "checkpoint") == 9
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-11"\n')
    assert step_of(tmp_path) == 10
    (tmp_path / "checkpoint").write_bytes(b"\xff\xfe")
    assert step_of(tmp_path) == 10
    (tmp_path / "checkpoint").unlink()
    assert step_of(tmp_path) == step_of(tmp_path / "options.json") == 10
    assert step_of(tmp_path / "model.ckpt-8.index") == 8
    assert step_of(tmp_path / "model.ckpt-8") == 8
    (tmp_path / "model.ckpt-10.data-00000-of-00001").unlink()
    assert step_of(tmp_path) == 9  # not one whose data are gone


def test_several_checkpoints_without_steps_must_be_named(trained: Path) -> None:
    (trained / "checkpoint").unlink()
    for path in list(trained.glob("model.ckpt-117*")):
        shutil.copy(path, trained / path.name.replace("model.ckpt-117", "best"))
        path.rename(trained / path.name.replace("model.ckpt-117", "last"))
    assert "several checkpoints: name one of best.index, last.index" in complaint(
        lambda: read_checkpoint(trained)
    )
    assert read_checkpoint(trained / "best").vocabulary == WORDS


def test_it_comes_before_the_export_which_has_no_softmax(trained: Path) -> None:
    make_reference(seed=3).save(trained)  # the export, of another model to tell them apart
    assert read_checkpoint(trained).format == "tensorflow"
    assert read_checkpoint(trained / "weights.hdf5").format == "bilm"


def test_another_index_beside_an_export_is_not_a_checkpoint(tmp_path: Path) -> None:
    make_reference().save(tmp_path)
    (tmp_path / "neighbours.index").write_bytes(b"something else")
    assert read_checkpoint(tmp_path).format == "bilm"


@pytest.mark.parametrize("kind", ["trained", "module"])
def test_it_is_read_from_an_archive(tmp_path: Path, kind: str) -> None:
    save = save_training if kind == "trained" else save_module
    expected = read_checkpoint(save(make_reference(), tmp_path / "inside" / kind))
    shutil.make_archive(str(tmp_path / "packed"), "gztar", tmp_path / "inside")
    result = read_checkpoint(tmp_path / "packed.tar.gz")
    assert result.fingerprint() == expected.fingerprint()
    assert result.source == str(tmp_path / "packed.tar.gz")


@pytest.mark.parametrize("save", [save_training, save_module])
def test_the_files_are_among_those_fetched_from_the_hugging_face_hub(
    tmp_path: Path, save: Callable[[Reference, Path], Path]
) -> None:
    folder = save(with_softmax(make_reference()), tmp_path)
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert len(names) >= 3
    assert sorted(filter_repo_objects(names, allow_patterns=hf_hub.PATTERNS)) == sorted(names)


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop("lm/char_embed"), "lacks the variable 'char_embed'"),
        (lambda t: t.pop("lm/CNN/b_cnn_1"), "lacks the variable 'CNN/b_cnn_1'"),
        (
            lambda t: t.update({"lm/attention": np.zeros((2, 3), np.float32)}),
            r"not a known kind of ELMo; unknown variables: 'lm/attention' \[2, 3\]$",
        ),
        (
            lambda t: t.update({f"x{i}": np.zeros(1, np.float32) for i in range(9)}),
            r"unknown variables: 'x0' \[1\], .*'x4' \[1\] and 4 more$",
        ),
        (
            lambda t: t.update({"lm/CNN/W_cnn_7": np.zeros(1, np.float32)}),
            "a variable 'lm/CNN/W_cnn_7' that its options do not describe",
        ),
        (
            lambda t: t.update({"lm/CNN_proj/b_proj": np.zeros(7, np.float32)}),
            r"'lm/CNN_proj/b_proj' has the shape \[7\] but its options need \[6\]",
        ),
        (
            lambda t: t.update({"copy/char_embed": t["lm/char_embed"]}),
            "has char_embed twice: 'copy/char_embed', 'lm/char_embed'",
        ),
        (
            lambda t: t.update({"lm/softmax/W": np.zeros((7, 6), np.float32)}),
            r"'lm/softmax/b' has the shape \[9\] but its options need \[7\]",
        ),
        (
            lambda t: t.update({"lm/CNN_proj/b_proj": np.full(6, np.nan, np.float32)}),
            "the variable 'lm/CNN_proj/b_proj' has values that are not finite",
        ),
    ],
)
def test_variables_that_do_not_fit_are_named(
    trained: Path, change: Callable[[dict[str, np.ndarray]], object], sentence: str
) -> None:
    write_trained(trained, change)
    message = complaint(lambda: elmokit.load(trained))
    assert re.search(sentence, message)
    assert str(trained) in message


def test_files_that_are_missing_are_named(trained: Path) -> None:
    (trained / "options.json").unlink()
    assert "no options.json beside" in complaint(lambda: read_checkpoint(trained))
    assert "model.ckpt-117.index" in complaint(lambda: read_checkpoint(trained))
    (trained / "options.json").write_text("{}")
    assert "lacks 'lstm'" in complaint(lambda: read_checkpoint(trained))


def test_a_vocabulary_of_another_length_is_refused(trained: Path) -> None:
    (trained / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    assert "the vocabulary has 3 words but the softmax has 9" in complaint(
        lambda: elmokit.load(trained)
    )


@pytest.mark.parametrize(
    ("variable", "dataset"),
    [
        ("lm/RNN_1/rnn/multi_rnn_cell/cell_12/lstm_cell/kernel", "RNN_1/…/Cell12/LSTMCell/W_0"),
        ("lm/RNN_0/rnn/lstm_cell/bias", "RNN_0/…/Cell0/LSTMCell/B"),
        (
            "module/bilm/RNN_0/RNN/MultiRNNCell/Cell1/rnn/lstm_cell/projection/kernel",
            "RNN_0/…/Cell1/LSTMCell/W_P_0",
        ),
        ("bilm/RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0", "RNN_1/…/Cell0/LSTMCell/W_0"),
        ("module/bilm/CNN_high_1/W_transform", "CNN_high_1/W_transform"),
        ("char_embed", "char_embed"),
        ("lm/char_embed/Adagrad", None),
        ("lm/my_char_embed", None),
        ("lm/RNN_0/rnn/multi_rnn_cell/cell_0/gru_cell/kernel", None),
    ],
)
def test_a_variable_is_known_by_the_end_of_its_name(variable: str, dataset: str | None) -> None:
    whole = None if dataset is None else dataset.replace("…", "RNN/MultiRNNCell")
    assert dataset_name(variable) == whole


# ---------------------------------------------------------------------- the original
@pytest.fixture(scope="module")
def golden(shared: Path) -> Path:
    return shared / "golden" / "tf_checkpoint"


def test_the_weights_are_those_that_the_original_exported(golden: Path) -> None:
    result, exported = read_checkpoint(golden), read_checkpoint(golden / "weights.hdf5")
    assert (result.format, exported.format) == ("tensorflow", "bilm")
    for name, tensor in exported.tensors.items():
        np.testing.assert_array_equal(result.tensors[name], tensor)
    assert set(result.tensors) - set(exported.tensors) == {"softmax.weight", "softmax.bias"}
    assert result.tensors["softmax.weight"].shape == (1234, 12)


def test_the_layers_are_those_that_the_original_computed(golden: Path) -> None:
    elmo = elmokit.load(golden, tokenizer="whitespace")
    sentences = json.loads((golden / "sentences.json").read_text())
    with np.load(golden / "expected.npz") as expected:
        assert len(expected.files) == len(sentences) > 5
        for i, text in enumerate(sentences):
            result = elmo.embed_tokens(text).layers
            np.testing.assert_allclose(result, expected[f"layers_{i}"], atol=1e-6, rtol=0)


def test_the_perplexity_is_the_one_that_the_original_reported(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elmo = elmokit.load(golden, tokenizer="whitespace")
    corpus = prepare(
        str(golden / "heldout.txt"), tmp_path / "corpus", valid_fraction=0,
        tokenizer="whitespace", as_written=True, quiet=True,
    )  # fmt: skip
    losses, _ = text_losses(elmo, corpus, carry=True, stretches=1)
    assert np.exp(losses.sum() / (2 * (4066 + 200))) == pytest.approx(113.40804, abs=1e-3)
    command = ["evaluate", str(golden), str(golden / "heldout.txt")]
    command += ["--tokenizer", "whitespace"]
    assert main([*command, "--stretches", "1", "--quiet"]) == 0
    line = next(li for li in capsys.readouterr().out.splitlines() if li.startswith("perplexity"))
    assert line.split() == ["perplexity", "116.14", "110.74", "113.41"]
