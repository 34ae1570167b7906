"""How well a biLM predicts a text: perplexity of both directions by the full softmax.

The text is one stream cut into a few stretches that run side by side, the LSTM state carried from
sentence to sentence as in training; only the start of each stretch lacks what came before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from elmokit.model.bilm import BiLM, BiLMState
from elmokit.pretrain.corpus import Sentences
from elmokit.pretrain.objective import Batcher, window_losses
from elmokit.pretrain.windows import Windows

ROWS, UNROLL = 32, 50


@dataclass(frozen=True)
class Perplexity:
    """Of both directions, each sentence's end counted as a word."""

    forward: float
    backward: float
    tokens: int
    """Predictions in one direction: words and sentence ends."""

    @property
    def average(self) -> float:
        """exp of the mean negative log likelihood of both directions."""
        return math.sqrt(self.forward * self.backward)

    def to_dict(self) -> dict[str, float]:
        """For logs and facts."""
        return {
            "forward": round(self.forward, 4),
            "backward": round(self.backward, 4),
            "average": round(self.average, 4),
        }


def perplexity(
    model: BiLM, sentences: Sentences, batcher: Batcher, *, rows: int = ROWS, unroll: int = UNROLL
) -> Perplexity:
    """Measure the perplexity of encoded sentences, read in `rows` stretches."""
    pairs = int(sentences.offsets[-1]) + len(sentences)
    windows = Windows(sentences, rows=max(1, min(rows, pairs // unroll)), unroll=unroll)
    training = model.training
    model.eval()
    device = next(model.parameters()).device
    state = BiLMState.zeros(model.config, windows.rows, device)
    sums = np.zeros(2)
    for step in range(windows.steps):
        batch = batcher.batch(windows.window(0, step))
        losses, state = window_losses(model, batch, state)
        sums += losses.sum(1, dtype=torch.float64).cpu().numpy()
    model.train(training)
    forward, backward = (_exp(total / windows.pairs) for total in sums)
    return Perplexity(forward, backward, windows.pairs)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
