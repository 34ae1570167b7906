"""Find, count and sample the uses of words in a corpus of any size, in bounded memory.

corpus ─► sentences, streamed ─► counts ─► which words ─► at most so many uses of each
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

from tqdm.auto import tqdm

from elmokit.analysis.uses import Use
from elmokit.errors import ElmokitError
from elmokit.io.lines import STANDARD_INPUT, FilePath, name_of
from elmokit.text.readers import Line, chunk_tokens, read_sentences, total_bytes, whole_lines
from elmokit.text.tokenize import tokenizer as find_tokenizer

MAX_SENTENCE = 512  # tokens; a longer sentence is cut, so that none fills the memory

T = TypeVar("T")


class Reservoir(Generic[T]):
    """A fair sample of a stream: at most `limit` items, each kept with the same probability."""

    def __init__(self, limit: int, seed: int | str) -> None:
        self.limit, self.seen = limit, 0
        self._random = random.Random(seed)
        self._kept: list[tuple[int, T]] = []

    def add(self, item: T) -> None:
        self.seen += 1
        if self.seen <= self.limit:
            self._kept.append((self.seen, item))
        elif (i := self._random.randrange(self.seen)) < self.limit:
            self._kept[i] = (self.seen, item)

    @property
    def items(self) -> list[T]:
        """The items that are kept, in the order of the stream."""
        return [item for _, item in sorted(self._kept, key=lambda pair: pair[0])]


def sample(items: Iterable[T], limit: int, seed: int) -> tuple[list[T], int]:
    """Return a fair sample of at most `limit` items, in their order, and how many there were."""
    reservoir = Reservoir[T](limit, seed)
    for item in items:
        reservoir.add(item)
    return reservoir.items, reservoir.seen


def find_uses(sentences: Iterable[Sequence[str]], word: Sequence[str]) -> Iterator[Use]:
    """Yield each use of a word of one or more tokens, in upper or lower case."""
    lemma = [token.lower() for token in word]
    for tokens in sentences:
        lower = [token.lower() for token in tokens]
        for start, token in enumerate(lower):
            end = start + len(lemma)
            if token == lemma[0] and lower[start:end] == lemma:
                yield Use(tuple(tokens), start, end, " ".join(lemma))


def read_with_progress(
    path: FilePath, *, name: str | None = None, quiet: bool = True, **reading: Any
) -> Iterator[Line]:
    """Yield the lines of `read_sentences` with a progress bar, by default named like the file."""
    size, name = total_bytes(path), name or name_of(path)
    with tqdm(total=size, unit="B", unit_scale=True, desc=name, disable=quiet) as bar:
        yield from read_sentences(path, on_bytes=bar.update, **reading)


def sample_uses(
    path: FilePath, word: str, max_uses: int, seed: int, *, tokenizer: str, **reading: Any
) -> tuple[list[Use], int]:
    """Return a fair sample of the uses of a word in a text, and how many there are."""
    tokens = find_tokenizer(tokenizer)(word)
    if not tokens:
        raise ElmokitError("the word is empty")
    lines = read_with_progress(path, tokenizer=tokenizer, **reading)
    return sample(find_uses(whole_lines(lines), tokens), max_uses, seed)


class Corpus:
    """The sentences of a text file, read again each time they are iterated over."""

    def __init__(
        self, path: FilePath, *, case_sensitive: bool = False, quiet: bool = True, **reading: Any
    ) -> None:
        """Open a corpus, and raise at once if it cannot be read or is empty.

        Args:
            path: Text file with a sentence per line, or what else `read_sentences` reads.
            case_sensitive: Distinguish upper and lower case in words.
            quiet: Do not show progress.
            reading: Options of `read_sentences`, such as `tokenizer`, `kind` and `split`.
        """
        self.path, self.quiet, self.reading = path, quiet, reading
        self.fold: Callable[[str], str] = str if case_sensitive else str.lower
        if str(path) == STANDARD_INPUT:
            raise ElmokitError("a corpus is read more than once: give a file, not standard input")
        if next(_cut(read_sentences(path, **self.reading)), None) is None:
            raise ElmokitError(f"{name_of(path)} has no sentences")

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return self.sentences(quiet=self.quiet)

    def sentences(self, *, quiet: bool) -> Iterator[tuple[str, ...]]:
        """Yield the sentences, without progress if `quiet`."""
        return _cut(read_with_progress(self.path, quiet=quiet, **self.reading))

    def counts(self) -> Counter[str]:
        """Count the words."""
        return Counter(chain.from_iterable(map(self.fold, sentence) for sentence in self))

    def sample(
        self, words: Iterable[str], *, max_uses: int, seed: int = 1
    ) -> tuple[dict[str, list[Use]], Counter[str]]:
        """Return at most `max_uses` uses of each word, in their order, and how many there are."""
        # By these seeds, the sample of a word does not depend on the other words.
        reservoirs = {word: Reservoir[Use](max_uses, f"{seed} {word}") for word in words}
        for sentence in self:
            for position, token in enumerate(sentence):
                if (word := self.fold(token)) in reservoirs:
                    reservoirs[word].add(Use(sentence, position, position + 1, word))
        counts = Counter({word: reservoir.seen for word, reservoir in reservoirs.items()})
        return {word: reservoir.items for word, reservoir in reservoirs.items()}, counts


def _cut(lines: Iterable[Line]) -> Iterator[tuple[str, ...]]:
    """Yield the sentences that have tokens, in pieces of at most MAX_SENTENCE tokens."""
    for line in lines:
        yield from map(tuple, chunk_tokens(line.tokens, MAX_SENTENCE))


def frequent_words(
    first: Counter[str], second: Counter[str], *, min_count: int, max_words: int, skip: int = 0
) -> list[str]:
    """Return words that are frequent in both corpora, the most frequent first.

    Only words of letters and hyphens count, by their relative frequency in the corpus that has them
    less often. The first `skip` words, but at most half of all, are left out: function words.
    """
    totals = first.total(), second.total()
    shares = {
        word: min(count / totals[0], second[word] / totals[1])
        for word, count in first.items()
        if count >= min_count and second[word] >= min_count and word.replace("-", "").isalpha()
    }
    ranked = sorted(shares, key=lambda word: (-shares[word], word))
    if not ranked:
        raise ElmokitError(f"no word occurs {min_count} times in both corpora: lower --min-count")
    skip = min(skip, len(ranked) // 2)
    return ranked[skip : skip + max_words]
