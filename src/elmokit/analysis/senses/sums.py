"""From sense-tagged text to an inventory, in two readings of the text.

first: sums and counts of each sense's uses ─► averages
second: each use against the averages without it ─► how much each layer should count
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import tee
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.senses.data import Instance, TaggedSentence
from elmokit.analysis.senses.inventory import MIX, WITH_FREQUENCY, Inventory, Word, method_names
from elmokit.analysis.senses.mix import Choice, Mix, learn_mix, nearest, sample, without_itself
from elmokit.analysis.uses import Array

if TYPE_CHECKING:
    from elmokit.store import LayerStore

MOST_FREQUENT = "most frequent sense"


class SenseSums:
    """Sums of the vectors of each sense's uses: memory grows with the senses, not with the text."""

    def __init__(self, layers: int, dim: int) -> None:
        self.rows: dict[Word, dict[str, int]] = {}
        self.counts = np.zeros(64, np.int64)
        self.sums = np.zeros((64, layers + 1, dim), np.float32)
        self.senses = 0
        self._total = np.zeros((layers + 1, dim))
        self._tokens = 0

    def add_tokens(self, layers: NDArray[np.float16]) -> None:
        """Count a sentence's layers (L + 1, tokens, dim) into the mean of all tokens."""
        self._total += layers.sum(axis=1, dtype=np.float64)
        self._tokens += layers.shape[1]

    @property
    def mean(self) -> Array:
        """Of all tokens: (L + 1, dim)."""
        return (self._total / max(self._tokens, 1)).astype(np.float32)

    def add(self, instance: Instance, vector: Array) -> None:
        """Count a use, with its vector (L + 1, dim), to each of its senses."""
        own = self.rows.setdefault((instance.lemma, instance.pos), {})
        for key in dict.fromkeys(instance.keys):
            if key not in own:
                own[key] = self._new_row()
            self.sums[own[key]] += vector
            self.counts[own[key]] += 1

    def _new_row(self) -> int:
        if self.senses == len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros_like(self.counts)])
            self.sums = np.concatenate([self.sums, np.zeros_like(self.sums)])
        self.senses += 1
        return self.senses - 1

    def choice(self, instance: Instance, vector: Array, mean: Array) -> Choice | None:
        """A use that was added, against its word's senses without it."""
        own = self.rows[instance.lemma, instance.pos]
        if len(own) < 2:
            return None
        rows = np.fromiter(own.values(), np.intp)
        names = list(own)
        right = [names.index(key) for key in dict.fromkeys(instance.keys)]
        return without_itself(self.sums[rows], self.counts[rows], right, vector, mean)

    def inventory(self, **values: Any) -> Inventory:
        """What was counted, by words, each with its most frequent sense first."""
        words: dict[Word, slice] = {}
        senses: list[str] = []
        order: list[int] = []
        for word, own in sorted(self.rows.items()):
            ranked = sorted(own, key=lambda key: -self.counts[own[key]])
            words[word] = slice(len(senses), len(senses) + len(ranked))
            senses += ranked
            order += [own[key] for key in ranked]
        counts = self.counts[order]
        vectors = self.sums[order]
        vectors /= counts[:, None, None]
        return Inventory(words, senses, counts, vectors, self.mean, **values)


def embedded(
    store: LayerStore, sentences: Iterable[TaggedSentence]
) -> Iterator[tuple[TaggedSentence, NDArray[np.float16]]]:
    """Sentences with their layers (L + 1, tokens, dim), in bounded memory."""
    sentences, texts = tee(sentences)
    return zip(sentences, store.stream(each.tokens for each in texts), strict=True)


def vector_of(layers: NDArray[np.float16], start: int, end: int) -> Array:
    """The mean of a word's tokens in every layer: (L + 1, dim)."""
    return layers[:, start:end].mean(axis=1, dtype=np.float32)  # type: ignore[no-any-return]


def add_up(store: LayerStore, sentences: Iterable[TaggedSentence]) -> SenseSums:
    """The sums of all senses of a text."""
    sums = SenseSums(store.elmo.config.num_layers, store.elmo.dim)
    for sentence, layers in embedded(store, sentences):
        sums.add_tokens(layers)
        for instance in sentence.instances:
            sums.add(instance, vector_of(layers, instance.start, instance.end))
    return sums


def choices_of(
    store: LayerStore, sentences: Iterable[TaggedSentence], sums: SenseSums, mean: Array
) -> Iterator[Choice]:
    """Each use of a text that was added up, against the senses without it."""
    for sentence, layers in embedded(store, sentences):
        for instance in sentence.instances:
            vector = vector_of(layers, instance.start, instance.end)
            choice = sums.choice(instance, vector, mean)
            if choice is not None:
                yield choice


def leave_one_out(choices: Sequence[Choice], mixes: dict[str, Mix]) -> dict[str, float]:
    """How often each method finds the sense of a use from the other uses; none without choices."""
    if not choices:
        return {}
    layers = choices[0].cosines.shape[0] - 2
    right = dict.fromkeys([*method_names(layers), MOST_FREQUENT], 0)
    for choice in choices:
        scores = [*choice.cosines]
        scores += [
            mixes[name].scores(choice.cosines, choice.counts) for name in (MIX, WITH_FREQUENCY)
        ]
        found = [*map(nearest, scores), 0]  # the first one is the most frequent
        for name, sense in zip(right, found, strict=True):
            right[name] += bool(choice.right[sense])
    return {name: count / len(choices) for name, count in right.items()}


def build_inventory(
    store: LayerStore,
    read: Callable[[], Iterable[TaggedSentence]],
    *,
    centre: bool = False,
    model: str = "",
) -> Inventory:
    """The senses of a text, with what its own uses teach about choosing between them.

    Args:
        store: the layers of the biLM.
        read: gives the sentences from the beginning; it is called twice.
        centre: take the mean of all tokens off before vectors are compared.
        model: the name of the biLM, to be loaded again by.
    """
    sums = add_up(store, read())
    layers = store.elmo.config.num_layers
    mean = sums.mean if centre else np.zeros_like(sums.mean)
    choices = sample(choices_of(store, read(), sums, mean))
    mixes = {
        MIX: learn_mix(choices, layers, frequency=False),
        WITH_FREQUENCY: learn_mix(choices, layers, frequency=True),
    }
    facts = {"choices": len(choices), "leave_one_out": leave_one_out(choices, mixes)}
    return sums.inventory(
        centred=centre,
        mixes=mixes,
        model=model,
        fingerprint=store.elmo.fingerprint(),
        facts=facts,
    )
