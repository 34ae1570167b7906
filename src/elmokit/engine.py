"""Token vectors of words met before: the char-CNN runs once for each distinct word."""

from __future__ import annotations

import torch

from elmokit.model.fast.inference import FastBiLM
from elmokit.text.batches import Indexer


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
