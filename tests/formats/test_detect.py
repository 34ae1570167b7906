"""`elmokit.load` finds out what a path is by looking at the files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from bundles import save_module, save_training, with_softmax
from huggingface_hub.errors import LocalEntryNotFoundError
from many_langs_reference import make_many_langs
from published import save_token_vectors
from reference import make_options, make_reference
from task_models import save_task_model
from tiny import WORDS, complaint

import elmokit
from elmokit.cli.main import main
from elmokit.cli.options import RecordedModelOptions
from elmokit.embed import Embedder
from elmokit.engine import build_model
from elmokit.errors import ElmokitError, MissingFile, UnsupportedFormat
from elmokit.formats import allennlp, detect, many_langs, native
from elmokit.formats.detect import lasting_name, own_tokenizer, read_checkpoint, recorded_model
from elmokit.formats.tensorflow import variables
from elmokit.io.jsonfile import read_json
from elmokit.tasks.folder import load_task
from elmokit.tasks.task import find_task


@pytest.fixture
def bilm_folder(tmp_path: Path) -> Path:
    make_reference().save(tmp_path / "bilm")
    return tmp_path / "bilm"


@pytest.fixture
def native_folder(tmp_path: Path, bilm_folder: Path) -> Path:
    native.write(read_checkpoint(bilm_folder), tmp_path / "native")
    return tmp_path / "native"


def test_folders_and_the_files_in_them_lead_to_the_same_model(
    bilm_folder: Path, native_folder: Path
) -> None:
    expected = read_checkpoint(bilm_folder)
    for path in (
        bilm_folder / "weights.hdf5",
        bilm_folder / "options.json",
        native_folder,
        native_folder / "config.json",
        native_folder / "model.safetensors",
    ):
        for name in (path, str(path)):
            assert read_checkpoint(name).fingerprint() == expected.fingerprint()
    assert expected.format == "bilm"
    assert read_checkpoint(native_folder).format == "native"


def test_a_loaded_model_has_the_settings_that_were_asked_for(bilm_folder: Path) -> None:
    elmo = elmokit.load(bilm_folder, precision="int8", tokenizer="whitespace", batch_tokens=9)
    assert isinstance(elmo, Embedder)
    assert (elmo.precision, elmo.tokenizer_name, elmo.batch_tokens) == ("int8", "whitespace", 9)
    assert elmo.embed("don't").tokens == ["don't"]
    assert not elmo.model.training
    with pytest.raises(ElmokitError, match="precision must be one of float32, float16, int8"):
        elmokit.load(bilm_folder, precision="float64")  # type: ignore[arg-type]


def test_a_link_and_the_home_folder_are_followed(
    bilm_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bilm_folder.parent / "link").symlink_to(bilm_folder)
    assert read_checkpoint(bilm_folder.parent / "link").config.num_layers == 2
    monkeypatch.setenv("HOME", str(bilm_folder.parent))
    assert read_checkpoint("~/bilm").config.num_layers == 2


def test_the_model_that_ships_with_elmokit_is_the_default(
    native_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "SHIPPED", {"english": native_folder})
    expected = read_checkpoint(native_folder).fingerprint()
    assert read_checkpoint().fingerprint() == expected
    monkeypatch.setattr(detect, "SHIPPED", {"english": native_folder / "nothing"})
    with pytest.raises(ElmokitError, match="has no model english: name another"):
        read_checkpoint()


def test_a_folder_with_the_name_of_an_included_model_is_pointed_out(
    native_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(native_folder, "chinese")
    own = read_checkpoint("./chinese")
    assert not caplog.messages
    included = read_checkpoint("chinese")
    assert included.metadata["training"]["tokenizer"] == "chinese"
    assert own.metadata != included.metadata
    (message,) = caplog.messages
    assert message == "chinese is the included model: write ./chinese for the folder of that name"


def test_hidden_files_beside_a_model_are_overlooked(bilm_folder: Path) -> None:
    (bilm_folder / "._weights.hdf5").write_bytes(b"\0")
    assert read_checkpoint(bilm_folder).config.num_layers == 2


def test_a_short_suffix_is_as_good_as_a_long_one(bilm_folder: Path) -> None:
    (bilm_folder / "weights.hdf5").rename(bilm_folder / "weights.h5")
    assert read_checkpoint(bilm_folder).config.num_layers == 2
    assert read_checkpoint(bilm_folder / "weights.h5").config.num_layers == 2


def test_one_of_several_weight_files_must_be_named(bilm_folder: Path) -> None:
    shutil.copy(bilm_folder / "weights.hdf5", bilm_folder / "other.hdf5")
    with pytest.raises(ElmokitError, match=r"several weight files: name one of other\.hdf5, wei"):
        read_checkpoint(bilm_folder)


def test_what_is_not_a_model_is_refused_with_its_name(tmp_path: Path, native_folder: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    for path, sentence in (
        (tmp_path / "notes.txt", r"notes\.txt is not a model: give a folder, an \.hdf5 file or"),
        (tmp_path / "empty", "empty is not a model folder: it has neither"),
        (tmp_path / "missing", "there is no file or folder .*missing"),
        (tmp_path / "missing.hdf5", r"there is no file or folder .*missing\.hdf5"),
        (tmp_path / "missing.zip", r"there is no file or folder .*missing\.zip"),
    ):
        with pytest.raises(ElmokitError, match=sentence):
            elmokit.load(path)
    (native_folder / "model.safetensors").unlink()
    with pytest.raises(ElmokitError, match="native is not a model folder"):
        elmokit.load(native_folder)


def test_a_text_file_with_the_name_of_weights_is_refused(bilm_folder: Path) -> None:
    (bilm_folder / "weights.hdf5").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ElmokitError, match=r"weights\.hdf5 is not an HDF5 file"):
        elmokit.load(bilm_folder)


def test_a_model_on_words_finds_its_vocabulary(tmp_path: Path) -> None:
    reference = make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)
    elmo = elmokit.load(reference.save(tmp_path))
    result = elmo.embed_tokens(["the", "unheard-of", "bank"]).layers
    np.testing.assert_allclose(result, reference.embed(["the", "<UNK>", "bank"]), atol=1e-5)


# ---------------------------------------------------------------------- names of files
def test_the_names_here_are_those_of_the_formats() -> None:
    assert detect.NATIVE == (native.WEIGHTS,)
    assert detect.MANY_LANGS == many_langs.PARTS
    assert detect.ALLENNLP == allennlp.WEIGHTS
    assert list(detect.HUB_MODULE) == [f"{variables.VARIABLES.as_posix()}.index"]
    assert {native.CONFIG, "options.json", variables.STATE} < set(detect.SIDECARS)


SAVED: dict[str, Callable[[Path], object]] = {
    "bilm": lambda folder: make_reference().save(folder),
    "many_langs": lambda folder: make_many_langs().save(folder),
    "tensorflow": lambda folder: save_training(with_softmax(make_reference()), folder),
    "tensorflow hub": lambda folder: save_module(make_reference(), folder),
    "allennlp": lambda folder: save_task_model(make_reference(), folder),
}


@pytest.mark.parametrize("form", SAVED)
def test_a_folder_is_what_its_files_are_and_so_is_each_of_them(tmp_path: Path, form: str) -> None:
    SAVED[form](tmp_path)
    names = (*detect.NATIVE, *detect.MANY_LANGS, *detect.ALLENNLP, *detect.SIDECARS)
    result = [path for path in tmp_path.iterdir() if path.name in names]
    assert read_checkpoint(tmp_path).format == form
    assert result
    for path in result:
        assert read_checkpoint(path).format == form


def test_no_format_is_imported_but_the_one_that_is_there(native_folder: Path) -> None:
    program = (
        "import sys; from elmokit.formats.detect import read_checkpoint; first = set(sys.modules); "
        f"read_checkpoint({str(native_folder)!r}); print(*first); print(*sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    before, after = (
        {name for name in line.split() if name.startswith("elmokit.formats.")}
        for line in run.stdout.splitlines()
    )
    assert before == {"elmokit.formats.detect"}
    used = {"native", "checkpoint"}
    assert after - before == {f"elmokit.formats.{name}" for name in used}
    assert "numpy" not in run.stdout.splitlines()[0].split()


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-of-that-name/model", "a\0b"])
def test_a_name_that_no_file_can_have_is_reported(name: str) -> None:
    assert complaint(lambda: read_checkpoint(name))


# ---------------------------------------------------------------------- inside archives
@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """An archive with two models, one of which has token vectors beside its weights."""
    make_reference(seed=1).save(tmp_path / "two" / "other")
    save_token_vectors(make_reference(), tmp_path / "two" / "cached")
    shutil.make_archive(str(tmp_path / "two"), "zip", tmp_path / "two")
    return tmp_path / "two.zip"


def test_what_lies_in_an_archive_has_a_name(packed: Path) -> None:
    for name, encoder in (
        ("other", "characters"),
        ("other/options.json", "characters"),
        ("cached/weights.hdf5", "characters"),
        ("cached/token_vectors.hdf5", "words"),
    ):
        result = read_checkpoint(packed / name)
        beside = read_checkpoint(packed.with_suffix("") / name)
        assert result.config.token_encoder == encoder
        assert result.fingerprint() == beside.fingerprint()
        assert result.source == str(packed / name)
    assert elmokit.load(str(packed / "other")).config.num_layers == 2


def test_an_archive_in_which_there_is_a_choice_says_what_to_choose_from(packed: Path) -> None:
    message = complaint(lambda: read_checkpoint(packed))
    assert (
        message == f"{packed} contains several models: name one of {packed}/cached, {packed}/other"
    )
    message = complaint(lambda: read_checkpoint(packed / "cached"))
    assert message == (
        f"{packed}/cached has several weight files: name one of token_vectors.hdf5, weights.hdf5, "
        f"such as {packed}/cached/token_vectors.hdf5"
    )


@pytest.mark.parametrize("name", ["third", "other/weights.th", "../two/other", "other/../../two"])
def test_what_is_not_in_the_archive_is_not_found(packed: Path, name: str) -> None:
    assert f"there is no file or folder {packed}/" in complaint(
        lambda: read_checkpoint(packed / name)
    )


def test_a_file_that_is_not_an_archive_has_nothing_inside(bilm_folder: Path) -> None:
    path = bilm_folder / "options.json" / "weights.hdf5"
    assert "options.json is not a model" in complaint(lambda: read_checkpoint(path))


# ---------------------------------------------------------------------- tokenizers
def trained_with(folder: Path, tokenizer: object) -> Path:
    """A model whose metadata say so."""
    result = read_checkpoint(make_reference().save(folder / "source"))
    metadata = {"training": {"corpus": ["a.txt"], "tokenizer": tokenizer}}
    native.write(replace(result, metadata=metadata), folder / "model")
    return folder / "model"


def test_a_model_trained_with_the_chinese_tokenizer_is_loaded_with_it(tmp_path: Path) -> None:
    pytest.importorskip("jieba")
    folder = trained_with(tmp_path, "chinese")
    elmo = elmokit.load(folder)
    assert elmo.tokenizer_name == "chinese"
    assert elmo.embed("渔夫离开了港口。").tokens == ["渔夫", "离开", "了", "港口", "。"]
    elmo.save_pretrained(tmp_path / "again")
    assert elmokit.load(tmp_path / "again").tokenizer_name == "chinese"
    named = elmokit.load(folder, tokenizer="elmokit")  # what is named wins
    assert named.tokenizer_name == "elmokit"
    assert named.embed("渔夫离开了港口。").tokens != elmo.embed("渔夫离开了港口。").tokens


@pytest.mark.parametrize("name", ["whitespace", "elmokit", None, 7, ["chinese"]])
def test_no_other_tokenizer_is_taken_over(tmp_path: Path, name: object) -> None:
    folder = trained_with(tmp_path, name)
    assert elmokit.load(folder).tokenizer_name == "elmokit"
    assert own_tokenizer(folder) == "elmokit"


def test_the_tokenizer_is_known_without_the_weights(tmp_path: Path) -> None:
    folder = trained_with(tmp_path, "chinese")
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as file:
        for path in folder.iterdir():
            file.write(path, path.name)
    assert own_tokenizer(tmp_path / "model.zip") == "chinese"
    (folder / "model.safetensors").write_bytes(b"nothing")
    assert own_tokenizer(folder) == "chinese"
    assert own_tokenizer(tmp_path / "source") == "elmokit"
    assert own_tokenizer(tmp_path / "source" / "weights.hdf5") == "elmokit"
    assert own_tokenizer() == own_tokenizer("english") == "elmokit"


def test_the_words_of_a_users_dictionary_come_with_the_model(tmp_path: Path) -> None:
    pytest.importorskip("jieba")
    folder, text = trained_with(tmp_path, "chinese\n石墨烯\n芯片很 99999"), "石墨烯芯片很快。"
    assert (folder / "jieba.txt").read_text(encoding="utf-8") == "石墨烯\n芯片很 99999\n"
    training = read_json(folder / "config.json")["metadata"]["training"]
    assert (training["tokenizer"], training["dictionary"]) == ("chinese", "jieba.txt")
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as file:
        for path in folder.iterdir():
            file.write(path, path.name)
    elmokit.load(folder).save_pretrained(tmp_path / "again")
    for model in (folder, tmp_path / "model.zip", tmp_path / "again"):
        assert own_tokenizer(model) == "chinese\n石墨烯\n芯片很 99999"
        assert elmokit.load(model).embed(text).tokens == ["石墨烯", "芯片很", "快", "。"]
    (tmp_path / "mine.txt").write_text("很快。\n", encoding="utf-8")
    mine = elmokit.load(folder, jieba_dict=tmp_path / "mine.txt")  # what is named wins
    assert mine.embed(text).tokens == ["石墨", "烯", "芯片", "很快", "。"]
    assert "石墨烯" not in json.dumps(read_checkpoint(folder).describe(), ensure_ascii=False)


def test_a_model_without_its_dictionary_or_with_a_bad_one_is_refused(tmp_path: Path) -> None:
    folder = trained_with(tmp_path, "chinese\n石墨烯")
    (folder / "jieba.txt").write_text("石墨烯\n芯片 多\n", encoding="utf-8")
    start = f"{folder / 'jieba.txt'}:2: an entry of a dictionary"
    assert complaint(lambda: own_tokenizer(folder)).startswith(start)
    assert complaint(lambda: read_checkpoint(folder)).startswith(start)
    (folder / "jieba.txt").unlink()
    expected = f"{folder} lacks jieba.txt, the dictionary of its tokenizer"
    assert complaint(lambda: own_tokenizer(folder)) == expected
    assert complaint(lambda: read_checkpoint(folder)) == expected


def test_the_commands_take_the_models_tokenizer_too(tmp_path: Path) -> None:
    pytest.importorskip("jieba")
    folder = trained_with(tmp_path, "chinese")
    (tmp_path / "text.txt").write_text("渔夫离开了港口。\n", encoding="utf-8")
    for more, tokens in (
        ([], ["渔夫", "离开", "了", "港口", "。"]),
        (["--tokenizer", "whitespace"], ["渔夫离开了港口。"]),
    ):
        command = ["embed", str(tmp_path / "text.txt"), str(tmp_path / "vectors.npz"), "--quiet"]
        assert main([*command, "--model", str(folder), "--overwrite", *more]) == 0
        [[_, result, _]] = elmokit.read_vectors(tmp_path / "vectors.npz")
        assert result == tokens


def test_a_lasting_name_means_the_same_model_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "english"):
        (tmp_path / name).mkdir()
    for name in ("models.zip", "model.ckpt.index"):
        (tmp_path / name).touch()
    for name in ("mine", "models.zip/small", "model.ckpt"):
        assert lasting_name(name) == str(tmp_path / name)
    for name in ("english", "owner/name"):  # These are not paths.
        assert lasting_name(name) == name


def test_reading_a_model_does_not_import_torch() -> None:
    code = (
        "import sys; from elmokit.formats.detect import read_checkpoint; "
        "import elmokit.formats.bilm, elmokit.formats.many_langs, "
        "elmokit.formats.allennlp, elmokit.formats.tensorflow.variables; "
        "read_checkpoint(); print('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout == "False\n", result.stderr


# ---------------------------------------------------------------------- kinds of errors
def missing_path(folder: Path) -> Path:
    return folder / "nothing"


def missing_options(folder: Path) -> Path:
    weights = make_reference().save(folder)
    (folder / "options.json").unlink()
    return weights


def missing_vocabulary(folder: Path) -> Path:
    make_reference(make_options(words=len(WORDS)), vocabulary=WORDS).save(folder)
    (folder / "vocab.txt").unlink()
    return folder


def missing_dictionary(folder: Path) -> Path:
    make_many_langs().save(folder)
    (folder / "char.dic").unlink()
    return folder


def missing_data(folder: Path) -> Path:
    save_training(with_softmax(make_reference()), folder)
    for path in folder.glob("*.data-*"):
        path.unlink()
    return next(folder.glob("*.index"))


def missing_in_archive(folder: Path) -> Path:
    make_reference().save(folder / "model")
    shutil.make_archive(str(folder / "packed"), "zip", folder / "model")
    return folder / "packed.zip" / "other"


@pytest.mark.parametrize(
    "make",
    [missing_path, missing_options, missing_vocabulary, missing_dictionary, missing_data,
     missing_in_archive],
)  # fmt: skip
def test_a_missing_file_is_a_file_not_found_error(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path)
    with pytest.raises(FileNotFoundError, match=str(tmp_path)) as caught:
        read_checkpoint(path)
    assert isinstance(caught.value, MissingFile)
    assert "Errno" not in str(caught.value)


def damaged_hdf5(folder: Path) -> Path:
    weights = make_reference().save(folder)
    weights.write_bytes(weights.read_bytes()[:2000])
    return weights


def damaged_safetensors(folder: Path) -> Path:
    native.write(read_checkpoint(make_reference().save(folder / "bilm")), folder / "native")
    (folder / "native" / "model.safetensors").write_bytes(b"damaged")
    return folder / "native"


def damaged_pickle(folder: Path) -> Path:
    make_many_langs().save(folder)
    (folder / "encoder.pkl").write_bytes(b"damaged")
    return folder


def damaged_index(folder: Path) -> Path:
    save_training(with_softmax(make_reference()), folder)
    index = next(folder.glob("*.index"))
    index.write_bytes(b"damaged")
    return index


def damaged_archive(folder: Path) -> Path:
    (folder / "model.zip").write_bytes(b"damaged")
    return folder / "model.zip"


def unknown_file(folder: Path) -> Path:
    (folder / "model.onnx").write_bytes(b"")
    return folder / "model.onnx"


def empty_folder(folder: Path) -> Path:
    return folder


@pytest.mark.parametrize(
    "make",
    [damaged_hdf5, damaged_safetensors, damaged_pickle, damaged_index, damaged_archive,
     unknown_file, empty_folder],
)  # fmt: skip
def test_a_damaged_or_unknown_file_is_a_value_error(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path)
    with pytest.raises(ValueError, match=str(tmp_path)) as caught:
        read_checkpoint(path)
    assert isinstance(caught.value, UnsupportedFormat)


def test_a_wrong_argument_is_a_value_error(native_folder: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(native_folder)
    with pytest.raises(ValueError, match="dtype must be float32 or float16, not 'int8'"):
        native.write(checkpoint, tmp_path / "x", dtype="int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the device 'nowhere' cannot be used here"):
        elmokit.load(native_folder, device="nowhere")


# ---------------------------------------------------------------------- never asked of the Hub
@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The repositories that the Hub is asked for."""
    names: list[str] = []

    def download(name: str, *, local_files_only: bool = False, **_: object) -> str:
        if not local_files_only:
            names.append(name)
        raise LocalEntryNotFoundError("not in the cache")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return names


def test_a_typing_error_in_a_path_is_never_asked_of_the_hub(
    asked: list[str], native_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    native_folder.rename(tmp_path / "models" / "my-elmo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("models/my-elmoo", "./models/my-elmoo", "~/models/my-elmoo", "../x/my-elmo"):
        with pytest.raises(MissingFile, match=r"^there is no file or folder"):
            elmokit.load(name)
    assert asked == []
    message = complaint(lambda: elmokit.load("models/my-elmoo"))
    assert message == ("there is no file or folder models/my-elmoo: did you mean models/my-elmo?")
    message = complaint(lambda: elmokit.load(tmp_path / "model" / "my-elmo"))
    assert message.endswith(f"/model/my-elmo: did you mean {tmp_path}/models?")
    assert "Hub" in complaint(lambda: elmokit.load("owner/my-elmo"))
    assert asked == ["owner/my-elmo"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_what_is_there_is_not_said_to_be_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "lost").symlink_to("nowhere")
    assert "pipe is a folder, a pipe" in complaint(lambda: elmokit.load(tmp_path / "pipe"))
    message = complaint(lambda: elmokit.load(tmp_path / "lost"))
    assert message == f"there is no file or folder {tmp_path / 'lost'}"


def test_a_model_that_a_file_names_is_never_asked_of_the_hub(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "a model that only a file names is not downloaded" in complaint(
        lambda: recorded_model("bank/river")
    )
    options = RecordedModelOptions()
    assert "not downloaded" in complaint(lambda: options.resolve("bank/river"))
    assert RecordedModelOptions(model="bank/river").resolve("x").model == "bank/river"
    (tmp_path / "models.zip").touch()
    for name in ("english", "/a/b", "models.zip/small", "elmo"):
        assert recorded_model(name) == name
    assert "must be a text" in complaint(lambda: recorded_model(["bank/river"]))
    assert asked == []


def test_a_task_model_does_not_make_its_user_download_a_bilm(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = find_task("classifier")
    config: dict[str, Any] = {
        "format": "elmokit task model 1",
        "task": "classifier",
        "vectors": None,
    }
    config |= {"settings": asdict(task.settings()), "learned": {"labels": ["a", "b"]}}
    config |= {"elmo": "bank/river", "elmo_fingerprint": "0"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "words.json").write_text("[]")
    message = complaint(lambda: load_task(tmp_path))
    assert "not downloaded" in message
    assert "name it with --elmo" in message
    assert asked == []
    assert "Hub" in complaint(lambda: load_task(tmp_path, elmo="bank/river"))
    assert asked == ["bank/river"]


# ---------------------------------------------------------------------- other folders of elmokit
OTHERS: dict[str, tuple[dict[str, object], str]] = {
    "task": (
        {"config.json": {"format": "elmokit task model 1"}, "model.safetensors": {}},
        "is not a biLM but a task model: elmokit predict and elmokit score take it",
    ),
    "senses": (
        {"config.json": {"format": "elmokit senses 1"}, "vectors.safetensors": {}},
        "an inventory of senses: elmokit senses tag",
    ),
    "pretraining": (
        {"elmokit-run.json": {"command": "pretrain"}},
        "an unfinished run of elmokit pretrain: the same command completes it",
    ),
    "training": ({"elmokit-run.json": {"command": "train"}}, "unfinished run of elmokit train"),
    "comparison": ({"elmokit-run.json": {"command": "compare"}}, "the folder of elmokit compare"),
    "neighbours": ({"index.json": {}, "vectors.f16": {}}, "elmokit neighbours find takes it"),
    "vectors": ({"index.json": {}, "part-000000.npy": {}}, "a folder of vectors: elmokit.read"),
    "damaged": ({"config.json": [], "elmokit-run.json": []}, "is not a model folder: it has"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_folder_that_is_no_bilm_is_told_what_it_is(tmp_path: Path, kind: str) -> None:
    files, sentence = OTHERS[kind]
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    message = complaint(lambda: elmokit.load(tmp_path))
    assert message.startswith(str(tmp_path))
    assert sentence in message


# ---------------------------------------------------------------------- pipes and devices
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("form", [*SAVED, "native"])
def test_no_file_of_a_model_can_block_or_fill_the_memory(
    tmp_path: Path, native_folder: Path, form: str, kind: str
) -> None:
    folder = tmp_path / "model"
    if form == "native":
        native_folder.rename(folder)
    else:
        SAVED[form](folder)
    for name in sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()):
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        (copy / name).unlink()
        if kind == "pipe":
            os.mkfifo(copy / name)
        elif kind == "device":
            (copy / name).symlink_to("/dev/zero")
        else:
            (copy / name).mkdir()
        for path in (copy, copy / name):
            with suppress(ElmokitError):
                build_model(read_checkpoint(path))
        shutil.rmtree(copy)


def test_a_file_of_a_model_may_be_a_link_to_a_file(native_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    for path in native_folder.iterdir():
        (tmp_path / "links" / path.name).symlink_to(path)
    links = read_checkpoint(tmp_path / "links")
    assert links.fingerprint() == read_checkpoint(native_folder).fingerprint()


@pytest.mark.parametrize("name", ["x" * 300, f"{'x' * 300}/y", f"folder/{'ü' * 200}.hdf5"])
def test_a_name_that_is_too_long_is_a_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert "cannot look for" in complaint(lambda: read_checkpoint(tmp_path / name))
    assert complaint(lambda: read_checkpoint(f"{tmp_path}/{name}"))


def test_an_empty_name_is_not_the_current_folder(
    native_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(native_folder)
    assert complaint(lambda: elmokit.load("")) == "the name of the model is empty"
