"""What the commands share: tables that line up, JSON with its settings, checks before the work."""

from __future__ import annotations

import doctest
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import complaint, tiny_elmo

import elmokit
from elmokit.cli import output
from elmokit.cli.options import ModelOptions, RecordedModelOptions
from elmokit.cli.output import table, write_result
from elmokit.io.paths import check_output
from elmokit.text.unicode import text_width


def test_columns_line_up_on_a_terminal_with_chinese_in_them() -> None:
    shown = table(["word", "layer 1", "平均"], [["bank", 0.5, 1.0], ["银行卡", None, 12]])
    assert shown.splitlines() == [
        "word    layer 1  平均",
        "bank       0.50  1.00",
        "银行卡        -    12",
    ]
    # Each line is as wide as the others, if a Chinese character is counted twice.
    widths = {sum(2 if ord(c) > 0x2E80 else 1 for c in line) for line in shown.splitlines()}
    assert widths == {21}


@pytest.mark.parametrize(
    ("text", "columns"),
    [("", 0), ("bank", 4), ("银行", 4), ("ＡＢ", 4), ("。", 2), ("é", 1), ("e\u0301", 1), ("ｶ", 1)],
)
def test_the_width_of_a_text_is_that_on_a_terminal(text: str, columns: int) -> None:
    assert text_width(text) == columns


def test_the_table_of_the_docstring_is_what_is_printed() -> None:
    result = doctest.testmod(output)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_result_is_written_with_the_command_and_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_result(str(path), "plot pair", {"model": "模型", "layer": None}, {"cosines": [0.5]})
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == {
        "command": "plot pair",
        "elmokit": elmokit.__version__,
        "settings": {"model": "模型", "layer": None},
        "cosines": [0.5],
    }
    assert "模型" in text  # to be read, not \u6a21
    write_result(None, "plot pair", {}, {})  # asked for nothing, writes nothing
    assert list(tmp_path.iterdir()) == [path]


def test_an_output_that_cannot_be_written_raises(tmp_path: Path) -> None:
    check_output(None)
    check_output("here.json")
    check_output(str(tmp_path / "here.json"))
    assert complaint(lambda: check_output(str(tmp_path / "no" / "here.json"))) == (
        f"there is no folder {tmp_path / 'no'} to write {tmp_path / 'no' / 'here.json'} to"
    )


def test_settings_that_are_dataclasses_are_written_as_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    options = ModelOptions(model="other", threads=2)
    write_result(str(path), "drift", {"seed": 1, "options": options}, {})
    assert json.loads(path.read_text())["settings"] == {
        "seed": 1,
        "model": "other",
        "tokenizer": None,
        "jieba_dict": None,
        "device": "cpu",
        "threads": 2,
    }


def test_a_store_is_opened_with_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    tiny_elmo().save_pretrained(tmp_path / "model")
    options = ModelOptions(model=str(tmp_path / "model"))
    store = replace(options, tokenizer="whitespace").open_store()
    assert store.elmo.tokenize("the bank.") == ["the", "bank."]
    assert options.open_store().elmo.tokenize("the bank.") == ["the", "bank", "."]
    assert options.tokenizer_name() == "elmokit"
    assert store.folder == tmp_path / "cache" / "layers"
    assert complaint(lambda: ModelOptions(threads=0)) == "threads must be at least 1, not 0"


def test_the_recorded_model_is_taken_unless_another_is_named() -> None:
    assert RecordedModelOptions().resolve("mine", "chinese") == ModelOptions(
        model="mine", tokenizer="chinese"
    )
    assert RecordedModelOptions(model="moved", device="cuda").resolve("mine") == ModelOptions(
        model="moved", device="cuda"
    )
    assert "threads" in complaint(lambda: RecordedModelOptions(threads=0))
