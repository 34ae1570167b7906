"""Our own format: exact, whole or not there at all, and careful with what it reads."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import HANGS
from reference import make_options, make_reference
from safetensors.numpy import load_file, save_file
from tiny import WORDS

import elmokit
from elmokit.errors import ElmokitError
from elmokit.formats import native
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.detect import read_checkpoint
from elmokit.io import jsonfile


@pytest.fixture
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return read_checkpoint(make_reference().save(tmp_path_factory.mktemp("source")))


def on_words(folder: Path) -> Checkpoint:
    reference = make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)
    return read_checkpoint(reference.save(folder))


def with_softmax(folder: Path) -> Checkpoint:
    reference = make_reference(vocabulary=WORDS)
    reference.stored["softmax/W"] = np.ones((len(WORDS), 6), np.float32)
    reference.stored["softmax/b"] = np.arange(len(WORDS), dtype=np.float32)
    return read_checkpoint(reference.save(folder))


# ---------------------------------------------------------------------- both ways
def test_a_model_comes_back_to_the_bit_and_is_written_to_the_same_bytes(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    native.write(checkpoint, tmp_path / "one")
    result = read_checkpoint(tmp_path / "one")
    assert result.config == checkpoint.config
    assert result.metadata == checkpoint.metadata
    assert result.format == "native"
    assert sorted(result.tensors) == sorted(checkpoint.tensors)
    for name, tensor in checkpoint.tensors.items():
        assert result.tensors[name].dtype == np.float32
        np.testing.assert_array_equal(result.tensors[name], tensor, err_msg=name)
    native.write(result, tmp_path / "two")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert not (tmp_path / "one" / "vocab.txt").exists()


def test_a_saved_model_gives_the_same_vectors(tmp_path: Path) -> None:
    reference = make_reference()
    elmo = elmokit.load(reference.save(tmp_path / "bilm"))
    elmo.save_pretrained(tmp_path / "native")
    result = elmokit.load(tmp_path / "native").embed_tokens(["the", "river", "bank"]).layers
    np.testing.assert_array_equal(result, elmo.embed_tokens(["the", "river", "bank"]).layers)
    np.testing.assert_allclose(result, reference.embed(["the", "river", "bank"]), atol=1e-5)


def test_float16_rounds_each_weight_and_halves_the_file(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    native.write(checkpoint, tmp_path / "half", dtype="float16")
    native.write(checkpoint, tmp_path / "full")
    result = native.read(tmp_path / "half").tensors
    for name, tensor in checkpoint.tensors.items():
        assert result[name].dtype == np.float32
        np.testing.assert_array_equal(result[name], tensor.astype(np.float16).astype(np.float32))
    half, full = (tmp_path / name / "model.safetensors" for name in ("half", "full"))
    numbers = sum(tensor.size for tensor in checkpoint.tensors.values())
    assert full.stat().st_size - half.stat().st_size == pytest.approx(2 * numbers, rel=0.02)


@pytest.mark.parametrize("make", [on_words, with_softmax])
def test_a_vocabulary_is_kept_beside_the_model(
    tmp_path: Path, make: Callable[[Path], Checkpoint]
) -> None:
    native.write(make(tmp_path / "source"), tmp_path / "model")
    assert read_checkpoint(tmp_path / "model").vocabulary == WORDS
    (tmp_path / "model" / "vocab.txt").unlink()
    with pytest.raises(ElmokitError, match=r"model lacks vocab\.txt, which its model needs"):
        read_checkpoint(tmp_path / "model")


@pytest.mark.parametrize("make", [on_words, with_softmax])
def test_a_vocabulary_of_another_length_is_refused(
    tmp_path: Path, make: Callable[[Path], Checkpoint]
) -> None:
    native.write(make(tmp_path / "source"), tmp_path / "model")
    path = tmp_path / "model" / "vocab.txt"
    path.write_text(path.read_text(encoding="utf-8") + "more\n", encoding="utf-8")
    with pytest.raises(
        ElmokitError, match=r"has 10 words but the (softmax|table of word .*) has 9"
    ):
        elmokit.load(tmp_path / "model")


def test_metadata_of_any_kind_is_kept(tmp_path: Path, checkpoint: Checkpoint) -> None:
    metadata = {"perplexity": 39.7, "语料": ["新闻", None], "steps": 10}
    kept = Checkpoint(checkpoint.config, checkpoint.tensors, metadata=metadata)
    native.write(kept, tmp_path / "model")
    assert native.read(tmp_path / "model").metadata == metadata


def test_a_weight_that_the_type_cannot_hold_is_not_written(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    checkpoint.tensors["forward_layers.0.bias"][0] = 1e6
    with pytest.raises(ElmokitError, match=r"'forward_layers.0.bias' has values that float16"):
        native.write(checkpoint, tmp_path / "model", dtype="float16")
    checkpoint.tensors["forward_layers.0.bias"][0] = np.nan
    with pytest.raises(ElmokitError, match=r"'forward_layers.0.bias' has values that float32"):
        native.write(checkpoint, tmp_path / "model")
    with pytest.raises(ElmokitError, match="float32 or float16, not 'int8'"):
        native.write(checkpoint, tmp_path / "model", dtype="int8")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- whole or not at all
class Stopped(BaseException):
    """As a KeyboardInterrupt in the middle."""


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Stopped()])
def test_a_write_that_fails_leaves_nothing_and_keeps_the_old_model(
    tmp_path: Path,
    checkpoint: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    native.write(checkpoint, tmp_path / "old")
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}

    def half(tensors: object, path: Path, **settings: object) -> None:
        path.write_bytes(b"half of it")
        raise error

    monkeypatch.setattr(native, "save_file", half)
    with pytest.raises((ElmokitError, Stopped)) as caught:
        native.write(checkpoint, tmp_path / "new")
    assert isinstance(caught.value, Stopped) or "new: No space left" in str(caught.value)
    with pytest.raises((ElmokitError, Stopped)):
        native.write(checkpoint, tmp_path / "old", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before


def test_the_old_model_is_put_back_if_the_new_one_cannot_take_its_name(
    tmp_path: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.write(checkpoint, tmp_path / "model")
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name.startswith(".model.") and not path.name.endswith(".old"):
            raise PermissionError(1, "Operation not permitted")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ElmokitError, match=r"cannot write .*model: Operation not permitted"):
        native.write(checkpoint, tmp_path / "model", overwrite=True)
    monkeypatch.undo()
    assert read_checkpoint(tmp_path / "model").fingerprint() == checkpoint.fingerprint()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from elmokit.formats import native

    def half(tensors, path, **settings):
        path.write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)

    native.save_file = half
    folder = Path(sys.argv[1])
    native.write(native.read(folder / "old"), folder / sys.argv[2], overwrite=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("name", ["old", "new"])
def test_a_process_killed_while_writing_leaves_no_half_model(
    tmp_path: Path, checkpoint: Checkpoint, name: str
) -> None:
    native.write(checkpoint, tmp_path / "old")
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), name]
    assert subprocess.run(command, timeout=HANGS).returncode == -signal.SIGKILL
    assert not (tmp_path / "new").exists()
    assert read_checkpoint(tmp_path / "old").fingerprint() == checkpoint.fingerprint()
    native.write(checkpoint, tmp_path / "new")  # What the killed run left does not matter.
    assert read_checkpoint(tmp_path / "new").fingerprint() == checkpoint.fingerprint()


FULL_DISK = """
    import resource, sys
    from pathlib import Path
    from elmokit.errors import ElmokitError
    from elmokit.formats import native

    model = native.read(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
    try:
        native.write(model, Path(sys.argv[2]))
    except ElmokitError as error:
        sys.exit(7 if "model.safetensors" in str(error) else 8)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit to set")
def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path, checkpoint: Checkpoint) -> None:
    native.write(checkpoint, tmp_path / "old")
    command = [sys.executable, "-c", textwrap.dedent(FULL_DISK), "old", "new"]
    run = subprocess.run(command, cwd=tmp_path, timeout=HANGS, stderr=subprocess.PIPE)
    assert run.returncode == 7, run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_an_existing_folder_is_replaced_only_if_allowed(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "diary.txt").write_text("dear diary")
    with pytest.raises(ElmokitError, match="model already exists: choose another name"):
        native.write(checkpoint, tmp_path / "model")
    with pytest.raises(ElmokitError, match=r"other files are in it \(diary.txt\)"):
        native.write(checkpoint, tmp_path / "model", overwrite=True)
    assert (tmp_path / "model" / "diary.txt").read_text() == "dear diary"
    looks_like_a_model = '{"model_type": "elmo"}'
    (tmp_path / "model" / "config.json").write_text(looks_like_a_model)
    with pytest.raises(ElmokitError, match=r"other files are in it \(diary.txt\)"):
        native.write(checkpoint, tmp_path / "model", overwrite=True)
    (tmp_path / "model" / "diary.txt").unlink()
    native.write(checkpoint, tmp_path / "model", overwrite=True)
    result = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert result == ["model", "model/config.json", "model/model.safetensors"]


def test_a_folder_is_not_made_where_there_is_none_to_put_it_in(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    with pytest.raises(ElmokitError, match=r"there is no folder .*nowhere to write model into"):
        native.write(checkpoint, tmp_path / "nowhere" / "model")
    (tmp_path / "file").write_text("")
    with pytest.raises(ElmokitError, match=r"there is no folder .*file to write model into"):
        native.write(checkpoint, tmp_path / "file" / "model")


# ---------------------------------------------------------------------- damaged and foreign files
@pytest.fixture
def model(tmp_path: Path, checkpoint: Checkpoint) -> Path:
    native.write(checkpoint, tmp_path / "model")
    return tmp_path / "model"


def change_config(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads((model / "config.json").read_text())
    change(values)
    (model / "config.json").write_text(json.dumps(values))


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "version": (lambda v: v.update(format_version=2), "has format version 2; this elmokit reads"),
    "no version": (lambda v: v.pop("format_version"), "has format version None"),
    "no model": (lambda v: v.pop("model"), "lacks the object 'model'"),
    "a list": (lambda v: v.update(model=[1]), "lacks the object 'model'"),
    "unknown": (lambda v: v["model"].update(layer=2), "'layer'; did you mean 'num_layers'"),
    "text": (lambda v: v["model"].update(num_layers="2"), "num_layers must be an integer"),
    "float": (lambda v: v["model"].update(lstm_dim=10.0), "lstm_dim must be an integer"),
    "huge": (lambda v: v["model"].update(lstm_dim=10**12), "lstm_dim must be an integer"),
    "not finite": (lambda v: v["model"].update(cell_clip=float("nan")), "cell_clip must be a num"),
    "null": (lambda v: v["model"].update(filters=None), "filters must be a list"),
    "many": (lambda v: v["model"].update(filters=[[1, 1]] * 10**5), "filters must be a list"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_configuration_is_refused_with_its_files_name(model: Path, kind: str) -> None:
    change, sentence = WRONG[kind]
    change_config(model, change)
    with pytest.raises(ElmokitError, match=sentence) as caught:
        elmokit.load(model)
    assert str(model / "config.json") in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("num_layers", 3, "lacks the tensor 'forward_layers.2"),
        ("num_layers", 1, "has a tensor '(for|back)ward_layers.1"),
        ("lstm_dim", 11, r"has the shape \[.*\] but the fields of its configuration need \["),
        ("vocabulary_size", 9, r"lacks vocab\.txt"),
        ("highway_layers", 0, "has a tensor 'token_encoder.highways.0"),
        ("project_state", False, "project_state must be true unless"),
        ("token_encoder", "words", "n_words must be at least 3"),
    ],
)
def test_tensors_that_do_not_fit_the_configuration_are_named(
    model: Path, field: str, value: object, name: str
) -> None:
    change_config(model, lambda values: values["model"].update({field: value}))
    with pytest.raises(ElmokitError, match=name) as caught:
        elmokit.load(model)
    assert str(model) in str(caught.value)


def test_gigantic_dimensions_take_no_memory(model: Path) -> None:
    largest = 1 << 22
    change_config(
        model,
        lambda values: values["model"].update(
            lstm_dim=largest, projection_dim=largest, character_dim=largest, num_layers=100,
            highway_layers=100, n_characters=largest, filters=[[50, largest]],
        ),
    )  # fmt: skip
    tracemalloc.start()
    try:
        with pytest.raises(ElmokitError, match=r"has the shape|lacks the tensor|do not describe"):
            elmokit.load(model)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_configuration_of_another_kind_of_model_is_not_ours(model: Path) -> None:
    (model / "config.json").write_text('{"model_type": "bert"}')
    assert not native.is_native(model)
    with pytest.raises(
        ElmokitError, match=r"config\.json is not the configuration of an elmokit model"
    ):
        native.read(model)


def test_a_configuration_too_large_to_be_one_is_not_read(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonfile, "MAX_CONFIG_BYTES", 100)
    with pytest.raises(ElmokitError, match=r"config\.json is too large for a configuration"):
        read_checkpoint(model)


def test_a_truncated_file_of_weights_is_refused_wherever_it_ends(model: Path) -> None:
    path = model / "model.safetensors"
    whole = path.read_bytes()
    for end in [0, 1, 7, 8, 9, 500, *(len(whole) * part // 10 for part in range(1, 10))]:
        path.write_bytes(whole[:end])
        with pytest.raises(ElmokitError, match=r"model\.safetensors is not a safetensors file"):
            read_checkpoint(model)


def test_a_header_that_promises_too_much_is_refused(model: Path) -> None:
    path = model / "model.safetensors"
    header = json.dumps({"x": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}})
    for length in (len(header), 1 << 62):
        path.write_bytes(length.to_bytes(8, "little") + header.encode() + bytes(64))
        with pytest.raises(ElmokitError, match=r"model\.safetensors is not a safetensors file"):
            read_checkpoint(model)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (np.zeros(40, np.int64), "'forward_layers.0.bias' is not floating point"),
        (np.full(40, np.nan, np.float32), "'forward_layers.0.bias' has values that are not finite"),
        (np.full(40, 1e300), "'forward_layers.0.bias' has values that are not finite"),
        (np.zeros(41, np.float32), r"'forward_layers.0.bias' has the shape \[41\] but"),
        (None, "lacks the tensor 'forward_layers.0.bias'"),
    ],
)
def test_a_wrong_tensor_is_refused_with_its_name(
    model: Path, value: np.ndarray | None, sentence: str
) -> None:
    tensors = load_file(model / "model.safetensors")
    del tensors["forward_layers.0.bias"]
    if value is not None:
        tensors["forward_layers.0.bias"] = value
    save_file(tensors, model / "model.safetensors")
    with pytest.raises(ElmokitError, match=sentence) as caught:
        elmokit.load(model)
    assert str(model) in str(caught.value)


def test_an_unknown_tensor_is_refused_with_its_name(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    save_file(tensors | {"more": np.zeros(1, np.float32)}, model / "model.safetensors")
    with pytest.raises(ElmokitError, match="has a tensor 'more' that the fields of its config"):
        elmokit.load(model)


# ---------------------------------------------------------------------- a task on top
def below_classifier(
    checkpoint: Checkpoint, folder: Path, **others: np.ndarray[Any, Any]
) -> Checkpoint:
    """Read a model as transformers writes it below a classifier, with other tensors beside it."""
    native.write(checkpoint, folder)
    tensors = {f"elmo.{name}": value for name, value in checkpoint.tensors.items()}
    head = {"classifier.weight": np.ones((5, 12), np.float32)}
    named = {name.replace("_", "."): value for name, value in others.items()}
    save_file({**tensors, **head, **named}, folder / "model.safetensors")
    return native.read(folder)


def test_the_elmo_below_a_classifier_is_read_with_its_mix(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    weights, gamma = np.array([0, 1, 2], np.float32), np.array(0.5, np.float32)
    result = below_classifier(
        checkpoint, tmp_path / "model", elmo_mix_weights=weights, elmo_mix_gamma=gamma
    )
    assert result.fingerprint() == checkpoint.fingerprint()
    mix = {"weights": [0, 1, 2], "gamma": 0.5, "layer_norm": False}
    assert result.metadata == {**checkpoint.metadata, "scalar_mixes": [mix]}
    plain = below_classifier(checkpoint, tmp_path / "plain")
    assert plain.metadata == checkpoint.metadata


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"crf_matrix": [[0]]}, "has a tensor 'crf.matrix' beside an ELMo and a classifier"),
        ({"elmo_mix_gamma": 1}, "a scalar mix needs 3 weights and a gamma"),
        (
            {"elmo_mix_gamma": 1, "elmo_mix_weights": [1, 2]},
            "a scalar mix needs 3 weights and a gamma",
        ),
        (
            {"elmo_mix_gamma": np.nan, "elmo_mix_weights": [1, 2, 3]},
            "the tensor 'mix.gamma' has values that are not finite",
        ),
    ],
)
def test_a_tensor_beside_elmo_and_classifier_is_refused(
    others: dict[str, Any], message: str, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    arrays = {name: np.array(value, np.float32) for name, value in others.items()}
    with pytest.raises(ElmokitError, match=message):
        below_classifier(checkpoint, tmp_path / "model", **arrays)
