"""The loss of both language models on one window: the third step of pretraining.

The token encoder reads each distinct word once, both LSTM stacks run over the window from the state
after the window before, and the shared softmax scores the targets of both directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from elmokit.errors import ElmokitError
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.fast.lstm_gradient import run_both_stacks
from elmokit.model.lstm import LSTMLayer
from elmokit.model.softmax import Sample, Softmax
from elmokit.pretrain.corpus import Types
from elmokit.pretrain.windows import NOTHING, Window
from elmokit.text.indexers import Indexer


@dataclass(frozen=True)
class Batch:
    """A window as tensors for the model."""

    features: Tensor  # ids of the distinct words, short words first: (words, columns)
    index: Tensor  # rows of `features`, forward then backward: (2, steps, rows)
    targets: Tensor  # word ids of the softmax, -1 for no target: (2, steps * rows)


class Batcher:
    """Turns windows of type ids into batches for the vocabulary of a model."""

    def __init__(
        self, types: Types, targets: NDArray[np.int32], indexer: Indexer, device: torch.device
    ) -> None:
        """Create a batcher; `targets` has the word id of the softmax for each type: (types,)."""
        self.types, self.indexer, self.device = types, indexer, device
        self.targets = np.append(targets, np.int32(-1))  # Index -1 (NOTHING) is no target.

    def batch(self, window: Window) -> Batch:
        words = self.types.words(window.types)
        order = np.argsort(np.fromiter(map(len, words), np.int64, len(words)), kind="stable")
        ranks = np.argsort(order)  # Row of `features` for each word: (words,).
        features = self.indexer.encode([words[index] for index in order.tolist()])
        targets = self.targets[window.targets].astype(np.int64).reshape(2, -1)
        tensors = (torch.from_numpy(a) for a in (features, ranks[window.index], targets))
        return Batch(*(tensor.to(self.device) for tensor in tensors))


@dataclass(frozen=True)
class Dropout:
    """Draws the dropout masks of one step for rows of a batch.

    A row drops the same values however the batch is split: they are drawn for all of it.
    """

    rate: float
    random: torch.Generator | np.random.BitGenerator
    """NumPy's generator on a CPU, where 16 random bits per value are ten times as fast."""
    batch_size: int
    rows: slice

    def mask(self, steps: int, like: Tensor) -> Tensor:
        """Return a scaled mask to multiply values (2, steps * rows, size) with."""
        shape = (2, steps, self.batch_size, like.shape[-1])
        if isinstance(self.random, torch.Generator):
            drawn = torch.rand(shape, generator=self.random, device=like.device)[:, :, self.rows]
            keep = drawn.ge_(self.rate)
        else:
            count = math.prod(shape)
            bits = self.random.random_raw(-(-count // 4)).view(np.int16)[:count]
            drawn = torch.from_numpy(bits).view(shape)[:, :, self.rows].to(torch.float32)
            keep = drawn.ge_((self.rate - 0.5) * (1 << 16))
        return keep.div_(1 - self.rate).flatten(1, 2).to(like.dtype)  # 0 or 1 / (1 - rate)


def top_outputs(
    model: BiLM,
    batch: Batch,
    state: BiLMState,
    dropout: Dropout | None = None,
    precision: torch.dtype | None = None,
) -> tuple[Tensor, BiLMState]:
    """Run both LSTM stacks over a window, from the states after the window before.

    Return the outputs of the top layer (2, steps * rows, projection_dim) in the order of the
    targets, and the states after the window, detached. `precision` is that of matrix products.
    """
    with torch.autocast(batch.features.device.type, precision, enabled=precision is not None):
        encoded = model.token_encoder(batch.features)
    vectors = encoded.to(state.forward[0][0].dtype)  # (words, projection_dim)
    steps = batch.index.shape[1]
    inputs = functional.embedding(batch.index.flatten(1), vectors)  # (2, steps * rows, size)
    stacks = (model.forward_layers, model.backward_layers)
    forward, backward = ([cast(LSTMLayer, layer) for layer in stack] for stack in stacks)
    before = [  # h and c of each layer in both directions: (2, rows, size) and (2, rows, cells)
        (torch.stack([one[0], other[0]]), torch.stack([one[1], other[1]]))
        for one, other in zip(state.forward, state.backward, strict=True)
    ]
    top, ends = run_both_stacks(
        model.config,
        (forward, backward),
        inputs,
        before,
        masks=[dropout.mask(steps, inputs) for _ in forward] if dropout else None,
        precision=precision,
    )
    after = BiLMState(*([(h[i], c[i]) for h, c in ends] for i in range(2)))
    return top * dropout.mask(steps, top) if dropout else top, after


def window_loss(
    model: BiLM,
    batch: Batch,
    state: BiLMState,
    *,
    dropout: Dropout | None = None,
    sample: Sample | None = None,
    frozen: bool = False,
    precision: torch.dtype | None = None,
) -> tuple[Tensor, BiLMState]:
    """Return the summed negative log likelihood of both directions, and the state after the window.

    `sample` has the words of a sampled softmax, None for the full one. If `frozen`, compute a
    gradient for the softmax only. See `top_outputs` for the others.
    """
    with torch.set_grad_enabled(not frozen):
        top, after = top_outputs(model, batch, state, dropout, precision)
    softmax = softmax_of(model)
    flat, targets = top.flatten(0, 1), batch.targets.flatten()
    if sample is None:
        return softmax.loss(flat, targets, precision), after
    return softmax.sampled_loss(flat, targets, sample, precision), after


def softmax_of(model: BiLM) -> Softmax:
    """Return the softmax of a model; raise if it has none."""
    if model.softmax is None:
        raise ElmokitError(
            "this model has no softmax (most published weights have none): it cannot predict words"
        )
    return model.softmax


assert NOTHING == -1  # The last entry of Batcher.targets.
