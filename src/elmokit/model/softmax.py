"""The softmax over the vocabulary, shared by both directions, and its losses.

The full loss of a prediction with output vector x and target word t is

    loss = -s_t + log sum over all words k of exp(s_k),       s_k = w_k x + b_k

For a large vocabulary a prediction chooses among fewer words: its target and a sample S. Each word
is in the sample with a known probability q_k, by which its logit is shifted, s'_k = s_k - log q_k,
that of the target too, as in TensorFlow's sampled softmax:

    loss = -s'_t + log( exp(s'_t) + sum over k in S, k != t, of exp(s'_k) )

It is the loss of another question: which of these words is the target? All but the target had to be
drawn, so by Bayes' rule k is the target with a probability proportional to p(k | x) / q_k, as
exp(s'_k) is: up to a constant, (nearly) the same logits minimize both losses. It does not estimate
the full loss: the target takes part whether it is drawn or not.

One sample serves all predictions of a step, in both directions (bilm-tf draws one for each):

                          target          sampled words S, the same for every row
                        ┌─────────┐   ┌─────────────────────────────────────────┐
    forward,  row 1     │  river  │   │  the    of    a    bank    …    quartz  │
    forward,  row 2     │   the   │   │   –     of    a    bank    …    quartz  │
    backward, row 1     │   old   │   │  the    of    a    bank    …    quartz  │
    …                   └─────────┘   └─────────────────────────────────────────┘
                         x · w_t       one product, (rows, size) by (size, samples)

A sampled word that is the row's own target (–) is left out of that row's sum. A target of -1 means
no target and costs nothing. `kernels/softmax_loss.py` computes both losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.model.kernels.softmax_loss import FullLoss, SampledLoss, chunks

# "auto" samples from this vocabulary size on. A step of the tiny model (batch 128, two cores) takes
# 0.6 s with 8,192 samples; with the full softmax 0.6 s over 10,000 words, 1.2 s over 30,000.
SAMPLED_FROM = 20_000


class Softmax(nn.Module):
    """Linear layer from one direction's output to a logit for each word."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, size))
        self.bias = nn.Parameter(torch.zeros(words))
        if not self.weight.is_meta:  # On the meta device normal_ would import torch's compiler.
            nn.init.normal_(self.weight, 0.0, size**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, words) of outputs (n, projection_dim)."""
        return functional.linear(x, self.weight, self.bias)

    def loss(self, x: Tensor, targets: Tensor, precision: torch.dtype | None = None) -> Tensor:
        """Return the summed negative log likelihood of targets (n,) after outputs (n, size)."""
        return FullLoss.apply(x, self.weight, self.bias, targets, precision)  # type: ignore[no-any-return, no-untyped-call]

    @torch.no_grad()
    def losses(self, x: Tensor, targets: Tensor) -> Tensor:
        """Return the negative log likelihood of each target, without gradients: (n,)."""
        result = x.new_zeros(len(x))
        for rows in chunks(len(x), len(self.weight)):
            logits = self(x[rows])  # (rows, words)
            target_logits = logits.gather(1, targets[rows].clamp_min(0)[:, None])[:, 0]
            result[rows] = torch.logsumexp(logits, 1).sub_(target_logits).mul_(targets[rows] >= 0)
        return result

    def sampled_loss(
        self, x: Tensor, targets: Tensor, sample: Sample, precision: torch.dtype | None = None
    ) -> Tensor:
        """Return the summed loss of choosing each target among itself and a sample of words."""
        ids, log_expected = sample.ids.to(x.device), sample.log_expected.to(x.device)
        return SampledLoss.apply(  # type: ignore[no-any-return, no-untyped-call]
            x, self.weight, self.bias, targets, ids, log_expected, precision
        )


def choose_softmax(
    kind: Literal["auto", "full", "sampled"], words: int, samples: int
) -> Literal["full", "sampled"]:
    """Return what `kind` means for a vocabulary of so many words."""
    if kind != "auto":
        return kind
    return "sampled" if words >= SAMPLED_FROM and samples < words else "full"


@dataclass(frozen=True)
class Sample:
    """Distinct words drawn log-uniformly, frequent ones (low ids) more often."""

    ids: Tensor
    """Words of the sample, rising: (samples,)."""
    log_expected: Tensor
    """log q_k for each word k of the vocabulary: (words,)."""

    @classmethod
    def draw(cls, words: int, samples: int, random: np.random.Generator) -> Sample:
        """Draw about `samples` distinct words, or take all if there are no more.

        Fixed is the number of draws, not that of distinct words, so that each q_k is exact.
        """
        draws, log_expected = expected_counts(words, samples)
        if samples >= words:
            return cls(torch.arange(words), log_expected)
        # (words + 1)^u - 1 for u uniform in [0, 1) is log-uniform over 0 … words.
        drawn = np.exp(random.random(draws) * np.log(words + 1)).astype(np.int64) - 1
        is_drawn = np.zeros(words, bool)
        is_drawn[np.minimum(drawn, words - 1)] = True
        return cls(torch.from_numpy(np.flatnonzero(is_drawn)), log_expected)


@cache
def expected_counts(words: int, samples: int) -> tuple[int, Tensor]:
    """Return how many draws D give `samples` distinct words on average, and log q_k: (words,).

    A draw is the word k with probability p_k = log((k + 2) / (k + 1)) / log(words + 1), and D draws
    include it with probability q_k = 1 - (1 - p_k)^D. D is found by bisection on the sum of q_k.
    """
    if samples >= words:
        return 0, torch.zeros(words)
    log_absent = np.log1p(-np.log1p(1 / np.arange(1.0, words + 1)) / np.log(words + 1))  # log(1-p)
    low, high = 1, 2
    while -np.expm1(high * log_absent).sum() < samples:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        enough = -np.expm1(middle * log_absent).sum() >= samples
        low, high = (low, middle) if enough else (middle, high)
    return high, torch.from_numpy(np.log(-np.expm1(high * log_absent)).astype(np.float32))
