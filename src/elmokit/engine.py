"""The model as inference runs it: packed weights, batches by length, word vectors computed once.

An `Engine` belongs to one model. It packs the weights when they are first needed and again when a
parameter has changed, and it keeps the token vectors of words met before, so that the token encoder
runs once for each distinct word.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

from elmokit.formats.checkpoint import Checkpoint, check_tensors
from elmokit.model.bilm import BiLM, BiLMState, build, expected_shapes, weights_version
from elmokit.model.fast.inference import FastBiLM
from elmokit.model.fast.rows import Rows
from elmokit.model.kernels.linear import Precision
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmokit.text.indexers import Indexer

WARM_UP_WORDS = 4096  # encoded at once when many words are cached in advance
MIN_WORDS = 1000  # the cache has room for so many ordinary words, however wide their vectors are
ENTRY_BYTES = 100  # of a word in a dictionary, beside its letters
# A batch may have more tokens than asked for, up to 8 times, until it holds 16 sentences: long
# sentences alone would leave the LSTMs with too few rows.
MIN_ROWS, MAX_OVERRUN = 16, 8


def build_model(checkpoint: Checkpoint) -> BiLM:
    """Return the model of a checkpoint; raise if a tensor is missing, unexpected or damaged."""
    check_tensors(checkpoint, expected_shapes(checkpoint.config))
    return build(checkpoint.config, checkpoint.tensors)


class Engine:
    """Packed weights and word vectors of a model, one caller at a time.

    Callers hold `lock` while they use the tensors that a method returned: buffers are reused.
    """

    def __init__(
        self, model: BiLM, indexer: Indexer, *, precision: Precision, cache_bytes: int
    ) -> None:
        self.model, self.indexer = model, indexer
        self.precision, self.cache_bytes = precision, cache_bytes
        self.lock = threading.Lock()
        self._version: tuple[int, ...] = ()
        _engines.add(self)

    def __reduce__(self) -> Any:
        """Copy and pickle neither the lock nor what the weights determine."""
        new = partial(Engine, precision=self.precision, cache_bytes=self.cache_bytes)
        return new, (self.model, self.indexer)

    def packed(self) -> FastBiLM:
        """Return the packed weights, packed again if a parameter has changed or moved."""
        version = weights_version(self.model)
        if version != self._version:
            boundaries = torch.from_numpy(self.indexer.encode([BEGIN_SENTENCE, END_SENTENCE]))
            self._packed = FastBiLM(self.model, boundaries, self.precision)
            size = self.model.config.projection_dim
            self._words = WordVectors(size, self.cache_bytes, self._packed.device)
            self._version = version
        return self._packed

    def rows(self) -> Rows:
        """Return an empty place for sentences that come and go while others are read."""
        return Rows(self.packed())

    def clear(self) -> None:
        """Forget the packed weights and the word vectors."""
        self._version = ()

    def forget_words(self) -> None:
        """Forget the word vectors."""
        self.packed()
        self._words.clear()

    def warm(self, words: Iterable[str]) -> None:
        """Compute the vectors of words that the cache lacks, all in one call."""
        packed = self.packed()
        if missing := self._words.make_room(dict.fromkeys(words)):
            ids = torch.from_numpy(self.indexer.encode(missing)).to(packed.device)
            self._words.add(missing, packed.encode(ids))

    def fill_cache(
        self, words: Iterable[str], vectors: Tensor | None = None
    ) -> tuple[list[str], Tensor]:
        """Compute the vectors of the first words that the cache has room for, or take given ones.

        Return the words in the cache and their vectors: (words, projection_dim).
        """
        self.packed()
        fitting = self._words.fitting(words)
        if vectors is None:
            for start in range(0, len(fitting), WARM_UP_WORDS):
                self.warm(fitting[start : start + WARM_UP_WORDS])
        else:
            self._words.clear()
            self._words.add(fitting, vectors[: len(fitting)])
        return list(self._words.rows), self._words.table[: len(self._words.rows)]

    def token_vectors(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Return token vectors, sentence after sentence: (positions, projection_dim)."""
        self.warm(chain.from_iterable(sentences))
        rows = self._words.rows
        flat = [rows[word] for sentence in sentences for word in sentence]
        indices = torch.tensor(flat, dtype=torch.long, device=self._packed.device)
        vectors = self._words.table[indices]
        if self._words.bytes > self._words.max_bytes:  # Very long words may take too much.
            self._words.clear()
        return vectors

    def layers(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Return all layers, sentence after sentence: (L + 1, positions, dim).

        Each sentence is read between `<S>` and `</S>`, which are not part of the result.
        """
        vectors = self.token_vectors(sentences)
        return self._packed.run(vectors, lengths_of(sentences))

    def framed_layers(
        self, sentences: Sequence[Sequence[str]], state: BiLMState | None = None
    ) -> tuple[Tensor, BiLMState]:
        """Return all layers of sentences that include their boundary tokens, and the states.

        With a `state`, row i continues row i of the batch that returned it.
        """
        vectors = self.token_vectors(sentences)
        return self._packed.run_with_state(vectors, lengths_of(sentences), state)


# ---------------------------------------------------------------------- forked processes
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _after_fork() -> None:
    """Make the engines usable in a forked process, which has none of the other threads.

    A lock that another thread held would never be released. The thread pools of OpenMP do not
    survive a fork either, and their next use would never end: compute with one thread.
    """
    for engine in _engines:
        if engine.lock.locked():
            engine.lock = threading.Lock()
            engine.clear()
    if len(_engines) > 0:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # Windows does not fork.
    os.register_at_fork(after_in_child=_after_fork)


# ---------------------------------------------------------------------- words
class WordVectors:
    """Token vectors of words met before; exact, and bounded in memory."""

    def __init__(self, size: int, max_bytes: int, device: torch.device) -> None:
        self.rows: dict[str, int] = {}
        self.table = torch.empty(0, size, device=device)
        self.row_bytes = 4 * size + ENTRY_BYTES
        self.max_bytes = max(max_bytes, MIN_WORDS * self.row_bytes)
        self.bytes = 0

    def make_room(self, words: dict[str, None]) -> list[str]:
        """Return those of the distinct `words` that have no row; make room for them."""
        missing = [word for word in words if word not in self.rows]
        if missing and self.bytes + self._size(missing) > self.max_bytes:
            self.clear()  # Start again: simple, and rare.
            return list(words)
        return missing

    def add(self, words: Sequence[str], vectors: Tensor) -> None:
        """Give each of the words, none of which has a row, its row: (words, size)."""
        self.bytes += self._size(words)
        start, end = len(self.rows), len(self.rows) + len(words)
        if end > len(self.table):
            larger = self.table.new_empty(max(end, 2 * len(self.table)), self.table.shape[1])
            larger[: len(self.table)] = self.table
            self.table = larger
        self.table[start:end] = vectors
        self.rows.update(zip(words, range(start, end), strict=True))

    def fitting(self, words: Iterable[str]) -> list[str]:
        """Return the first of the words, each once, that an empty cache has room for."""
        distinct = list(dict.fromkeys(words))
        sizes = [sys.getsizeof(word) + self.row_bytes for word in distinct]
        return distinct[: bisect_right(list(accumulate(sizes)), self.max_bytes)]

    def clear(self) -> None:
        """Forget all words; the table keeps its memory."""
        self.rows.clear()
        self.bytes = 0

    def _size(self, words: Sequence[str]) -> int:
        return sum(map(sys.getsizeof, words)) + self.row_bytes * len(words)


def lengths_of(sentences: Sequence[Sequence[str]]) -> Tensor:
    """Return the number of tokens of each sentence: (sentences,)."""
    return torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)


def make_batches(
    lengths: Sequence[int], batch_tokens: int, batch_size: int | None
) -> Iterator[list[int]]:
    """Yield the indices of sentences that form a batch: of similar length, bounded in tokens."""
    order = sorted(range(len(lengths)), key=lambda index: (lengths[index], index))
    batch: list[int] = []
    tokens = 0
    for index in order:
        total = tokens + lengths[index]
        full = len(batch) == batch_size or total > MAX_OVERRUN * batch_tokens
        full = full or (total > batch_tokens and len(batch) >= MIN_ROWS)
        if batch and full:
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += lengths[index]
    if batch:
        yield batch
