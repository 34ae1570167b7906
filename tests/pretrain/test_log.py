"""What a run tells: its log, TensorBoard, and the sentences at the beginning and the end."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from runs import pretrain

from elmokit.cli.main import main
from elmokit.pretrain.log import read_log
from elmokit.pretrain.trainer import Trainer, TrainingResult

Options = dict[str, Any]


@pytest.fixture
def options(options: Options) -> Options:
    return options | {"tensorboard": True, "max_steps": 60, "save_every": 25, "workers": 1}


def events_of(options: Options) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run: steps and values under each name."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator(str(Path(options["out"], "tensorboard")))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def assert_as_in_the_log(options: Options) -> None:
    events = events_of(options)
    lines = read_log(Path(options["out"], "log.jsonl"))
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    held_out = [(line["step"], line["heldout"]["average"]) for line in lines if "heldout" in line]
    assert [step for step, _ in losses] == [20, 40, 60]
    assert [step for step, _ in held_out] == [25, 50, 60]
    for name, expected in (("loss", losses), ("heldout/average", held_out)):
        assert [step for step, _ in events[name]] == [step for step, _ in expected]
        assert [v for _, v in events[name]] == pytest.approx([v for _, v in expected], rel=1e-6)
    assert set(events) == {
        "loss", "norm", "lr", "tokens", "tokens_per_second",
        "heldout/forward", "heldout/backward", "heldout/average",
    }  # fmt: skip


def test_tensorboard_shows_what_the_log_says(options: Options) -> None:
    assert pretrain(options).stopped_by == 0
    assert_as_in_the_log(options)


def test_steps_that_are_done_again_are_shown_once(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_step = Trainer.one_step

    def interrupted(run: Trainer) -> tuple[float, float]:
        if run.step == 45:  # after a line for step 40; the last checkpoint is that of step 25
            raise KeyboardInterrupt
        return one_step(run)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "one_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pretrain(options)
    assert events_of(options)["loss"][-1][0] == 40
    # What the second run writes is kept apart from what it replaces.
    assert pretrain(options).stopped_by == 0
    assert_as_in_the_log(options)
    files = list(Path(options["out"], "tensorboard").iterdir())
    assert len(files) == 2


def test_without_tensorboard_the_sentence_names_the_extra(
    options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    names = ("corpus", "out", "tokenizer")
    arguments = [f"--{name}={options[name]}" for name in names]
    assert main(["pretrain", *arguments, "--quiet", "--batch-size=4", "--tensorboard"]) == 2
    assert capsys.readouterr().err == (
        "elmokit: error: A log for TensorBoard needs the package tensorboard: "
        "pip install 'elmokit[tensorboard]'\n"
    )


def test_a_line_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 20, "loss": 3.5}\n{"step": 40, "lo')
    assert read_log(log) == [{"step": 20, "loss": 3.5}]


def test_the_last_message_says_how_it_went() -> None:
    def ended(**values: Any) -> str:
        usual = {"step": 5, "total_steps": 9, "perplexity": 40.0, "perplexity_before": None}
        return TrainingResult(Path("model"), **usual | values).describe()

    assert ended(stopped_by=15).startswith("stopped by SIGTERM after step 5;")
    assert ended() == "the time is up after step 5; the same command resumes the run"
    assert ended(step=9) == "model is trained: 9 steps, held-out perplexity 40.00"
    assert ended(step=9, perplexity_before=50.0).endswith("40.00, before it was 50.00 (-20.0%)")
    assert ended(step=9, perplexity=None) == "model is trained: 9 steps"


def test_the_bar_shows_how_much_of_the_held_out_text_is_read(
    options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(options | {"quiet": False, "tensorboard": False, "max_steps": 2})
    assert "held-out text 100%" in capsys.readouterr().err


def test_the_messages_of_a_run_are_log_records(
    options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "elmokit"):
        pretrain(options | {"quiet": False, "tensorboard": False, "max_steps": 2})
    assert "model is trained: 2 steps" in caplog.messages[-1]
    caplog.clear()
    options |= {"out": options["out"] + "-quiet", "quiet": True}
    pretrain(options | {"tensorboard": False, "max_steps": 2})
    assert caplog.messages == []
