"""Words to the ids of dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import ElmokitError
from elmokit.text.dictionaries import Dictionaries, UnicodeIndexer

MARKS = ["<oov>", "<pad>", "<bow>", "<eow>", "<bos>", "<eos>"]
OOV, PAD, BOW, EOW, BOS, EOS, A, SPACE, WATER = range(9)
CHARACTERS = [*MARKS, "a", "\u3000", "水"]
WORDS = ["<oov>", "a", "<bos>", "A", "水", "<eos>", "aaaa", "\u3000"]


def indexer(
    *, characters: bool = True, words: bool = True, longest: int = 7, padded: bool = True
) -> UnicodeIndexer:
    dictionaries = Dictionaries(CHARACTERS if characters else None, WORDS if words else None)
    return UnicodeIndexer(dictionaries, max_characters=longest, padded=padded)


def test_a_word_begins_with_the_mark_of_its_end_and_ends_with_that_of_its_beginning() -> None:
    [row] = indexer().encode(["水a"])
    assert row.tolist() == [0, 4, EOW, WATER, A, BOW, PAD, PAD, PAD]


def test_characters_are_those_of_unicode_and_case_is_kept() -> None:
    rows = indexer().encode(["a", "A", "é", "🙂", "\u3000", "\ud800"])
    assert rows[:, 0].tolist() == [1, 3, 0, 0, 7, 0]
    assert rows[:, 3].tolist() == [A, OOV, OOV, OOV, SPACE, OOV]
    assert rows[:, 1].tolist() == [3] * 6


def test_the_boundaries_are_words_of_one_character_under_either_name() -> None:
    rows = indexer().encode(["<S>", "</S>", "<bos>", "<eos>"]).tolist()
    assert rows[0] == rows[2] == [2, 3, EOW, BOS, BOW, PAD, PAD, PAD, PAD]
    assert rows[1] == rows[3] == [5, 3, EOW, EOS, BOW, PAD, PAD, PAD, PAD]
    assert indexer(longest=3).encode(["<S>"]).tolist() == [[2, 3, EOW, BOS, BOW]]


def test_a_long_word_is_cut_before_it_is_looked_up() -> None:
    rows = indexer(longest=6).encode(["aaaa", "aaaaa", "aaa"])
    assert rows[0].tolist() == rows[1].tolist() == [6, 6, EOW, A, A, A, A, BOW]
    assert rows[2].tolist() == [0, 5, EOW, A, A, A, BOW, PAD]


def test_without_padding_the_longest_word_decides() -> None:
    rows = indexer(padded=False).encode(["a", "aa"])
    assert rows.tolist() == [[1, 3, EOW, A, BOW, PAD], [0, 4, EOW, A, A, BOW]]


def test_either_dictionary_may_be_absent() -> None:
    assert indexer(characters=False).encode(["a", "x", "<S>"]).tolist() == [[1, 0], [0, 0], [2, 0]]
    assert indexer(words=False).encode(["a"]).tolist() == [[0, 3, EOW, A, BOW, *[PAD] * 4]]
    for made in (indexer(), indexer(padded=False), indexer(characters=False)):
        assert len(made.encode([])) == 0


def test_a_boundary_that_is_not_in_the_dictionary_is_unknown() -> None:
    made = UnicodeIndexer(Dictionaries(None, ["a", "<oov>"]), max_characters=5, padded=True)
    assert made.encode(["<S>", "a", "</S>"])[:, 0].tolist() == [1, 0, 1]


@given(st.lists(st.text(max_size=12)), st.booleans(), st.booleans())
def test_any_text_has_its_ids(words: list[str], padded: bool, known: bool) -> None:
    rows = indexer(padded=padded, words=known).encode(words)
    assert rows.dtype == np.int32
    for word, row in zip(words, rows.tolist(), strict=True):
        inner = row[2 : 2 + row[1]]
        assert (inner[0], inner[-1]) == (EOW, BOW)
        expected = [CHARACTERS.index(c) if c in "a\u3000水" else OOV for c in word[:5]]
        assert inner[1:-1] == expected
        assert set(row[2 + row[1] :]) <= {PAD}


@pytest.mark.parametrize("mark", MARKS)
def test_a_dictionary_without_its_marks_is_refused(mark: str) -> None:
    entries = [entry for entry in CHARACTERS if entry != mark]
    with pytest.raises(ElmokitError, match=f"the dictionary of characters lacks {mark}"):
        Dictionaries(characters=entries)
    if mark == "<oov>":
        with pytest.raises(ElmokitError, match="the dictionary of words lacks <oov>"):
            Dictionaries(words=["a"])
    else:
        assert Dictionaries(words=["<oov>", "a"]).words == ["<oov>", "a"]


def test_a_repeated_entry_is_an_error() -> None:
    with pytest.raises(ElmokitError, match="the dictionary of words has '水' twice"):
        Dictionaries(words=["<oov>", "水", "a", "水"])
