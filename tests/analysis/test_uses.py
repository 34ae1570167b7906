"""Uses of words: how they are read, shortened and embedded."""

from __future__ import annotations

import gzip
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT
from tiny import complaint, tiny_elmo

from elmokit.analysis.uses import Use, embed_uses, marked_use, read_uses
from elmokit.embed import Embedder
from elmokit.store import LayerStore
from elmokit.text.tokenize import tokenize


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return tiny_elmo()


# ---------------------------------------------------------------------- reading
def test_a_table_gives_words_with_their_positions_and_senses(tmp_path: Path) -> None:
    path = tmp_path / "uses.tsv"
    path.write_text(
        "sentence\tposition\tsense\tlemma\n"
        "We saw the Bank .\t3\tmoney\n"
        "\n"
        "They live in New York City .\t3-5\tplace\tnew york\r\n"
        "她 去 了 银行 。\t3\t钱\t\n",
        encoding="utf-8",
    )
    uses = list(read_uses(path))
    assert uses == [
        Use(("We", "saw", "the", "Bank", "."), 3, 4, "bank", "money"),
        Use(("They", "live", "in", "New", "York", "City", "."), 3, 6, "new york", "place"),
        Use(("她", "去", "了", "银行", "。"), 3, 4, "银行", "钱"),
    ]
    assert uses[1].marked() == "They live in [New York City] ."


def test_a_table_may_be_compressed_and_without_names(tmp_path: Path) -> None:
    path = tmp_path / "uses.tsv.gz"
    path.write_bytes(gzip.compress(b"the bank .\t1\tmoney\n"))
    assert list(read_uses(path)) == [Use(("the", "bank", "."), 1, 2, "bank", "money")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("the bank .\t1", "the line has 2 columns; expected a sentence, a position, a sense"),
        ("the bank .\t1\tmoney\tbank\tmore", "the line has 5 columns"),
        ("the bank .\tone\tmoney", "'one' is not a position"),
        ("the bank .\t1-x\tmoney", "'1-x' is not a position"),
        ("the bank .\t3\tmoney", "the sentence has 3 tokens, none at 3"),
        ("the bank .\t-1\tmoney", "is not a position"),
        ("the bank .\t2-1\tmoney", "the sentence has 3 tokens, none at 2-1"),
        ("\t0\tmoney", "the sentence has 0 tokens, none at 0"),
        ("the bank .\t1\t ", "the sense is empty"),
        ("the b\udcffnk .\t1\tmoney", "the line is not UTF-8"),
    ],
)
def test_a_bad_line_is_named_with_its_reason(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "uses.tsv"
    path.write_bytes(f"the bank .\t1\tmoney\n{line}\n".encode(errors="surrogateescape"))
    message = complaint(lambda: list(read_uses(path)))
    assert message.startswith(f"{path}, line 2: ")
    assert reason in message


def test_files_that_are_not_tables_raise(tmp_path: Path) -> None:
    assert complaint(lambda: list(read_uses(tmp_path / "no.tsv"))).startswith("there is no file")
    (tmp_path / "binary.tsv").write_bytes(bytes(range(256)))
    assert "binary file" in complaint(lambda: list(read_uses(tmp_path / "binary.tsv")))
    (tmp_path / "empty.tsv").write_text("")
    assert list(read_uses(tmp_path / "empty.tsv")) == []


def test_a_sentence_marks_its_word_with_asterisks() -> None:
    use = marked_use("She sat on the river *bank*.", tokenize, "river")
    assert use == Use(("She", "sat", "on", "the", "river", "bank", "."), 5, 6, "bank", "river")
    two = marked_use("They live in *New York* now .", tokenize)
    assert (two.start, two.end, two.lemma, two.sense) == (3, 5, "new york", "")
    chinese = marked_use("她去了*银行*。", lambda text: list(text))
    assert chinese == Use(tuple("她去了银行。"), 3, 5, "银 行", "")
    for wrong in ("no mark", "one * mark", "a ** b", "a * * b", "*a* and *b*"):
        assert repr(wrong) in complaint(partial(marked_use, wrong, tokenize))


@pytest.mark.parametrize(("name", "words"), [("senses.tsv", 10), ("senses.zh.tsv", 5)])
def test_the_examples_have_words_with_two_senses_in_10_sentences_each(
    name: str, words: int
) -> None:
    uses = list(read_uses(ROOT / "examples" / name))
    kinds = Counter((use.lemma, use.sense) for use in uses)
    assert set(kinds.values()) == {10}
    assert set(Counter(lemma for lemma, _ in kinds).values()) == {2}
    assert len(kinds) == 2 * words
    assert len({use.tokens for use in uses}) == 20 * words
    for use in uses:
        assert use.word.lower().startswith(use.lemma) or use.word == "mice"


# ---------------------------------------------------------------------- vectors
def test_a_use_has_the_vectors_of_its_tokens_and_their_average(
    elmo: Embedder, tmp_path: Path
) -> None:
    uses = [
        Use(("the", "river", "bank", "."), 2, 3, "bank"),
        Use(("in", "New", "York", "City"), 1, 4, "new york city"),
    ]
    vectors, mean = embed_uses(LayerStore(elmo, folder=tmp_path), uses)
    assert vectors.shape == (4, 2, 12)
    assert mean.shape == (4, 1, 12)
    first, second = (elmo.embed_tokens(list(use.tokens)).layers for use in uses)  # (3, tokens, 12)
    near = partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-3)  # float16
    near(vectors[:3, 0], first[:, 2])
    near(vectors[:3, 1], second[:, 1:4].mean(axis=1))
    near(vectors[3, 0], first[:, 2].mean(axis=0))
    every = np.concatenate([first, second], axis=1)  # all 8 tokens
    near(mean[:3, 0], every.mean(axis=1))
    near(mean[3, 0], every.mean(axis=(0, 1)))


def test_a_long_sentence_is_shortened_to_the_words_around_the_use() -> None:
    use = Use(tuple("a b c bank d e f".split()), 3, 4, "bank")
    assert use.shortened(2).marked() == "… b c [bank] d e …"
    assert use.shortened(3) == use
    tokens = tuple(map(str, range(40)))
    words = Use(tokens, 20, 21, "20").shortened().marked().split()
    assert (words[:2], words[-2:]) == (["…", "8"], ["32", "…"])
    assert "[20]" in words
    start = Use(tokens[:10], 0, 2, "0 1")
    assert start.shortened() == start


def test_a_position_is_written_as_it_is_read() -> None:
    assert Use(("a",) * 9, 3, 4, "").position == "3"
    assert Use(("a",) * 9, 3, 6, "").position == "3-5"


def test_an_embedder_gives_the_vectors_of_its_store(elmo: Embedder, tmp_path: Path) -> None:
    uses = [Use(("the", "river", "bank"), 2, 3, "bank"), Use(("a", "bank"), 1, 2, "bank")]
    for own, stored in zip(
        embed_uses(elmo, uses), embed_uses(LayerStore(elmo, folder=tmp_path), uses), strict=True
    ):
        np.testing.assert_allclose(own, stored, rtol=2e-3, atol=2e-3)
