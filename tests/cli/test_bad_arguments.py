"""Arguments that no command can use are one sentence and exit code 2, never a traceback."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from children import Child
from tiny import tiny_elmo

from elmokit.analysis.senses.inventory import FILES
from elmokit.cli.main import main
from elmokit.io.atomic import LEFTOVER

LONG = 260 * "ä"  # more bytes than a file system allows
USES = "the river bank .\t2\tshore\tbank\nthe bank lent money .\t1\tmoney\tbank\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the river bank .\n")
    Path("uses.tsv").write_text(USES * 3)
    Path("tags.conll").write_text("the D\nbank N\n\n")
    tiny_elmo().save_pretrained("model")
    return tmp_path


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The only line that a command prints, besides progress bars."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not re.search(r"/s\]|\?it|%\|", line) and line]
    assert (out, len(lines)) == ("", 1)
    assert lines[0].startswith("elmokit: error: ")
    return lines[0]


@pytest.mark.parametrize(
    "command",
    [
        "embed LONG out.h5",
        "embed text.txt LONG.h5",
        "embed text.txt out.h5 --model LONG",
        "embed text.txt out.h5 --config LONG",
        "info LONG",
        "convert model LONG",
        "evaluate model LONG",
        "evaluate model text.txt --sentences LONG",
        "predict LONG text.txt -",
        "score LONG text.txt",
        "train classifier --train LONG --out out",
        "pretrain --corpus LONG --out out",
        "pretrain --corpus text.txt --out LONG",
        "senses build LONG out",
        "senses build LONG.xml out --keys LONG",
        "senses build uses.tsv LONG --model model",
        "senses tag LONG text.txt",
        "senses score LONG uses.tsv",
        "senses score none uses.tsv --index LONG",
        "senses induce bank LONG",
        "senses induce bank text.txt --out LONG",
        "neighbours index LONG out",
        "neighbours index text.txt LONG --model model",
        "neighbours find LONG a*b*",
        "plot uses LONG.tsv out.png",
        "plot uses uses.tsv LONG.png",
        "plot weights LONG out.png",
        "plot surprisal LONG.txt out.png",
        "probe LONG tags.conll",
        "probe tags.conll tags.conll --vectors LONG",
        "similarity LONG",
        "drift LONG text.txt",
        "drift text.txt text.txt --json LONG",
    ],
)
def test_a_file_name_that_is_too_long_is_a_sentence(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = error_of(capsys, *(word.replace("LONG", LONG) for word in command.split()))
    sentences = ("too long", "there is no text at", "there is no task model in")
    assert any(sentence in said for sentence in sentences)
    assert len(said) < 1200


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e999"])
@pytest.mark.parametrize(
    "command",
    [
        "probe tags.conll tags.conll --lr",
        "train classifier --train text.txt --out out --dev-fraction",
        "train tagger --train text.txt --out out --lr",
        "compare classifier --train text.txt --out out --sample-efficiency",
        "pretrain --corpus text.txt --out out --lr",
        "pretrain --corpus text.txt --out out --model.dropout",
        "adapt model --corpus text.txt --out out --lr",
    ],
)
def test_numbers_are_finite(
    command: str, number: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *words, option = command.split()
    assert str(float(number)) in error_of(capsys, *words, f"{option}={number}")
    if "." not in option:
        Path("options.yaml").write_text(f"{option.removeprefix('--')}: .nan\n")
        assert "nan" in error_of(capsys, *words, "--config", "options.yaml")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("probe tags.conll tags.conll --seed -1", "--seed"),
        ("senses induce bank text.txt --seed -1", "--seed"),
        ("drift text.txt text.txt --seed -1", "--seed"),
        ("drift text.txt text.txt --seed 99999999999999999999", "--seed"),
        ("embed text.txt out.h5 --threads 99999999", "threads must be at most 4096"),
        ("embed text.txt out.h5 --batch-tokens nan", "--batch-tokens must be an integer"),
        ("embed text.txt out.h5 --threads 1.5", "--threads must be an integer, not '1.5'"),
        ("adapt model --corpus text.txt --out out --epochs 2.5", "--epochs must be an integer"),
        ("compare pair --train a --out out --seeds 1 2.5", "--seeds must be an integer, not '2.5'"),
        ("embed text.txt .", ". is a folder"),
        ("static text.txt .", ". is a folder"),
        ("plot surprisal model out.png", "model is a directory"),
        ("export model .", ". would overwrite the input model"),
        ("drift text.txt text.txt --skip-words=-7", "--skip-words must be at least 0, not -7"),
        ("drift text.txt text.txt --examples=-7", "--examples must be at least 0, not -7"),
        ("embed text.txt out.h5 --model=", "the name of the model is empty"),
        ("fill ___ --model=", "the name of the model is empty"),
        ("senses tag model text.txt --model=", "the name of the model is empty"),
    ],
)
def test_values_that_make_no_sense_are_a_sentence(
    command: str, sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in error_of(capsys, *command.split())


def test_an_integer_may_be_written_with_a_point(folder: Path) -> None:
    assert main(["embed", "text.txt", "out.h5", "--model", "model", "--threads=1.0"]) == 0


@pytest.mark.parametrize("command", ["embed text.txt link.h5", "static text.txt link.h5"])
def test_a_link_that_leads_nowhere_is_not_replaced(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("link.h5").symlink_to("nowhere")
    assert "already exists" in error_of(capsys, *command.split())


@pytest.mark.parametrize(
    "content", [b"\xff\xfe: 1", b"layers: \xe9", b"a: [", b"- 1", b"\x00", b"1: 2"]
)
def test_a_configuration_that_is_not_text_or_not_yaml_is_a_sentence(
    content: bytes, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("options.yaml").write_bytes(content)
    command = ("embed", "text.txt", "out.h5", "--config", "options.yaml")
    assert "options.yaml is not " in error_of(capsys, *command)


KILLED = """
import os, signal, safetensors.numpy
safetensors.numpy.save_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_hidden_folder_of_a_killed_build_is_deleted_by_the_next(folder: Path) -> None:
    command = ["senses", "build", "uses.tsv", "senses", "--model", "model", "--quiet"]
    assert Child(command, before=KILLED).finish() == (-signal.SIGKILL, "")
    (hidden,) = folder.glob(".*")
    assert LEFTOVER.fullmatch(hidden.name)
    assert main(command) == 0
    assert not list(folder.glob(".*"))
    assert sorted(path.name for path in Path("senses").iterdir()) == sorted(FILES)
