"""The options of `elmokit pretrain` and `adapt`, from the command line and from YAML files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import elmokit.pretrain
from elmokit.cli.main import main
from elmokit.cli.pretrain import ModelShape
from elmokit.config import PRESETS, BiLMConfig
from elmokit.pretrain import AdaptSettings, PretrainSettings
from elmokit.pretrain.settings import LENGTH, NOT_SAVED
from elmokit.pretrain.trainer import TrainingResult

CONFIGS = Path(__file__).parents[2] / "configs"
GROUPS = ("Text", "Model", "Optimizer", "Schedule", "Softmax", "Saving", "Machine")


class Calls(list[dict[str, Any]]):
    """What the library function was called with."""

    signal = 0

    def pretrain(
        self, corpus: Any, out: str, settings: PretrainSettings, *, config: BiLMConfig
    ) -> TrainingResult:
        self.append({"corpus": corpus, "out": out, "settings": settings, "config": config})
        return TrainingResult(Path(out), 1, 2, None, None, stopped_by=self.signal)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()
    monkeypatch.setattr(elmokit.pretrain, "pretrain", made.pretrain)
    return made


def test_a_corpus_has_several_patterns(calls: Calls) -> None:
    assert main("pretrain --corpus a.txt b.txt --corpus c.txt --out model".split()) == 0
    assert calls[0]["corpus"] == ["a.txt", "b.txt", "c.txt"]
    assert calls[0]["settings"] == PretrainSettings()
    assert calls[0]["config"] == BiLMConfig.preset("tiny")


def test_the_shape_of_the_model_differs_from_a_preset(calls: Calls) -> None:
    words = "--preset small --model.lstm-dim 64 --model.filters 1 4 2 8 --dropout 0.3"
    words += " --model.no-skip-connections"
    assert main(f"pretrain --corpus a --out b {words}".split()) == 0
    config = calls[0]["config"]
    assert (config.lstm_dim, config.filters, config.dropout) == (64, ((1, 4), (2, 8)), 0.3)
    assert (config.projection_dim, config.skip_connections) == (128, False)


@pytest.mark.parametrize("name", ["tiny", "small", "original"])
def test_the_shipped_configurations_are_read(name: str, calls: Calls) -> None:
    arguments = ["--config", str(CONFIGS / f"{name}.yaml"), "--epochs", "7", "--model.num-layers=3"]
    assert main(["pretrain", "--corpus", "a.txt", "--out", "model", *arguments]) == 0
    config, settings = calls[0]["config"], calls[0]["settings"]
    assert (config.lstm_dim, config.num_layers) == (PRESETS[name]["lstm_dim"], 3)
    assert config.dropout == (0.05 if name == "tiny" else 0.1)
    assert (settings.epochs, settings.unroll) == (7, 20)
    assert settings.vocab_size is not None


@pytest.mark.parametrize("name", ["english", "chinese"])
def test_the_configurations_of_the_included_models_weigh_their_sources(
    name: str, calls: Calls
) -> None:
    assert main(["pretrain", "--config", str(CONFIGS / f"{name}.yaml"), "--out", "model"]) == 0
    weights = calls[0]["corpus"]
    assert {Path(source).name[:2] for source in weights} <= {"en", "zh", "wi", "no"}
    assert len(set(weights.values())) > 3
    assert calls[0]["settings"].schedule == "constant"


def test_a_misspelled_field_of_the_model_is_one_sentence(
    tmp_path: Path, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.yaml").write_text("corpus: a.txt\nmodel:\n  lstm_dims: 3\n")
    assert main(["pretrain", "--out", "model", "--config", str(tmp_path / "run.yaml")]) == 2
    assert "id you mean --model.lstm-dim?" in capsys.readouterr().err


def test_a_signal_is_the_exit_code(calls: Calls) -> None:
    calls.signal = 15
    assert main("pretrain --corpus a.txt --out model".split()) == 143


@pytest.mark.parametrize("command", ["pretrain", "adapt"])
def test_the_options_are_in_groups(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    positions = [shown.index(f"─ {name} ─") for name in GROUPS]
    assert positions == sorted(positions)
    assert "─ Parameters ─" not in shown


def test_every_setting_has_a_help_text() -> None:
    import ast
    import inspect

    for owner in (PretrainSettings, AdaptSettings, ModelShape):
        body = ast.parse(inspect.getsource(owner)).body[0].body  # type: ignore[attr-defined]
        own = {node.target.id for node in body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
        explained = {
            before.target.id  # type: ignore[union-attr]
            for before, node in pairwise(body)
            if isinstance(before, ast.AnnAssign) and isinstance(node, ast.Expr)
        }
        inherited = {field.name for base in owner.__mro__[1:-1] for field in fields(base)}
        assert own - inherited <= explained


def test_what_is_not_saved_names_settings() -> None:
    names = {field.name for field in fields(AdaptSettings)}
    assert names >= NOT_SAVED
    assert names - NOT_SAVED >= LENGTH


def test_a_shape_has_the_fields_of_a_configuration() -> None:
    of_config = {field.name for field in fields(BiLMConfig)}
    assert {field.name for field in fields(ModelShape)} < of_config


def test_threads_spin_briefly_only_when_a_training_starts() -> None:
    code = """
import os, sys
os.environ.pop("GOMP_SPINCOUNT", None)
import elmokit.pretrain, elmokit.cli.pretrain, elmokit.cli.language
assert "torch" not in sys.modules and "GOMP_SPINCOUNT" not in os.environ
try:
    elmokit.pretrain.pretrain("nothing.txt", "/nowhere/model")
except elmokit.ElmokitError:
    assert os.environ["GOMP_SPINCOUNT"] == "20000" and "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
