"""Losses of the softmax, with their gradients computed on the way, for training.

Autograd would keep the logits of all predictions over all words until the backward pass. Here rows
go through in chunks, and a chunk's gradients are computed together with its loss. `softmax.py` has
the formulas and the meaning of the symbols. Products may be made in bfloat16; logits, exponentials
and sums stay float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmokit.model.kernels.linear import mixed_addmm_, mixed_mm, to_precision

CHUNK_LOGITS = 4 << 20  # logits in memory at a time


class FullLoss(torch.autograd.Function):
    """Sum of cross entropies; the gradients are computed chunk by chunk in the forward pass.

    With probabilities p_k = exp(s_k) / Z, Z = sum_k exp(s_k), and [k = t] for the target:

        dL/ds_k = p_k - [k = t]
        dL/dx = sum_k dL/ds_k w_k,    dL/dw_k = dL/ds_k x,    dL/db_k = dL/ds_k

    The part - [k = t] is written first, for all rows; the part p_k is added chunk by chunk.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        precision: torch.dtype | None,
    ) -> Tensor:
        has_target = (targets >= 0).to(x.dtype)  # 1 or 0: (n,)
        words = targets.clamp_min(0)  # (n,)
        target_weight = functional.embedding(words, weight)  # w_t: (n, size)
        target_logit = (x * target_weight).sum(1).add_(bias[words])  # s_t: (n,)
        d_x = target_weight.mul_(-has_target[:, None])  # - w_t
        d_weight = torch.zeros_like(weight).index_add_(0, words, x * -has_target[:, None])  # - x
        d_bias = torch.zeros_like(bias).index_add_(0, words, -has_target)  # - 1
        total = -torch.dot(target_logit, has_target)  # - s_t
        small = _logits_are_small(x, weight, bias)
        factor = to_precision(weight, precision)
        for rows in chunks(len(x), len(weight)):
            x_rows = x[rows]
            logits = mixed_addmm_(bias.repeat(len(x_rows), 1), x_rows, factor.t())  # (rows, words)
            highest = None if small else logits.amax(1)
            exponentials = _exp_(logits, highest)  # exp(s_k - highest): (rows, words)
            sums = exponentials.sum(1)  # Z: (rows,)
            total += torch.dot(_log(sums, highest), has_target[rows])  # + log Z
            # p_k = exponentials / sums: divide the smaller factors of each product instead.
            share = has_target[rows] / sums  # 1 / Z: (rows,)
            d_x[rows] += mixed_mm(exponentials, factor).mul_(share[:, None])
            scaled_x = to_precision(x_rows * share[:, None], precision)  # x / Z: (rows, size)
            mixed_addmm_(d_weight, exponentials.t(), scaled_x)
            d_bias.addmv_(exponentials.t(), share)
        ctx.save_for_backward(d_x, d_weight, d_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (*(saved * grad for saved in ctx.saved_tensors), None, None)


class SampledLoss(torch.autograd.Function):
    """Sum of cross entropies of each target against sampled words, which all rows share.

    With the shifted logits s'_k = w_k x + (b_k - log q_k) and Z = exp(s'_t) + sum over the sample
    without t of exp(s'_k):

        dL/ds'_t = exp(s'_t) / Z - 1        dL/ds'_k = exp(s'_k) / Z

    The gradients of x, w and b follow as for the full loss, but only the rows of the targets and
    of the sample are not zero.
    """

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
        words, has_target = targets.clamp_min(0), (targets >= 0).to(x.dtype)  # (n,) each
        target_weight = functional.embedding(words, weight)  # w_t: (n, size)
        target_shift = bias[words] - log_expected[words]  # b_t - log q_t: (n,)
        target_logit = (x * target_weight).sum(1).add_(target_shift)  # s'_t: (n,)
        sampled_weight = functional.embedding(ids, weight)  # w_k: (samples, size)
        shift = bias[ids] - log_expected[ids]  # b_k - log q_k: (samples,)
        d_x, d_target = torch.empty_like(x), torch.empty_like(target_logit)
        d_sampled, d_shift = torch.zeros_like(sampled_weight), torch.zeros_like(shift)
        total = -torch.dot(target_logit, has_target)  # - s'_t
        # Where a target is in the sample, and whether it is: (n,) each.
        position = torch.searchsorted(ids, targets).clamp_max(len(ids) - 1)
        is_sampled = ids[position] == targets
        small = _logits_are_small(x, sampled_weight, shift) and _logits_are_small(
            x, target_weight, target_shift
        )
        # exp(w x + shift) = exp(w x) * scale: scaling the smaller factors of products saves a pass
        # over the logits.
        scale = shift.exp() if small else torch.ones_like(shift)  # (samples,)
        factor = to_precision(sampled_weight, precision)
        scaled = to_precision(sampled_weight * scale[:, None], precision)  # (samples, size)
        for rows in chunks(len(x), len(sampled_weight)):
            x_rows = x[rows]
            logits = mixed_mm(x_rows, factor.t())  # w_k x: (rows, samples)
            if not small:
                logits += shift  # s'_k
            hits = is_sampled[rows].nonzero()[:, 0]
            logits[hits, position[rows][hits]] = -torch.inf  # k != t
            highest = None if small else torch.maximum(logits.amax(1), target_logit[rows])
            exponentials = _exp_(logits, highest)  # (rows, samples)
            target_exponential = _exp_(target_logit[rows].clone()[:, None], highest)[:, 0]
            sums = torch.mv(exponentials, scale).add_(target_exponential)  # Z: (rows,)
            total += torch.dot(_log(sums, highest), has_target[rows])  # + log Z
            # As in the full loss, divide the smaller factors instead of the exponentials.
            share = has_target[rows] / sums  # 1 / Z: (rows,)
            d_target[rows] = target_exponential.mul_(share).sub_(has_target[rows])  # dL/ds'_t
            mixed_mm(exponentials, scaled, out=d_x[rows]).mul_(share[:, None])
            scaled_x = to_precision(x_rows * share[:, None], precision)  # x / Z: (rows, size)
            mixed_addmm_(d_sampled, exponentials.t(), scaled_x)
            d_shift.addmv_(exponentials.t(), share)
        d_sampled.mul_(scale[:, None])  # dL/dw_k: (samples, size)
        d_shift.mul_(scale)  # dL/db_k: (samples,)
        d_x.addcmul_(target_weight, d_target[:, None])  # + dL/ds'_t w_t: (n, size)
        ctx.save_for_backward(
            d_x,
            torch.cat([ids, words]),  # words whose weights have a gradient: (samples + n,)
            torch.cat([d_sampled, x * d_target[:, None]]),  # (samples + n, size)
            torch.cat([d_shift, d_target]),  # (samples + n,)
        )
        ctx.num_words = len(weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        d_x, words, d_rows, d_shifts = ctx.saved_tensors
        d_rows, d_shifts = d_rows * grad, d_shifts * grad  # before they are spread over all words
        d_weight = torch.ops.aten.embedding_dense_backward(d_rows, words, ctx.num_words, -1, False)
        d_bias = d_shifts.new_zeros(ctx.num_words).index_add_(0, words, d_shifts)
        return d_x * grad, d_weight, d_bias, None, None, None, None


def _exp_(logits: Tensor, highest: Tensor | None) -> Tensor:
    """Return exp(logits - highest) in place: (rows, k) and (rows,), None for 0."""
    return (logits if highest is None else logits.sub_(highest[:, None])).exp_()


def _log(sums: Tensor, highest: Tensor | None) -> Tensor:
    """Return log(sums) + highest: (rows,), None for 0."""
    return sums.log() if highest is None else sums.log().add_(highest)


def _logits_are_small(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Return whether exp of any logit cannot overflow, by |w x + b| <= |w| |x| + |b|."""
    if not len(x):
        return True
    bound = x.norm(dim=1).amax() * weight.norm(dim=1).amax() + bias.abs().amax()
    return bool(bound < 50)


def chunks(rows: int, words: int) -> list[slice]:
    """Return slices of rows whose logits over so many words fit into CHUNK_LOGITS."""
    size = max(16, CHUNK_LOGITS // max(words, 1))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
