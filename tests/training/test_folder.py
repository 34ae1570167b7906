"""The output folder of a training run."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.errors import ElmokitError
from elmokit.training.folder import open_folder


def test_a_folder_in_which_nothing_was_written_is_removed(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out") as folder:
        assert (folder / "training").is_dir()
    assert not (tmp_path / "out").exists()


def test_a_half_written_checkpoint_is_removed_and_a_whole_one_kept(tmp_path: Path) -> None:
    for name in (".step-00000002.abc", "step-00000001"):
        (tmp_path / "training" / name).mkdir(parents=True)
    with open_folder(tmp_path) as folder:
        assert [path.name for path in (folder / "training").iterdir()] == ["step-00000001"]


def test_a_hidden_folder_that_is_not_ours_is_kept(tmp_path: Path) -> None:
    (tmp_path / "run" / "training" / ".git").mkdir(parents=True)
    (tmp_path / "run" / "training" / ".git" / "HEAD").write_text("ref")
    with open_folder(tmp_path / "run"):
        pass
    assert (tmp_path / "run" / "training" / ".git" / "HEAD").read_text() == "ref"


def test_a_folder_with_another_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ElmokitError, match="already contains a model"), open_folder(tmp_path):
        pass


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path),
        pytest.raises(ElmokitError, match="another process"),
        open_folder(tmp_path),
    ):
        pass


def test_a_process_that_only_reads_creates_nothing(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out", owner=False) as folder:
        assert not folder.exists()
