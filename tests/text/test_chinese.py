"""jieba with the words of a user: applied, isolated from each other, and refused if malformed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import complaint

from elmokit.text import chinese
from elmokit.text.chinese import read_dictionary, with_dictionary
from elmokit.text.tokenize import tokenizer

TEXT = "石墨烯芯片很快。"
PLAIN = ["石墨", "烯", "芯片", "很快", "。"]


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A dictionary with a word that jieba does not know, in the forms that entries may have."""
    path = tmp_path / "words.txt"
    path.write_text("\ufeff石墨烯\r\n\n李小福 2 nr\n云计算\t5\n台中 n\n", encoding="utf-8")
    return path


def test_the_words_of_a_dictionary_are_kept_whole_by_its_tokenizer_only(words: Path) -> None:
    pytest.importorskip("jieba")
    name = with_dictionary("chinese", words)
    assert tokenizer("chinese")(TEXT) == PLAIN
    assert tokenizer(name)(TEXT) == ["石墨烯", "芯片", "很快", "。"]
    assert tokenizer("chinese\n芯片很快")(TEXT) == ["石墨", "烯", "芯片很快", "。"]
    assert tokenizer("chinese")(TEXT) == PLAIN
    assert with_dictionary(name, None) == name


def test_a_dictionary_is_read_without_blank_lines_and_marks(words: Path) -> None:
    assert read_dictionary(words) == "石墨烯\n李小福 2 nr\n云计算\t5\n台中 n"


@pytest.mark.parametrize(
    "line",
    ["云计算 五", "云计算 5 n n", "云计算 0", "云计算 -1", "云" * 101, "云 " + "9" * 10],
)
def test_a_malformed_entry_is_one_sentence_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "words.txt"
    path.write_text(f"石墨烯\n{line}\n", encoding="utf-8")
    said = complaint(lambda: with_dictionary("chinese", path))
    assert said.startswith(f"{path}:2: an entry of a dictionary for jieba is a word, or")
    assert "\n" not in said


def test_a_file_that_is_not_a_dictionary_is_refused(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bad.txt"
    assert complaint(lambda: read_dictionary(path)).startswith(f"cannot read {path}: ")
    path.write_bytes("云计算".encode("gb18030"))
    assert f"{path} is not UTF-8 text" in complaint(lambda: read_dictionary(path))
    path.write_text(" \n\n")
    assert complaint(lambda: read_dictionary(path)) == f"the dictionary {path} has no words"
    assert "is a folder" in complaint(lambda: read_dictionary(tmp_path))
    monkeypatch.setattr(chinese, "MAX_DICTIONARY_BYTES", 10)
    assert "is too large" in complaint(lambda: read_dictionary(words))


def test_only_the_chinese_tokenizer_takes_a_dictionary(words: Path) -> None:
    assert complaint(lambda: with_dictionary("elmokit", words)) == (
        "a dictionary for jieba needs the tokenizer 'chinese', not 'elmokit': choose it with "
        "--tokenizer chinese"
    )
    assert "must be one of" in complaint(lambda: tokenizer("whitespace\n云计算"))
