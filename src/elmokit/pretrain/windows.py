"""An encoded corpus to windows for both language models: the second step of pretraining.

Each sentence `<S> w1 .. wn </S>` is n + 1 pairs of (input, target) in both directions:

    forward    <S> w1 .. wn  predict  w1 .. wn </S>
    backward   </S> wn .. w1 predict  wn .. w1 <S>

The sentences of an epoch follow one another in a stream of pairs, which is cut into as many
stretches of equal length as the batch has rows. A step takes the next `unroll` pairs of every row,
and the LSTMs go on where the step before left them. Blocks of sentences are shuffled for each
epoch; nothing is kept but their order, and any (epoch, step) can be asked for directly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.pretrain.corpus import Sentences

BEGIN, END = 0, 1  # type ids of <S> and </S>
NOTHING = -1  # the target where a row has ended before the others
BLOCK = 100  # sentences that stay together when shuffled


@dataclass(frozen=True)
class Window:
    """One step of some rows, time-major as the LSTMs run."""

    types: NDArray[np.int64]
    """The distinct type ids of the inputs: (words,)."""
    index: NDArray[np.int64]
    """Each input's place in `types`, forward then backward: (2, steps, rows)."""
    targets: NDArray[np.int64]
    """Type ids to predict, NOTHING where there are none: (2, steps, rows)."""

    @property
    def pairs(self) -> int:
        """Targets of one direction."""
        return int((self.targets[0] != NOTHING).sum())


class Windows:
    """All windows of a text, by epoch and step."""

    def __init__(
        self,
        sentences: Sentences,
        *,
        rows: int,
        unroll: int = 20,
        seed: int | None = None,
        block: int = BLOCK,
    ) -> None:
        """Lay out the windows for a batch of `rows`; without a seed in the order of the file."""
        self.sentences, self.rows, self.unroll, self.seed = sentences, rows, unroll, seed
        self.firsts = np.arange(0, len(sentences), block)  # of each block: (blocks,)
        lasts = np.minimum(self.firsts + block, len(sentences))
        self.sizes = (  # pairs of each block
            sentences.offsets[lasts] - sentences.offsets[self.firsts] + lasts - self.firsts
        )
        self.lasts = lasts
        self.pairs = int(self.sizes.sum())
        if self.pairs < rows:
            raise ElmokitError(
                f"the text has {self.pairs} tokens, fewer than the {rows} rows of a batch: "
                "give more text or a smaller batch_size"
            )
        # rows differ by at most one pair
        self.starts = np.arange(rows + 1) * self.pairs // rows  # (rows + 1,)
        self.longest = int(np.diff(self.starts).max())
        self.steps = -(-self.longest // unroll)
        self._epoch = -1
        self._order = self._ends = np.zeros(0, np.int64)

    def window(self, epoch: int, step: int, rows: slice = slice(None)) -> Window:
        """The window at a position, for all rows or some of the global batch."""
        if epoch != self._epoch:
            self._shuffle(epoch)
        length = min(self.unroll, self.longest - step * self.unroll)
        chosen = np.arange(self.rows)[rows]
        inputs = np.full((2, len(chosen), length), BEGIN, np.int64)
        targets = np.full((2, len(chosen), length), NOTHING, np.int64)
        for place, row in enumerate(chosen.tolist()):
            start = int(self.starts[row]) + step * self.unroll
            end = min(start + length, int(self.starts[row + 1]))
            self._fill(inputs[:, place], targets[:, place], start, end)
        types, index = np.unique(inputs, return_inverse=True)
        index = index.reshape(inputs.shape).transpose(0, 2, 1)
        return Window(types, np.ascontiguousarray(index), targets.transpose(0, 2, 1).copy())

    def pairs_at(self, step: int) -> int:
        """Targets of one direction in the global batch at a step of any epoch."""
        start = self.starts[:-1] + step * self.unroll
        return int(np.clip(self.starts[1:] - start, 0, self.unroll).sum())

    def positions(self, step: int) -> NDArray[np.int64]:
        """Where in the stream each pair of a window stands, -1 for none: (steps, rows)."""
        length = min(self.unroll, self.longest - step * self.unroll)
        found = self.starts[None, :-1] + (step * self.unroll + np.arange(length))[:, None]
        return np.where(found < self.starts[None, 1:], found, -1)

    def _shuffle(self, epoch: int) -> None:
        if self.seed is None:
            self._order = np.arange(len(self.firsts))
        else:
            random = np.random.default_rng([self.seed, epoch])
            self._order = random.permutation(len(self.firsts))
        self._ends = np.cumsum(self.sizes[self._order])
        self._epoch = epoch

    def _fill(
        self, inputs: NDArray[np.int64], targets: NDArray[np.int64], start: int, end: int
    ) -> None:
        """Write the pairs from `start` to `end` of the epoch's stream into rows: (2, length)."""
        filled = 0
        number = int(np.searchsorted(self._ends, start, side="right"))
        while start < end:
            block = int(self._order[number])
            within = start - int(self._ends[number] - self.sizes[block])
            first, last = int(self.firsts[block]), int(self.lasts[block])
            offsets = self.sentences.offsets[first : last + 1]
            ends = offsets - offsets[0] + np.arange(len(offsets))  # pairs before each sentence
            sentence = int(np.searchsorted(ends, within, side="right")) - 1
            while start < end and sentence < last - first:
                tokens = self.sentences.tokens[offsets[sentence] : offsets[sentence + 1]]
                words = np.empty(len(tokens) + 2, np.int64)
                words[0], words[1:-1], words[-1] = BEGIN, tokens, END
                skip = within - int(ends[sentence])
                count = min(end - start, len(words) - 1 - skip)
                for way, sequence in enumerate((words, words[::-1])):
                    inputs[way, filled : filled + count] = sequence[skip : skip + count]
                    targets[way, filled : filled + count] = sequence[skip + 1 : skip + count + 1]
                start, filled, within = start + count, filled + count, within + count
                sentence += 1
            number += 1
