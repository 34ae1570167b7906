"""Beam search against brute force, a search in plain Python, and greedy choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor

from elmokit.tasks.seq2seq.beam import Hypothesis, search

END, BEGIN = 0, -1


@dataclass(frozen=True)
class Prefixes:
    """The state of a toy decoder: which language a hypothesis is of, and all that it wrote."""

    languages: Tensor
    words: Tensor

    def take(self, rows: Tensor) -> Prefixes:
        return Prefixes(self.languages[rows], self.words[rows])


class Toy:
    """Log probabilities that depend on the whole prefix, in a language for each example."""

    def __init__(self, words: int = 4, *, end: float = 0.0, spread: float = 1.5) -> None:
        self.words, self.end, self.spread = words, end, spread
        self.steps: list[int] = []

    def next(self, language: int, prefix: Sequence[int]) -> Tensor:
        seed = hash((language, *prefix)) % (1 << 31)
        scores = self.spread * torch.randn(
            self.words, generator=torch.Generator().manual_seed(seed)
        )
        scores[END] += self.end
        return scores.double().log_softmax(0)

    def step(self, last: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        self.steps.append(len(last))
        state = Prefixes(state.languages, torch.cat([state.words, last[:, None]], 1))
        rows = zip(state.languages.tolist(), state.words[:, 1:].tolist(), strict=True)
        return torch.stack([self.next(*row) for row in rows]), state

    def search(
        self, languages: Sequence[int], *, beam: int, longest: int
    ) -> list[list[Hypothesis]]:
        rows = torch.tensor(languages).repeat_interleave(beam)
        state = Prefixes(rows, torch.zeros(len(rows), 0, dtype=torch.long))
        begin = torch.full((len(languages),), BEGIN)
        return search(self.step, state, begin, end=END, beam=beam, max_words=longest)

    def score(self, language: int, words: Sequence[int]) -> float:
        """The mean log probability of a text and its end."""
        text = [*words, END]
        return sum(float(self.next(language, text[:i])[w]) for i, w in enumerate(text)) / len(text)

    def all_texts(self, longest: int) -> list[tuple[int, ...]]:
        lengths = range(longest + 1)
        return [text for n in lengths for text in product(range(1, self.words), repeat=n)]


def plain_beam(toy: Toy, language: int, *, beam: int, longest: int) -> list[tuple[int, ...]]:
    """What is kept by a search of one example with lists, as the module describes it."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    kept: list[tuple[float, tuple[int, ...]]] = []
    for length in range(longest + 1):
        candidates = [
            (total + float(toy.next(language, text)[word]), text, word)
            for total, text in live
            for word in range(toy.words)
            if length < longest or word == END
        ]
        candidates.sort(reverse=True)
        ended = [(total, text) for total, text, word in candidates[:beam] if word == END]
        kept += [(total / (length + 1), text) for total, text in ended]
        if len(kept) >= beam:
            break
        live = [(total, (*text, word)) for total, text, word in candidates if word != END][:beam]
    return [text for _, text in sorted(kept[:beam], reverse=True)]


@pytest.mark.parametrize("language", range(6))
def test_a_beam_that_has_room_for_every_text_finds_the_best_of_all(language: int) -> None:
    toy = Toy()
    texts = toy.all_texts(3)
    best = max(texts, key=lambda text: toy.score(language, text))
    [result] = toy.search([language], beam=200, longest=3)
    assert result[0].words == best
    assert result[0].score == pytest.approx(toy.score(language, best), abs=1e-6)
    assert {one.words for one in result} == set(texts)
    assert [one.score for one in result] == sorted((one.score for one in result), reverse=True)


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_a_narrow_beam_finds_what_a_search_with_plain_lists_finds(beam: int) -> None:
    toy = Toy(words=6)
    result = toy.search(range(8), beam=beam, longest=5)
    for language, hypotheses in enumerate(result):
        expected = plain_beam(toy, language, beam=beam, longest=5)
        assert [one.words for one in hypotheses] == expected
        for one in hypotheses:
            assert one.score == pytest.approx(toy.score(language, one.words), abs=1e-6)


def test_a_beam_of_one_takes_the_most_probable_word_each_time() -> None:
    toy = Toy(words=7, end=-1.0)
    for language, [result] in enumerate(toy.search(range(10), beam=1, longest=6)):
        text: list[int] = []
        while len(text) < 6 and (word := int(toy.next(language, text).argmax())) != END:
            text.append(word)
        assert list(result.words) == text


def test_an_example_alone_is_searched_as_in_a_batch() -> None:
    toy = Toy(words=6)
    together = toy.search(range(9), beam=3, longest=7)
    assert [toy.search([language], beam=3, longest=7)[0] for language in range(9)] == together


def test_no_text_is_longer_than_allowed_and_all_end_by_then() -> None:
    toy = Toy(words=5, end=-50.0)  # it never ends by itself
    for hypotheses in toy.search(range(4), beam=3, longest=4):
        assert [len(one.words) for one in hypotheses] == [4, 4, 4]
    assert toy.steps == [12] * 5


def test_an_end_that_is_impossible_still_comes_at_the_bound() -> None:
    toy = Toy(words=3, end=-math.inf)
    [[first, _]] = toy.search([0], beam=2, longest=3)
    assert len(first.words) == 3
    assert math.isfinite(first.score)


def test_examples_that_are_done_leave_the_batch() -> None:
    class Talkative(Toy):
        def next(self, language: int, prefix: Sequence[int]) -> Tensor:
            scores = super().next(language, prefix)
            return scores.index_fill(
                0, torch.tensor([END]), 20.0 if language else -20.0
            ).log_softmax(0)

    toy = Talkative(words=4)
    result = toy.search([1, 0, 1], beam=1, longest=5)
    assert [len(one.words) for [one] in result] == [0, 5, 0]
    assert toy.steps == [3, 1, 1, 1, 1, 1]


def test_a_certain_end_leaves_one_hypothesis_though_the_beam_has_room() -> None:
    class Certain(Toy):
        def next(self, language: int, prefix: Sequence[int]) -> Tensor:
            word = END if len(prefix) == 2 else 1
            return torch.full((4,), -torch.inf).index_fill(0, torch.tensor([word]), 0.0)

    assert Certain().search([0, 1], beam=3, longest=9) == [[Hypothesis((1, 1), 0.0)]] * 2


def test_a_longer_text_wins_where_its_words_are_more_probable_on_average() -> None:
    class Even(Toy):
        """Ends at once with 0.4; else writes 1, 1, 1 and ends, the last three quite certainly."""

        def next(self, language: int, prefix: Sequence[int]) -> Tensor:
            share = {0: [0.4, 0.6], 3: [1.0, 0.0]}.get(len(prefix), [0.0, 1.0])
            return torch.tensor(share).log()

    [result] = Even(words=2).search([0], beam=2, longest=5)
    assert [one.words for one in result] == [(1, 1, 1), ()]
    assert result[0].score == pytest.approx(math.log(0.6) / 4)
    assert result[1].score == pytest.approx(math.log(0.4))


def test_no_examples_give_no_hypotheses() -> None:
    assert Toy().search([], beam=2, longest=3) == []
