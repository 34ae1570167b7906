"""Words to character ids, against what the format's description says of each byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import character_ids

from elmokit.text.characters import CharacterIndexer

ANY_WORD = st.text(st.characters(exclude_categories=()), max_size=80)


def test_a_word_is_its_bytes_between_two_marks_and_then_padding() -> None:
    [ids] = CharacterIndexer().encode(["né"])
    assert ids.tolist() == [259, ord("n") + 1, 0xC3 + 1, 0xA9 + 1, 260, *[261] * 45]


def test_the_boundaries_are_marks_of_their_own() -> None:
    begin, end = CharacterIndexer().encode(["<S>", "</S>"]).tolist()
    assert begin == [259, 257, 260, *[261] * 47]
    assert end == [259, 258, 260, *[261] * 47]


@pytest.mark.parametrize("word", ["<s>", "<S> ", "</s>", "<UNK>", "<S", "S>"])
def test_what_only_looks_like_a_boundary_is_a_word(word: str) -> None:
    [ids] = CharacterIndexer().encode([word])
    assert ids[1 : len(word) + 1].tolist() == [ord(letter) + 1 for letter in word]


def test_an_empty_word_has_its_marks_only() -> None:
    assert CharacterIndexer().encode([""])[0].tolist() == [259, 260, *[261] * 48]


@pytest.mark.parametrize(("length", "end"), [(47, 48), (48, 49), (49, 49), (1000, 49)])
def test_a_long_word_is_cut_so_that_its_end_mark_fits(length: int, end: int) -> None:
    [ids] = CharacterIndexer().encode(["q" * length])
    assert len(ids) == 50
    assert ids.tolist().index(260) == end
    assert (ids[1:end] == ord("q") + 1).all()


def test_a_cut_may_go_through_a_character() -> None:
    [ids] = CharacterIndexer(5).encode(["a🙂"])
    assert ids.tolist() == [259, ord("a") + 1, 0xF0 + 1, 0x9F + 1, 260]


def test_lone_surrogates_vanish() -> None:
    plain, broken = CharacterIndexer().encode(["ab", "\udc80a\ud800b\udfff"])
    assert plain.tolist() == broken.tolist()


@given(st.lists(ANY_WORD, max_size=20), st.integers(3, 60))
def test_any_words_are_indexed_as_a_plain_loop_does(words: list[str], length: int) -> None:
    result = CharacterIndexer(length).encode(words)
    assert result.dtype == np.int32
    assert result.shape == (len(words), length)
    expected = [[i + 1 for i in character_ids(word, length)] for word in words]
    assert result.tolist() == expected


def test_no_words_give_no_rows() -> None:
    assert CharacterIndexer().encode([]).shape == (0, 50)
