"""Where a training may write, and what it says about few examples."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tiny import complaint, tiny_elmo

from elmokit.cli.main import main
from elmokit.io.marker import MARKER, write_marker
from elmokit.tasks import score, train
from elmokit.tasks.compare import compare
from elmokit.training import checkpoint

SMALL: dict[str, Any] = {"elmo": None, "hidden": 4, "word_dim": 4, "epochs": 2, "quiet": True}


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return every path below a folder, with the bytes of its file."""
    result = sorted(folder.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else None for path in result}


def refused(folder: Path, text: Path, **options: Any) -> str:
    """Return what `train` and `compare` say about a folder, and check that nothing changed."""
    before = contents(folder.parent)
    said = complaint(
        lambda: train("classifier", train=str(text), out=str(folder), **{**SMALL, **options})
    )
    options = {**SMALL, "elmo": "english", **options}
    also = complaint(
        lambda: compare("classifier", train=str(text), out=str(folder), seeds=[1], **options)
    )
    assert contents(folder.parent) == before
    assert also.replace("compare", "train") == said
    assert "\n" not in said
    return said


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Twenty labeled sentences, in a folder of their own."""
    path = tmp_path / "data" / "text.txt"
    path.parent.mkdir()
    path.write_text("good a fine play\npoor a dull play\n" * 10)
    return path


def test_the_folder_of_a_bilm_is_refused(tmp_path: Path, text: Path) -> None:
    out = tmp_path / "elmo"
    tiny_elmo().save_pretrained(out)
    expected = f"{out} already contains a model: choose another folder, or one that is empty"
    assert refused(out, text) == refused(out, text, elmo=str(out)) == expected


@pytest.mark.parametrize("name", ["report.json", "results.json", "table.md", "curves.png"])
def test_a_folder_with_a_file_of_a_user_is_refused(tmp_path: Path, text: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    expected = f"{out} is not empty: choose another folder, or one that is empty"
    assert refused(out, text) == expected


def test_the_folder_of_a_pretraining_is_refused(tmp_path: Path, text: Path) -> None:
    out = tmp_path / "out"
    (out / "training" / "step-00000001").mkdir(parents=True)
    write_marker(out, "pretrain")
    assert refused(out, text) == (
        f"{out} is the folder of a run of elmokit pretrain, not of elmokit train: choose another "
        "folder"
    )


def test_an_input_inside_the_output_is_refused(tmp_path: Path, text: Path) -> None:
    out = tmp_path / "out"
    train("classifier", train=str(text), out=str(out), **SMALL)
    inside = out / "text.txt"
    inside.write_text(text.read_text())
    before = contents(out)
    for options in (
        {"train": str(inside)},
        {"train": str(text), "dev": str(inside)},
        {"train": str(text), "vectors": str(inside)},
    ):
        given = {**SMALL, "out": str(out), **options}
        assert "is inside the output folder" in complaint(
            lambda given=given: train("classifier", **given)  # type: ignore[misc]
        )
    pair = {"train": f"{text},{inside}", "dev": f"{text},{text}", "out": str(out), **SMALL}
    assert f"{inside} is inside the output folder" in complaint(lambda: train("translate", **pair))
    assert contents(out) == before


def test_a_device_that_torch_does_not_have_is_refused_first(tmp_path: Path, text: Path) -> None:
    sentence = refused(tmp_path / "out", text, device="no-such-thing")
    assert sentence.startswith("the device 'no-such-thing' cannot be used here: ")
    trained = train("classifier", train=str(text), out=str(tmp_path / "task"), **SMALL)
    said = complaint(lambda: score(str(trained.folder), str(text), device="no-such-thing"))
    assert said == sentence


def test_a_run_resumes_in_its_own_folder(tmp_path: Path, text: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        report = train("classifier", train=str(text), out=str(out), **SMALL).report
        assert report["epochs"] == 2
    assert json.loads((out / MARKER).read_text()) == {"command": "train"}


def test_a_run_killed_at_its_last_checkpoint_keeps_two(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**SMALL, "train": str(text), "out": str(tmp_path / "out"), "epochs": 3, "patience": 3}
    monkeypatch.setattr(checkpoint, "remove_files", lambda *_: None)  # as if it came too late
    train("classifier", **given)
    monkeypatch.undo()
    train("classifier", **given)
    left = checkpoint.checkpoints(tmp_path / "out" / "training")
    assert [path.name for path in left] == ["step-02000000", "step-03000000"]


# ---------------------------------------------------------------------- few examples
NOTE = "accuracy {:.2f} was measured on only {}: its 95% confidence interval is about {} to {}"


def test_scores_on_few_examples_say_so(
    tmp_path: Path, text: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    out, scores = tmp_path / "out", tmp_path / "scores.json"
    options = ["--no-elmo", "--hidden=8", "--word-dim=8", "--lr=0.1", "--epochs=9"]
    with caplog.at_level(logging.INFO, "elmokit"):
        command = ["train", "classifier", f"--train={text}", f"--out={out}", *options]
        assert main(command) == 0
    note = NOTE.format(100, "2 examples", 34, 100)
    assert json.loads((out / "report.json").read_text())["note"] == note
    assert json.loads((out / "config.json").read_text())["report"]["note"] == note
    assert note in caplog.messages
    assert note in capsys.readouterr().out.splitlines()
    single = tmp_path / "one.txt"
    single.write_text("good a dull play\n")
    assert main(["score", str(out), str(single), "--json", str(scores), "--quiet"]) == 0
    note = NOTE.format(0, "1 example", 0, 79)
    assert note in capsys.readouterr().out.splitlines()
    assert json.loads(scores.read_text())["note"] == note


def test_scores_on_enough_examples_say_nothing_more(tmp_path: Path, text: Path) -> None:
    dev = tmp_path / "dev.txt"
    dev.write_text(text.read_text() * 2)
    result = train("classifier", train=str(text), dev=str(dev), out=str(tmp_path / "o"), **SMALL)
    assert result.report["note"] == ""
    assert score(str(tmp_path / "o"), str(dev), quiet=True).note == ""
