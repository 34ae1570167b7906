"""Uses of words in a corpus: searched for, counted and sampled fairly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from tiny import complaint

from elmokit.analysis.sampling import MAX_SENTENCE, Corpus, find_uses, frequent_words, sample
from elmokit.analysis.uses import Use


# ---------------------------------------------------------------------- one word
def test_uses_are_found_in_any_case_and_more_than_once() -> None:
    sentences = [["Bank", "to", "bank"], ["banks"], ["the", "New", "York", "bank"]]
    uses = list(find_uses(sentences, ["BANK"]))
    assert [(use.marked(), use.lemma) for use in uses] == [
        ("[Bank] to bank", "bank"),
        ("Bank to [bank]", "bank"),
        ("the New York [bank]", "bank"),
    ]
    assert [use.marked() for use in find_uses(sentences, ["new", "york"])] == [
        "the [New York] bank"
    ]


def test_a_sample_of_uses_is_fair_bounded_and_in_order() -> None:
    uses = [Use((str(i),), 0, 1, "x") for i in range(30)]
    seen = np.zeros(30)
    for seed in range(500):
        kept, there = sample(iter(uses), 10, seed)
        indices = [int(use.tokens[0]) for use in kept]
        assert there == 30
        assert len(indices) == 10
        assert indices == sorted(indices)
        seen[indices] += 1
    assert seen.min() > 115
    assert seen.max() < 220
    assert sample(iter(uses), 100, 1) == (uses, 30)
    assert sample(iter([]), 100, 1) == ([], 0)


# ---------------------------------------------------------------------- many words
def corpus(path: Path, lines: list[str], **settings: object) -> Corpus:
    path.write_text("\n".join(lines) + "\n")
    return Corpus(path, tokenizer="whitespace", **settings)  # type: ignore[arg-type]


def test_words_are_counted_in_any_case_by_default(tmp_path: Path) -> None:
    lines = ["The bank .", "the Bank of the", ""]
    assert corpus(tmp_path / "a", lines).counts() == {"the": 3, "bank": 2, ".": 1, "of": 1}
    assert corpus(tmp_path / "a", lines, case_sensitive=True).counts()["bank"] == 1


def test_a_sample_has_all_uses_if_they_are_few(tmp_path: Path) -> None:
    uses, counts = corpus(tmp_path / "a", ["the bank", "a bank bank"]).sample(["bank"], max_uses=9)
    assert [(use.tokens, use.start) for use in uses["bank"]] == [
        (("the", "bank"), 1),
        (("a", "bank", "bank"), 1),
        (("a", "bank", "bank"), 2),
    ]
    assert counts == {"bank": 3}


def test_every_use_is_drawn_equally_often(tmp_path: Path) -> None:
    text = corpus(tmp_path / "a", [f"x{n} w" for n in range(12)])
    drawn: Counter[str] = Counter()
    for seed in range(600):
        uses, _ = text.sample(["w"], max_uses=4, seed=seed)
        assert len(uses["w"]) == 4
        drawn.update(use.tokens[0] for use in uses["w"])
    # 200 times each is expected, with a spread of about 11.5
    assert len(drawn) == 12
    assert min(drawn.values()) > 150
    assert max(drawn.values()) < 250


def test_a_sample_does_not_depend_on_the_other_words(tmp_path: Path) -> None:
    text = corpus(tmp_path / "a", [f"v x{n} w" for n in range(50)])
    assert text.sample(["w"], max_uses=5)[0]["w"] == text.sample(["v", "w"], max_uses=5)[0]["w"]


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    uses, counts = corpus(tmp_path / "a", [" ".join(["w"] * 2000)]).sample(["w"], max_uses=5000)
    assert counts["w"] == 2000
    assert max(len(use.tokens) for use in uses["w"]) == MAX_SENTENCE


def test_frequent_words_are_those_of_both_without_the_first_ones() -> None:
    first = Counter({"the": 50, "bank": 10, "cell": 8, "x-ray": 7, "1998": 20, "only": 30})
    second = Counter({"the": 60, "bank": 6, "cell": 9, "x-ray": 2, "1998": 20})
    # The shares of cell are 8 of 125 and 9 of 97, those of bank 10 of 125 and 6 of 97.
    assert frequent_words(first, second, min_count=5, max_words=9) == ["the", "cell", "bank"]
    assert frequent_words(first, second, min_count=5, max_words=9, skip=1) == ["cell", "bank"]
    assert frequent_words(first, second, min_count=2, max_words=2) == ["the", "cell"]
    assert "x-ray" in frequent_words(first, second, min_count=2, max_words=9)
    assert "no word" in complaint(lambda: frequent_words(first, second, min_count=99, max_words=9))
