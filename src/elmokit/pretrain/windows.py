"""An encoded corpus to windows for both language models: the second step of pretraining.

Each sentence `<S> w1 .. wn </S>` is n + 1 pairs of (input, target) in both directions:

    forward    <S> w1 .. wn  predict  w1 .. wn </S>
    backward   </S> wn .. w1 predict  wn .. w1 <S>

The sentences of an epoch follow one another in a stream of pairs, which is cut into as many
stretches of equal length as the batch has rows. A step takes the next `unroll` pairs of every row,
and the LSTMs continue where the step before left them. Blocks of sentences are shuffled for each
epoch over all sources; only their order is kept, and any (epoch, step) can be computed directly.

An epoch reads each block of a source of weight w either floor(w) or ceil(w) times, w times on
average and spread evenly: with weight 0.25, once in any four epochs. All epochs have the same
number of pairs, the mean: a longer stream is cut, a shorter one continues with its first blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError, plural
from elmokit.pretrain.corpus import Sentences

BEGIN, END = 0, 1  # type ids of <S> and </S>
NOTHING = -1  # The target where a row has ended before the others.
BLOCK = 100  # Sentences that stay together when shuffled.


@dataclass(frozen=True)
class Window:
    """One step of rows of the batch, time-major as the LSTMs run."""

    types: NDArray[np.int64]  # distinct type ids of the inputs: (words,)
    index: NDArray[np.int64]  # of each input in `types`, forward then backward: (2, steps, rows)
    targets: NDArray[np.int64]  # type ids, NOTHING where there are none: (2, steps, rows)


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
        weights: Sequence[tuple[int, float]] = (),
    ) -> None:
        """Lay out the windows, of `unroll` pairs of each row.

        Without a seed, the blocks of sentences stay in the order of the file. `weights` are the
        number of sentences and the weight of each source, in this order; without, all is read once.
        """
        self.sentences, self.rows, self.unroll, self.seed = sentences, rows, unroll, seed
        ends = np.cumsum([size for size, _ in weights or [(len(sentences), 1.0)]])
        starts = np.append(0, ends[:-1])
        firsts = [np.arange(a, b, block) for a, b in zip(starts, ends, strict=True)]
        lasts = [np.minimum(a + block, b) for a, b in zip(firsts, ends, strict=True)]
        self.firsts, self.lasts = np.concatenate(firsts), np.concatenate(lasts)  # (blocks,)
        tokens = sentences.offsets[self.lasts] - sentences.offsets[self.firsts]
        self.sizes = tokens + self.lasts - self.firsts  # Number of pairs of each block: (blocks,).
        self.pairs = int(self.sizes.sum())
        self.weights: NDArray[np.float64] | None = None  # Of each block: (blocks,).
        if weights:
            self.weights = np.repeat([weight for _, weight in weights], list(map(len, firsts)))
            self.pairs = round(float(self.weights @ self.sizes))
        if self.pairs < rows:
            raise ElmokitError(
                f"the text has {plural(self.pairs, 'token')}, fewer than the {rows} rows of a "
                "batch: use more text or a smaller batch_size"
            )
        # The lengths of rows differ by at most one pair.
        self.starts = np.arange(rows + 1) * self.pairs // rows  # (rows + 1,)
        self.longest = int(np.diff(self.starts).max())
        self.steps = -(-self.longest // unroll)
        self._epoch = -1
        self._order = self._ends = np.zeros(0, np.int64)

    def window(self, epoch: int, step: int, rows: slice = slice(None)) -> Window:
        """Return the window of a step, for all rows or some of the global batch."""
        if epoch != self._epoch:
            self._shuffle(epoch)
        length = min(self.unroll, self.longest - step * self.unroll)
        chosen = np.arange(self.rows)[rows]
        inputs = np.full((2, len(chosen), length), BEGIN, np.int64)
        targets = np.full((2, len(chosen), length), NOTHING, np.int64)
        for i, row in enumerate(chosen.tolist()):
            start = int(self.starts[row]) + step * self.unroll
            end = min(start + length, int(self.starts[row + 1]))
            self._fill(inputs[:, i], targets[:, i], start, end)
        types, index = np.unique(inputs, return_inverse=True)
        index = index.reshape(inputs.shape).transpose(0, 2, 1)
        return Window(types, np.ascontiguousarray(index), targets.transpose(0, 2, 1).copy())

    def pairs_at(self, step: int) -> int:
        """Return the number of targets of one direction in the global batch at a step."""
        start = self.starts[:-1] + step * self.unroll
        return int(np.clip(self.starts[1:] - start, 0, self.unroll).sum())

    def positions(self, step: int) -> NDArray[np.int64]:
        """Return the position of each pair in the stream, -1 for none: (steps, rows)."""
        length = min(self.unroll, self.longest - step * self.unroll)
        positions = self.starts[None, :-1] + (step * self.unroll + np.arange(length))[:, None]
        return np.where(positions < self.starts[None, 1:], positions, -1)

    def _shuffle(self, epoch: int) -> None:
        blocks = np.arange(len(self.firsts))
        if self.weights is not None:
            phases = np.random.default_rng([self.seed or 0, 0, 1]).random(len(blocks))
            before, until = (np.floor(self.weights * n + phases) for n in (epoch, epoch + 1))
            copies = np.repeat(blocks, (until - before).astype(np.int64))
            blocks = copies if len(copies) else blocks
        if self.seed is not None:
            blocks = blocks[np.random.default_rng([self.seed, epoch]).permutation(len(blocks))]
        repeats = -(-self.pairs // int(self.sizes[blocks].sum()))
        self._order = np.tile(blocks, repeats)
        self._ends = np.cumsum(self.sizes[self._order])
        self._epoch = epoch

    def _fill(
        self, inputs: NDArray[np.int64], targets: NDArray[np.int64], start: int, end: int
    ) -> None:
        """Write the pairs from `start` to `end` of the epoch's stream into rows: (2, length)."""
        filled = 0
        index = int(np.searchsorted(self._ends, start, side="right"))
        while start < end:
            block = int(self._order[index])
            within = start - int(self._ends[index] - self.sizes[block])
            first, last = int(self.firsts[block]), int(self.lasts[block])
            offsets = self.sentences.offsets[first : last + 1]
            ends = offsets - offsets[0] + np.arange(len(offsets))  # Pairs before each sentence.
            sentence = int(np.searchsorted(ends, within, side="right")) - 1
            while start < end and sentence < last - first:
                tokens = self.sentences.tokens[offsets[sentence] : offsets[sentence + 1]]
                words = np.empty(len(tokens) + 2, np.int64)
                words[0], words[1:-1], words[-1] = BEGIN, tokens, END
                skip = within - int(ends[sentence])
                count = min(end - start, len(words) - 1 - skip)
                new = slice(filled, filled + count)
                for direction, sequence in enumerate((words, words[::-1])):
                    inputs[direction, new] = sequence[skip : skip + count]
                    targets[direction, new] = sequence[skip + 1 : skip + count + 1]
                start, filled, within = start + count, filled + count, within + count
                sentence += 1
            index += 1
