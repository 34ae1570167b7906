"""Build an inventory of senses from sense-tagged text, which is read twice.

first pass: sums and counts of each sense's uses ─► averages
second pass: each use against the averages without it ─► how much each layer should count
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import tee
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from elmokit.analysis.geometry import Array
from elmokit.analysis.sampling import sample
from elmokit.analysis.senses.data import Instance, TaggedCorpus, TaggedSentence
from elmokit.analysis.senses.inventory import (
    MAX_CHOICES,
    MIX,
    WITH_FREQUENCY,
    Choice,
    Inventory,
    Mix,
    Word,
    learn_mix,
    leave_out,
    method_names,
    nearest,
)
from elmokit.analysis.uses import Model, TokenMean, as_store, span_vector

if TYPE_CHECKING:
    from elmokit.embed import Embedder
    from elmokit.store import LayerStore

MOST_FREQUENT = "most frequent sense"


def build_senses(
    model: Model,
    corpus: TaggedCorpus | Sequence[TaggedSentence],
    *,
    center: bool = False,
    model_name: str = "",
    quiet: bool = True,
) -> Inventory:
    """Average the vectors of each sense's uses, and learn how to choose between senses.

    Args:
        model: The model; a LayerStore keeps its layers on disk.
        corpus: Sense-tagged sentences, such as a `TaggedCorpus`; they are read twice.
        center: Subtract the mean vector of all tokens before vectors are compared.
        model_name: Name of the model, by which it can be loaded again.
        quiet: Do not show progress.
    """
    store = as_store(model)
    progress: Any = {"total": len(corpus), "unit": " sentences", "disable": quiet}
    sums = sum_senses(store, tqdm(corpus, desc="averages", **progress))
    mean = sums.tokens.value * center
    choices = choices_of(store, tqdm(corpus, desc="mix", **progress), sums, mean)
    sampled, _ = sample(choices, MAX_CHOICES, seed=0)
    mixes = {
        name: learn_mix(sampled, store.elmo.config.num_layers, frequency=name == WITH_FREQUENCY)
        for name in (MIX, WITH_FREQUENCY)
    }
    return sums.inventory(
        centered=center,
        mixes=mixes,
        model=model_name,
        fingerprint=store.elmo.fingerprint(),
        metadata={"choices": len(sampled), "leave_one_out": leave_one_out(sampled, mixes)},
    )


class SenseSums:
    """Sums of the vectors of each sense's uses: memory grows with the senses, not with the text."""

    def __init__(self, elmo: Embedder) -> None:
        self.rows: dict[Word, dict[str, int]] = {}
        self.counts: list[int] = []
        self.sums: list[Array] = []
        self.tokens = TokenMean(elmo)

    def add(self, instance: Instance, vector: Array) -> None:
        """Add a use with its vector (L + 1, dim) to each of its senses."""
        own = self.rows.setdefault((instance.lemma, instance.pos), {})
        for key in dict.fromkeys(instance.keys):
            if key not in own:
                own[key] = len(self.counts)
                self.counts.append(0)
                self.sums.append(np.zeros_like(vector))
            self.sums[own[key]] += vector
            self.counts[own[key]] += 1

    def _take(self, rows: Collection[int]) -> tuple[Array, NDArray[np.int64]]:
        """Return the sums and counts of some senses: (rows, L + 1, dim), (rows,)."""
        sums = np.array([self.sums[row] for row in rows], np.float32)
        counts = np.array([self.counts[row] for row in rows], np.int64)
        return sums.reshape(len(rows), *self.tokens.total.shape), counts

    def choice(self, instance: Instance, vector: Array, mean: Array) -> Choice | None:
        """Compare a use that was added with its word's senses without it."""
        own = self.rows[instance.lemma, instance.pos]
        if len(own) < 2:
            return None
        correct = [key in instance.keys for key in own]
        return leave_out(*self._take(own.values()), np.array(correct), vector, mean)

    def inventory(self, **values: Any) -> Inventory:
        """Return the averages by word, each word with its most frequent sense first."""
        words: dict[Word, slice] = {}
        senses: list[str] = []
        order: list[int] = []
        for word, own in sorted(self.rows.items()):
            ranked = sorted(own, key=lambda key: -self.counts[own[key]])
            words[word] = slice(len(senses), len(senses) + len(ranked))
            senses += ranked
            order += [own[key] for key in ranked]
        vectors, counts = self._take(order)
        vectors /= counts[:, None, None]
        return Inventory(words, senses, counts, vectors, self.tokens.value, **values)


def embed_tagged(
    store: LayerStore, sentences: Iterable[TaggedSentence]
) -> Iterator[tuple[NDArray[np.float16], list[tuple[Instance, Array]]]]:
    """Yield the layers (L + 1, tokens, dim) of each sentence, and its instances with vectors."""
    sentences, texts = tee(sentences)
    stream = store.stream(sentence.tokens for sentence in texts)
    for sentence, layers in zip(sentences, stream, strict=True):
        yield layers, [(i, span_vector(layers, i.start, i.end)) for i in sentence.instances]


def sum_senses(store: LayerStore, sentences: Iterable[TaggedSentence]) -> SenseSums:
    """Sum the vectors of all senses of a text."""
    sums = SenseSums(store.elmo)
    for layers, instances in embed_tagged(store, sentences):
        sums.tokens.add(layers)
        for instance, vector in instances:
            sums.add(instance, vector)
    return sums


def choices_of(
    store: LayerStore, sentences: Iterable[TaggedSentence], sums: SenseSums, mean: Array
) -> Iterator[Choice]:
    """Yield each use of a text that was summed, compared with the senses without it."""
    for _, instances in embed_tagged(store, sentences):
        choices = (sums.choice(instance, vector, mean) for instance, vector in instances)
        yield from (choice for choice in choices if choice is not None)


def leave_one_out(choices: Sequence[Choice], mixes: dict[str, Mix]) -> dict[str, float]:
    """Return how often each method finds the sense of a use from the other uses."""
    if not choices:
        return {}
    num_layers = choices[0].cosines.shape[0] - 2
    correct = dict.fromkeys([*method_names(num_layers), MOST_FREQUENT], 0.0)
    for choice in choices:
        mixed = [mixes[m].scores(choice.cosines, choice.counts) for m in (MIX, WITH_FREQUENCY)]
        for name, sense in zip(correct, map(nearest, [*choice.cosines, *mixed]), strict=False):
            correct[name] += bool(choice.correct[sense])
        # Without this use its own sense would be the rarer one of two that are equally frequent.
        counts = choice.counts + choice.correct
        correct[MOST_FREQUENT] += float(choice.correct[counts == counts.max()].mean())
    return {name: count / len(choices) for name, count in correct.items()}
