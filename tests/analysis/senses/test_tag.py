"""Which words of a running text an inventory knows."""

from __future__ import annotations

from elmokit.analysis.senses.tag import find_lemma, known_words


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
