"""`elmokit.load` finds out what a path is by looking at the files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from reference import make_options, make_reference
from tiny import WORDS

import elmokit
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.formats import detect, native
from elmokit.formats.detect import read_checkpoint


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
    assert read_checkpoint(bilm_folder.parent / "link").config.layers == 2
    monkeypatch.setenv("HOME", str(bilm_folder.parent))
    assert read_checkpoint("~/bilm").config.layers == 2


def test_the_model_that_ships_with_elmokit_is_the_default(
    native_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "PRETRAINED", native_folder)
    expected = read_checkpoint(native_folder).fingerprint()
    assert read_checkpoint().fingerprint() == expected
    monkeypatch.setattr(detect, "PRETRAINED", native_folder / "nothing")
    with pytest.raises(ElmokitError, match="no model of its own; name a model to load"):
        read_checkpoint()


def test_hidden_files_beside_a_model_are_overlooked(bilm_folder: Path) -> None:
    (bilm_folder / "._weights.hdf5").write_bytes(b"\0")
    assert read_checkpoint(bilm_folder).config.layers == 2


def test_a_short_suffix_is_as_good_as_a_long_one(bilm_folder: Path) -> None:
    (bilm_folder / "weights.hdf5").rename(bilm_folder / "weights.h5")
    assert read_checkpoint(bilm_folder).config.layers == 2
    assert read_checkpoint(bilm_folder / "weights.h5").config.layers == 2


def test_several_files_of_weights_have_to_be_told_apart(bilm_folder: Path) -> None:
    shutil.copy(bilm_folder / "weights.hdf5", bilm_folder / "other.hdf5")
    with pytest.raises(ElmokitError, match=r"several weight files: name one of other\.hdf5, wei"):
        read_checkpoint(bilm_folder)


def test_what_is_no_model_is_refused_with_its_name(tmp_path: Path, native_folder: Path) -> None:
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
    found = elmo.embed(["the", "unheard-of", "bank"]).layers
    np.testing.assert_allclose(found, reference.embed(["the", "<UNK>", "bank"]), atol=1e-5)
