"""The model as inference runs it: checked weights, batches, and word vectors computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from elmokit.formats.checkpoint import Checkpoint, check_tensors
from elmokit.model.bilm import BiLM, build, expected_shapes
from elmokit.model.fast.inference import FastBiLM
from elmokit.text.indexers import Indexer

SIDE_BY_SIDE, LONG_BATCH = 16, 8  # so many long sentences in a batch, if 8 times its tokens do


def build_model(checkpoint: Checkpoint) -> BiLM:
    """Return the model of a checkpoint; raise if a tensor is missing, superfluous or damaged."""
    check_tensors(checkpoint, expected_shapes(checkpoint.config))
    return build(checkpoint.config, checkpoint.tensors)


class WordVectors:
    """Token vectors of words met before; exact, and bounded in memory."""

    def __init__(self, size: int, limit: int, device: torch.device) -> None:
        self.rows: dict[str, int] = {}
        self.limit = limit
        self.table = torch.empty(0, size, device=device)

    def lookup(self, words: dict[str, None], engine: FastBiLM, indexer: Indexer) -> None:
        """Make sure that every one of the distinct `words` has its row."""
        missing = [word for word in words if word not in self.rows]
        if not missing:
            return
        if len(self.rows) + len(missing) > self.limit:
            self.rows.clear()  # start afresh: simple, and rare
            missing = list(words)
        ids = torch.from_numpy(indexer.encode(missing)).to(self.table.device)
        start = len(self.rows)
        self._grow(start + len(missing))
        self.table[start : start + len(missing)] = engine.encode(ids)
        self.rows.update(zip(missing, range(start, start + len(missing)), strict=True))

    def _grow(self, rows: int) -> None:
        if rows > len(self.table):
            larger = self.table.new_empty(max(rows, 2 * len(self.table)), self.table.shape[1])
            larger[: len(self.table)] = self.table
            self.table = larger


def make_batches(
    lengths: Sequence[int], batch_tokens: int, batch_size: int | None
) -> Iterator[list[int]]:
    """Numbers of the sentences that go together: of similar length, bounded in tokens.

    Long sentences get some more, so that there are several of them side by side.
    """
    order = sorted(range(len(lengths)), key=lambda number: (lengths[number], number))
    batch: list[int] = []
    tokens = 0
    for number in order:
        more = tokens + lengths[number]
        full = len(batch) == batch_size or more > LONG_BATCH * batch_tokens
        full = full or (more > batch_tokens and len(batch) >= SIDE_BY_SIDE)
        if batch and full:
            yield batch
            batch, tokens = [], 0
        batch.append(number)
        tokens += lengths[number]
    if batch:
        yield batch
