"""Convolutions over characters as sums of table rows.

A convolution adds, for each position k of a window, the product of a character's vector with the
k-th column of the filter. There are few characters (261 for bytes), so these products are computed
once for all words:

    table[character, k, filter] = sum over d of  e[character, d] * W[filter, d, k]

    window "b a n":   table["b", 0] + table["a", 1] + table["n", 2]      no multiplication left

On a CPU this is faster than the convolution, forward and backward. Inference keeps one table per
filter width. Training computes its table in each step, one for all filters together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


def make_table(characters: Tensor, convolutions: Sequence[nn.Conv1d]) -> Tensor:
    """Return what each character adds at each window position: (characters, width, filters).

    Narrower filters add nothing at the last positions.
    """
    width = max(c.kernel_size[0] for c in convolutions)
    weights = [functional.pad(c.weight, (0, width - c.kernel_size[0])) for c in convolutions]
    weight = torch.cat(weights)  # (filters, character_dim, width)
    flat = weight.permute(1, 2, 0).flatten(1)  # (character_dim, width * filters)
    return torch.mm(characters, flat).view(len(characters), width, len(weight))


def make_width_table(characters: Tensor, convolution: nn.Conv1d) -> Tensor:
    """Return the table of one width for inference: (characters, width, filters).

    It takes one product per position, where `make_table` takes one for all: MKL's AVX2 kernels
    round the two differently, and the golden vectors agree better with this one.
    """
    columns = convolution.weight.unbind(dim=2)  # width of (filters, character_dim)
    return torch.stack([characters @ column.t() for column in columns], dim=1)


def table_rows(ids: Tensor, width: int) -> Tensor:
    """Return the rows of a flat table that the windows of ids add: (words, windows, width)."""
    positions = torch.arange(width, device=ids.device, dtype=ids.dtype)
    return (ids * width).unfold(1, width, 1) + positions


def sum_windows(rows: Tensor, table: Tensor) -> Tensor:
    """Add the table rows of each window: (words, windows, width) to (words, windows, filters)."""
    sums = functional.embedding_bag(rows.flatten(0, 1), table.flatten(0, 1), mode="sum")
    return sums.view(*rows.shape[:2], table.shape[2])


def max_over_windows(ids: Tensor, table: Tensor) -> Tensor:
    """Return each filter's maximum over the windows of ids (words, length): (words, filters)."""
    return _MaxOverWindows.apply(ids, table)  # type: ignore[no-any-return, no-untyped-call]


class _MaxOverWindows(torch.autograd.Function):
    """The maximum of each filter, whose gradient goes to the table rows of that one window.

    Where several windows have it, they nearly always hold the same characters: any will do.
    """

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor) -> Tensor:
        rows = table_rows(ids, table.shape[1])  # (words, windows, width)
        sums = sum_windows(rows, table)  # (words, windows, filters)
        maxima = sums.amax(dim=1)  # (words, filters)
        if not ctx.needs_input_grad[1]:
            return maxima
        # `max` would give the argmax too, but takes five times as long as three passes in place.
        windows = torch.arange(sums.shape[1], dtype=sums.dtype, device=sums.device)[:, None]
        argmax = sums.eq_(maxima[:, None]).mul_(windows).amax(dim=1)  # (words, filters)
        ctx.save_for_backward(rows, argmax)
        ctx.shape = table.shape
        return maxima

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, argmax = ctx.saved_tensors
        argmax = argmax.long()
        characters, width, filters = ctx.shape
        d_table = grad.new_zeros(characters * width, filters)
        for position in range(width):
            chosen = rows[:, :, position].gather(1, argmax).long()  # (words, filters)
            d_table.scatter_add_(0, chosen, grad)
        return None, d_table.view(ctx.shape)
