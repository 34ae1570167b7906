"""The softmax over the vocabulary, shared by both directions, and its losses.

The losses never hold all logits: rows go through in chunks, and a chunk's gradients are computed
with its loss. A target of -1 is no target and costs nothing. Products may be made in bfloat16;
logits, their exponentials and all sums are float32 all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmokit.model.fast.linear import mixed_addmm_, mixed_mm, to_precision

CHUNK_LOGITS = 4 << 20  # logits in memory at a time
# From so many words on, auto samples. A step of the tiny model (batch 128, two cores) takes 0.6 s
# with 8,192 samples, whatever the vocabulary; with the full softmax 0.6 s over 10,000 words, 1.2 s
# over 30,000, 1.9 s over 50,000.
SAMPLED_FROM = 20_000


class Softmax(nn.Module):
    """A linear layer from one direction's output to a logit for each word."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, size))
        self.bias = nn.Parameter(torch.zeros(words))
        if not self.weight.is_meta:  # there normal_ would import torch's compiler
            nn.init.normal_(self.weight, 0.0, size**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, projection_dim) to logits (n, words)."""
        return functional.linear(x, self.weight, self.bias)

    def loss(self, x: Tensor, targets: Tensor, precision: torch.dtype | None = None) -> Tensor:
        """The sum of the negative log likelihoods of targets (n,) after outputs (n, size).

        `precision` is that of matrix products, if it is not that of the weights.
        """
        return _FullLoss.apply(x, self.weight, self.bias, targets, precision)  # type: ignore[no-any-return, no-untyped-call]

    @torch.no_grad()
    def losses(self, x: Tensor, targets: Tensor) -> Tensor:
        """The negative log likelihood of each target, without gradients: (n,)."""
        result = x.new_zeros(len(x))
        for rows in _chunks(len(x), len(self.weight)):
            logits = self(x[rows])
            picked = logits.gather(1, targets[rows].clamp_min(0)[:, None])[:, 0]
            result[rows] = torch.logsumexp(logits, 1).sub_(picked).mul_(targets[rows] >= 0)
        return result

    def sampled_loss(
        self, x: Tensor, targets: Tensor, sample: Sample, precision: torch.dtype | None = None
    ) -> Tensor:
        """An estimate of `loss` from the targets and a sample of other words.

        Each logit is lowered by the log of how often the sample is expected to hold its word,
        and a sampled word that is the target itself does not count against it.
        """
        ids, log_expected = sample.ids.to(x.device), sample.log_expected.to(x.device)
        return _SampledLoss.apply(  # type: ignore[no-any-return, no-untyped-call]
            x, self.weight, self.bias, targets, ids, log_expected, precision
        )


def choose_softmax(
    kind: Literal["auto", "full", "sampled"], words: int, samples: int
) -> Literal["full", "sampled"]:
    """What `auto` means for a vocabulary of so many words."""
    if kind != "auto":
        return kind
    return "sampled" if words >= SAMPLED_FROM and samples < words else "full"


@dataclass(frozen=True)
class Sample:
    """Distinct words drawn log-uniformly, frequent ones (low ids) oftener."""

    ids: Tensor
    """(samples,), rising."""
    log_expected: Tensor
    """Of every word of the vocabulary, the log of its chance to be in such a sample: (words,)."""

    @classmethod
    def draw(cls, words: int, samples: int, random: np.random.Generator) -> Sample:
        """Draw about `samples` distinct words; all if there are no more.

        The number of draws is fixed beforehand, so that the chances are exact.
        """
        draws, log_expected = expected_counts(words, samples)
        if samples >= words:
            return cls(torch.arange(words), log_expected)
        drawn = np.exp(random.random(draws) * np.log(words + 1)).astype(np.int64) - 1
        seen = np.zeros(words, bool)
        seen[np.minimum(drawn, words - 1)] = True
        return cls(torch.from_numpy(np.flatnonzero(seen)), log_expected)


@cache
def expected_counts(words: int, samples: int) -> tuple[int, Tensor]:
    """How many draws give `samples` distinct words, and the log of each word's chance then.

    A draw is the word k with p(k) = log((k + 2) / (k + 1)) / log(words + 1); D draws have it with
    the chance 1 - (1 - p)^D.
    """
    if samples >= words:
        return 0, torch.zeros(words)
    absent = np.log1p(-np.log1p(1 / np.arange(1.0, words + 1)) / np.log(words + 1))
    low, high = 1, 2
    while -np.expm1(high * absent).sum() < samples:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        enough = -np.expm1(middle * absent).sum() >= samples
        low, high = (low, middle) if enough else (middle, high)
    return high, torch.from_numpy(np.log(-np.expm1(high * absent)).astype(np.float32))


class _FullLoss(torch.autograd.Function):
    """Sum of cross entropies; the gradients are made chunk by chunk on the way forward."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        precision: torch.dtype | None,
    ) -> Tensor:
        real = (targets >= 0).to(x.dtype)  # (n,)
        wanted = targets.clamp_min(0)
        own = functional.embedding(wanted, weight)  # (n, size)
        true = (x * own).sum(1).add_(bias[wanted])
        grads = (own.mul_(-real[:, None]), torch.zeros_like(weight), torch.zeros_like(bias))
        grads[1].index_add_(0, wanted, x * -real[:, None])
        grads[2].index_add_(0, wanted, -real)
        total = -torch.dot(true, real)
        small = _logits_are_small(x, weight, bias)
        factor = to_precision(weight, precision)
        for rows in _chunks(len(x), len(weight)):
            now = x[rows]
            logits = mixed_addmm_(bias.repeat(len(now), 1), now, factor.t())  # (rows, words)
            highest = None if small else logits.amax(1)
            exponentials = (logits if highest is None else logits.sub_(highest[:, None])).exp_()
            sums = exponentials.sum(1)
            logs = sums.log() if highest is None else sums.log().add_(highest)
            total += torch.dot(logs, real[rows])
            # Probabilities are exponentials / sums: the division is done on the smaller factors.
            share = real[rows] / sums
            grads[0][rows] += mixed_mm(exponentials, factor).mul_(share[:, None])
            mixed_addmm_(grads[1], exponentials.t(), to_precision(now * share[:, None], precision))
            grads[2].addmv_(exponentials.t(), share)
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (*(saved * grad for saved in ctx.saved_tensors), None, None)


class _SampledLoss(torch.autograd.Function):
    """Cross entropy of each target's logit against those of sampled words, shared by all rows."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        ids: Tensor,
        log_expected: Tensor,
        precision: torch.dtype | None,
    ) -> Tensor:
        wanted, real = targets.clamp_min(0), (targets >= 0).to(x.dtype)
        own_weight = functional.embedding(wanted, weight)  # (n, size)
        own_shift = bias[wanted] - log_expected[wanted]
        true = (x * own_weight).sum(1).add_(own_shift)  # (n,)
        sampled = functional.embedding(ids, weight)  # (samples, size)
        shift = bias[ids] - log_expected[ids]
        grad_x, grad_true = torch.empty_like(x), torch.empty_like(true)
        grad_sampled, grad_shift = torch.zeros_like(sampled), torch.zeros_like(shift)
        total = -torch.dot(true, real)
        place = torch.searchsorted(ids, targets).clamp_max(len(ids) - 1)
        hit = ids[place] == targets  # the target is in the sample
        small = _logits_are_small(x, sampled, shift) and _logits_are_small(x, own_weight, own_shift)
        # exp(x w + shift) = exp(x w) scale, and to scale the smaller factors takes less time.
        scale = shift.exp() if small else torch.ones_like(shift)
        factor, scaled = (
            to_precision(sampled, precision),
            to_precision(sampled * scale[:, None], precision),
        )
        for rows in _chunks(len(x), len(sampled)):
            now = x[rows]
            logits = mixed_mm(now, factor.t())  # (rows, samples)
            if not small:
                logits += shift
            lines = hit[rows].nonzero()[:, 0]
            logits[lines, place[rows][lines]] = -torch.inf
            highest = None if small else torch.maximum(logits.amax(1), true[rows])
            exponentials = (logits if highest is None else logits.sub_(highest[:, None])).exp_()
            own = (true[rows] if highest is None else true[rows] - highest).exp()
            sums = torch.mv(exponentials, scale).add_(own)
            logs = sums.log() if highest is None else sums.log().add_(highest)
            total += torch.dot(logs, real[rows])
            # As in the full loss, the division by the sums is done on the smaller factors.
            share = real[rows] / sums
            grad_true[rows] = own.mul_(share).sub_(real[rows])
            mixed_mm(exponentials, scaled, out=grad_x[rows]).mul_(share[:, None])
            mixed_addmm_(
                grad_sampled, exponentials.t(), to_precision(now * share[:, None], precision)
            )
            grad_shift.addmv_(exponentials.t(), share)
        grad_sampled.mul_(scale[:, None])
        grad_shift.mul_(scale)
        grad_x.addcmul_(own_weight, grad_true[:, None])
        ctx.save_for_backward(
            grad_x,
            torch.cat([ids, wanted]),
            torch.cat([grad_sampled, x * grad_true[:, None]]),
            torch.cat([grad_shift, grad_true]),
        )
        ctx.words = len(weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad_x, places, rows, shifts = ctx.saved_tensors
        rows, shifts = rows * grad, shifts * grad  # before they are spread over all words
        grad_weight = torch.ops.aten.embedding_dense_backward(rows, places, ctx.words, -1, False)
        grad_bias = shifts.new_zeros(ctx.words).index_add_(0, places, shifts)
        return grad_x * grad, grad_weight, grad_bias, None, None, None, None


def _logits_are_small(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Whether no logit can overflow when taken to the power of e: |x w + b| <= |x| |w| + |b|."""
    if not len(x):
        return True
    bound = x.norm(dim=1).amax() * weight.norm(dim=1).amax() + bias.abs().amax()
    return bool(bound < 50)


def _chunks(rows: int, words: int) -> list[slice]:
    size = max(16, CHUNK_LOGITS // max(words, 1))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
