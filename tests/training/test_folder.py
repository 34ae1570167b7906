"""The output folder of a training run."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.errors import ElmokitError
from elmokit.io.marker import MARKER, Command, read_marker
from elmokit.training.folder import open_folder


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def refused(folder: Path, command: Command = "pretrain", *inputs: Path) -> str:
    """Return the message of a folder that cannot be opened, and check that nothing changed."""
    before = tree(folder)
    with pytest.raises(ElmokitError) as error, open_folder(folder, command, inputs=inputs):
        pass
    assert tree(folder) == before
    return str(error.value)


def used(folder: Path, command: Command = "pretrain") -> Path:
    """Return the folder of a run that has written a checkpoint."""
    with open_folder(folder, command):
        (folder / "training" / "step-00000001").mkdir()
    return folder


def test_a_folder_in_which_nothing_was_written_is_removed(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out", "train") as folder:
        assert tree(folder) == [MARKER, "training"]
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_of_a_user_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with open_folder(tmp_path / "out", "train"):
        pass
    assert tree(tmp_path) == ["out"]


def test_a_half_written_checkpoint_is_removed_and_a_whole_one_kept(tmp_path: Path) -> None:
    used(tmp_path / "out")
    (tmp_path / "out" / "training" / ".step-00000002.0123abcd.elmokit").mkdir()
    (tmp_path / "out" / ".config.json.0123abcd.elmokit").touch()
    with open_folder(tmp_path / "out", "pretrain") as folder:
        assert tree(folder) == [MARKER, "training", "training/step-00000001"]


def test_what_a_user_has_put_into_the_folder_of_a_run_is_kept(tmp_path: Path) -> None:
    used(tmp_path / "run")
    (tmp_path / "run" / "training" / ".git").mkdir()
    (tmp_path / "run" / "training" / ".git" / "HEAD").write_text("ref")
    (tmp_path / "run" / ".corpus.mine").mkdir()
    before = tree(tmp_path)
    with open_folder(tmp_path / "run", "pretrain"):
        pass
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["thesis.tex", "training/.git", "corpus/text.txt", ".hidden"])
def test_a_folder_with_anything_of_a_user_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    assert refused(tmp_path) == (
        f"{tmp_path} is not empty: choose another folder, or one that is empty"
    )


def test_a_folder_with_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "already contains a model" in refused(tmp_path)
    assert "is a file, not a folder" in refused(tmp_path / "config.json")


@pytest.mark.parametrize("command", ["adapt", "train", "compare"])
def test_the_folder_of_another_command_is_refused(tmp_path: Path, command: Command) -> None:
    used(tmp_path / "out")
    assert refused(tmp_path / "out", command) == (
        f"{tmp_path / 'out'} is the folder of a run of elmokit pretrain, not of elmokit "
        f"{command}: choose another folder"
    )


def test_a_damaged_marker_is_an_error(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text('{"command": "cook"}')
    assert "names no command of elmokit that trains" in refused(tmp_path)
    (tmp_path / MARKER).write_text("{")
    assert "is not valid JSON" in refused(tmp_path)


def test_a_kill_before_the_marker_leaves_a_folder_that_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "out" / "training").mkdir(parents=True)
    (tmp_path / "out" / f".{MARKER}.0123abcd.elmokit").touch()
    assert read_marker(used(tmp_path / "out", "compare")) == "compare"


def test_an_input_inside_the_output_is_refused(tmp_path: Path) -> None:
    text = used(tmp_path / "out") / "text.txt"
    text.write_text("mine")
    link = tmp_path / "link.txt"
    link.symlink_to(text)
    for source in (text, link, tmp_path / "out"):
        assert refused(tmp_path / "out", "pretrain", source) == (
            f"{source} is inside the output folder {tmp_path / 'out'}: choose an output folder "
            "elsewhere"
        )
    assert "is inside" in refused(tmp_path / "out", "pretrain", tmp_path)


def test_a_path_in_the_home_folder_is_compared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    used(tmp_path / "out", "adapt")
    assert refused(tmp_path / "out", "adapt", Path("~/out")).startswith("~/out is inside")
    with open_folder("~/new", "train") as folder:
        assert folder == tmp_path / "new"


@pytest.mark.parametrize("name", ["training", "tensorboard", "runs", "vectors"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine" / "step-00000001").mkdir(parents=True)
    used(tmp_path / "out")
    if name == "training":
        (tmp_path / "out" / name).rename(tmp_path / "out" / "before")
    (tmp_path / "out" / name).symlink_to(tmp_path / "mine")
    assert f"{name} is a link, and nothing is written through it" in refused(tmp_path / "out")
    assert tree(tmp_path / "mine") == ["step-00000001"]


def test_the_whole_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    used(tmp_path / "out")
    assert read_marker(tmp_path / "disk") == "pretrain"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    assert "is not empty" in refused(tmp_path / "link")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert "cannot write into" in refused(tmp_path / "dangling")


@pytest.mark.parametrize("name", ["x" * 300, "ü" * 200])
def test_a_name_that_is_too_long_is_an_error(tmp_path: Path, name: str) -> None:
    with (
        pytest.raises(ElmokitError, match="File name too long"),
        open_folder(tmp_path / name, "train"),
    ):
        pass
    with pytest.raises(ElmokitError, match="home directory"), open_folder("~no-one/x", "train"):
        pass


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path, "train"),
        pytest.raises(ElmokitError, match="another process"),
        open_folder(tmp_path, "train"),
    ):
        pass


def test_a_process_that_only_reads_creates_nothing(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out", "pretrain", owner=False) as folder:
        assert not folder.exists()
