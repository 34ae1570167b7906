"""Conversion between formats, checked by the vectors and the perplexity."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bundles import save_training, with_softmax
from children import Child
from reference import make_options, make_reference
from tiny import WORDS, difference

import elmokit
from elmokit.cli.main import main
from elmokit.conversion import SAMPLES, Conversion, convert
from elmokit.errors import ElmokitError
from elmokit.formats import bilm, native
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.detect import read_checkpoint
from elmokit.io.atomic import write_file


def test_there_and_back_again_every_weight_is_the_same(tmp_path: Path) -> None:
    reference = make_reference()
    source = reference.save(tmp_path / "source")
    first = convert(source, tmp_path / "native")
    second = convert(tmp_path / "native", tmp_path / "back", to="bilm")
    with h5py.File(tmp_path / "back" / "weights.hdf5") as file:
        for name, array in reference.stored.items():
            np.testing.assert_array_equal(file[name][...], array)
    assert (first.source_format, first.format) == ("bilm", "native")
    assert (second.source_format, second.format) == ("native", "bilm")
    assert first.max_difference == second.max_difference == 0.0


def test_a_converted_model_gives_the_vectors_and_says_where_it_is_from(tmp_path: Path) -> None:
    reference = make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)
    convert(str(reference.save(tmp_path / "source")), str(tmp_path / "native"))
    elmo = elmokit.load(tmp_path / "native")
    np.testing.assert_allclose(
        elmo.embed_tokens(["the", "bank"]).layers, reference.embed(["the", "bank"]), atol=1e-5
    )
    assert elmo.metadata["converted_from"] == "bilm"
    assert elmo.metadata["options"] == reference.options
    convert(str(tmp_path / "native"), str(tmp_path / "again"))
    assert read_checkpoint(tmp_path / "again").metadata == elmo.metadata


def test_half_the_precision_gives_nearly_the_same_vectors(tmp_path: Path) -> None:
    reference = make_reference()
    convert(str(reference.save(tmp_path / "source")), str(tmp_path / "half"), dtype="float16")
    result = elmokit.load(tmp_path / "half").embed_tokens(["the", "bank"]).layers
    distance = np.abs(result - reference.embed(["the", "bank"])).max()
    assert 1e-6 < distance < 2e-2
    with pytest.raises(ElmokitError, match="the bilm format stores float32 only"):
        convert(str(tmp_path / "half"), str(tmp_path / "x"), to="bilm", dtype="float16")


def test_a_broken_source_leaves_no_target(tmp_path: Path) -> None:
    source = make_reference().save(tmp_path / "source")
    with h5py.File(source, "a") as file:
        file["char_embed"][0, 0] = np.nan
    with pytest.raises(ElmokitError, match=r"weights\.hdf5.*not finite"):
        convert(str(source), str(tmp_path / "target"))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_source_whose_vectors_are_not_finite_is_reported(tmp_path: Path) -> None:
    reference = make_reference()
    reference.stored["CNN_proj/W_proj"][:] = 3e38  # each of them is a number
    weights = reference.save(tmp_path / "source")
    with pytest.raises(ElmokitError, match=r"weights\.hdf5 gives vectors that are not finite"):
        convert(str(weights), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_a_target_that_exists_is_kept_unless_allowed(tmp_path: Path) -> None:
    one = make_reference(seed=1).save(tmp_path / "one")
    convert(str(one), str(tmp_path / "target"))
    two = make_reference(seed=2).save(tmp_path / "two")
    with pytest.raises(ElmokitError, match="target already exists"):
        convert(str(two), str(tmp_path / "target"))
    expected = read_checkpoint(one).fingerprint()
    assert read_checkpoint(tmp_path / "target").fingerprint() == expected
    convert(str(two), str(tmp_path / "target"), overwrite=True)
    expected = read_checkpoint(two).fingerprint()
    assert read_checkpoint(tmp_path / "target").fingerprint() == expected


def test_a_conversion_that_changes_the_vectors_does_not_go_unnoticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = bilm.write

    def careless(checkpoint: Checkpoint, folder: Path, **settings: bool) -> None:
        write(checkpoint, folder, **settings)
        with h5py.File(folder / "weights.hdf5", "a") as file:
            name = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B"
            file[name][...] = np.roll(file[name][...], 1)

    monkeypatch.setattr(bilm, "write", careless)
    source = str(make_reference().save(tmp_path / "a"))
    with pytest.raises(ElmokitError, match="the converted model gives different vectors"):
        convert(source, str(tmp_path / "b"), to="bilm")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]  # and nothing is left behind


def softmax_folder(tmp_path: Path, seed: int = 0) -> Path:
    """A training checkpoint with a softmax over WORDS."""
    return save_training(with_softmax(make_reference(seed=seed)), tmp_path / f"run{seed}")


def test_a_softmax_that_changes_does_not_go_unnoticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = native.write

    def careless(checkpoint: Checkpoint, folder: Path, **settings: Any) -> None:
        checkpoint.tensors["softmax.bias"] = np.roll(checkpoint.tensors["softmax.bias"], 1)
        write(checkpoint, folder, **settings)

    source, target = str(softmax_folder(tmp_path)), tmp_path / "target"
    convert(str(softmax_folder(tmp_path, seed=3)), str(target))
    before = read_checkpoint(target)
    monkeypatch.setattr(native, "write", careless)
    with pytest.raises(ElmokitError, match="has perplexity"):
        convert(source, str(target), overwrite=True)
    assert read_checkpoint(target).fingerprint() == before.fingerprint()  # what was there stays
    with pytest.raises(ElmokitError, match="has perplexity"):
        convert(source, str(tmp_path / "new"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run0", "run3", "target"]


def test_words_that_change_places_do_not_go_unnoticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = native.write

    def careless(checkpoint: Checkpoint, folder: Path, **settings: Any) -> None:
        words = [*WORDS[:3], *reversed(WORDS[3:])]
        write(replace(checkpoint, vocabulary=words), folder, **settings)

    monkeypatch.setattr(native, "write", careless)
    reference = make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)
    with pytest.raises(ElmokitError, match="the converted model gives different vectors"):
        convert(str(reference.save(tmp_path / "a")), str(tmp_path / "b"))


def test_the_result_has_the_differences_that_were_measured(tmp_path: Path) -> None:
    result = convert(softmax_folder(tmp_path), tmp_path / "native", dtype="float16")
    assert isinstance(result, Conversion)
    assert (result.source, result.target) == (str(tmp_path / "run0"), tmp_path / "native")
    assert (result.source_format, result.dtype) == ("tensorflow", "float16")
    assert result.config.vocabulary_size == len(WORDS)
    assert 0 < result.max_difference < 2e-2
    assert 0 < result.perplexity_difference < 5e-2
    words = make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)
    comparison = convert(words.save(tmp_path / "words"), tmp_path / "more")
    assert comparison.max_difference == comparison.perplexity_difference == 0
    assert comparison.perplexity is comparison.new_perplexity is None


def test_perplexity_is_compared_with_that_of_the_model(tmp_path: Path) -> None:
    reference = with_softmax(make_reference())
    result = convert(save_training(reference, tmp_path / "run"), tmp_path / "native")
    losses = []
    for line in [*SAMPLES, " ".join(WORDS)]:
        words = line.split()
        ids = [WORDS.index(word if word in WORDS else "<UNK>") for word in ["<S>", *words, "</S>"]]
        forward, backward = np.split(reference.embed(words, boundaries=True)[-1], 2, axis=1)
        for rows, targets in ((forward[:-1], ids[1:]), (backward[1:], ids[:-1])):
            scores = rows @ reference.stored["softmax/W"].T + reference.stored["softmax/b"]
            shares = scores - np.log(np.exp(scores).sum(1, keepdims=True))
            losses += [-shares[k, target] for k, target in enumerate(targets)]
    expected = pytest.approx(np.exp(np.mean(losses)), abs=0.01)
    assert result.perplexity == expected
    assert result.new_perplexity == expected


# ---------------------------------------------------------------------- the older systems
BY_BILM = """
import json, os, sys, warnings
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
warnings.filterwarnings("ignore")
import tensorflow
import tensorflow.compat.v1 as tf
import tensorflow.python.ops.init_ops
tf.disable_eager_execution()
tf.nn.rnn_cell.LSTMCell
tf.disable_v2_behavior()
sys.modules["tensorflow"] = tf
import numpy as np
from bilm import Batcher, BidirectionalLanguageModel, TokenBatcher
folder, out, kind, sentences = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
options, weights = folder + "/options.json", folder + "/weights.hdf5"
if kind == "words":
    ids = TokenBatcher(folder + "/vocab.txt").batch_sentences(sentences)
    model = BidirectionalLanguageModel(
        options, weights, use_character_inputs=False, embedding_weight_file=weights
    )
    given = tf.placeholder("int32", shape=(None, None))
else:
    open(out + ".words", "w").write("<S>\\n</S>\\n<UNK>\\n")
    ids = Batcher(out + ".words", 50).batch_sentences(sentences)
    model = BidirectionalLanguageModel(options, weights)
    given = tf.placeholder("int32", shape=(None, None, 50))
found = model(given)["lm_embeddings"]
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    layers = session.run(found, {given: ids})
np.savez(out, *[row[:, : len(words)] for row, words in zip(layers, sentences)])
"""
BY_ALLENNLP = """
import importlib.machinery, json, sys, types
for name in ("", ".io", ".transforms", ".ops", ".ops.boxes", ".models"):  # imported, never used
    module = types.ModuleType("torchvision" + name)
    module.__path__ = []
    module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None, is_package=True)
    sys.modules[module.__name__] = module
    if name:
        owner, _, child = module.__name__.rpartition(".")
        setattr(sys.modules[owner], child, module)
import numpy as np
import torch
from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids
from allennlp.nn.util import remove_sentence_boundaries
folder, out, kind, sentences = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
model = _ElmoBiLm(folder + "/options.json", folder + "/weights.hdf5").eval()
with torch.no_grad():
    found = model(batch_to_ids(sentences))
layers = [remove_sentence_boundaries(x, found["mask"])[0] for x in found["activations"]]
rows = torch.stack(layers, 1).numpy()
np.savez(out, *[row[:, : len(words)] for row, words in zip(rows, sentences)])
"""
READERS = {"bilm": "TENSORFLOW", "allennlp": "ALLENNLP"}
KINDS = {
    "characters": make_options(highways=2),
    "no clips": make_options(cell_clip=0, proj_clip=0),
    "words": make_options(words=len(WORDS)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_the_older_systems_read_what_is_written(tmp_path: Path, reader: str, kind: str) -> None:
    variable = f"ELMOKIT_{READERS[reader]}_PYTHON"
    if variable not in os.environ:
        pytest.skip(f"no interpreter with this system is named by {variable}")
    if reader == "allennlp" and kind == "words":
        pytest.skip("AllenNLP takes no models on words")
    words = WORDS if kind == "words" else None
    reference = make_reference(KINDS[kind], vocabulary=words)
    convert(str(reference.save(tmp_path / "source")), str(tmp_path / "native"))
    convert(str(tmp_path / "native"), str(tmp_path / "written"), to="bilm")
    sentences = [["the", "river", "bank", "."], ["naïve", "中文"]]
    script = {"bilm": BY_BILM, "allennlp": BY_ALLENNLP}[reader]
    out = tmp_path / "layers.npz"
    arguments = [str(tmp_path / "written"), str(out), kind, json.dumps(sentences)]
    command = [os.environ[variable], "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(out) as result:
        for i, sentence in enumerate(sentences):
            assert difference(result[f"arr_{i}"], reference.embed(sentence)) < 1e-5


# ---------------------------------------------------------------------- nothing else is lost
def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("where", ["", "weights.hdf5", "model", "model/weights.hdf5"])
def test_a_source_inside_the_target_is_refused_before_it_is_read(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    make_reference().save(target / "model" if where.startswith("model") else target)
    before = contents(tmp_path)
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "source-link").symlink_to(target / where)
    monkeypatch.setattr("elmokit.conversion.read_checkpoint", lambda _: pytest.fail("it was read"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for source, to in (
        (target / where, target),
        (tmp_path / "link" / where, target),
        (tmp_path / "source-link", target),
        (f"~/target/{where}", target),
        (target / where, tmp_path / "link"),
        (target / where, tmp_path / "x" / ".." / "target"),
    ):
        with pytest.raises(ElmokitError, match=r"is in the folder to write, .*choose another"):
            convert(source, to, overwrite=True)
    (tmp_path / "link").unlink()
    (tmp_path / "source-link").unlink()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("foreign", ["thesis.tex", ".git/HEAD", "sub/config.json", "notes.hdf5"])
def test_a_target_with_a_users_files_is_never_replaced(tmp_path: Path, foreign: str) -> None:
    source = make_reference().save(tmp_path / "source")
    convert(source, tmp_path / "target")
    (tmp_path / "target" / foreign).parent.mkdir(exist_ok=True)
    (tmp_path / "target" / foreign).write_text("years of work")
    before = contents(tmp_path)
    with pytest.raises(ElmokitError, match=rf"other files are in it \({foreign.split('/')[0]}\)"):
        convert(source, tmp_path / "target", overwrite=True)
    assert main(["convert", str(source), str(tmp_path / "target"), "--overwrite"]) == 2
    assert contents(tmp_path) == before
    (tmp_path / "target" / foreign).rename(tmp_path / "safe")
    if "/" in foreign:
        (tmp_path / "target" / foreign).parent.rmdir()
    convert(source, tmp_path / "target", to="bilm", overwrite=True)
    assert sorted(contents(tmp_path / "target")) == ["options.json", "weights.hdf5"]


@pytest.mark.parametrize(
    "files",
    [
        {"words.txt": "years of work"},
        {"config.json": '{"port": 80}'},
        {"config.json": '{"model_type": "bert"}', "model.safetensors": "", "vocab.txt": ""},
        {"options.json": "[]", "config.json": "\xff"},
    ],
)
def test_a_folder_with_the_files_of_another_program_is_not_replaced(
    tmp_path: Path, files: dict[str, str]
) -> None:
    source, target = make_reference().save(tmp_path / "source"), tmp_path / "target"
    target.mkdir()
    for name, content in files.items():
        (target / name).write_text(content, encoding="latin-1")
    before = contents(tmp_path)
    for action in (
        lambda: convert(source, target, overwrite=True),
        lambda: elmokit.load(source).save_pretrained(target, overwrite=True),
    ):
        with pytest.raises(ElmokitError, match="target is not a biLM, so it is not replaced"):
            action()
    assert contents(tmp_path) == before


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_what_a_killed_conversion_has_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    source = make_reference().save(tmp_path / "source")
    program = (
        "import os, signal, sys; from elmokit import conversion; "
        "conversion._check = lambda *_: os.kill(os.getpid(), signal.SIGKILL); "
        "conversion.convert(sys.argv[1], sys.argv[2])"
    )
    child = Child([str(source), str(tmp_path / "out")], code=program)
    assert child.finish() == (-signal.SIGKILL, "")
    (left,) = tmp_path.glob(".out.*")
    (tmp_path / ".out.notes").write_text("of a user")
    convert(source, tmp_path / "out")
    assert not left.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".out.notes", "out", "source"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_what_a_killed_writer_of_a_file_has_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from elmokit.io import atomic\n"
        "with atomic.atomic_file(Path(sys.argv[1])) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "model.safetensors"
    command = [sys.executable, "-c", program, str(path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".model.safetensors.*"))) == 1
    write_file(path, b"whole")
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
