"""The LSTM stacks of both directions with a backward pass written by hand, for training.

The same numbers as `LSTMLayer` under autograd, several times faster:
  - both directions are one computation: every tensor is (2, positions, …), so that a step is one
    batched product for two, and its elementwise work is large enough for several threads;
  - all steps' inputs are multiplied at once, and only the states step by step;
  - the loop works in place, and keeps what the way back needs: the activated gates, the cells,
    their tanh and the hidden vectors before the projection;
  - the way back loops once; every weight's gradient is one product after the loop.

States are cut from the gradient: none flows into the state at the start, nor out of that at the
end. Products may be made in bfloat16; states, gates and gradients are float32 all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.model.lstm import LSTMLayer
from elmokit.model.products import batched_product, lowered

LayerState = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Shape:
    """What the layers of a stack have in common."""

    cell_clip: float
    projection_clip: float
    skip: bool
    """From the second layer on, a layer's input is added to its output."""
    precision: torch.dtype | None = None
    """Of matrix products; None for that of the weights."""


@dataclass(frozen=True)
class Weights:
    """One layer's weights, of both directions, as the products take them."""

    into: Tensor  # (2, 4 cells, size)
    recurrent: Tensor  # (2, 4 cells, size)
    bias: Tensor  # with the forget gate's constant: (2, 1, 4 cells)
    projection: Tensor | None  # (2, size, cells)

    def lowered(self, precision: torch.dtype | None) -> Weights:
        """In another precision; the bias is only added."""
        last = None if self.projection is None else lowered(self.projection, precision)
        return Weights(
            lowered(self.into, precision), lowered(self.recurrent, precision), self.bias, last
        )


@dataclass
class Saved:
    """What one layer keeps for the way back."""

    x: Tensor  # the input with its dropout: (2, positions, size)
    gates: Tensor  # activated: (2, positions, 4 cells)
    c: Tensor  # (2, positions, cells)
    tanh_c: Tensor  # (2, positions, cells)
    hidden: Tensor  # before the projection: (2, positions, cells)
    h: Tensor  # the output: (2, positions, size)
    start: LayerState


def _gates(gates: Tensor) -> tuple[Tensor, ...]:
    """Views of gates (…, 4 cells): the three sigmoids together, each of them, and the memory."""
    cells = gates.shape[-1] // 4
    return (gates[..., : 3 * cells], *gates.chunk(4, dim=-1))


def _steps(parts: Iterable[Tensor], rows: int) -> list[tuple[Tensor, ...]]:
    """Views of the steps of each tensor (2, steps * rows, …), all made at once."""
    return [torch.split(part, rows, dim=1) for part in parts]


def layer_forward(x: Tensor, weights: Weights, start: LayerState, shape: Shape) -> Saved:
    """One layer over x (2, positions, size): what it keeps, with its output."""
    h, c = start
    count, cells = x.shape[1], c.shape[-1]
    gates = batched_product(x, weights.into.transpose(1, 2)).add_(weights.bias)
    c_all, tanh_c, hidden = (x.new_empty(2, count, cells) for _ in range(3))
    recurrent_t = weights.recurrent.transpose(1, 2).contiguous()
    projection_t, out = None, hidden
    if weights.projection is not None:
        projection_t = weights.projection.transpose(1, 2).contiguous()
        out = x.new_empty(2, count, h.shape[-1])
    parts = (gates, *_gates(gates), c_all, tanh_c, hidden, out)
    for now, three, gate_i, gate_f, gate_o, memory, now_c, now_tanh, now_hidden, now_out in zip(
        *_steps(parts, h.shape[1]), strict=True
    ):
        now.add_(batched_product(h, recurrent_t))
        three.sigmoid_()
        memory.tanh_()
        torch.mul(gate_f, c, out=now_c).addcmul_(gate_i, memory)
        if shape.cell_clip:
            now_c.clamp_(-shape.cell_clip, shape.cell_clip)
        torch.tanh(now_c, out=now_tanh)
        torch.mul(gate_o, now_tanh, out=now_hidden)
        h, c = now_hidden, now_c
        if projection_t is not None:
            h = batched_product(now_hidden, projection_t)
            if shape.projection_clip:
                h.clamp_(-shape.projection_clip, shape.projection_clip)
            now_out.copy_(h)
    return Saved(x, gates, c_all, tanh_c, hidden, out, start)


def layer_backward(
    saved: Saved, weights: Weights, shape: Shape, grad_out: Tensor
) -> tuple[Tensor, list[Tensor | None]]:
    """Gradients of a layer's input (2, positions, size) and of its weights."""
    start_h, start_c = saved.start
    rows = start_c.shape[1]
    grad_gates = torch.empty_like(saved.gates)  # before the activations
    grad_projected = torch.empty_like(saved.h)  # before the clip
    grad_c = torch.zeros_like(start_c)
    d_h = torch.zeros_like(start_h)  # from the step behind
    parts = (
        *_gates(saved.gates), saved.c, saved.tanh_c, saved.h, grad_out,
        grad_gates, *_gates(grad_gates), grad_projected,
    )  # fmt: skip
    steps = list(zip(*_steps(parts, rows), strict=True))
    befores = [start_c, *torch.split(saved.c, rows, dim=1)[:-1]]
    for (
        three, gate_i, gate_f, gate_o, memory, now_c, now_tanh, now_h, grad_now,
        d_gates, d_three, d_i, d_f, d_o, d_m, d_projected,
    ), before_c in zip(reversed(steps), reversed(befores), strict=True):  # fmt: skip
        d_h.add_(grad_now)
        d_hidden = d_h
        if weights.projection is not None:
            _clip_backward(d_h, now_h, shape.projection_clip)
            d_projected.copy_(d_h)
            d_hidden = batched_product(d_h, weights.projection)  # (2, rows, cells)
        torch.mul(d_hidden, now_tanh, out=d_o)
        d_hidden.mul_(gate_o)
        grad_c.add_(torch.ops.aten.tanh_backward(d_hidden, now_tanh))
        _clip_backward(grad_c, now_c, shape.cell_clip)
        torch.mul(grad_c, memory, out=d_i)
        torch.mul(grad_c, before_c, out=d_f)
        torch.mul(grad_c, gate_i, out=d_m)
        _sigmoid_backward(d_three, three)
        _tanh_backward(d_m, memory)
        grad_c.mul_(gate_f)
        d_h = batched_product(d_gates, weights.recurrent)
    before_h = torch.cat([start_h, saved.h[:, :-rows]], dim=1)
    factors = lowered(torch.cat([saved.x, before_h], dim=-1), shape.precision)
    grad_both = batched_product(grad_gates.transpose(1, 2), factors)  # (2, 4 cells, size + size)
    size = saved.x.shape[-1]
    grads: list[Tensor | None] = [
        grad_both[..., :size],
        grad_both[..., size:],
        grad_gates.sum(1, keepdim=True),
        None
        if weights.projection is None
        else batched_product(
            grad_projected.transpose(1, 2), lowered(saved.hidden, shape.precision)
        ),
    ]
    return batched_product(grad_gates, weights.into), grads


def _clip_backward(grad: Tensor, y: Tensor, clip: float) -> None:
    """No gradient where y was cut to the bound; a clip of 0 cuts nothing."""
    if clip:
        torch.ops.aten.hardtanh_backward.grad_input(grad, y, -clip, clip, grad_input=grad)


def _sigmoid_backward(grad: Tensor, y: Tensor) -> None:
    torch.ops.aten.sigmoid_backward.grad_input(grad, y, grad_input=grad)


def _tanh_backward(grad: Tensor, y: Tensor) -> None:
    torch.ops.aten.tanh_backward.grad_input(grad, y, grad_input=grad)


class _BothStacks(torch.autograd.Function):
    """Flat tensors in and out, since autograd follows only these: four weights a layer."""

    @staticmethod
    def forward(ctx: Any, shape: Shape, starts: Any, masks: Any, x: Tensor, *flat: Any) -> Any:
        ctx.shape, ctx.masks = shape, masks
        ctx.layers, ends = [], []
        for number, start in enumerate(starts):
            weights = Weights(*flat[4 * number : 4 * number + 4]).lowered(shape.precision)
            dropped = x if masks is None else x * masks[number]
            saved = layer_forward(dropped, weights, start, shape)
            ctx.layers.append((weights, saved))
            rows = start[0].shape[1]
            ends += [saved.h[:, -rows:].clone(), saved.c[:, -rows:].clone()]
            x = saved.h + x if number and shape.skip else saved.h
        ctx.mark_non_differentiable(*ends)
        return (x, *ends)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        all_grads: list[Tensor | None] = []
        for number in range(len(ctx.layers) - 1, -1, -1):
            weights, saved = ctx.layers[number]
            grad_x, grads = layer_backward(saved, weights, ctx.shape, grad)
            if ctx.masks is not None:
                grad_x = grad_x.mul_(ctx.masks[number])
            grad = grad_x.add_(grad) if number and ctx.shape.skip else grad_x
            all_grads = grads + all_grads
        return (None, None, None, grad, *all_grads)


def run_both_stacks(
    ways: tuple[Sequence[LSTMLayer], Sequence[LSTMLayer]],
    inputs: Tensor,
    starts: Sequence[LayerState],
    *,
    skip: bool,
    masks: Sequence[Tensor] | None = None,
    precision: torch.dtype | None = None,
) -> tuple[Tensor, list[LayerState]]:
    """Run the forward and the backward layers, differentiable.

    Args:
        ways: the layers of each direction.
        inputs: token vectors, in the order in which each direction reads: (2, steps * rows, size).
        starts: (h, c) of each layer to start from: (2, rows, size) and (2, rows, cells).
        skip: add a layer's input to its output, from the second layer on.
        masks: what each layer's input is multiplied with: dropout, already scaled.
        precision: of matrix products, if it is not that of the weights.

    Returns:
        The top layer's outputs (2, steps * rows, size), and (h, c) of each layer at the end.
    """
    first = ways[0][0]
    shape = Shape(first.cell_clip, first.projection_clip, skip, precision)
    flat: list[Tensor | None] = []
    for pair in zip(*ways, strict=True):
        projections: list[Tensor] = [
            layer.projection for layer in pair if layer.projection is not None
        ]
        flat += [
            torch.stack([layer.input_weight for layer in pair]),
            torch.stack([layer.recurrent_weight for layer in pair]),
            torch.stack([layer.shifted_bias() for layer in pair])[:, None],
            torch.stack(projections) if projections else None,
        ]
    top, *ends = _BothStacks.apply(shape, list(starts), masks, inputs, *flat)  # type: ignore[no-untyped-call]
    return top, [(ends[k], ends[k + 1]) for k in range(0, len(ends), 2)]
