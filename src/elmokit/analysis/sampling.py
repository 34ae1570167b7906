"""Uses of words in a corpus of any size: counted in one pass, sampled fairly in another.

    corpus ─► sentences, streamed ─► counts ─► which words ─► at most so many uses of each

A reservoir keeps every use with the same probability, whatever the size of the corpus. Its random
numbers belong to one word and one corpus, so other words change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from tqdm import tqdm

from elmokit.analysis.reservoir import Reservoir
from elmokit.analysis.uses import Use
from elmokit.errors import ElmokitError
from elmokit.io.lines import STANDARD_INPUT, FilePath, name_of
from elmokit.text.readers import chunk_tokens, read_sentences, total_bytes

LONGEST_SENTENCE = 512  # tokens; longer ones are cut, so that none fills the memory


class Corpus:
    """The sentences of a text file, read anew each time that they are asked for."""

    def __init__(
        self,
        path: FilePath,
        *,
        tokenizer: str = "elmokit",
        kind: str = "auto",
        split: bool = False,
        case: bool = False,
        quiet: bool = True,
    ) -> None:
        """Open a corpus; trouble with the file is told at once.

        Args:
            path: a text file, a sentence a line, or what `read_sentences` reads.
            tokenizer: what splits the text.
            kind: what the file is; by its extension if "auto".
            split: the file is running text, to be split into sentences.
            case: tell words with capitals from those without.
            quiet: no progress.
        """
        self.path, self.tokenizer, self.kind, self.split = path, tokenizer, kind, split
        self.quiet = quiet
        self.folded: Callable[[str], str] = str if case else str.lower
        if str(path) == STANDARD_INPUT:
            raise ElmokitError("a corpus is read more than once: give a file, not standard input")
        if next(self._read(lambda _: None), None) is None:
            raise ElmokitError(f"{name_of(path)} has no sentences")

    def _read(self, on_bytes: Callable[[int], None]) -> Iterator[tuple[str, ...]]:
        lines = read_sentences(
            self.path,
            kind=self.kind,
            tokenizer=self.tokenizer,
            split=self.split,
            on_bytes=on_bytes,
        )
        for line in lines:
            yield from map(tuple, chunk_tokens(line.tokens, LONGEST_SENTENCE))

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        size, read = total_bytes(self.path), list[int]()
        bar = tqdm(total=size, unit="B", unit_scale=True, desc=str(self.path), disable=self.quiet)
        with bar:
            for sentence in self._read(read.append):
                bar.update(sum(read))
                read.clear()
                yield sentence
            bar.update(sum(read))

    def counts(self) -> Counter[str]:
        """How often each word stands in it."""
        return Counter(chain.from_iterable(map(self.folded, sentence) for sentence in self))

    def sample(
        self, words: Iterable[str], *, most: int, seed: int = 1
    ) -> tuple[dict[str, list[Use]], Counter[str]]:
        """At most so many uses of each word, in the order of the text, and how many there are."""
        kept = {word: Reservoir[Use](most, f"{seed} {word}") for word in words}
        for sentence in self:
            for place, token in enumerate(sentence):
                if (word := self.folded(token)) in kept:
                    kept[word].add(Use(sentence, place, place + 1, word))
        counts = Counter({word: found.seen for word, found in kept.items()})
        return {word: found.items for word, found in kept.items()}, counts


def frequent_words(
    first: Counter[str], second: Counter[str], *, least: int, most: int, skip: int = 0
) -> list[str]:
    """Words that both corpora have so often, the most frequent first.

    They are letters alone, or letters and hyphens. A word is as frequent as in the corpus that has
    it less often, by its share.

    Args:
        first: counts of one corpus.
        second: counts of the other.
        least: uses that a word has in each.
        most: so many words.
        skip: words at the top of the list that are left out, where function words stand.
    """
    totals = first.total(), second.total()
    shares = {
        word: min(count / totals[0], second[word] / totals[1])
        for word, count in first.items()
        if count >= least and second[word] >= least and word.replace("-", "").isalpha()
    }
    ordered = sorted(shares, key=lambda word: (-shares[word], word))
    if not ordered:
        raise ElmokitError(f"no word stands {least} times in both corpora: lower --min-count")
    return ordered[skip : skip + most] or ordered[-most:]
