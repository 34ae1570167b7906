"""Train linear classifiers on frozen vectors, one for each layer, all in the same passes.

Adam updates every number independently, so each of them is the same as if it were trained alone.
Shapes: P classifiers, n tokens of a minibatch, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from tqdm.auto import tqdm

from elmokit.analysis.probes.tokens import Score, TaggedText, label_names, score_guesses, seen_words
from elmokit.analysis.uses import as_store
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.layers import layer_names
from elmokit.model.scalar_mix import ScalarMix
from elmokit.store import LayerStore
from elmokit.vectors.static.table import StaticVectors

BLOCK_BYTES = 64 << 20  # of the vectors in memory
MIN_EPOCHS, MIN_STEPS = 10, 1000  # if no number of epochs is given

Scale = list[tuple[Tensor, Tensor]]  # mean and deviation of dimensions: of layers, of static


@dataclass(frozen=True)
class ProbeResult:
    """How well a linear classifier predicts the labels from each layer, and from no layer."""

    labels: list[str]
    guesses: list[Score]
    """Scores of the majority label and of each word's majority label."""
    layers: list[Score]
    """Scores of layers 0..L, their average, and their learned mix."""
    static: Score | None
    """Score of the same classifier on static vectors."""
    mix: list[float]
    """The share of each layer in the mix."""
    epochs: list[list[float]]
    """Dev accuracy of every classifier after every epoch; that on static vectors comes last."""
    train_tokens: int
    dev_tokens: int
    unseen_tokens: int
    """Number of dev tokens that the training text does not have."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Block:
    """Vectors of some tokens and the ids of their labels."""

    layers: Tensor  # 0..L and their average: (L + 2, tokens, D)
    static: Tensor  # 0 for unknown words, and dim 0 without static vectors: (tokens, static dim)
    labels: Tensor  # (tokens,)

    def standardized(self, scale: Scale) -> Block:
        parts = zip((self.layers, self.static), scale, strict=True)
        layers, static = ((part - mean) / deviation for part, (mean, deviation) in parts)
        return Block(layers, static, self.labels)


def read_blocks(
    store: LayerStore,
    static: StaticVectors | None,
    names: Sequence[str],
    text: TaggedText,
    order: Sequence[int] | None = None,
) -> Iterator[Block]:
    """Yield the tokens of a text, its sentences in that order, in blocks of bounded size."""
    elmo, sentences = store.elmo, text.sentences
    indices = {name: i for i, name in enumerate(names)}
    max_tokens = BLOCK_BYTES // (4 * (elmo.config.num_layers + 2) * elmo.dim)
    order = range(len(sentences)) if order is None else order
    parts: list[NDArray[np.float16]] = []
    first = tokens = 0
    for end, layers in enumerate(store.stream(sentences[i] for i in order), start=1):
        parts.append(layers)
        tokens += layers.shape[1]
        if tokens >= max_tokens or end == len(order):
            members = order[first:end]
            words = [word for i in members for word in sentences[i]]
            vectors = np.zeros((len(words), 0 if static is None else static.dim), np.float32)
            if static is not None:
                rows = static.rows(words)
                vectors[rows >= 0] = static.vectors[rows[rows >= 0]]
            labels = [indices.get(label, -1) for i in members for label in text.labels[i]]
            arrays = np.concatenate(parts, axis=1), vectors, np.array(labels, np.int64)
            own, of_words, ids = (torch.from_numpy(array).to(elmo.device) for array in arrays)
            own = own.float()  # (L + 1, n, D)
            yield Block(torch.cat([own, own.mean(dim=0, keepdim=True)]), of_words, ids)
            parts, first, tokens = [], end, 0


class Probes(nn.Module):
    """The classifiers; they start at 0, so nothing but the order of the data is random."""

    def __init__(self, num_layers: int, dim: int, labels: int, static_dim: int) -> None:
        super().__init__()
        self.mix = ScalarMix(num_layers + 1)
        self.weight = nn.Parameter(torch.zeros(num_layers + 3, dim, labels))
        self.bias = nn.Parameter(torch.zeros(num_layers + 3, 1, labels))
        self.static = nn.Linear(static_dim, labels) if static_dim else None
        for parameter in self.static.parameters() if self.static is not None else ():
            nn.init.zeros_(parameter)

    def forward(self, block: Block) -> Tensor:
        """Return the scores of the labels: (P, n, labels)."""
        mixed = self.mix(block.layers[:-1])  # (n, D)
        vectors = torch.cat([block.layers, mixed[None]])  # (L + 3, n, D)
        scores = torch.baddbmm(self.bias, vectors, self.weight)  # (L + 3, n, labels)
        if self.static is None:
            return scores
        return torch.cat([scores, self.static(block.static)[None]])

    def loss(self, block: Block) -> Tensor:
        scores = self(block)  # (P, n, labels)
        gold = block.labels.repeat(len(scores))
        return functional.cross_entropy(scores.flatten(0, 1), gold) * len(scores)


def probe_layers(
    model: Embedder | LayerStore,
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
        model: The model; a LayerStore keeps its layers on disk.
        train: Tokens to learn from (see `read_tagged_text`).
        dev: Tokens to measure on; the best epoch of each classifier counts.
        static: Word vectors for one more classifier.
        epochs: Number of epochs (default: 10, or as many as give 1,000 steps).
        batch_size: Number of tokens per step.
        lr: Learning rate of Adam; it decays linearly to 0.
        seed: Seed of the order of the tokens.
        quiet: Do not show progress.
    """
    names = label_names(train)
    if epochs is None:
        steps = math.ceil(train.num_tokens / max(batch_size, 1))
        epochs = max(MIN_EPOCHS, math.ceil(MIN_STEPS / steps))
    if epochs < 1 or batch_size < 1 or not lr > 0:
        raise ElmokitError("epochs and batch_size must be at least 1, and lr above 0")
    store = as_store(model)
    store.prepare([*train.sentences, *dev.sentences], quiet=quiet)
    num_layers = store.elmo.config.num_layers
    blocks = partial(read_blocks, store, static, names)
    scale = measure_scale(blocks(train))
    static_dim = 0 if static is None else static.dim
    probes = Probes(num_layers, store.elmo.dim, len(names), static_dim).to(store.elmo.device)
    optimizer = torch.optim.Adam(probes.parameters(), lr=lr)
    rng = np.random.default_rng(seed)
    accuracies: list[list[float]] = []
    shares: list[float] = []
    correct = np.zeros((num_layers + 3 + bool(static_dim), dev.num_tokens), bool)  # (P, tokens)
    total, seen = epochs * train.num_tokens, 0
    with tqdm(total=total, unit=" tokens", unit_scale=True, desc="probes", disable=quiet) as bar:
        for _ in range(epochs):
            for batch in minibatches(partial(blocks, train), len(train.sentences), batch_size, rng):
                optimizer.param_groups[0]["lr"] = lr * (1 - seen / total)
                optimizer.zero_grad()
                probes.loss(batch.standardized(scale)).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                seen += len(batch.labels)
                bar.update(len(batch.labels))
            answers = evaluate(probes, scale, blocks(dev))  # (P, tokens)
            better = answers.mean(axis=1) > correct.mean(axis=1)
            correct[better] = answers[better]
            if better[num_layers + 2] or not accuracies:
                shares = probes.mix.proportions().tolist()
            accuracies.append(answers.mean(axis=1).tolist())
            bar.set_postfix_str(f"dev {100 * max(accuracies[-1]):.2f}", refresh=False)
    known = seen_words(train, dev)  # (tokens,)
    titles = [*layer_names(num_layers), "mix", *(["static vectors"] if static_dim else [])]
    scores = [Score.of(*row, known) for row in zip(titles, correct, strict=True)]
    return ProbeResult(
        labels=names,
        guesses=score_guesses(train, dev),
        layers=scores[: num_layers + 3],
        static=scores[-1] if static_dim else None,
        mix=shares,
        epochs=accuracies,
        train_tokens=train.num_tokens,
        dev_tokens=dev.num_tokens,
        unseen_tokens=int((~known).sum()),
    )


def measure_scale(blocks: Iterable[Block]) -> Scale:
    """Measure the mean and standard deviation of every dimension; a deviation of 0 counts as 1."""
    count = 0
    sums = [torch.zeros(())] * 2  # layers and static vectors: values and squares (2, …, 1, D)
    for block in blocks:
        for i, part in enumerate((block.layers.double(), block.static.double())):
            both = [values.sum(dim=-2, keepdim=True) for values in (part, part.square())]
            sums[i] = sums[i] + torch.stack(both)
        count += len(block.labels)
    pairs = []
    for mean, square in (total / count for total in sums):
        deviation = (square - mean.square()).clamp_min(0).sqrt()
        pairs.append((mean.float(), torch.where(deviation > 1e-6, deviation, 1.0).float()))
    return pairs


def minibatches(
    read: Callable[[Sequence[int]], Iterable[Block]],
    count: int,
    size: int,
    rng: np.random.Generator,
) -> Iterator[Block]:
    """Yield all tokens once: shuffle the sentences, then the tokens inside each block of them."""
    for block in read(rng.permutation(count).tolist()):
        shuffled = torch.from_numpy(rng.permutation(len(block.labels)))
        for which in torch.split(shuffled.to(block.labels.device), size):
            yield Block(block.layers[:, which], block.static[which], block.labels[which])


@torch.no_grad()
def evaluate(probes: Probes, scale: Scale, blocks: Iterable[Block]) -> NDArray[np.bool_]:
    """Tell which tokens each classifier labels correctly: (P, tokens)."""
    correct = [
        (probes(scaled).argmax(dim=2) == scaled.labels).cpu().numpy()
        for scaled in (block.standardized(scale) for block in blocks)
    ]
    return np.concatenate(correct, axis=1)
