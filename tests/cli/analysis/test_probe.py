"""`elmokit probe`: files in columns in, the accuracy of every layer out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tagged import made_text
from tiny import complaint, tiny_elmo

from elmokit.analysis.probes.tokens import TaggedText
from elmokit.cli.analysis.measure import probe
from elmokit.cli.main import main
from elmokit.cli.options import ModelOptions, ResultOptions


def write_conll(text: TaggedText, path: Path) -> Path:
    sentences = zip(text.sentences, text.labels, strict=True)
    parts = ("".join(f"{w}\t{t}\n" for w, t in zip(*s, strict=True)) for s in sentences)
    path.write_text("\n".join(parts))
    return path


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    tiny_elmo().save_pretrained(tmp_path / "model")
    train = write_conll(made_text(30, 1), tmp_path / "train.conll")
    return train, write_conll(made_text(10, 2, unseen=True), tmp_path / "dev.conll")


def test_the_command_prints_a_table_and_writes_json_and_a_figure(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files[0].parent
    vectors = folder / "vectors.txt"
    vectors.write_text("the 1 0\na 1 0\nriver 0 1\n")
    options = ["--model", str(folder / "model"), "--epochs", "2", "--quiet"]
    options += ["--vectors", str(vectors), "--json", str(folder / "out.json")]
    code = main(["probe", *map(str, files), *options, "--figure", str(folder / "out.svg")])
    out = capsys.readouterr().out
    assert code == 0
    rows = [line[:15].strip() for line in out.splitlines()[1:9]]
    assert rows == [
        "majority label",
        "word's majority",
        "static vectors",
        "layer 0",
        "layer 1",
        "layer 2",
        "average",
        "mix",
    ]
    written = json.loads((folder / "out.json").read_text())
    assert written["settings"]["epochs"] == 2
    assert written["unseen_tokens"] == 10
    assert len(written["layers"]) == 5
    assert "unseen words" in out
    assert f"{100 * written['layers'][0]['accuracy']:.2f}" in out
    assert (folder / "out.svg").read_text().startswith("<?xml")


def test_errors_are_raised_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(ModelOptions, "load", never)
    good = tmp_path / "good.conll"
    good.write_text("a X\nb Y\n")
    one = tmp_path / "one.conll"
    one.write_text("a X\nb X\n")
    empty, binary = tmp_path / "empty.conll", tmp_path / "binary.conll"
    empty.write_text("")
    binary.write_bytes(b"\x00\x01\x02")
    good_, wrong = str(good), tmp_path / "wrong.conll"
    wrong.write_text("a X\nb\n")
    assert "no file" in complaint(lambda: probe(str(tmp_path / "none.conll"), good_))
    assert "no sentences" in complaint(lambda: probe(str(empty), good_))
    assert "binary" in complaint(lambda: probe(good_, str(binary)))
    assert "wrong.conll, line 2" in complaint(lambda: probe(str(wrong), good_))
    assert "nothing to learn" in complaint(lambda: probe(str(one), good_))
    assert "no column 7" in complaint(lambda: probe(good_, good_, column="7"))
    assert ".png or .svg" in complaint(lambda: probe(good_, good_, figure="a.pdf"))
    assert "no folder" in complaint(
        lambda: probe(good_, good_, writing=ResultOptions(json=str(tmp_path / "x" / "y")))
    )
    assert "no file" in complaint(lambda: probe(good_, good_, vectors=str(tmp_path / "v.txt")))
