"""A fair sample of a stream of unknown length, in bounded memory: uses, choices."""

from __future__ import annotations

import random
from typing import Generic, TypeVar

T = TypeVar("T")


class Reservoir(Generic[T]):
    """Keeps at most so many items, each as likely as any other."""

    def __init__(self, most: int, seed: int | str) -> None:
        self.most, self.seen = most, 0
        self._random = random.Random(seed)
        self._kept: list[tuple[int, T]] = []

    def add(self, item: T) -> None:
        """The next item of the stream."""
        self.seen += 1
        if self.seen <= self.most:
            self._kept.append((self.seen, item))
        elif (place := self._random.randrange(self.seen)) < self.most:
            self._kept[place] = (self.seen, item)

    @property
    def items(self) -> list[T]:
        """What is kept, in the order of the stream."""
        return [item for _, item in sorted(self._kept, key=lambda pair: pair[0])]
