"""Build an inventory of senses from sense-tagged text, which is read twice.

first pass: sums and counts of each sense's uses ─► averages
second pass: each use against the averages without it ─► how much each layer should count
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from elmokit.analysis.geometry import Array
from elmokit.analysis.sampling import sample
from elmokit.analysis.senses.data import Instance, TaggedCorpus, TaggedSentence
from elmokit.analysis.senses.inventory import MIX, WITH_FREQUENCY, Inventory, Word, method_names
from elmokit.analysis.senses.mix import MAX_CHOICES, Choice, Mix, learn_mix, leave_out, nearest
from elmokit.analysis.uses import as_store, span_vector

if TYPE_CHECKING:
    from elmokit.embed import Embedder
    from elmokit.store import LayerStore

MOST_FREQUENT = "most frequent sense"


def build_senses(
    model: Embedder | LayerStore,
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
    num_layers = store.elmo.config.num_layers
    sums = sum_senses(store, _show(corpus, "averages", quiet))
    mean = sums.mean if center else np.zeros_like(sums.mean)
    choices, _ = sample(
        choices_of(store, _show(corpus, "mix", quiet), sums, mean), MAX_CHOICES, seed=0
    )
    mixes = {
        MIX: learn_mix(choices, num_layers, frequency=False),
        WITH_FREQUENCY: learn_mix(choices, num_layers, frequency=True),
    }
    return sums.inventory(
        centered=center,
        mixes=mixes,
        model=model_name,
        fingerprint=store.elmo.fingerprint(),
        metadata={"choices": len(choices), "leave_one_out": leave_one_out(choices, mixes)},
    )


def _show(
    corpus: TaggedCorpus | Sequence[TaggedSentence], name: str, quiet: bool
) -> Iterable[TaggedSentence]:
    return tqdm(corpus, total=len(corpus), unit=" sentences", desc=name, disable=quiet)


class SenseSums:
    """Sums of the vectors of each sense's uses: memory grows with the senses, not with the text."""

    def __init__(self, num_layers: int, dim: int) -> None:
        self.rows: dict[Word, dict[str, int]] = {}
        self.counts = np.zeros(64, np.int64)
        self.sums = np.zeros((64, num_layers + 1, dim), np.float32)
        self.senses = 0
        self._total = np.zeros((num_layers + 1, dim))
        self._tokens = 0

    def add_tokens(self, layers: NDArray[np.float16]) -> None:
        """Add a sentence's layers (L + 1, tokens, dim) to the mean of all tokens."""
        self._total += layers.sum(axis=1, dtype=np.float64)
        self._tokens += layers.shape[1]

    @property
    def mean(self) -> Array:
        """Mean of all tokens: (L + 1, dim)."""
        return (self._total / max(self._tokens, 1)).astype(np.float32)

    def add(self, instance: Instance, vector: Array) -> None:
        """Add a use with its vector (L + 1, dim) to each of its senses."""
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
        """Compare a use that was added with its word's senses without it."""
        own = self.rows[instance.lemma, instance.pos]
        if len(own) < 2:
            return None
        rows = np.fromiter(own.values(), np.intp)
        names = list(own)
        correct = [names.index(key) for key in dict.fromkeys(instance.keys)]
        return leave_out(self.sums[rows], self.counts[rows], correct, vector, mean)

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
        counts = self.counts[order]
        vectors = self.sums[order]
        vectors /= counts[:, None, None]
        return Inventory(words, senses, counts, vectors, self.mean, **values)


def embed_tagged(
    store: LayerStore, sentences: Iterable[TaggedSentence]
) -> Iterator[tuple[TaggedSentence, NDArray[np.float16]]]:
    """Yield sentences with their layers (L + 1, tokens, dim), in bounded memory."""
    sentences, texts = tee(sentences)
    return zip(sentences, store.stream(sentence.tokens for sentence in texts), strict=True)


def sum_senses(store: LayerStore, sentences: Iterable[TaggedSentence]) -> SenseSums:
    """Sum the vectors of all senses of a text."""
    sums = SenseSums(store.elmo.config.num_layers, store.elmo.dim)
    for sentence, layers in embed_tagged(store, sentences):
        sums.add_tokens(layers)
        for instance in sentence.instances:
            sums.add(instance, span_vector(layers, instance.start, instance.end))
    return sums


def choices_of(
    store: LayerStore, sentences: Iterable[TaggedSentence], sums: SenseSums, mean: Array
) -> Iterator[Choice]:
    """Yield each use of a text that was summed, compared with the senses without it."""
    for sentence, layers in embed_tagged(store, sentences):
        for instance in sentence.instances:
            vector = span_vector(layers, instance.start, instance.end)
            choice = sums.choice(instance, vector, mean)
            if choice is not None:
                yield choice


def leave_one_out(choices: Sequence[Choice], mixes: dict[str, Mix]) -> dict[str, float]:
    """Return how often each method finds the sense of a use from the other uses."""
    if not choices:
        return {}
    num_layers = choices[0].cosines.shape[0] - 2
    correct = dict.fromkeys([*method_names(num_layers), MOST_FREQUENT], 0)
    for choice in choices:
        scores = [*choice.cosines]
        scores += [
            mixes[name].scores(choice.cosines, choice.counts) for name in (MIX, WITH_FREQUENCY)
        ]
        answers = [*map(nearest, scores), 0]  # The first sense is the most frequent one.
        for name, sense in zip(correct, answers, strict=True):
            correct[name] += bool(choice.correct[sense])
    return {name: count / len(choices) for name, count in correct.items()}
