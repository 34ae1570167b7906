"""Training runs, seen from outside: what they learn, and that nothing stops them for good."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import Child
from runs import arguments, pretrain
from safetensors.numpy import load_file

import elmokit
from elmokit.cli.main import main
from elmokit.errors import ElmokitError
from elmokit.io.atomic import remove_files
from elmokit.pretrain.log import read_log
from elmokit.pretrain.trainer import Trainer
from elmokit.training import checkpoint


def start(options: dict[str, Any]) -> Child:
    """Start the command in a process of its own."""
    return Child(arguments(options))


def final_tensors(options: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    last = sorted(Path(options["out"], "training").glob("step-*"))[-1]
    return load_file(last / "state.safetensors")


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.array_equal(value, other[name]), name


@pytest.mark.usefixtures("curves")
def test_a_run_learns_and_its_folder_is_a_model(options: dict[str, Any]) -> None:
    assert pretrain(options | {"epochs": 6, "batch_size": 8}).stopped_by == 0
    lines = read_log(Path(options["out"], "log.jsonl"))
    heldout = [line["heldout"]["average"] for line in lines if "heldout" in line]
    assert heldout[-1] < 9 < heldout[0]  # of 26 words
    elmo = elmokit.load(options["out"])
    assert elmo.embed("the cat sees the river .").layers.shape == (3, 6, 16)
    metadata = json.loads(Path(options["out"], "config.json").read_text())["metadata"]["training"]
    assert metadata["heldout_perplexity"]["average"] == pytest.approx(min(heldout))
    assert Path(options["out"], "curves.png").stat().st_size > 1000


@pytest.mark.parametrize("optimizer", ["adagrad", "adamw"])
def test_a_run_stopped_and_continued_ends_with_the_same_bits(
    options: dict[str, Any], optimizer: str
) -> None:
    parts = options | {"optimizer": optimizer, "batch_size": 8}
    whole = parts | {"out": options["out"] + "-whole"}
    pretrain(whole)
    train = Trainer.one_step
    steps = 0

    def interrupted(run: Trainer) -> tuple[float, float]:
        nonlocal steps
        steps += 1
        if steps in (7, 33, 61):
            raise KeyboardInterrupt
        return train(run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "one_step", interrupted)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                pretrain(parts)
    pretrain(parts)
    assert_same(final_tensors(whole), final_tensors(parts))
    assert_same(
        load_file(Path(whole["out"], "model.safetensors")),
        load_file(Path(parts["out"], "model.safetensors")),
    )


def test_kill_9_at_any_moment_ends_with_the_same_bits(options: dict[str, Any]) -> None:
    options |= {"epochs": 20, "max_steps": 120, "save_every": 3, "threads": 2}
    whole = options | {"out": options["out"] + "-whole"}
    reference = start(whole)
    rng = random.Random(1)
    log = Path(options["out"], "log.jsonl")
    for _ in range(3):
        before = log.stat().st_size if log.exists() else 0
        process = start(options)
        while process.poll() is None and not (log.exists() and log.stat().st_size > before):
            time.sleep(0.02)
        time.sleep(rng.random() * 0.1)
        process.kill()
        assert process.finish()[0] == -signal.SIGKILL
    assert start(options).finish() == (0, "")
    assert reference.finish() == (0, "")
    assert_same(final_tensors(whole), final_tensors(options))
    hidden = [path.name for path in Path(options["out"], "training").glob(".*")]
    assert hidden == []


def test_a_run_killed_at_its_last_checkpoint_leaves_the_folder_of_a_whole_run(
    options: dict[str, Any],
) -> None:
    whole = options | {"out": options["out"] + "-whole"}
    total = pretrain(whole).total_steps

    def killed(old: Path, names: tuple[str, ...]) -> None:
        if checkpoint.checkpoints(old.parent)[-1].name == f"step-{total:08d}":
            raise KeyboardInterrupt  # The last checkpoint is written, and no old one removed.
        remove_files(old, names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "remove_files", killed)
        with pytest.raises(KeyboardInterrupt):
            pretrain(options)
    assert len(checkpoint.checkpoints(Path(options["out"], "training"))) == 3
    pretrain(options)
    folders = Path(whole["out"]), Path(options["out"])
    expected, result = ({p.relative_to(folder) for p in folder.rglob("*")} for folder in folders)
    assert result == expected


@pytest.mark.parametrize("softmax", ["full", "sampled"])
def test_a_step_read_in_parts_learns_the_same(options: dict[str, Any], softmax: str) -> None:
    options |= {"max_steps": 25, "dropout": 0.3, "softmax": softmax, "samples": 10}
    runs = {
        parts: options | {"accumulate": parts, "out": f"{options['out']}-{parts}"}
        for parts in (1, 2, 4)
    }
    for run in runs.values():
        pretrain(run)
    logs = {parts: read_log(Path(run["out"], "log.jsonl")) for parts, run in runs.items()}
    expected = final_tensors(runs[1])
    for parts in (2, 4):
        for line, other in zip(logs[1], logs[parts], strict=True):
            assert line.get("loss") == pytest.approx(other.get("loss"), abs=2e-5)
            assert line.get("heldout") == pytest.approx(other.get("heldout"), abs=2e-3)
        for name, value in final_tensors(runs[parts]).items():
            # Adagrad's sums of squares reach 60, where float32 numbers are 4e-6 apart.
            np.testing.assert_allclose(value, expected[name], rtol=5e-7, atol=1e-5, err_msg=name)


def test_a_folder_takes_one_run_at_a_time(options: dict[str, Any]) -> None:
    first = start(options | {"epochs": 10_000})
    log = Path(options["out"], "log.jsonl")
    while not (log.exists() and log.stat().st_size):
        time.sleep(0.05)
    try:
        with pytest.raises(ElmokitError, match=r"another process is writing to .*model: wait"):
            pretrain(options)
        assert first.poll() is None  # the first does not notice
    finally:
        first.kill()
        assert first.finish()[0] == -signal.SIGKILL
    done = max(line["step"] for line in read_log(log))
    assert pretrain(options | {"max_steps": done + 20, "epochs": 10_000}).stopped_by == 0
    assert read_log(log)[-1]["step"] == done + 20


def test_a_vocabulary_larger_than_the_text_is_reported(
    options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    options |= {"max_steps": 2, "quiet": False, "min_count": 2}
    pretrain(options | {"vocab_size": 1000})
    said = "the vocabulary has 26 words, not 1,000: no more words occur at least 2 times in the"
    assert said in capsys.readouterr().err
    pretrain(options | {"vocab_size": 20, "out": options["out"] + "-small"})
    assert "the vocabulary has" not in capsys.readouterr().err


def test_sigterm_saves_and_says_so(options: dict[str, Any]) -> None:
    options |= {"epochs": 10_000, "quiet": False, "eval_every": 10**6, "save_every": 10**6}
    process = start(options)
    log = Path(options["out"], "log.jsonl")
    while not (log.exists() and log.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    code, error = process.finish()
    assert code == 128 + signal.SIGTERM
    assert "stopped by SIGTERM after step" in error
    assert "the same command resumes the run" in error
    assert len(list(Path(options["out"], "training").glob("step-*"))) == 1
    # There was no evaluation, but there is a model.
    elmo = elmokit.load(options["out"])
    assert elmo.embed("the cat .").layers.shape == (3, 3, 16)
    assert elmo.metadata["training"]["heldout_perplexity"] is None


def test_changed_settings_or_models_are_refused_with_the_difference(
    options: dict[str, Any],
) -> None:
    pretrain(options | {"max_steps": 12})
    with pytest.raises(ElmokitError, match=r"batch_size was 4 and is now 8"):
        pretrain(options | {"batch_size": 8})
    with pytest.raises(ElmokitError, match=r"the model's lstm_dim was 16 and is now 24"):
        pretrain(options | {"model": options["model"] | {"lstm_dim": 24}})
    with Path(options["corpus"]).open("a") as stream:
        stream.write("something else\n")
    with pytest.raises(ElmokitError, match=r"the text of text\.txt has changed"):
        pretrain(options)


@pytest.mark.parametrize("bad_steps", [range(15, 17), range(15, 100)])
def test_a_loss_that_is_not_finite_never_reaches_the_weights(
    bad_steps: range, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Trainer.one_step

    def poisoned(run: Trainer) -> tuple[float, float]:
        if run.step in bad_steps:
            run.state.forward[0][1].fill_(float("nan"))
        return train(run)

    monkeypatch.setattr(Trainer, "one_step", poisoned)
    if len(bad_steps) > 25:
        with pytest.raises(ElmokitError, match=r"not finite for 25 steps in a row.*lower lr"):
            pretrain(options)
    else:
        pretrain(options | {"max_steps": 40})
        dropped = [
            line["dropped"]
            for line in read_log(Path(options["out"], "log.jsonl"))
            if "dropped" in line
        ]
        assert dropped == [1, 2]
    assert all(np.isfinite(value).all() for value in final_tensors(options).values())


def test_a_full_disk_at_a_checkpoint_is_one_sentence_and_the_last_one_stands(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain(options | {"max_steps": 20})
    options |= {"max_steps": 40}
    good = final_tensors(options)
    from elmokit.training import checkpoint

    def full(tensors: Any, path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, os.strerror(28), str(path))

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(ElmokitError, match="No space left on device"):
        pretrain(options)
    assert_same(good, final_tensors(options))
    monkeypatch.undo()
    assert pretrain(options).stopped_by == 0


def test_word_tables_and_sampled_softmaxes_train_too(options: dict[str, Any]) -> None:
    pretrain(options | {"softmax": "sampled", "samples": 10, "max_steps": 10})
    model = options["model"] | {"token_encoder": "words"}
    pretrain(options | {"out": options["out"] + "-words", "model": model, "max_steps": 10})
    assert elmokit.load(options["out"] + "-words").embed("the cat .").layers.shape == (3, 3, 16)


def test_without_held_out_text_the_last_model_is_published(options: dict[str, Any]) -> None:
    pretrain(options | {"valid_fraction": 0, "max_steps": 10})
    assert elmokit.load(options["out"]).embed("the cat .").layers.shape == (3, 3, 16)


def test_a_folder_with_another_model_is_left_alone(options: dict[str, Any]) -> None:
    Path(options["out"]).mkdir()
    Path(options["out"], "config.json").write_text("{}")
    with pytest.raises(ElmokitError, match="already contains a model"):
        pretrain(options)


def test_a_run_that_cannot_begin_leaves_no_folder_behind(options: dict[str, Any]) -> None:
    Path(options["corpus"]).write_text("\n")
    with pytest.raises(ElmokitError, match="no sentences"):
        pretrain(options)
    assert not Path(options["out"]).exists()


def test_text_and_folder_are_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--out", "model"]) == 2
    assert "--corpus" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"), [("threads", 0), ("workers", -7), ("max_minutes", -7.0)]
)
def test_a_wrong_number_is_reported_before_the_text_is_read(
    tmp_path: Path, name: str, value: float
) -> None:
    with pytest.raises(ElmokitError, match=f"^{name} must be "):
        pretrain({"corpus": tmp_path / "none.txt", "out": tmp_path / "out", name: value})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pattern", ["corpus", "corpus/*.txt", "corpus/text.txt", "."])
def test_a_corpus_inside_the_output_folder_is_never_touched(
    options: dict[str, Any], text: Path, tmp_path: Path, pattern: str
) -> None:
    project = tmp_path / "project"
    (project / "corpus").mkdir(parents=True)
    mine = project / "corpus" / "text.txt"
    text.rename(mine)
    before = mine.read_bytes()
    inside = [project / "corpus" / "new"] if (project / pattern).is_dir() else []
    for out in (project, project / "corpus", *inside):
        with pytest.raises(ElmokitError, match=r"not empty|is inside"):
            pretrain(options | {"corpus": str(project / pattern), "out": str(out)})
    assert [path for path in project.rglob("*") if path.is_file()] == [mine]
    assert mine.read_bytes() == before


def test_text_put_into_the_folder_of_a_run_is_refused_as_its_corpus(
    options: dict[str, Any], text: Path
) -> None:
    pretrain(options | {"epochs": 1})
    for folder in ("", "corpus", "training/corpus"):
        mine = Path(options["out"], folder, "mine.txt")
        mine.parent.mkdir(exist_ok=True)
        mine.write_bytes(text.read_bytes())
        with pytest.raises(ElmokitError, match="is inside the output folder"):
            pretrain(options | {"corpus": str(mine), "epochs": 2})
        assert mine.read_bytes() == text.read_bytes()
        mine.unlink()
