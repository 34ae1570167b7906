"""The softmax over the vocabulary, shared by both directions, and its losses.

The losses never hold all logits: rows go through in chunks, and a chunk's gradients are computed
with its loss. A target of -1 is no target and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

CHUNK_LOGITS = 4 << 20  # logits in memory at a time
# Vocabularies from here on train faster with sampling, as benchmarks/softmax.py measures.
SAMPLED_FROM = 50_000


class Softmax(nn.Module):
    """A linear layer from one direction's output to a logit for each word."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, size))
        self.bias = nn.Parameter(torch.zeros(words))
        nn.init.normal_(self.weight, 0.0, size**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, projection_dim) to logits (n, words)."""
        return functional.linear(x, self.weight, self.bias)

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """The sum of the negative log likelihoods of targets (n,) after outputs (n, size)."""
        return _FullLoss.apply(x, self.weight, self.bias, targets)  # type: ignore[no-any-return, no-untyped-call]

    @torch.no_grad()
    def losses(self, x: Tensor, targets: Tensor) -> Tensor:
        """The negative log likelihood of each target, without gradients: (n,)."""
        result = x.new_zeros(len(x))
        for rows in _chunks(len(x), len(self.weight)):
            logits = self(x[rows])
            picked = logits.gather(1, targets[rows].clamp_min(0)[:, None])[:, 0]
            result[rows] = torch.logsumexp(logits, 1).sub_(picked).mul_(targets[rows] >= 0)
        return result

    def sampled_loss(self, x: Tensor, targets: Tensor, sample: Sample) -> Tensor:
        """An estimate of `loss` from the targets and a sample of other words.

        Each logit is lowered by the log of how often the sample is expected to hold its word,
        and a sampled word that is the target itself does not count against it.
        """
        ids = sample.ids.to(x.device)
        weight, bias = self.weight[ids], self.bias[ids] - sample.log_expected.to(x.device)
        wanted = targets.clamp_min(0)
        true = (x * functional.embedding(wanted, self.weight)).sum(1) + self.bias[wanted]
        true = true - sample.log_expected_of(targets).to(x.device)  # (n,)
        return _SampledLoss.apply(x, weight, bias, true, targets, ids)  # type: ignore[no-any-return, no-untyped-call]


def choose_softmax(kind: Literal["auto", "full", "sampled"], words: int, samples: int) -> str:
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
    """Of each, the log of its chance to be in such a sample: (samples,)."""
    words: int
    draws: int
    """Draws that it took to get so many distinct words."""

    @classmethod
    def draw(cls, words: int, samples: int, random: np.random.Generator) -> Sample:
        """Draw until there are `samples` distinct words, fewer only if there are no more."""
        samples = min(samples, words)
        seen = np.zeros(words, bool)
        count = draws = 0
        while count < samples and draws < 1000 * words:
            batch = np.exp(random.random(samples) * np.log(words + 1)).astype(np.int64) - 1
            np.minimum(batch, words - 1, out=batch)
            _, first = np.unique(batch, return_index=True)
            fresh = np.sort(first[~seen[batch[first]]])[: samples - count]
            seen[batch[fresh]] = True
            count += len(fresh)
            draws += int(fresh[-1]) + 1 if count == samples and len(fresh) else samples
        ids = np.flatnonzero(seen)
        expected = log_expected_counts(ids, words, draws)
        return cls(torch.from_numpy(ids), torch.from_numpy(expected), words, draws)

    def log_expected_of(self, targets: Tensor) -> Tensor:
        """The same for any words: (n,)."""
        ids = targets.clamp_min(0).cpu().numpy()
        return torch.from_numpy(log_expected_counts(ids, self.words, self.draws))


def log_expected_counts(ids: NDArray[np.int64], words: int, draws: int) -> NDArray[np.float32]:
    """log(1 - (1 - p)^draws) with p(id) = log((id + 2) / (id + 1)) / log(words + 1)."""
    p = np.log1p(1 / (ids + 1.0)) / np.log(words + 1)
    return np.log(-np.expm1(draws * np.log1p(-p))).astype(np.float32)


class _FullLoss(torch.autograd.Function):
    """Sum of cross entropies; the gradients are made chunk by chunk on the way forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        grads = (torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(bias))
        total = x.new_zeros(())
        for rows in _chunks(len(x), len(weight)):
            now, wanted = x[rows], targets[rows]
            real = wanted >= 0
            index = wanted.clamp_min(0)[:, None]
            logits = torch.addmm(bias, now, weight.t())  # (rows, words)
            picked = logits.gather(1, index)[:, 0]
            highest = logits.amax(1, keepdim=True)
            logits.sub_(highest).exp_()
            sums = logits.sum(1, keepdim=True)
            losses = sums.log().add_(highest)[:, 0] - picked
            total += losses.mul_(real).sum()
            scale = real[:, None].to(x.dtype)
            logits.mul_(scale / sums)  # now the gradient: probability less what is wanted
            logits.scatter_add_(1, index, -scale)
            torch.mm(logits, weight, out=grads[0][rows])
            grads[1].addmm_(logits.t(), now)
            grads[2].add_(logits.sum(0))
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (*(saved * grad for saved in ctx.saved_tensors), None)


class _SampledLoss(torch.autograd.Function):
    """Cross entropy of a true logit (n,) against those of sampled words, shared by all rows."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        true: Tensor,
        targets: Tensor,
        ids: Tensor,
    ) -> Tensor:
        grad_x, grad_true = torch.empty_like(x), torch.empty_like(true)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        total = x.new_zeros(())
        place = torch.searchsorted(ids, targets).clamp_max(len(ids) - 1)
        hit = ids[place] == targets  # the target is in the sample
        for rows in _chunks(len(x), len(weight)):
            now, real = x[rows], (targets[rows] >= 0).to(x.dtype)
            logits = torch.addmm(bias, now, weight.t())  # (rows, samples)
            lines = hit[rows].nonzero()[:, 0]
            logits[lines, place[rows][lines]] = -torch.inf
            highest = torch.maximum(logits.amax(1), true[rows])
            logits.sub_(highest[:, None]).exp_()
            own = (true[rows] - highest).exp_()
            sums = logits.sum(1).add_(own)
            total += sums.log().add_(highest).sub_(true[rows]).mul_(real).sum()
            logits.mul_((real / sums)[:, None])
            grad_true[rows] = (own / sums - 1).mul_(real)
            torch.mm(logits, weight, out=grad_x[rows])
            grad_weight.addmm_(logits.t(), now)
            grad_bias.add_(logits.sum(0))
        ctx.save_for_backward(grad_x, grad_weight, grad_bias, grad_true)
        return total

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (*(saved * grad for saved in ctx.saved_tensors), None, None)


def _chunks(rows: int, words: int) -> list[slice]:
    size = max(16, CHUNK_LOGITS // max(words, 1))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
