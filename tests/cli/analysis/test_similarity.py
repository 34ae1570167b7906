"""`elmokit similarity`: pairs in, correlations or accuracies of every layer out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import complaint, tiny_elmo

from elmokit.analysis.similarity.pairs import read_scws
from elmokit.cli.analysis.measure import similarity
from elmokit.cli.main import main
from elmokit.cli.options import ModelOptions

SCWS = (
    "1\tbank\tn\tshore\tn\tHe sat on the <b> bank </b> , and slept .\t"
    "The <b>shore</b> is near.\t7.5\t7\t8\n"
    "2\tbank\tn\tmoney\tn\tThe <b> bank </b> is closed .\tNo <b> money </b> is left .\t6.0\t6\t6\n"
    "3\tdog\tn\troof\tn\tA <b> dog </b> barks .\tThe <b> roof </b> leaks .\t1.0\t1\t1\n"
)
WIC = (
    "bank\tN\t4-1\tHe sat on the bank .\tThe bank is closed .\n"
    "play\tV\t1-2\tThey play cards .\tChildren often play there .\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    tiny_elmo().save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_says_when_a_threshold_is_the_file_s_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("dev.data.txt").write_text(WIC)
    Path("dev.gold.txt").write_text("F\nT\n")
    common = ["similarity", "dev.data.txt", "--model", "model", "--quiet", "--json", "out.json"]
    assert main(common) == 0
    assert "best for dev.data.txt itself" in capsys.readouterr().out
    assert json.loads(Path("out.json").read_text())["threshold_from"] == "the file itself"
    assert main([*common, "--train", "dev.data.txt", "--overwrite"]) == 0
    assert "itself" not in capsys.readouterr().out
    assert json.loads(Path("out.json").read_text())["threshold_from"] == "dev.data.txt"


def test_the_command_prints_every_layer_and_the_static_vectors(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ratings.txt").write_text(SCWS)
    Path("v.txt").write_text("bank 1 0\nshore 1 0.5\nmoney 0.5 1\ndog -1 0\nroof 1 1\n")
    options = ["--model", "model", "--vectors", "v.txt", "--json", "out.json", "--quiet"]
    assert main(["similarity", "ratings.txt", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["layer 0", "layer 1", "layer 2", "average", "static, word", "static, text"]
    assert [line[:12].strip() for line in lines[1:7]] == names
    assert lines[-1].startswith("3 pairs")
    written = json.loads(Path("out.json").read_text())
    assert written["kind"] == "scws"
    assert written["rows"][4]["raw"]["Spearman"] == 1.0  # 0.89, 0.45, -0.71 as rated
    assert "100.00" in lines[5]


def test_chinese_sentences_are_split_as_the_option_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jieba")
    Path("zh.tsv").write_text("他坐在河边。\t他在河岸上坐着。\t4\n银行关门了。\t狗在叫。\t1\n")
    assert main(["similarity", "zh.tsv", "--model", "model", "--tokenizer", "chinese"]) == 0
    assert "2 pairs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "no rows"),
        ("one\n", {}, "cannot tell which column"),
        ("a b\tc d\tmuch\ne\tf\t1\n", {}, "line 1: 'much' is not a number"),
        ("a b\tc d\t1\n\tf\t1\n", {}, "line 2: a sentence is empty"),
        ("a b\tc d\t1\n", {}, "at least 2 are needed"),
        ("a\tb\t1\nc\td\t2\n", {"pooling": "sum"}, "pooling must be"),
        ("a\tb\t1\nc\td\t2\n", {"score_column": "9"}, "no column '9'"),
        ("a\tb\t1\nc\td\t2\n", {"train": "x"}, "for WiC"),
        (SCWS.replace("<b> dog </b>", "dog"), {}, "line 3: no word of the context"),
        (SCWS + "4\tdog\n", {}, "line 4: the line has 2 columns"),
        (WIC, {}, "needs its answers"),
        (WIC, {"gold": ""}, "there is no file"),
        (WIC, {"gold": "one.txt"}, "line 2: the gold file has no line"),
        (WIC, {"gold": "many.txt"}, "its gold file has more"),
        (WIC, {"gold": "odd.txt"}, "line 2: the answer must be T or F"),
        (WIC.replace("4-1", "9-1"), {"gold": "two.txt"}, "line 1: the sentence has 6 tokens"),
    ],
)
def test_errors_are_raised_before_the_model_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: dict[str, Any], message: str
) -> None:
    monkeypatch.delattr(ModelOptions, "load")
    for name, lines in {"one": "T", "two": "T\nF", "many": "T\nF\nT", "odd": "T\nmaybe"}.items():
        Path(f"{name}.txt").write_text(lines + "\n")
    Path("file.txt").write_text(text)
    assert message in complaint(lambda: similarity("file.txt", **options))


def test_a_missing_or_binary_file_raises(folder: Path) -> None:
    Path("binary.tsv").write_bytes(b"\x00\x01")
    assert "there is no file" in complaint(lambda: similarity("none.tsv"))
    assert "binary" in complaint(lambda: similarity("binary.tsv"))
    Path("latin.txt").write_bytes(SCWS.replace("slept", "sl\xe9pt").encode("latin-1"))
    assert "not UTF-8" in complaint(lambda: similarity("latin.txt"))
    assert len(read_scws("latin.txt", str.split, errors="replace")) == 3
