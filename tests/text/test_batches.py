"""Sentences to a batch: each distinct word once, and where it stands."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import character_ids

from elmokit.errors import ElmokitError
from elmokit.model.batch import make_batch
from elmokit.text.characters import CharacterIndexer
from elmokit.text.vocabulary import Vocabulary, WordIndexer

WORDS = st.sampled_from(["the", "bank", "<S>", "</S>", "", "中文", "\ud800", "x" * 90])


@given(st.lists(st.lists(WORDS, max_size=6), max_size=6))
def test_every_token_leads_to_the_ids_of_its_word(sentences: list[list[str]]) -> None:
    batch = make_batch(sentences, CharacterIndexer())
    assert batch.lengths.tolist() == [len(sentence) for sentence in sentences]
    longest = max(map(len, sentences), default=0)
    assert batch.index.shape == batch.mask.shape == (len(sentences), longest)
    for row, sentence in enumerate(sentences):
        for column, word in enumerate(sentence):
            result = batch.features[batch.index[row, column]].tolist()
            assert result == [i + 1 for i in character_ids(word, 50)]
            assert batch.mask[row, column]
        assert (batch.index[row, len(sentence) :] == 0).all()
        assert not batch.mask[row, len(sentence) :].any()


def test_each_distinct_word_is_there_once_after_the_boundaries() -> None:
    indexer = WordIndexer(Vocabulary(["<S>", "</S>", "<UNK>", "a", "b"]))
    batch = make_batch([["b", "a", "b"], ["a"]], indexer)
    assert batch.features.tolist() == [[0], [1], [4], [3]]
    assert batch.index.tolist() == [[2, 3, 2], [3, 0, 0]]


def test_boundaries_among_the_words_are_the_first_rows() -> None:
    batch = make_batch([["</S>", "a", "<S>"]], CharacterIndexer())
    assert batch.index.tolist() == [[1, 2, 0]]
    assert len(batch.features) == 3


def test_a_batch_can_be_moved() -> None:
    batch = make_batch([["a"], []], CharacterIndexer()).to("meta")
    assert {t.device.type for t in (batch.features, batch.index, batch.lengths)} == {"meta"}
    assert batch.index.dtype == batch.lengths.dtype == torch.long


@pytest.mark.parametrize("wrong", ["a string", ["a string"], [["a"], "b"]])
def test_a_string_is_not_taken_for_a_list_of_characters(wrong: object) -> None:
    with pytest.raises(ElmokitError, match="as a list of tokens, not as the string"):
        make_batch(wrong, CharacterIndexer())  # type: ignore[arg-type]
