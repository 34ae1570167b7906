"""A model that is trained with a user dictionary of jieba brings its words with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import adapt, pretrain
from tiny import complaint

import elmokit
from elmokit.cli.main import main
from elmokit.formats.detect import own_tokenizer

pytest.importorskip("jieba")
OWN = ["石墨烯", "芯片", "很快", "。"]


@pytest.fixture
def chinese(options: dict[str, Any], text: Path, tmp_path: Path) -> dict[str, Any]:
    """A training run on Chinese text, with a dictionary."""
    text.write_text("石墨烯芯片很快。\n渔夫离开了港口。\n" * 40, encoding="utf-8")
    words = tmp_path / "words.txt"
    words.write_text("石墨烯 5 n\n", encoding="utf-8")
    return {**options, "tokenizer": "chinese", "jieba_dict": str(words), "epochs": 1}


def test_the_words_come_out_again_wherever_the_model_is_used(
    chinese: dict[str, Any], tmp_path: Path
) -> None:
    pretrain(chinese)
    Path(chinese["jieba_dict"]).unlink()
    folder = Path(chinese["out"])
    assert (folder / "jieba.txt").read_text(encoding="utf-8") == "石墨烯 5 n\n"
    assert "石墨烯" not in (folder / "config.json").read_text(encoding="utf-8")
    elmo = elmokit.load(folder)
    assert elmo.tokenize("石墨烯芯片很快。") == OWN
    assert elmo.vocabulary is not None
    assert "石墨烯" in elmo.vocabulary.words
    more = {"tokenizer": None, "jieba_dict": None, "out": str(tmp_path / "adapted")}
    shape = {name: chinese[name] for name in chinese if name != "model"}
    adapt(str(folder), {**shape, **more})
    assert own_tokenizer(tmp_path / "adapted") == own_tokenizer(folder) == "chinese\n石墨烯 5 n"
    assert "石墨烯" not in (tmp_path / "adapted" / "config.json").read_text(encoding="utf-8")


def test_a_run_with_another_dictionary_is_not_resumed(chinese: dict[str, Any]) -> None:
    pretrain({**chinese, "max_steps": 10})
    Path(chinese["jieba_dict"]).write_text("芯片很快\n", encoding="utf-8")
    said = complaint(lambda: pretrain(chinese))
    assert r"its tokenizer was 'chinese\n石墨烯 5 n' and is now 'chinese\n芯片很快'" in said


def test_a_wrong_dictionary_is_reported_before_anything_is_written(
    chinese: dict[str, Any],
) -> None:
    words = Path(chinese["jieba_dict"])
    said = complaint(lambda: pretrain({**chinese, "tokenizer": "elmokit"}))
    assert said.startswith("a dictionary for jieba needs the tokenizer 'chinese', not 'elmokit'")
    words.write_text("石墨烯 很多\n", encoding="utf-8")
    assert complaint(lambda: pretrain(chinese)).startswith(f"{words}:1: an entry of a dictionary")
    words.unlink()
    assert complaint(lambda: pretrain(chinese)).startswith(f"cannot read {words}: ")
    assert not Path(chinese["out"]).exists()


def test_commands_take_a_dictionary(
    chinese: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, out = chinese["jieba_dict"], tmp_path / "vectors.npz"
    command = ["embed", chinese["corpus"], str(out), "--quiet", "--overwrite"]
    assert main([*command, "--tokenizer", "chinese", "--jieba-dict", words]) == 0
    assert next(iter(elmokit.read_vectors(out)))[1] == OWN
    assert main([*command, "--jieba-dict", words]) == 2
    assert "needs the tokenizer 'chinese'" in capsys.readouterr().err
    index = ["neighbours", "index", chinese["corpus"], str(tmp_path / "index"), "--quiet"]
    assert main([*index, "--tokenizer", "chinese", "--jieba-dict", words]) == 0
    Path(words).unlink()  # The index has the words.
    assert main(["neighbours", "find", str(tmp_path / "index"), "*石墨烯*芯片"]) == 0
    assert "石墨烯" in capsys.readouterr().out
