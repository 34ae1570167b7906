"""Wrong arguments of the real commands: one sentence each, with what was probably meant."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from elmokit.cli.main import main

PRETRAIN = "pretrain --corpus a --out b"
COMPARE = "compare tagger --train a --out b"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--verison", "there is no option --verison: did you mean --version?"),
        (
            "--quiet embed a b",
            "the option --quiet must follow a command: elmokit --help lists the commands",
        ),
        (
            "train --epochs 3 tagger",
            "the option --epochs must follow a command: elmokit train --help lists the commands",
        ),
        ("embed --hlep", "there is no option --hlep: did you mean --help?"),
        ("embed a b -q", "there is no option -q ("),
        (
            "embed a b --dtype flaot16",
            "--dtype must be one of float32, float16, not 'flaot16': did you mean 'float16'? (",
        ),
        ("embed a b --dtype red", "--dtype must be one of float32, float16, not 'red' ("),
        ("embed a b --batch-tokens 1.5", "--batch-tokens must be an integer, not '1.5' ("),
        (
            f"embed a b --batch-tokens {'9' * 30}",
            f"--batch-tokens cannot be {'9' * 30}: the number is too large (",
        ),
        ("embed a b --layers top --layers all", "--layers is given more than once ("),
        ("train classifier --train a --out b --beam 4", "there is no option --beam ("),
        (
            f"{PRETRAIN} --model.lstmdim 4",
            "there is no option --model.lstmdim: did you mean --model.lstm-dim? (",
        ),
        (f"{COMPARE} --seeds 1 x", "--seeds must be an integer, not 'x' ("),
        (
            f"{COMPARE} --vary layer",
            "--vary must be one of layers, placement, elmo, not 'layer': did you mean 'layers'? (",
        ),
        ("completion bsh", "SHELL must be one of bash, zsh, fish, not 'bsh': did you mean 'bash'?"),
        ("models --language Englisch", "no model for 'Englisch' is known; did you mean English?"),
    ],
)
def test_a_wrong_use_is_one_sentence(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(line)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"elmokit: error: {sentence}")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("batch-tokens: many", "batch-tokens in a.yaml must be an integer, not 'many' ("),
        ("dtype: flaot16", "dtype in a.yaml must be one of float32, float16, not 'flaot16': did"),
        ("quiet: maybe", "quiet in a.yaml must be true or false, not 'maybe' ("),
        ("layers: null", "layers in a.yaml must be a text, not 'null' ("),
        (
            "batch_tokns: 3",
            "there is no option batch_tokns, which a.yaml sets: did you mean --batch-tokens? (",
        ),
    ],
)
def test_a_wrong_value_in_a_config_file_names_the_file(
    content: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(content)
    assert main(["embed", "a", "b", "--config", "a.yaml"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"elmokit: error: {sentence}")
    assert err.count("\n") == 1


def test_the_help_shows_defaults_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "tagger", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Seeds of the runs of each condition. [default: 1 2 3]" in words
    assert (
        "elmo is only with and without. [choices: layers, placement, elmo] [default: layers]"
        in (words)
    )
    assert "None" not in words
