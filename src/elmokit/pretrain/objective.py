"""One window through the biLM: the loss of both language models, the third step of pretraining.

Distinct words go through the token encoder once, both LSTM stacks run over the window from the
state that the window before left, and the shared softmax scores the targets of both.
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
from elmokit.model.lstm import LayerState, LSTMLayer
from elmokit.model.softmax import Sample, Softmax
from elmokit.pretrain.corpus import Types
from elmokit.pretrain.windows import NOTHING, Window
from elmokit.text.indexers import Indexer


@dataclass(frozen=True)
class Batch:
    """A window as the model takes it."""

    features: Tensor
    """Ids of the distinct words, short words first: (words, columns)."""
    index: Tensor
    """Rows of `features`, forward then backward: (2, steps, rows)."""
    targets: Tensor
    """Words of the softmax, -1 for none: (2, steps * rows)."""


class Batcher:
    """Turns windows of type ids into batches for one model's words."""

    def __init__(
        self, types: Types, targets: NDArray[np.int32], indexer: Indexer, device: torch.device
    ) -> None:
        """`targets` gives the word of the softmax for each type: (types,)."""
        self.types, self.indexer, self.device = types, indexer, device
        self.targets = np.append(targets, np.int32(-1))  # a type of -1 is no target

    def batch(self, window: Window) -> Batch:
        """Look up the words of a window."""
        words = self.types.words(window.types)
        order = np.argsort(np.fromiter(map(len, words), np.int64, len(words)), kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        features = self.indexer.encode([words[number] for number in order.tolist()])
        targets = self.targets[window.targets].astype(np.int64).reshape(2, -1)
        tensors = (torch.from_numpy(a) for a in (features, places[window.index], targets))
        return Batch(*(tensor.to(self.device) for tensor in tensors))


def targets_of_vocabulary(types: Types, ids: dict[str, int], unknown: int) -> NDArray[np.int32]:
    """The word of the softmax for each type of a corpus: (types,)."""
    result = np.empty(len(types), np.int32)
    for start in range(0, len(types), 1 << 16):
        place = np.arange(start, min(start + (1 << 16), len(types)))
        result[place] = [ids.get(word, unknown) for word in types.words(place)]
    return result


@dataclass(frozen=True)
class Dropout:
    """Draws the masks of one step for some rows of a batch.

    They are drawn for the whole batch, so that its rows drop the same values however they are
    shared by processes and parts of a step.
    """

    rate: float
    random: torch.Generator | np.random.BitGenerator
    """NumPy's on a CPU, where 16 of its bits for each value are ten times as fast."""
    batch_size: int
    rows: slice

    def mask(self, steps: int, like: Tensor) -> Tensor:
        """What to multiply values (2, steps * rows, size) with, already scaled."""
        shape = (2, steps, self.batch_size, like.shape[-1])
        if isinstance(self.random, torch.Generator):
            drawn = torch.rand(shape, generator=self.random, device=like.device)[:, :, self.rows]
            keep = drawn.ge_(self.rate)
        else:
            count = math.prod(shape)
            bits = self.random.random_raw(-(-count // 4)).view(np.int16)[:count]
            drawn = torch.from_numpy(bits).view(shape)[:, :, self.rows].to(torch.float32)
            keep = drawn.ge_((self.rate - 0.5) * (1 << 16))
        return keep.div_(1 - self.rate).flatten(1, 2).to(like.dtype)  # 0 or a factor


def top_outputs(
    model: BiLM,
    batch: Batch,
    state: BiLMState,
    dropout: Dropout | None = None,
    precision: torch.dtype | None = None,
) -> tuple[Tensor, BiLMState]:
    """The top layer of both directions and the state after the window, cut from the gradient.

    Args:
        model: the biLM.
        batch: a window.
        state: what the window before left.
        dropout: draws the masks; None for none.
        precision: of matrix products, if it is not that of the weights.

    Returns:
        Outputs (2, steps * rows, projection_dim) in the order of the targets, and the state.
    """
    lower = torch.autocast(batch.features.device.type, precision, enabled=precision is not None)
    with lower:
        encoded = model.token_encoder(batch.features)
    vectors = encoded.to(state.forward[0][0].dtype)  # (words, projection_dim)
    steps = batch.index.shape[1]
    inputs = functional.embedding(batch.index.flatten(1), vectors)  # (2, steps * rows, size)
    ways = tuple(
        [cast(LSTMLayer, layer) for layer in way]
        for way in (model.forward_layers, model.backward_layers)
    )
    top, ends = run_both_stacks(
        (ways[0], ways[1]),
        inputs,
        _joined(state),
        skip=model.config.skip_connections,
        masks=[dropout.mask(steps, inputs) for _ in ways[0]] if dropout else None,
        precision=precision,
    )
    return top * dropout.mask(steps, top) if dropout else top, _apart(ends)


def _joined(state: BiLMState) -> list[LayerState]:
    """(h, c) of each layer, of both directions: (2, rows, size) and (2, rows, cells)."""
    return [
        (torch.stack([one[0], other[0]]), torch.stack([one[1], other[1]]))
        for one, other in zip(state.forward, state.backward, strict=True)
    ]


def _apart(states: list[LayerState]) -> BiLMState:
    return BiLMState(*([(h[way], c[way]) for h, c in states] for way in range(2)))


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
    """The summed negative log likelihood of both directions, and the state after the window.

    If the biLM is `frozen`, only the softmax has a gradient. `precision` is that of matrix
    products, if it is not that of the weights.
    """
    with torch.set_grad_enabled(not frozen):
        top, after = top_outputs(model, batch, state, dropout, precision)
    softmax = softmax_of(model)
    flat, targets = top.flatten(0, 1), batch.targets.flatten()
    if sample is None:
        return softmax.loss(flat, targets, precision), after
    return softmax.sampled_loss(flat, targets, sample, precision), after


@torch.no_grad()
def window_losses(model: BiLM, batch: Batch, state: BiLMState) -> tuple[Tensor, BiLMState]:
    """Each target's negative log likelihood by the full softmax, 0 where there is none.

    Returns them in the order of the targets, (2, steps * rows), and the state after the window.
    """
    top, after = top_outputs(model, batch, state)
    losses = softmax_of(model).losses(top.flatten(0, 1), batch.targets.flatten())
    return losses.view(2, -1), after


def softmax_of(model: BiLM) -> Softmax:
    """The softmax, which a model may lack."""
    if model.softmax is None:
        raise ElmokitError(
            "this model has no softmax (published weights come without): it cannot predict words"
        )
    return model.softmax


assert NOTHING == -1  # the last entry of Batcher.targets
