"""The n-gram model of the benchmarks against the formula, written out with dictionaries."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from small_text import make_sentences

from elmokit.pretrain.corpus import prepare
from elmokit.text.vocabulary import SPECIAL, Vocabulary

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "ngram.py"
Sentence = tuple[int, ...]
ORDER = 4


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ngram_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


ngram = load_script()


class Slow:
    """Interpolated modified Kneser-Ney: one probability at a time, from n-grams as tuples."""

    def __init__(self, sentences: list[Sentence], words: int, order: int) -> None:
        self.words, self.order = words, order
        lines = [(0, *sentence, 1) for sentence in sentences]
        raw = [
            Counter(line[i : i + n] for line in lines for i in range(len(line) - n + 1))
            for n in range(1, order + 1)
        ]
        self.counts: list[dict[Sentence, int]] = []
        for n in range(order - 1):
            before: dict[Sentence, set[int]] = defaultdict(set)
            for longer in raw[n + 1]:
                before[longer[1:]].add(longer[0])
            self.counts.append(
                {gram: raw[n][gram] if gram[0] == 0 else len(before[gram]) for gram in raw[n]}
            )
        self.counts.append(dict(raw[-1]))
        del self.counts[0][(0,)]
        self.discounts = [self.estimate(counts) for counts in self.counts]
        self.after: list[dict[Sentence, list[int]]] = []
        for counts in self.counts:
            after: dict[Sentence, list[int]] = defaultdict(list)
            for gram, count in counts.items():
                after[gram[:-1]].append(count)
            self.after.append(after)
        self.probability = cache(self.probability)  # type: ignore[method-assign]

    @staticmethod
    def estimate(counts: dict[Sentence, int]) -> tuple[float, float, float]:
        n1, n2, n3, n4 = (sum(c == k for c in counts.values()) for k in (1, 2, 3, 4))
        try:
            y = n1 / (n1 + 2 * n2)
            result = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
        except ZeroDivisionError:
            return 0.5, 1.0, 1.5
        usable = n4 > 0 and min(result) >= 0
        return result if usable else (0.5, 1.0, 1.5)

    def probability(self, context: Sentence, word: int) -> float:
        n = len(context)
        shorter = self.probability(context[1:], word) if n else 1 / (self.words - 1)
        after = self.after[n].get(context)
        if not after:
            return shorter

        def discount(count: int) -> float:
            return self.discounts[n][min(count, 3) - 1] if count else 0.0

        count = self.counts[n].get((*context, word), 0)
        left = sum(discount(size) for size in after)
        return (count - discount(count) + left * shorter) / sum(after)

    def of_sentence(self, sentence: Sentence) -> list[float]:
        line = (0, *sentence, 1)
        contexts = [line[max(0, i - self.order + 1) : i] for i in range(1, len(line))]
        return [self.probability(c, w) for c, w in zip(contexts, line[1:], strict=True)]


def stream(sentences: list[Sentence]) -> np.ndarray:
    return np.array([x for sentence in sentences for x in (0, *sentence, 1)], np.int32)


def zipf_sentences(count: int, words: int, seed: int) -> list[Sentence]:
    """Words from 2 on, few of them frequent, and each likely to be followed by its neighbour."""
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, words - 1)
    drawn = random.choice(words - 2, (count, 9), p=share / share.sum()) + 2
    follows = random.random((count, 9)) < 0.4
    for column in range(1, 9):
        neighbour = 2 + (drawn[:, column - 1] - 1) % (words - 2)
        drawn[:, column] = np.where(follows[:, column], neighbour, drawn[:, column])
    lengths = random.integers(1, 10, count)
    return [tuple(row[:n].tolist()) for row, n in zip(drawn, lengths, strict=True)]


WORDS = 45
TRAIN, TEST = zipf_sentences(400, WORDS - 3, seed=1), zipf_sentences(60, WORDS, seed=2)


@pytest.fixture(scope="module")
def slow() -> Slow:
    return Slow(TRAIN, WORDS, ORDER)


def test_the_toy_text_has_discounts_from_its_counts_and_others(slow: Slow) -> None:
    assert slow.discounts[0] == (0.5, 1.0, 1.5)
    for result in slow.discounts[1:]:
        assert result != (0.5, 1.0, 1.5)


def test_discounts_are_those_of_the_formula(slow: Slow) -> None:
    model = ngram.fit(stream(TRAIN), WORDS, ORDER)
    for table, expected in zip(model.tables, slow.discounts, strict=True):
        np.testing.assert_allclose(table.discounts, [0, *expected], rtol=1e-12)


def test_discounts_below_0_are_not_used() -> None:
    counts = np.repeat([1, 2, 3, 4, 9], [2, 1, 5, 1, 3])  # D_2 = 2 - 3 * 2 / 4 * 5
    assert ngram.discounts_of(counts).tolist() == [0, 0.5, 1, 1.5]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_are_those_of_the_formula(order: int) -> None:
    model = ngram.fit(stream(TRAIN), WORDS, order)
    plain = Slow(TRAIN, WORDS, order)
    for text in (TRAIN[:60], TEST):
        expected = [p for sentence in text for p in plain.of_sentence(sentence)]
        np.testing.assert_allclose(
            ngram.probabilities(model, stream(text)), expected, rtol=0, atol=1e-9
        )


def test_backward_is_the_formula_on_reversed_sentences() -> None:
    model = ngram.fit(ngram.reverse(stream(TRAIN)), WORDS, ORDER)
    plain = Slow([sentence[::-1] for sentence in TRAIN], WORDS, ORDER)
    for sentence in TEST:
        result = ngram.probabilities(model, ngram.reverse(stream([sentence])))
        np.testing.assert_allclose(result, plain.of_sentence(sentence[::-1]), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "context", [(), TRAIN[0][:1], TRAIN[1][:3], TRAIN[2], TEST[0], (WORDS - 1,), (2, WORDS - 1, 2)]
)
def test_the_words_after_any_context_have_the_probability_1_together(
    slow: Slow, context: Sentence
) -> None:
    model = ngram.fit(stream(TRAIN), WORDS, ORDER)
    events = [word for word in range(WORDS) if word != ngram.BEGIN]
    rows = np.array([[0, *context, word] for word in events], np.int32)
    result = ngram.probabilities(model, rows.ravel()).reshape(len(events), -1)[:, -1]
    assert result.sum() == pytest.approx(1, abs=1e-12)
    near = (0, *context)[-(ORDER - 1) :]
    expected = [slow.probability(near, word) for word in events]
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-9)


def test_a_corpus_gives_words_unknown_words_and_sentence_ends(tmp_path: Path) -> None:
    sentences = make_sentences(50, seed=3)
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(" ".join(words) for words in sentences) + "\n")
    vocabulary = Vocabulary([*SPECIAL, "the", "cat", "."])
    result = ngram.read_stream(str(path), vocabulary)
    expected = [
        x for words in sentences for x in (0, *(vocabulary.ids.get(w, 2) for w in words), 1)
    ]
    assert result.tolist() == expected
    corpus = prepare(
        str(path), tmp_path / "corpus", tokenizer="whitespace", valid_fraction=0.1, quiet=True
    )
    words = ngram.targets(corpus.types, vocabulary)
    parts = [ngram.stream_of(part, words) for part in (corpus.train, corpus.heldout)]
    assert sum(map(len, parts)) == len(expected)
    assert all(part[0] == 0 and part[-1] == 1 for part in parts)


def test_on_penn_treebank_it_has_the_published_perplexity(shared: Path) -> None:
    """141.2 with order 5 (Mikolov et al. 2011)."""
    import lzma

    def lines(part: str) -> list[list[str]]:
        with lzma.open(shared / "data" / "lm" / f"ptb.{part}.txt.xz", "rt") as file:
            return [line.split() for line in file]

    train, test = lines("train"), lines("test")
    ids = {w: n for n, w in enumerate(sorted({w for s in train for w in s}), start=2)}
    streams = [stream([tuple(ids[w] for w in s) for s in text]) for text in (train, test)]
    model = ngram.fit(streams[0], len(ids) + 2, 5)
    result = math.exp(-np.log(ngram.probabilities(model, streams[1])).mean())
    assert result == pytest.approx(141.2, abs=0.05)
