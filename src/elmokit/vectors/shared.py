"""Parts that worker processes write and this process commits, in the order of the input.

A worker writes the vectors of a window of sentences. They count when this process has committed the
part, in the order of the windows: so any number of workers, or none, can resume the folder.
"""

from __future__ import annotations

from itertools import chain

from elmokit.vectors.shards import Window
from elmokit.vectors.writer import VectorWriter
from elmokit.workers import Workers

MAX_WAITING = 4  # windows per worker that may wait for their turn


class SharedParts:
    """Distributes windows to workers, and commits them in order.

    The function of a worker is called with the words of windows that others have got, to put them
    into its cache, and with index, first sentence and tokens of a part to write, or None.
    """

    def __init__(self, workers: Workers, writer: VectorWriter) -> None:
        self.workers, self.writer = workers, writer
        self._next = writer.parts  # index of the next part
        self._windows: dict[int, Window] = {}  # those that are not committed, by part
        self._written: set[int] = set()  # of these, parts whose vectors are on the disk
        # For each worker the words of windows that it has not heard of.
        self._words: list[list[list[str]]] = [[] for _ in range(len(workers))]

    def skip(self, window: Window) -> None:
        """Fill the word caches as embedding the window would."""
        self._add_words(window)
        while max(map(len, self._words)) > MAX_WAITING:
            if not self.workers.idle:
                self._receive()
            for worker in list(self.workers.idle):
                self._send(worker, None)

    def write(self, window: Window) -> None:
        """Give a window to a worker, which needs only its tokens."""
        while not self.workers.idle or len(self._windows) >= MAX_WAITING * len(self.workers):
            self._receive()
        worker = self.workers.idle[0]
        self._windows[self._next] = window
        self._send(worker, (self._next, window.first, window.tokens))
        self._add_words(window, without=worker)
        self._next += 1

    def finish(self) -> None:
        """Wait until all windows are committed."""
        while self._windows:
            self._receive()

    def _add_words(self, window: Window, without: int | None = None) -> None:
        words = list(dict.fromkeys(chain.from_iterable(window.tokens)))
        for worker, waiting in enumerate(self._words):
            if worker != without:
                waiting.append(words)

    def _send(self, worker: int, part: tuple[int, int, list[list[str]]] | None) -> None:
        words, self._words[worker] = self._words[worker], []
        self.workers.send(worker, (words, part))

    def _receive(self) -> None:
        _, part = self.workers.receive()
        if part is not None:
            self._written.add(part)
        while (next_part := self.writer.parts) in self._written:
            self._written.remove(next_part)
            self.writer.commit(self._windows.pop(next_part))
