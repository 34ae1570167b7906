"""The words that a decoder can write, and their numbers.

0 is the end, 1 any unknown word, then come the words of the vocabulary. From `size` on stand words
of the example's own source, which may be copied. What is before the first word is -1. Where all
targets are written in capitals, as headlines may be, or none is, copied words are written so too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from elmokit.data.examples import Tokens
from elmokit.tasks.layers.embedder import RARE

BEGIN, END, UNKNOWN, FIRST_WORD = -1, 0, 1, 2
CASES: dict[str, Callable[[str], str]] = {"upper": str.upper, "lower": str.lower, "mixed": str}
NEARLY_ALL = 0.98  # of the words that have capitals, for a case other than mixed


def frequent_words(targets: Iterable[Tokens], limit: int) -> list[str]:
    """The most frequent words of some targets, without those that stand there once."""
    counts = Counter(word for target in targets for word in target)
    frequent = [word for word, count in counts.items() if count >= RARE]
    return sorted(frequent, key=lambda word: (-counts[word], word))[:limit]


def common_case(targets: Iterable[Tokens]) -> str:
    """How targets are written: upper, lower or mixed."""
    words = [word for target in targets for word in target if word.upper() != word.lower()]
    for case in ("upper", "lower"):
        if words and sum(CASES[case](word) == word for word in words) >= NEARLY_ALL * len(words):
            return case
    return "mixed"


class TargetWords:
    """A vocabulary that each example extends by words of its source."""

    def __init__(self, words: Sequence[str], *, case: str, copy: bool) -> None:
        """The vocabulary, how its words are written, and whether words are copied."""
        self.words, self.copy, self.written = list(words), copy, CASES[case]
        self.numbers = {word: number for number, word in enumerate(words, FIRST_WORD)}
        self.size = FIRST_WORD + len(self.words)

    def own_words(self, source: Tokens) -> list[str]:
        """The words from `size` on that can be written for a source.

        With copying, its distinct words that the vocabulary lacks. Without it, all of its tokens:
        what stands in for an unknown word is none of the vocabulary, even if it is spelled so.
        """
        words = map(self.written, source)
        if not self.copy:
            return list(words)
        return list(dict.fromkeys(word for word in words if word not in self.numbers))

    def of_source(self, source: Tokens) -> list[int]:
        """The numbers of a source's tokens as words to write."""
        if not self.copy:
            return list(range(self.size, self.size + len(source)))
        return self._numbered(map(self.written, source), source)

    def of_target(self, target: Tokens, source: Tokens, longest: int) -> list[int]:
        """The numbers of a target's tokens, and the end unless it is too long."""
        return [*self._numbered(target, source if self.copy else ()), END][: longest + 1]

    def _numbered(self, text: Iterable[str], source: Tokens) -> list[int]:
        """Words of the vocabulary, else of the source, else unknown."""
        own = {word: self.size + place for place, word in enumerate(self.own_words(source))}
        return [self.numbers.get(word, own.get(word, UNKNOWN)) for word in text]

    def text(self, numbers: Sequence[int], own_words: Sequence[str]) -> str:
        """Words by their numbers, with spaces between them."""
        size = self.size
        return " ".join(
            self.words[n - FIRST_WORD] if n < size else own_words[n - size] for n in numbers
        )


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Numbers filled up with unknown words, and a mask that is False there: (rows, longest)."""
    longest = max(map(len, rows))
    numbers = [[*row, *[UNKNOWN] * (longest - len(row))] for row in rows]
    lengths = torch.tensor([len(row) for row in rows], device=device)
    mask = torch.arange(longest, device=device) < lengths.unsqueeze(1)
    return torch.tensor(numbers, device=device), mask
