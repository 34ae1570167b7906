"""The LSTM stacks of both directions with a backward pass written by hand, for training.

The same numbers as `LSTMLayer` under autograd, several times faster:
  - the loop over the steps works in place, and keeps what the way back needs: the activated gates,
    the cells, their tanh and the hidden vectors before the projection;
  - the way back loops once; every weight's gradient is one product after the loop;
  - the two directions run at the same time, there and back, each with half of the threads.

Products may be made in bfloat16; states, gates and gradients are float32 all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.model.directions import both
from elmokit.model.lstm import LSTMLayer
from elmokit.model.products import add_product, lowered, product

LayerState = tuple[Tensor, Tensor]
Weights = tuple[Tensor, Tensor, Tensor, Tensor | None]  # input, recurrent, shifted bias, projection


@dataclass(frozen=True)
class Shape:
    """What the layers of a stack have in common."""

    sizes: tuple[int, ...]
    """Rows at each step, falling; they sum to the packed positions."""
    cell_clip: float
    projection_clip: float
    skip: bool
    """From the second layer on, a layer's input is added to its output."""
    precision: torch.dtype | None = None
    """Of matrix products; None for that of the weights."""


@dataclass
class Saved:
    """What one layer keeps for the way back; all packed."""

    x: Tensor  # the input with its dropout: (positions, size)
    gates: Tensor  # activated: (positions, 4 cells)
    c: Tensor  # (positions, cells)
    tanh_c: Tensor  # (positions, cells)
    hidden: Tensor  # before the projection: (positions, cells)
    h: Tensor  # the output: (positions, size)
    start: tuple[Tensor, Tensor]  # h (rows, size) and c (rows, cells) before the first step


def layer_forward(
    x: Tensor, weights: Weights, start: tuple[Tensor, Tensor], shape: Shape
) -> tuple[Saved, tuple[Tensor, Tensor]]:
    """One layer over packed x (positions, size): what it saves, and the state after each row."""
    input_weight, recurrent, bias, projection = weights
    cells = recurrent.shape[0] // 4
    gates = add_product(bias.repeat(len(x), 1), x, input_weight.t())  # (positions, 4 cells)
    c_all, tanh_c, hidden = (x.new_empty(len(x), cells) for _ in range(3))
    out = hidden if projection is None else x.new_empty(len(x), projection.shape[0])
    recurrent_t = recurrent.t()
    projection_t = None if projection is None else projection.t()
    h, c = start
    end_h, end_c = torch.empty_like(h), torch.empty_like(c)
    begin = 0
    for n in shape.sizes:
        if n < len(h):  # the last rows have ended
            end_h[n : len(h)], end_c[n : len(c)] = h[n:], c[n:]
            h, c = h[:n], c[:n]
        place = slice(begin, begin + n)
        now, now_c, now_tanh, now_hidden = gates[place], c_all[place], tanh_c[place], hidden[place]
        add_product(now, h, recurrent_t)
        now[:, : 3 * cells].sigmoid_()
        now[:, 3 * cells :].tanh_()
        gate_i, gate_f, gate_o, memory = now.chunk(4, dim=1)
        torch.mul(gate_f, c, out=now_c).addcmul_(gate_i, memory)
        if shape.cell_clip:
            now_c.clamp_(-shape.cell_clip, shape.cell_clip)
        torch.tanh(now_c, out=now_tanh)
        torch.mul(gate_o, now_tanh, out=now_hidden)
        if projection_t is not None:
            product(now_hidden, projection_t, out=out[place])
            if shape.projection_clip:
                out[place].clamp_(-shape.projection_clip, shape.projection_clip)
        h, c = out[place], now_c
        begin += n
    end_h[: len(h)], end_c[: len(c)] = h, c
    return Saved(x, gates, c_all, tanh_c, hidden, out, start), (end_h, end_c)


def layer_backward(
    saved: Saved,
    weights: Weights,
    shape: Shape,
    grad_out: Tensor,
    grad_end: tuple[Tensor, Tensor],
) -> tuple[Tensor, list[Tensor | None], tuple[Tensor, Tensor]]:
    """Gradients of a layer's input, of its weights and of its start, from those of its results."""
    input_weight, recurrent, _, projection = weights
    cells = recurrent.shape[0] // 4
    grad_gates = torch.empty_like(saved.gates)  # before the activations
    grad_projected = torch.empty_like(saved.h)  # before the clip
    grad_h, grad_c = grad_end[0].clone(), grad_end[1].clone()  # rows that have ended wait here
    begin = len(saved.x)
    for step in range(len(shape.sizes) - 1, -1, -1):
        n = shape.sizes[step]
        begin -= n
        place = slice(begin, begin + n)
        dh, dc = grad_h[:n], grad_c[:n]
        now, dgates = saved.gates[place], grad_gates[place]
        gate_i, gate_f, gate_o, memory = now.chunk(4, dim=1)
        d_i, d_f, d_o, d_m = dgates.chunk(4, dim=1)
        dh.add_(grad_out[place])
        if projection is None:
            d_hidden = dh.clone()
        else:
            d_projected = grad_projected[place]
            d_projected.copy_(dh)
            _clip_backward(d_projected, saved.h[place], shape.projection_clip)
            d_hidden = product(d_projected, projection)  # (n, cells)
        torch.mul(d_hidden, saved.tanh_c[place], out=d_o)
        d_hidden.mul_(gate_o)
        dc.add_(torch.ops.aten.tanh_backward(d_hidden, saved.tanh_c[place]))
        _clip_backward(dc, saved.c[place], shape.cell_clip)
        before = saved.start[1][:n] if step == 0 else saved.c[begin - shape.sizes[step - 1] :][:n]
        torch.mul(dc, memory, out=d_i)
        torch.mul(dc, before, out=d_f)
        torch.mul(dc, gate_i, out=d_m)
        _sigmoid_backward(dgates[:, : 3 * cells], now[:, : 3 * cells])
        _tanh_backward(d_m, memory)
        dc.mul_(gate_f)
        product(dgates, recurrent, out=dh)
    before_h = _before(saved.h, saved.start[0], shape.sizes)
    grads: list[Tensor | None] = [
        product(grad_gates.t(), lowered(saved.x, shape.precision)),
        product(grad_gates.t(), lowered(before_h, shape.precision)),
        grad_gates.sum(0),
        None
        if projection is None
        else product(grad_projected.t(), lowered(saved.hidden, shape.precision)),
    ]
    return product(grad_gates, input_weight), grads, (grad_h, grad_c)


def _clip_backward(grad: Tensor, y: Tensor, clip: float) -> None:
    """No gradient where y was cut to the bound; a clip of 0 cuts nothing."""
    if clip:
        torch.ops.aten.hardtanh_backward.grad_input(grad, y, -clip, clip, grad_input=grad)


def _sigmoid_backward(grad: Tensor, y: Tensor) -> None:
    torch.ops.aten.sigmoid_backward.grad_input(grad, y, grad_input=grad)


def _tanh_backward(grad: Tensor, y: Tensor) -> None:
    torch.ops.aten.tanh_backward.grad_input(grad, y, grad_input=grad)


def _before(h: Tensor, start: Tensor, sizes: Sequence[int]) -> Tensor:
    """The state that each position's step began with: (positions, size)."""
    if sizes[-1] == sizes[0]:
        return torch.cat([start[: sizes[0]], h[: len(h) - sizes[0]]])
    parts = [start[: sizes[0]]]
    begin = 0
    for now, following in pairwise(sizes):
        parts.append(h[begin : begin + following])
        begin += now
    return torch.cat(parts)


def in_precision(weights: Weights, precision: torch.dtype | None) -> Weights:
    """A layer's weights as its products take them; the bias is only added."""
    into, recurrent, bias, projection = weights
    last = None if projection is None else lowered(projection, precision)
    return lowered(into, precision), lowered(recurrent, precision), bias, last


class _Stack:
    """All layers of one direction: there and back."""

    def __init__(self, weights: list[Weights], shape: Shape) -> None:
        self.weights, self.shape = [in_precision(each, shape.precision) for each in weights], shape
        self.saved: list[Saved] = []
        self.masks: list[Tensor | None] = []

    def forward(
        self, x: Tensor, start: list[tuple[Tensor, Tensor]], masks: list[Tensor | None]
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Token vectors to the top layer's output, and the states at the end."""
        ends = []
        self.masks = masks
        for number, (weights, mask) in enumerate(zip(self.weights, masks, strict=True)):
            dropped = x if mask is None else x * mask
            saved, end = layer_forward(dropped, weights, start[number], self.shape)
            self.saved.append(saved)
            ends.append(end)
            x = saved.h + x if number and self.shape.skip else saved.h
        return x, ends

    def backward(
        self, grad: Tensor, grad_ends: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, list[list[Tensor | None]], list[tuple[Tensor, Tensor]]]:
        """Gradients of the token vectors, of each layer's weights and start."""
        all_grads: list[list[Tensor | None]] = []
        all_starts: list[LayerState] = []
        for number in range(len(self.weights) - 1, -1, -1):
            saved, mask = self.saved[number], self.masks[number]
            grad_x, grads, grad_start = layer_backward(
                saved, self.weights[number], self.shape, grad, grad_ends[number]
            )
            if mask is not None:
                grad_x.mul_(mask)
            grad = grad_x.add_(grad) if number and self.shape.skip else grad_x
            all_grads.insert(0, grads)
            all_starts.insert(0, grad_start)
        return grad, all_grads, all_starts


class _BothStacks(torch.autograd.Function):
    """Flat tensors in and out, since autograd follows only these."""

    @staticmethod
    def forward(ctx: Any, shape: Shape, layers: int, masks: Any, *flat: Tensor) -> Any:
        xs, rest = flat[:2], list(flat[2:])
        stacks, starts = [], []
        for _ in range(2):
            stacks.append(_Stack([tuple(rest[4 * k : 4 * k + 4]) for k in range(layers)], shape))  # type: ignore[misc]
            del rest[: 4 * layers]
        for _ in range(2):
            starts.append([(rest[2 * k], rest[2 * k + 1]) for k in range(layers)])
            del rest[: 2 * layers]
        results = both(
            lambda way: stacks[way].forward(xs[way], starts[way], masks[way]),
            xs[0].device,
            torch.no_grad,
        )
        ctx.stacks, ctx.layers = stacks, layers
        ends = [tensor for _, states in results for state in states for tensor in state]
        ctx.ends = [(end.shape, end.dtype, end.device) for end in ends]
        ctx.set_materialize_grads(False)
        return (results[0][0], results[1][0], *ends)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        tops = [
            stack.saved[-1].h.new_zeros(stack.saved[-1].h.shape) if grad is None else grad
            for grad, stack in zip(grads[:2], ctx.stacks, strict=True)
        ]
        ends = [
            torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad
            for grad, (shape, dtype, device) in zip(grads[2:], ctx.ends, strict=True)
        ]
        pairs = [(ends[k], ends[k + 1]) for k in range(0, len(ends), 2)]
        halves = pairs[: ctx.layers], pairs[ctx.layers :]
        results = both(
            lambda way: ctx.stacks[way].backward(tops[way], halves[way]),
            tops[0].device,
            torch.no_grad,
        )
        weights = [grad for _, layers, _ in results for layer in layers for grad in layer]
        starts = [grad for _, _, states in results for state in states for grad in state]
        return (None, None, None, results[0][0], results[1][0], *weights, *starts)


def run_both_stacks(
    ways: tuple[Sequence[LSTMLayer], Sequence[LSTMLayer]],
    inputs: tuple[Tensor, Tensor],
    sizes: Sequence[int],
    starts: tuple[list[LayerState], list[LayerState]],
    *,
    skip: bool,
    masks: tuple[list[Tensor | None], list[Tensor | None]] | None = None,
    precision: torch.dtype | None = None,
) -> tuple[tuple[Tensor, Tensor], tuple[list[LayerState], list[LayerState]]]:
    """Run the forward and the backward layers, differentiable.

    Args:
        ways: the layers of each direction.
        inputs: packed token vectors of each, in the order in which it reads: (positions, size).
        sizes: rows at each step, falling.
        starts: (h, c) of each layer to start from: (rows, size) and (rows, cells).
        skip: add a layer's input to its output, from the second layer on.
        masks: what each layer's input is multiplied with: dropout, already scaled.
        precision: of matrix products, if it is not that of the weights.

    Returns:
        The top layer's packed outputs of each direction, and the states at the end.
    """
    first, layers = ways[0][0], len(ways[0])
    shape = Shape(tuple(sizes), first.cell_clip, first.projection_clip, skip, precision)
    weights = [
        tensor
        for way in ways
        for layer in way
        for tensor in (
            layer.input_weight,
            layer.recurrent_weight,
            layer.shifted_bias(),
            layer.projection,
        )
    ]
    flat = [tensor for way in starts for state in way for tensor in state]
    no_masks: list[Tensor | None] = [None] * layers
    results = _BothStacks.apply(
        shape, layers, masks or (no_masks, no_masks), *inputs, *weights, *flat
    )  # type: ignore[no-untyped-call]
    ends = [(results[k], results[k + 1]) for k in range(2, len(results), 2)]
    return (results[0], results[1]), (ends[:layers], ends[layers:])
