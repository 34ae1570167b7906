"""The words that a decoder can write, and their indices.

Index 0 is the end, 1 any unknown word, followed by the words of the vocabulary. From `size` on are
the words of the example's own source, which may be copied. -1 stands for what is before the first
word. Where all targets are upper case, as headlines may be, or lower case, copied words are too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from elmokit.data.examples import Tokens
from elmokit.tasks.layers.embedder import MIN_COUNT

BEGIN, END, UNKNOWN, FIRST_WORD = -1, 0, 1, 2
CASES: dict[str, Callable[[str], str]] = {"upper": str.upper, "lower": str.lower, "mixed": str}
CASE_SHARE = 0.98  # of the words that have a case, for a case other than mixed


def frequent_words(targets: Iterable[Tokens], limit: int) -> list[str]:
    """Return the most frequent words of some targets, without those that occur once."""
    counts = Counter(word for target in targets for word in target)
    frequent = [word for word, count in counts.items() if count >= MIN_COUNT]
    return sorted(frequent, key=lambda word: (-counts[word], word))[:limit]


def common_case(targets: Iterable[Tokens]) -> str:
    """Return the case of the targets: upper, lower or mixed."""
    words = [word for target in targets for word in target if word.upper() != word.lower()]
    for case in ("upper", "lower"):
        if words and sum(CASES[case](word) == word for word in words) >= CASE_SHARE * len(words):
            return case
    return "mixed"


class TargetWords:
    """A vocabulary that each example extends by the words of its source."""

    def __init__(self, words: Sequence[str], *, case: str, copy: bool) -> None:
        self.words, self.copy, self.written = list(words), copy, CASES[case]
        self.indices = {word: index for index, word in enumerate(words, FIRST_WORD)}
        self.size = FIRST_WORD + len(self.words)

    def own_words(self, source: Tokens) -> list[str]:
        """Return the words from `size` on that can be written for a source.

        With copying, these are its distinct words that are not in the vocabulary. Without, they
        are all of its tokens: a token that replaces an unknown word is not the vocabulary's word,
        even if it is spelled alike.
        """
        words = map(self.written, source)
        if not self.copy:
            return list(words)
        return list(dict.fromkeys(word for word in words if word not in self.indices))

    def of_source(self, source: Tokens) -> list[int]:
        """Return the indices of a source's tokens as words to write."""
        if not self.copy:
            return list(range(self.size, self.size + len(source)))
        return self._encode(map(self.written, source), source)

    def of_target(self, target: Tokens, source: Tokens, max_tokens: int) -> list[int]:
        """Return the indices of a target's tokens, and the end unless it is too long."""
        return [*self._encode(target, source if self.copy else ()), END][: max_tokens + 1]

    def _encode(self, text: Iterable[str], source: Tokens) -> list[int]:
        """Return indices of the vocabulary, else of the source, else of the unknown word."""
        own = {word: self.size + i for i, word in enumerate(self.own_words(source))}
        return [self.indices.get(word, own.get(word, UNKNOWN)) for word in text]

    def text(self, indices: Sequence[int], own_words: Sequence[str]) -> str:
        size = self.size
        return " ".join(
            self.words[i - FIRST_WORD] if i < size else own_words[i - size] for i in indices
        )


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Pad rows with unknown words; return them and a mask that is False there: (rows, longest)."""
    tensors = [torch.tensor(row, dtype=torch.long, device=device) for row in rows]
    masks = [torch.ones_like(row, dtype=torch.bool) for row in tensors]
    words = pad_sequence(tensors, batch_first=True, padding_value=UNKNOWN)
    return words, pad_sequence(masks, batch_first=True)
