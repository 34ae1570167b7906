"""`elmokit drift`: two corpora in, a ranking of words with examples out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from tiny import complaint, tiny_elmo

from elmokit.cli.analysis.measure import drift
from elmokit.cli.main import main
from elmokit.cli.options import ModelOptions, ResultOptions

MODEL = ModelOptions(model="model")
WRITING = ResultOptions(quiet=True, json="out.json", overwrite=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    tiny_elmo().save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    river, money = ["river", "water", "boat"], ["money", "loan", "teller"]
    shared = ["tree", "house", "road"]

    def lines(near: list[str]) -> str:
        return "".join(
            f"{rng.choice(near)} {rng.choice(near)} bank {rng.choice(near)} .\n"
            f"{rng.choice(shared)} {rng.choice(shared)} cup {rng.choice(shared)} .\n"
            for _ in range(30)
        )

    Path("a.txt").write_text(lines(river) + "A rare word .\n")
    Path("b.txt").write_text(lines(money))
    return tmp_path


def test_a_word_with_other_neighbours_is_ranked_before_one_with_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--words", "cup,Bank,rare", "--model", "model", "--json", "out.json", "--quiet"]
    assert main(["drift", "a.txt", "b.txt", *options, "--layer", "1"]) == 0
    out = capsys.readouterr().out
    written = json.loads(Path("out.json").read_text())
    assert [word["word"] for word in written["words"]] == ["bank", "cup"]
    bank, cup = (word["layers"]["layer 1"] for word in written["words"])
    assert bank["change"] > 5 * abs(cup["change"])
    assert bank["prt"] > bank["halves_a"]
    assert cup["prt"] < 3 * cup["halves_a"] + 0.01
    assert set(written["words"][0]["layers"]) == {"layer 0", "layer 1", "layer 2", "average"}
    assert written["left_out"] == {"rare": [1, 0]}
    assert "need 5 uses: rare (1, 0)" in out
    river, money = written["words"][0]["examples"]
    assert all("[bank]" in text and ("river" in text or "water" in text or "boat" in text)
               for text in river)  # fmt: skip
    assert all("[bank]" in text for text in money)
    assert f"b.txt: {money[0]}" in out


def test_without_words_the_frequent_ones_of_both_are_taken(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drift("a.txt", "b.txt", skip_words=0, options=MODEL, examples=0, writing=WRITING)
    written = json.loads(Path("out.json").read_text())
    names = {word["word"] for word in written["words"]}
    assert names == {"bank", "cup", "tree", "house", "road"}
    drift("a.txt", "b.txt", skip_words=0, options=MODEL, max_words=2, writing=WRITING)
    assert len(json.loads(Path("out.json").read_text())["words"]) == 2


@pytest.mark.parametrize("measure", ["change", "apd", "prt"])
def test_words_are_ranked_by_the_requested_measure(
    folder: Path, measure: Literal["change", "apd", "prt"]
) -> None:
    settings: dict[str, Any] = {"layer": "top", "max_uses": 20, "measure": measure}
    drift("a.txt", "b.txt", skip_words=0, options=MODEL, writing=WRITING, **settings)
    words = json.loads(Path("out.json").read_text())["words"]
    values = [word["layers"]["layer 2"][measure] for word in words]
    assert values == sorted(values, reverse=True)
    assert all(max(word["uses"]) <= 20 for word in words)


def test_chinese_words_are_found_by_the_chinese_tokenizer(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jieba")
    Path("zh.txt").write_text("我们去银行取钱。\n银行今天关门。\n" * 3)
    options = ["--words", "银行", "--tokenizer", "chinese", "--model", "model", "--quiet"]
    assert main(["drift", "zh.txt", "zh.txt", *options]) == 0
    row = capsys.readouterr().out.splitlines()[2]
    assert row.split()[:4] == ["银行", "6", "6", row.split()[3]]


def test_errors_are_raised_before_the_model_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(ModelOptions, "load")
    Path("empty.txt").write_text("\n\n")
    Path("binary.txt").write_bytes(b"\x00\x01")
    assert "no file" in complaint(lambda: drift("none.txt", "b.txt"))
    assert "no sentences" in complaint(lambda: drift("a.txt", "empty.txt"))
    assert "binary" in complaint(lambda: drift("binary.txt", "b.txt"))
    assert "more than once" in complaint(lambda: drift("-", "b.txt"))
    assert "unicorn (0 and 0)" in complaint(lambda: drift("a.txt", "b.txt", words="unicorn"))
    assert "name words" in complaint(lambda: drift("a.txt", "b.txt", words=" , "))
    assert "at least 2" in complaint(lambda: drift("a.txt", "b.txt", min_count=1))
    assert "--max-uses at least" in complaint(lambda: drift("a.txt", "b.txt", max_uses=3))
    assert "--max-words" in complaint(lambda: drift("a.txt", "b.txt", max_words=0))
    assert "no folder" in complaint(
        lambda: drift("a.txt", "b.txt", writing=ResultOptions(json="x/y.json"))
    )
