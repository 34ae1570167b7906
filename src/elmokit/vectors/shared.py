"""Parts that worker processes write and this process commits, in the order of the input.

A worker writes the vectors of a window of sentences. They count when this process has committed the
part, in the order of the windows: so any number of workers, or none, can resume the folder.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from elmokit.vectors.shards import Window
from elmokit.vectors.writer import VectorWriter
from elmokit.workers import Workers

MAX_WAITING = 4  # windows per worker that may wait for their turn


class Piece(NamedTuple):
    """Sentences that are embedded together, and the part that they become."""

    is_fresh: bool
    """Whether words met before are forgotten first: what came before then has no effect."""
    tokens: list[list[str]]
    kept: slice
    """Which of the sentences are written: the others belong to other shards."""
    window: Window
    """The sentences that are written."""


class SharedParts:
    """Distributes pieces to workers, and commits them in order.

    The function of a worker is called with the words of pieces that others have got, to put them
    into its cache, and with the index of a part to write and its piece, or None.
    """

    def __init__(self, workers: Workers, writer: VectorWriter) -> None:
        self.workers, self.writer = workers, writer
        self._next = writer.parts  # index of the next part
        self._windows: dict[int, Window] = {}  # those that are not committed, by part
        self._written: set[int] = set()  # of these, parts whose vectors are on the disk
        # For each worker the words of pieces that it has not heard of.
        self._words: list[list[tuple[bool, list[str]]]] = [[] for _ in range(len(workers))]

    def skip(self, piece: Piece) -> None:
        """Fill the word caches as embedding the piece would."""
        self._add_words(piece)
        while max(map(len, self._words)) > MAX_WAITING:
            if not self.workers.idle:
                self._receive()
            for worker in list(self.workers.idle):
                self._send(worker, None)

    def write(self, piece: Piece) -> None:
        """Give a piece to a worker, which does not need the columns of its window."""
        while not self.workers.idle or len(self._windows) >= MAX_WAITING * len(self.workers):
            self._receive()
        worker = self.workers.idle[0]
        self._windows[self._next] = piece.window
        own = piece._replace(window=Window(piece.window.first, [], {}))
        self._send(worker, (self._next, own))
        self._add_words(piece, without=worker)
        self._next += 1

    def finish(self) -> None:
        """Wait until all windows are committed."""
        while self._windows:
            self._receive()

    def _add_words(self, piece: Piece, without: int | None = None) -> None:
        words = list(dict.fromkeys(chain.from_iterable(piece.tokens)))
        for worker, waiting in enumerate(self._words):
            if worker != without:
                waiting.append((piece.is_fresh, words))

    def _send(self, worker: int, part: tuple[int, Piece] | None) -> None:
        words, self._words[worker] = self._words[worker], []
        self.workers.send(worker, (words, part))

    def _receive(self) -> None:
        _, part = self.workers.receive()
        if part is not None:
            self._written.add(part)
        while (next_part := self.writer.parts) in self._written:
            self._written.remove(next_part)
            self.writer.commit(self._windows.pop(next_part))
