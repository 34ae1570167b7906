"""Words and their ids, to a file and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import ElmokitError
from elmokit.text.vocabulary import Vocabulary, WordIndexer

SPECIAL = ["<S>", "</S>", "<UNK>"]
LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=8).filter(
    lambda word: not word.endswith("\r") and word not in SPECIAL
)


def test_a_words_id_is_its_position() -> None:
    vocabulary = Vocabulary([*SPECIAL, "the", "bank"])
    assert len(vocabulary) == 5
    assert "bank" in vocabulary
    assert "river" not in vocabulary
    result = vocabulary.encode(["bank", "<S>", "the", "</S>"])
    assert result.dtype == np.int32
    assert result.tolist() == [4, 0, 3, 1]


def test_an_unknown_word_has_the_id_of_unknown() -> None:
    vocabulary = Vocabulary(["the", "</S>", "<UNK>", "<S>"])
    assert vocabulary.encode(["river", "", "\ud800"]).tolist() == [2, 2, 2]
    assert vocabulary.encode([]).tolist() == []


def test_an_indexer_gives_a_row_for_each_word() -> None:
    result = WordIndexer(Vocabulary([*SPECIAL, "the"])).encode(["the", "x"])
    assert result.tolist() == [[3], [2]]


@given(words=st.lists(LINE, unique=True, max_size=12))
def test_a_vocabulary_comes_back_from_its_file(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    """Whatever the words are: tabs, spaces, empty, other line separators of Unicode."""
    path = tmp_path_factory.getbasetemp() / "vocab.txt"
    Vocabulary([*SPECIAL, *words]).write(path)
    assert Vocabulary.read(path).words == [*SPECIAL, *words]


@pytest.mark.parametrize("text", ["<S>\n</S>\n<UNK>\na", "<S>\r\n</S>\r\n<UNK>\r\na\r\n"])
def test_a_missing_last_newline_and_those_of_windows_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "vocab.txt").write_bytes(text.encode())
    assert Vocabulary.read(tmp_path / "vocab.txt").words == [*SPECIAL, "a"]


@pytest.mark.parametrize("word", ["two\nlines", "return\r", "\ud800"])
def test_a_word_that_would_not_come_back_is_not_written(word: str, tmp_path: Path) -> None:
    with pytest.raises(ElmokitError, match="cannot be a line of a vocabulary file"):
        Vocabulary([*SPECIAL, word]).write(tmp_path / "vocab.txt")
    assert not any(tmp_path.iterdir())


def test_missing_and_repeated_words_are_named() -> None:
    with pytest.raises(ElmokitError, match="lacks </S>, <UNK>"):
        Vocabulary(["<S>", "a"])
    with pytest.raises(ElmokitError, match="has the word 'a' twice"):
        Vocabulary([*SPECIAL, "a", "b", "a"])


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<S>\n</S>\n<UNK>\nna\xefve\n")
    with pytest.raises(ElmokitError, match=r"vocab\.txt is not UTF-8 text \(byte 17\)"):
        Vocabulary.read(path)
    path.write_bytes(b"<S>\n</S>\n<UNK>\na\na\n")
    with pytest.raises(ElmokitError, match=r"vocab\.txt: the vocabulary has the word 'a' twice"):
        Vocabulary.read(path)
    path.write_bytes(b"")
    with pytest.raises(ElmokitError, match=r"vocab\.txt: the vocabulary lacks <S>"):
        Vocabulary.read(path)
