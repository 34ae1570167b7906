"""Which words of a running text an inventory knows, and how senses are scored."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.analysis.senses.data import Instance, TaggedSentence, read_first_senses, read_tagged
from elmokit.analysis.senses.find import (
    SenseScores,
    Tally,
    find_lemma,
    known_words,
    score_first_senses,
)


def test_an_answer_is_right_if_it_is_one_of_the_keys() -> None:
    scores = SenseScores()
    word = Instance(0, 1, "be", "VERB", ("a", "b"))
    for answer in ("b", "c", None, "a"):
        scores.add({"guess": answer}, word)
    tally = scores.tallies["guess"]["VERB"]
    assert tally.precision == pytest.approx(2 / 3)
    assert tally.recall == pytest.approx(2 / 4)
    assert tally.f1 == pytest.approx(2 * (2 / 3) * 0.5 / (2 / 3 + 0.5))
    assert Tally().f1 == 0


def test_scores_are_counted_by_part_of_speech() -> None:
    scores = SenseScores()
    for pos, answer in (("VERB", "x"), ("NOUN", "a"), ("NOUN", "x"), ("NOUN", "a")):
        scores.add({"guess": answer}, Instance(0, 1, "be", pos, ("a",)))
    assert scores.parts_of_speech == ["NOUN", "VERB"]
    tallies = scores.to_dict()["guess"]
    assert tallies["all"]["f1"] == tallies["all"]["precision"] == tallies["all"]["recall"] == 0.5
    assert [tallies[pos]["f1"] for pos in ("NOUN", "VERB")] == [pytest.approx(2 / 3), 0]


@pytest.mark.parametrize(("name", "expected"), [("senseval2", 66.8), ("semeval2007", 55.2)])
def test_first_senses_score_what_is_published(shared: Path, name: str, expected: float) -> None:
    folder = shared / "data" / "senses"
    data, keys = folder / f"{name}.data.xml.xz", folder / f"{name}.gold.key.txt.xz"
    first = read_first_senses(folder / "index.sense.xz")
    sentences = list(read_tagged(data, keys))
    tally = score_first_senses(sentences, first).tallies["first sense"]["all"]
    assert round(100 * tally.f1, 1) == expected
    wrong = dict.fromkeys(first, "no%1:00:00::")
    assert score_first_senses(sentences, wrong).tallies["first sense"]["all"].f1 == 0


def test_a_sentence_without_instances_is_not_counted() -> None:
    scores = score_first_senses([TaggedSentence(("Yes",), ())], {})
    assert (scores.tallies, scores.parts_of_speech) == ({}, [])


def test_lemmas_are_found_by_their_endings() -> None:
    known = {"bank", "stop", "city", "house", "box", "hope", "try", "play", "glass"}
    lemmas = {
        word: find_lemma(word, known)
        for word in "Bank banks STOPPED stopping cities houses boxes hoping hoped tried trying "
        "plays glasses banker went s ing".split()
    }
    assert list(lemmas.values()) == [
        "bank", "bank", "stop", "stop", "city", "house", "box", "hope", "hope", "try", "try",
        "play", "glass", None, None, None, None,
    ]  # fmt: skip


def test_words_of_several_tokens_are_preferred_to_single_ones() -> None:
    known = {"new_york", "york", "bank", "river bank"}
    tokens = "New York banks , the river bank , York".split()
    assert list(known_words(tokens, known)) == [
        (0, 2, "new_york"), (2, 3, "bank"), (5, 7, "river bank"), (8, 9, "york"),
    ]  # fmt: skip
    assert list(known_words(tokens, known - {"new_york", "river bank"})) == [
        (1, 2, "york"), (2, 3, "bank"), (6, 7, "bank"), (8, 9, "york"),
    ]  # fmt: skip
