"""The learning rate over a run, and runs that end well from any checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import arguments, pretrain
from safetensors.numpy import load_file

from elmokit.cli.main import main
from elmokit.errors import ElmokitError
from elmokit.pretrain import PretrainSettings
from elmokit.pretrain.trainer import Trainer

Options = dict[str, Any]


def rates(total: int, **settings: Any) -> list[float]:
    run = PretrainSettings(lr=1.0, max_steps=total, epochs=1000, **settings)
    assert run.total_steps(10) == total
    return [run.rate(step, total) for step in range(total)]


def final_tensors(options: Options) -> dict[str, np.ndarray[Any, Any]]:
    last = sorted(Path(options["out"], "training").glob("step-*"))[-1]
    return load_file(last / "state.safetensors")


def assert_same_bits(one: Options, other: Options) -> None:
    tensors = final_tensors(other)
    assert final_tensors(one).keys() == tensors.keys()
    for name, value in final_tensors(one).items():
        assert np.array_equal(value, tensors[name]), name


def test_a_trapezoid_rises_stays_and_falls() -> None:
    values = rates(20, schedule="trapezoid", warmup=4, decay_steps=5)
    assert values[:4] == [0.25, 0.5, 0.75, 1.0]
    assert values[4:15] == [1.0] * 11
    assert values[15:] == pytest.approx([0.802, 0.604, 0.406, 0.208, 0.01])


def test_by_default_a_fifth_of_the_run_is_decay() -> None:
    values = rates(20, schedule="trapezoid")
    assert [value < 1 for value in values] == [False] * 16 + [True] * 4
    run = PretrainSettings(decay_from=80, epochs=1, max_steps=90)
    assert (run.course, run.total_steps(10)) == ("trapezoid", 100)


def test_a_decay_from_a_step_ends_the_run() -> None:
    run = PretrainSettings(lr=1.0, decay_from=30, decay_steps=10, epochs=1, max_steps=7)
    total = run.total_steps(5)
    assert total == 40
    assert [run.rate(step, total) for step in (0, 29, 34, 39)] == pytest.approx([1, 1, 0.505, 0.01])


@pytest.mark.parametrize("name", ["decay_steps", "decay_from"])
def test_other_schedules_have_no_decay(name: str) -> None:
    options: Options = {"schedule": "cosine", name: 5}
    with pytest.raises(ElmokitError, match=f"{name} needs the schedule 'trapezoid', not 'cosine'"):
        PretrainSettings(**options)


@pytest.mark.parametrize("optimizer", ["adagrad", "adamw"])
def test_a_constant_run_decays_from_a_checkpoint_to_the_bits_of_a_trapezoid(
    options: Options, optimizer: str
) -> None:
    options |= {"optimizer": optimizer, "epochs": 100}
    whole = options | {"out": options["out"] + "-whole", "schedule": "trapezoid"}
    result = pretrain(whole | {"max_steps": 35, "decay_steps": 10})
    assert (result.step, result.total_steps) == (35, 35)
    pretrain(options | {"schedule": "constant", "max_steps": 25})
    decay = {"schedule": "trapezoid", "decay_from": 25, "decay_steps": 10}
    assert pretrain(options | decay).step == 35
    assert_same_bits(options, whole)
    pretrain(options | decay)  # It has ended.
    assert_same_bits(options, whole)


def test_an_interrupted_decay_resumes_to_the_same_bits(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    decay = {"decay_from": 20, "decay_steps": 15, "save_every": 4, "quiet": False}
    whole = options | {"out": options["out"] + "-whole"}
    pretrain(whole | decay)
    pretrain(options | {"max_steps": 20})
    train, stops = Trainer.one_step, {22, 31}

    def interrupted(trainer: Trainer) -> tuple[float, float]:
        if trainer.step in stops:
            stops.remove(trainer.step)
            raise KeyboardInterrupt
        return train(trainer)

    monkeypatch.setattr(Trainer, "one_step", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            pretrain(options | decay)
    pretrain(options | decay)
    assert_same_bits(options, whole)


def test_what_would_change_past_rates_is_refused(options: Options) -> None:
    pretrain(options | {"max_steps": 20})
    with pytest.raises(
        ElmokitError, match=r"from step 12, but the run is at step 20: set decay_from"
    ):
        pretrain(options | {"decay_from": 12, "decay_steps": 20})
    with pytest.raises(ElmokitError, match=r"from step 15, but the run is at step 20"):
        pretrain(options | {"max_steps": 25, "decay_steps": 10})
    with pytest.raises(ElmokitError, match=r"schedule was 'constant' and is now 'cosine'"):
        pretrain(options | {"schedule": "cosine"})
    # A decay that has begun is not changed any more.
    pretrain(options | {"decay_from": 20, "decay_steps": 5})
    with pytest.raises(ElmokitError, match=r"decay_steps was 5 and is now 9"):
        pretrain(options | {"decay_from": 20, "decay_steps": 9})
    with pytest.raises(ElmokitError, match=r"schedule was 'trapezoid' and is now 'constant'"):
        pretrain(options)


def test_the_command_tells_where_the_rate_falls(
    options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    options |= {"max_steps": 20, "quiet": False}
    assert main(arguments(options)) == 0
    assert "rate falls" not in capsys.readouterr().err
    assert main([*arguments(options), "--decay-from", "20", "--decay-steps", "5"]) == 0
    said = capsys.readouterr().err
    assert "resuming after step 20 of 25" in said
    assert "the learning rate falls from step 20 to step 25" in said
