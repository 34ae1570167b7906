"""Linear classifiers on frozen vectors, one for each layer, all trained in the same passes.

    sentences, shuffled ─► layers from the store ─► blocks of tokens, shuffled ─► minibatches
    ─► standardised ─► layers 0..L, average, learned mix, static vectors ─► scores of the labels

All classifiers see the same minibatches. Adam treats every number by itself, so each of them
becomes what it would become alone. Only a block of vectors is in memory at a time.

Shapes: P classifiers, n tokens of a minibatch, D columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from elmokit.analysis.probes.tokens import (
    Score,
    TaggedText,
    guessed_scores,
    label_names,
    label_numbers,
    seen_words,
)
from elmokit.analysis.uses import layer_names
from elmokit.errors import ElmokitError
from elmokit.model.scalar_mix import ScalarMix
from elmokit.store import LayerStore
from elmokit.vectors.static.table import StaticVectors

BLOCK_BYTES = 64 << 20  # of the vectors in memory
EPOCHS, STEPS = 10, 1000  # at least, where no number of epochs is given


@dataclass(frozen=True)
class ProbeResult:
    """How well each layer tells the labels, and what is reached without it."""

    labels: list[str]
    guesses: list[Score]
    """The majority label, each word's majority label."""
    layers: list[Score]
    """Layers 0..L, their average, their learned mix."""
    static: Score | None
    """The same classifier on static vectors."""
    mix: list[float]
    """The share of each layer in the mix."""
    epochs: list[list[float]]
    """Dev accuracy of every classifier after every epoch; the last one is the static one's."""
    train_tokens: int
    dev_tokens: int
    unseen_tokens: int
    """Tokens of the dev text that the training text does not have."""

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a JSON file."""
        return asdict(self)


@dataclass(frozen=True)
class Block:
    """Vectors of some tokens and the numbers of their labels."""

    layers: Tensor
    """Layers 0..L and their average: (L + 2, tokens, D)."""
    static: Tensor
    """(tokens, columns), without columns if there are no static vectors."""
    labels: Tensor
    """(tokens,)"""

    def take(self, which: Tensor) -> Block:
        """Only these tokens."""
        return Block(self.layers[:, which], self.static[which], self.labels[which])


@dataclass(frozen=True)
class Scale:
    """Mean and spread of every column, by which vectors are standardised."""

    layers: tuple[Tensor, Tensor]
    static: tuple[Tensor, Tensor]

    def applied(self, block: Block) -> Block:
        """The block with mean 0 and spread 1, if it is like those that were measured."""
        layers = (block.layers - self.layers[0]) / self.layers[1]
        return Block(layers, (block.static - self.static[0]) / self.static[1], block.labels)


@dataclass(frozen=True)
class Vectors:
    """Where the vectors of a text come from."""

    store: LayerStore
    static: StaticVectors | None = None

    @property
    def block_tokens(self) -> int:
        """Tokens of a block."""
        return max(
            1, BLOCK_BYTES // (4 * (self.store.elmo.config.num_layers + 2) * self.store.elmo.dim)
        )

    def blocks(
        self,
        sentences: Sequence[Sequence[str]],
        labels: Sequence[NDArray[np.int64]],
        order: Iterable[int] | None = None,
    ) -> Iterator[Block]:
        """The tokens of the sentences in that order, in blocks of bounded size."""
        chosen = list(range(len(sentences)) if order is None else order)
        found = self.store.stream(sentences[number] for number in chosen)
        some: list[NDArray[np.float16]] = []
        first = tokens = 0
        for end, layers in enumerate(found, start=1):
            some.append(layers)
            tokens += layers.shape[1]
            if tokens >= self.block_tokens or end == len(chosen):
                numbers = chosen[first:end]
                words = [word for number in numbers for word in sentences[number]]
                yield self._block(some, words, [labels[number] for number in numbers])
                some, first, tokens = [], end, 0

    def _block(
        self,
        layers: Sequence[NDArray[np.float16]],
        words: Sequence[str],
        labels: Sequence[NDArray[np.int64]],
    ) -> Block:
        device = self.store.elmo.device
        whole = torch.from_numpy(np.concatenate(layers, axis=1)).to(device).float()
        return Block(
            torch.cat([whole, whole.mean(dim=0, keepdim=True)]),
            torch.from_numpy(self._static(words)).to(device),
            torch.from_numpy(np.concatenate(labels)).to(device),
        )

    def _static(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Static vectors (words, columns); 0 for those that are not known."""
        if self.static is None:
            return np.zeros((len(words), 0), np.float32)
        rows = self.static.rows(words)
        vectors = np.zeros((len(words), self.static.dim), np.float32)
        vectors[rows >= 0] = self.static.vectors[rows[rows >= 0]]
        return vectors


class Probes(nn.Module):
    """The classifiers; they begin at 0, so nothing but the order of the data is random."""

    def __init__(self, layers: int, dim: int, labels: int, static_dim: int) -> None:
        """For layers 0..`layers` with `dim` columns; none for static vectors of 0 columns."""
        super().__init__()
        self.mix = ScalarMix(layers + 1)
        self.weight = nn.Parameter(torch.zeros(layers + 3, dim, labels))
        self.bias = nn.Parameter(torch.zeros(layers + 3, 1, labels))
        self.static = nn.Linear(static_dim, labels) if static_dim else None
        if self.static is not None:
            nn.init.zeros_(self.static.weight)
            nn.init.zeros_(self.static.bias)

    def forward(self, block: Block) -> Tensor:
        """The scores of the labels: (P, n, labels)."""
        mixed = self.mix(block.layers[:-1])  # (n, D)
        vectors = torch.cat([block.layers, mixed[None]])  # (L + 3, n, D)
        scores = torch.baddbmm(self.bias, vectors, self.weight)
        if self.static is None:
            return scores
        return torch.cat([scores, self.static(block.static)[None]])

    def loss(self, block: Block) -> Tensor:
        """The sum of all classifiers' cross entropies."""
        scores = self(block)  # (P, n, labels)
        gold = block.labels.repeat(len(scores))
        return functional.cross_entropy(scores.flatten(0, 1), gold) * len(scores)


def run_probes(
    store: LayerStore,
    train: TaggedText,
    dev: TaggedText,
    *,
    static: StaticVectors | None = None,
    epochs: int | None = None,
    batch_size: int = 64,
    lr: float = 0.005,
    seed: int = 1,
    quiet: bool = True,
) -> ProbeResult:
    """Train a linear classifier on each layer and measure them all on the dev text.

    Args:
        store: the model with its kept layers.
        train: tokens to learn from.
        dev: tokens to measure by; of each classifier the best epoch counts.
        static: word vectors for one more classifier.
        epochs: times that the training tokens are read; if not given 10, or more for a small
            text, so that there are 1,000 steps.
        batch_size: tokens of a step.
        lr: learning rate of Adam; it falls in a straight line to 0.
        seed: of the order of the tokens.
        quiet: no progress.
    """
    names = label_names(train)
    if epochs is None:
        epochs = max(EPOCHS, math.ceil(STEPS / math.ceil(train.tokens / max(batch_size, 1))))
    if epochs < 1 or batch_size < 1 or not lr > 0:
        raise ElmokitError("epochs and batch_size must be at least 1, and lr above 0")
    store.prepare([*train.sentences, *dev.sentences], quiet=quiet)
    vectors, top = Vectors(store, static), store.elmo.config.num_layers
    numbers, dev_numbers = label_numbers(train, names), label_numbers(dev, names)
    scale = measured(vectors.blocks(train.sentences, numbers))
    columns = 0 if static is None else static.dim
    probes = Probes(top, store.elmo.dim, len(names), columns).to(store.elmo.device)
    optimizer = torch.optim.Adam(probes.parameters(), lr=lr)
    rng = np.random.default_rng(seed)
    best = Best()
    total, seen = epochs * train.tokens, 0
    with tqdm(total=total, unit=" tokens", unit_scale=True, desc="probes", disable=quiet) as bar:
        for _ in range(epochs):
            for batch in minibatches(vectors, train.sentences, numbers, batch_size, rng):
                optimizer.param_groups[0]["lr"] = lr * (1 - seen / total)
                optimizer.zero_grad()
                probes.loss(scale.applied(batch)).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                seen += len(batch.labels)
                bar.update(len(batch.labels))
            best.note(
                probes, right_answers(probes, scale, vectors.blocks(dev.sentences, dev_numbers))
            )
            bar.set_postfix_str(f"dev {100 * max(best.accuracies[-1]):.2f}", refresh=False)
    known = seen_words(train, dev)
    titles = [*layer_names(top), "mix"]
    return ProbeResult(
        labels=names,
        guesses=guessed_scores(train, dev),
        layers=[
            Score.of(title, row, known) for title, row in zip(titles, best.right, strict=False)
        ],
        static=Score.of("static vectors", best.right[-1], known) if columns else None,
        mix=best.shares,
        epochs=best.accuracies,
        train_tokens=train.tokens,
        dev_tokens=dev.tokens,
        unseen_tokens=int((~known).sum()),
    )


class Best:
    """What each classifier gets on the dev text in its best epoch."""

    def __init__(self) -> None:
        """Before the first epoch."""
        self.accuracies: list[list[float]] = []
        self.right: NDArray[np.bool_] = np.zeros((0, 0), bool)
        self.shares: list[float] = []

    def note(self, probes: Probes, right: NDArray[np.bool_]) -> None:
        """Keep what is better than before; `right` has a row a classifier: (P, tokens)."""
        if not self.accuracies:
            self.right = np.zeros_like(right)
        better = right.mean(axis=1) > self.right.mean(axis=1)
        self.right[better] = right[better]
        if better[len(probes.weight) - 1] or not self.accuracies:
            self.shares = probes.mix.proportions().tolist()
        self.accuracies.append(right.mean(axis=1).tolist())


def measured(blocks: Iterable[Block]) -> Scale:
    """Mean and spread of every column over all tokens; a spread of 0 counts as 1."""
    count, sums = 0, None
    for block in blocks:
        parts = [block.layers.double(), block.static.double()]
        more = [part.sum(dim=-2, keepdim=True) for part in parts]
        more += [part.square().sum(dim=-2, keepdim=True) for part in parts]
        sums = more if sums is None else [a + b for a, b in zip(sums, more, strict=True)]
        count += len(block.labels)
    assert sums is not None
    means = [total / count for total in sums]
    pairs = []
    for mean, square in zip(means[:2], means[2:], strict=True):
        spread = (square - mean.square()).clamp_min(0).sqrt()
        pairs.append((mean.float(), torch.where(spread > 1e-6, spread, 1.0).float()))
    return Scale(*pairs)


def minibatches(
    vectors: Vectors,
    sentences: Sequence[Sequence[str]],
    labels: Sequence[NDArray[np.int64]],
    size: int,
    rng: np.random.Generator,
) -> Iterator[Block]:
    """All tokens once: the sentences are shuffled, then the tokens inside each block of them."""
    for block in vectors.blocks(sentences, labels, rng.permutation(len(sentences)).tolist()):
        shuffled = torch.from_numpy(rng.permutation(len(block.labels)))
        for which in torch.split(shuffled.to(block.labels.device), size):
            yield block.take(which)


@torch.no_grad()
def right_answers(probes: Probes, scale: Scale, blocks: Iterable[Block]) -> NDArray[np.bool_]:
    """Whether each classifier has each token right: (P, tokens)."""
    found = [
        (probes(scaled).argmax(dim=2) == scaled.labels).cpu().numpy()
        for scaled in map(scale.applied, blocks)
    ]
    return np.concatenate(found, axis=1)
