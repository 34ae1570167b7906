"""Build an inventory of senses from sense-tagged text, which is read twice.

first pass: sums and counts of each sense's uses ─► averages
second pass: each use against the averages without it ─► how much each layer should count

Cross-entropy over the word's senses learns scale, shares and b of the scores in inventory.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from elmokit.analysis.geometry import Array
from elmokit.analysis.sampling import sample
from elmokit.analysis.senses import inventory
from elmokit.analysis.senses.data import Instance, TaggedCorpus, TaggedSentence
from elmokit.analysis.senses.inventory import MIX, WITH_FREQUENCY, Inventory, Mix, Word
from elmokit.analysis.uses import Model, TokenMean, as_store, span_vector
from elmokit.layers import layer_names

if TYPE_CHECKING:
    from elmokit.store import LayerStore

MOST_FREQUENT = "most frequent sense"
MAX_CHOICES = 50_000  # More would not change the few numbers that are learned.
FIRST_SCALE = 10.0
MAX_STEPS = 100


class Choice(NamedTuple):
    """A use of the training text and the senses it may have, the most frequent first."""

    cosines: Array  # to the average of each sense: (L + 2, senses)
    counts: NDArray[np.int64]  # other uses of each sense: (senses,)
    correct: NDArray[np.bool_]  # which senses it has: (senses,)


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
    sums = SenseSums(store, tqdm(corpus, desc="averages", **progress))
    mean = sums.tokens.value * center
    choices = sums.choices(store, tqdm(corpus, desc="mix", **progress), mean)
    sampled, _ = sample(choices, MAX_CHOICES, seed=0)
    mixes = {
        name: learn_mix(sampled, store.elmo.config.num_layers, frequency=name == WITH_FREQUENCY)
        for name in (MIX, WITH_FREQUENCY)
    }
    metadata = {"choices": len(sampled), "leave_one_out": leave_one_out(sampled, mixes)}
    source = {"model": model_name, "fingerprint": store.elmo.fingerprint()}
    return sums.inventory(centered=center, mixes=mixes, metadata=metadata, **source)


class SenseSums:
    """Sums of the vectors of each sense's uses: memory grows with the senses, not with the text."""

    def __init__(self, store: LayerStore, sentences: Iterable[TaggedSentence]) -> None:
        self.words: dict[Word, dict[str, tuple[int, Array]]] = {}
        """Number of uses of each sense of a word, and the sum of their vectors (L + 1, dim)."""
        self.tokens = TokenMean(store.elmo)
        for layers, instances in embed_tagged(store, sentences):
            self.tokens.add(layers)
            for instance, vector in instances:
                own = self.words.setdefault((instance.lemma, instance.pos), {})
                for key in dict.fromkeys(instance.keys):
                    count, total = own.get(key, (0, np.zeros_like(vector)))
                    own[key] = count + 1, total + vector

    def choices(
        self, store: LayerStore, sentences: Iterable[TaggedSentence], mean: Array
    ) -> Iterator[Choice]:
        """Yield each use of the text that was summed, compared with the senses without it."""
        for instance, vector in (pair for _, own in embed_tagged(store, sentences) for pair in own):
            senses = self.words[instance.lemma, instance.pos]
            counts, sums = (np.array(column) for column in zip(*senses.values(), strict=True))
            correct = np.array([key in instance.keys for key in senses])
            choice = leave_out(sums, counts, correct, vector, mean)
            if choice is not None:
                yield choice

    def inventory(self, **values: Any) -> Inventory:
        """Return the averages by word, each word with its most frequent sense first."""
        words: dict[Word, slice] = {}
        rows: list[tuple[str, int, Array]] = []
        for word, own in sorted(self.words.items()):
            words[word] = slice(len(rows), len(rows) + len(own))
            ranked = sorted(own.items(), key=lambda item: -item[1][0])
            rows += [(key, count, total / np.float32(count)) for key, (count, total) in ranked]
        vectors = np.array([average for _, _, average in rows], np.float32)
        vectors = vectors.reshape(len(rows), *self.tokens.total.shape)
        counts = np.array([count for _, count, _ in rows], np.int64)
        senses = [key for key, _, _ in rows]
        return Inventory(words, senses, counts, vectors, self.tokens.value, **values)


def embed_tagged(
    store: LayerStore, sentences: Iterable[TaggedSentence]
) -> Iterator[tuple[NDArray[np.float16], list[tuple[Instance, Array]]]]:
    """Yield the layers (L + 1, tokens, dim) of each sentence, and its instances with vectors."""
    sentences, texts = tee(sentences)
    stream = store.stream(sentence.tokens for sentence in texts)
    for sentence, layers in zip(sentences, stream, strict=True):
        yield layers, [(i, span_vector(layers, i.start, i.end)) for i in sentence.instances]


def leave_one_out(choices: Sequence[Choice], mixes: dict[str, Mix]) -> dict[str, float]:
    """Return how often each method finds the sense of a use from the other uses."""
    if not choices:
        return {}
    num_layers = choices[0].cosines.shape[0] - 2
    correct = dict.fromkeys([*layer_names(num_layers), *mixes, MOST_FREQUENT], 0.0)
    for choice in choices:
        mixed = [mix.scores(choice.cosines, choice.counts) for mix in mixes.values()]
        senses = map(inventory.nearest, [*choice.cosines, *mixed])
        for name, sense in zip(correct, senses, strict=False):
            correct[name] += bool(choice.correct[sense])
        # Without this use its own sense would be the rarer one of two that are equally frequent.
        counts = choice.counts + choice.correct
        correct[MOST_FREQUENT] += float(choice.correct[counts == counts.max()].mean())
    return {name: count / len(choices) for name, count in correct.items()}


def leave_out(
    sums: Array, counts: NDArray[np.int64], own: NDArray[np.bool_], vector: Array, mean: Array
) -> Choice | None:
    """Compare a use that has its `own` senses with the averages of the other uses of each sense.

    `sums` (senses, L + 1, dim) and `counts` (senses,) include this use. Return None if there is
    nothing to choose: its sense has no other use, or the word no other sense.
    """
    left = counts - own
    order = np.argsort(-left, kind="stable")
    order = order[left[order] > 0]
    if len(order) < 2 or not own[order].any():
        return None
    rest = (sums - own[:, None, None] * vector)[order] / left[order, None, None]
    cosines = inventory.cosines_to(rest.astype(np.float32), vector, mean)
    return Choice(cosines, left[order], own[order])


def learn_mix(choices: Sequence[Choice], num_layers: int, *, frequency: bool) -> Mix:
    """Learn the shares of layers 0..num_layers, a scale and, with `frequency`, its weight."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    if not choices:
        return Mix((1 / (num_layers + 1),) * (num_layers + 1), FIRST_SCALE)
    columns = ((c.cosines[: num_layers + 1].T, c.counts, c.correct) for c in choices)
    # (uses, senses, L + 1), (uses, senses), (uses, senses); padded with 0
    cosines, counts, correct = (
        pad_sequence([torch.from_numpy(array).double() for array in column], batch_first=True)
        for column in zip(*columns, strict=True)
    )
    shares = torch.zeros(num_layers + 1, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor(FIRST_SCALE, dtype=torch.float64).log().requires_grad_()
    weight = torch.zeros((), dtype=torch.float64, requires_grad=frequency)
    learned = [shares, scale, weight] if frequency else [shares, scale]
    optimizer = torch.optim.LBFGS(
        learned, max_iter=MAX_STEPS, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )
    logs = counts.clamp(min=1).log()

    def loss() -> float:
        optimizer.zero_grad()
        mixed = torch.einsum("l,ucl->uc", shares.softmax(0), cosines)  # (uses, senses)
        scores = (scale.exp() * mixed + weight * logs).masked_fill(counts == 0, -torch.inf)
        of_correct = scores.masked_fill(correct == 0, -torch.inf).logsumexp(1)  # (uses,)
        value = (scores.logsumexp(1) - of_correct).mean()
        value.backward()  # type: ignore[no-untyped-call]
        return float(value.detach())

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    if weight < 0:  # If all senses have equally many uses, a use's own one has fewer other uses.
        return learn_mix(choices, num_layers, frequency=False)
    return Mix(tuple(shares.softmax(0).tolist()), scale.exp().item(), weight.item())
