"""One format to another, compared by vectors."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from reference import make_options, make_reference
from tiny import WORDS

import elmokit
from elmokit.errors import ElmokitError
from elmokit.formats import bilm
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.convert import convert
from elmokit.formats.detect import read_checkpoint


def test_there_and_back_again_every_weight_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = make_reference()
    source = reference.save(tmp_path / "source")
    convert(str(source), str(tmp_path / "native"))
    convert(str(tmp_path / "native"), str(tmp_path / "back"), to="bilm")
    with h5py.File(tmp_path / "back" / "weights.hdf5") as file:
        for name, array in reference.stored.items():
            np.testing.assert_array_equal(file[name][...], array)
    shown = capsys.readouterr().out
    assert "bilm format, 2 layers of 10/6" in shown
    assert "differ by 0.0e+00" in shown


def test_a_converted_model_gives_the_vectors_and_says_where_it_is_from(tmp_path: Path) -> None:
    reference = make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)
    convert(str(reference.save(tmp_path / "source")), str(tmp_path / "native"))
    elmo = elmokit.load(tmp_path / "native")
    np.testing.assert_allclose(
        elmo.embed(["the", "bank"]).layers, reference.embed(["the", "bank"]), atol=1e-5
    )
    assert elmo.facts["converted_from"] == "bilm"
    assert elmo.facts["options"] == reference.options
    convert(str(tmp_path / "native"), str(tmp_path / "again"))
    assert read_checkpoint(tmp_path / "again").facts == elmo.facts


def test_half_the_precision_gives_nearly_the_same_vectors(tmp_path: Path) -> None:
    reference = make_reference()
    convert(str(reference.save(tmp_path / "source")), str(tmp_path / "half"), dtype="float16")
    found = elmokit.load(tmp_path / "half").embed(["the", "bank"]).layers
    distance = np.abs(found - reference.embed(["the", "bank"])).max()
    assert 1e-6 < distance < 2e-2
    with pytest.raises(ElmokitError, match="the bilm format holds float32"):
        convert(str(tmp_path / "half"), str(tmp_path / "x"), to="bilm", dtype="float16")


def test_a_broken_source_leaves_no_target(tmp_path: Path) -> None:
    source = make_reference().save(tmp_path / "source")
    with h5py.File(source, "a") as file:
        file["char_embed"][0, 0] = np.nan
    with pytest.raises(ElmokitError, match=r"weights\.hdf5.*not finite"):
        convert(str(source), str(tmp_path / "target"))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_target_that_exists_is_kept_unless_allowed(tmp_path: Path) -> None:
    one = make_reference(seed=1).save(tmp_path / "one")
    convert(str(one), str(tmp_path / "target"))
    two = make_reference(seed=2).save(tmp_path / "two")
    with pytest.raises(ElmokitError, match="target exists already"):
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
    with pytest.raises(ElmokitError, match="the converted model gives other vectors"):
        convert(str(make_reference().save(tmp_path / "a")), str(tmp_path / "b"), to="bilm")
