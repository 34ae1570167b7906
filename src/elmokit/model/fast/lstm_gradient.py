"""The LSTM stacks of both directions with a backward pass written by hand, for training.

The same numbers as `LSTMLayer` under autograd, several times faster:
  - what can be computed at the same time is one computation: both directions, and layer l at step t
    with layer l + 1 at step t - 1. So every tensor is (runs, …), a run being one layer of one
    direction, and a tick of the loop is one batched operation for all runs;
  - a step's input and the state before it stand side by side and are multiplied at once, on a CPU
    with weights in the blocks that oneDNN reads, which are made once for all steps of a window;
  - the loop works in place, and keeps what the way back needs: the activated gates, the cells,
    their tanh and the hidden vectors before the projection;
  - the way back loops once; every weight's gradient is one product after the loop;
  - memory, and the views of it that a tick takes, are made once and used for window after window.

States are cut from the gradient: none flows into the state at the start, nor out of that at the
end. Products may be made in bfloat16; states, gates and gradients are float32 all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.model.fast.linear import mixed_bmm, to_precision
from elmokit.model.fast.lstm_buffers import Buffers, Shape, Tick
from elmokit.model.lstm import LayerState, LSTMLayer

Masks = Sequence[Tensor] | None
MINUS_ONE = torch.tensor(-1.0, device="cpu")  # goes with tensors on any device

# Memory of windows that are done, as long as the first layer of their model is there.
_spare: WeakKeyDictionary[LSTMLayer, Buffers] = WeakKeyDictionary()


def _take(owner: LSTMLayer, shape: Shape) -> Buffers:
    """Memory for a window: what the window before had, if it is of the same shape."""
    buffers = _spare.pop(owner, None)
    return buffers if buffers is not None and buffers.shape == shape else Buffers(shape)


def _by_step(masks: Masks, shape: Shape) -> list[tuple[Tensor, ...]] | None:
    """Each layer's steps, of tensors (2, steps * rows, …)."""
    return None if masks is None else [torch.split(mask, shape.rows, dim=1) for mask in masks]


def _drop(x: Tensor, mask: Tensor | None, out: Tensor) -> Tensor:
    """Write a layer's input with its dropout, or the gradient on its way back."""
    return out.copy_(x) if mask is None else torch.mul(x, mask, out=out)


def _clip(x: Tensor, clip: float, out: Tensor) -> None:
    """Write x cut to the bound; a clip of 0 cuts nothing."""
    if clip:
        torch.clamp(x, -clip, clip, out=out)
    elif x is not out:
        out.copy_(x)


def _clip_backward(grad: Tensor, y: Tensor, clip: float) -> None:
    """No gradient where y was cut to the bound."""
    if clip:
        torch.ops.aten.hardtanh_backward.grad_input(grad, y, -clip, clip, grad_input=grad)


def _open_gates(b: Buffers, t: Tick) -> None:
    """Write the gates of a tick, activated."""
    if b.blocks is None:
        raw = mixed_bmm(t.both, b.weight_t[t.now]).add_(b.bias[t.now])
        torch.sigmoid(raw, out=t.gates)
    else:
        for block, both, gates in zip(b.blocks[t.now], t.each_both, t.each_gates, strict=True):
            torch.sigmoid(block(both), out=gates)
    _to_tanh(t.memory)


def _to_tanh(x: Tensor) -> None:
    """Turn sigmoid(2 y) into tanh(y) = 2 sigmoid(2 y) - 1 in place.

    On a CPU that and the sigmoid take a third of the time that torch's one pass for tanh does.
    """
    torch.add(MINUS_ONE, x, alpha=2, out=x)


def stacks_forward(b: Buffers, inputs: Tensor, starts: Sequence[LayerState], masks: Masks) -> None:
    """Fill the buffers from inputs (2, steps * rows, size)."""
    shape = b.shape
    for layer, (h, c) in enumerate(starts):
        shape.of_layer(b.h, layer)[:, : shape.rows] = h
        shape.of_layer(b.c, layer)[:, : shape.rows] = c
    _drop(inputs, None if masks is None else masks[0], out=shape.of_layer(b.x, 0))
    masks_by_step = _by_step(masks, shape)
    for t in b.ticks:
        _open_gates(b, t)
        torch.mul(t.gate_f, t.c_before, out=t.c).addcmul_(t.gate_i, t.memory)
        _clip(t.c, shape.cell_clip, out=t.c)
        _to_tanh(torch.mul(t.c, 2, out=t.tanh_c).sigmoid_())
        torch.mul(t.gate_o, t.tanh_c, out=t.hidden)
        if shape.projects:
            mixed_bmm(t.hidden, b.projection_t[t.now], out=t.projected)
            _clip(t.projected, shape.projection_clip, out=t.h)
        else:
            t.h.copy_(t.hidden)
        for s in t.steps:
            if s.below is not None:
                torch.add(s.h, s.below, out=s.out)
            if s.x_above is not None:
                mask = None if masks_by_step is None else masks_by_step[s.layer + 1][s.number]
                _drop(s.out, mask, out=s.x_above)


def stacks_backward(b: Buffers, masks: Masks, grad: Tensor) -> list[list[Tensor | None]]:
    """From the gradient of the top outputs that of the inputs, in the buffers, and the weights'."""
    shape = b.shape
    b.d_both.zero_()
    b.d_c.zero_()
    shape.of_layer(b.d_out, shape.layers - 1).copy_(grad)
    masks_by_step = _by_step(masks, shape)
    for t in reversed(b.ticks):
        torch.add(t.d_out, t.d_h_before, out=t.d_projected)
        if shape.projects:
            _clip_backward(t.d_projected, t.h, shape.projection_clip)
            mixed_bmm(t.d_projected, b.projection[t.now], out=t.d_hidden)
        torch.mul(t.d_hidden, t.tanh_c, out=t.d_gate_o)
        t.d_hidden.mul_(t.gate_o)
        torch.ops.aten.tanh_backward.grad_input(t.d_hidden, t.tanh_c, grad_input=t.d_hidden)
        t.d_c.add_(t.d_hidden)
        _clip_backward(t.d_c, t.c, shape.cell_clip)
        torch.mul(t.d_c, t.memory, out=t.d_gate_i)
        torch.mul(t.d_c, t.c_before, out=t.d_gate_f)
        torch.mul(t.d_c, t.gate_i, out=t.d_memory)
        t.d_c.mul_(t.gate_f)
        torch.ops.aten.sigmoid_backward.grad_input(t.d_three, t.three, grad_input=t.three)
        torch.ops.aten.tanh_backward.grad_input(t.d_memory, t.memory, grad_input=t.memory)
        mixed_bmm(t.gates, b.weight[t.now], out=t.d_both)
        for s in t.steps:
            mask = None if masks_by_step is None else masks_by_step[s.layer][s.number]
            _drop(s.d_x, mask, out=s.d_below)
            if s.below is not None:
                s.d_below.add_(s.d_out)
    return _weight_gradients(b)


def _weight_gradients(b: Buffers) -> list[list[Tensor | None]]:
    """Of each run: input, state, bias and projection; `gates` has the gates' gradients."""
    shape = b.shape
    grads: list[list[Tensor | None]] = []
    for layer in range(shape.layers):
        parts = (b.gates, b.both, b.d_projected, b.hidden)
        d_gates, inputs, d_projected, hidden = (shape.of_layer(part, layer) for part in parts)
        d_both = mixed_bmm(d_gates.transpose(1, 2), to_precision(inputs, shape.precision))
        d_bias = d_gates.sum(1)
        d_projection: Any = [None, None]
        if shape.projects:
            factor = to_precision(hidden, shape.precision)
            d_projection = mixed_bmm(d_projected.transpose(1, 2), factor)
        for way in range(2):
            d_into, d_state = torch.split(d_both[way], shape.size, dim=1)
            grads.append([d_into, d_state, d_bias[way], d_projection[way]])
    return grads


class _BothStacks(torch.autograd.Function):
    """Flat tensors in and out, since autograd follows only these: four weights a run."""

    @staticmethod
    def forward(
        ctx: Any, owner: Any, shape: Shape, starts: Any, masks: Any, x: Tensor, *flat: Any
    ) -> Any:
        buffers = _take(owner, shape)
        buffers.load([flat[start : start + 4] for start in range(0, len(flat), 4)])
        stacks_forward(buffers, x, starts, masks)
        ends = []
        for layer in range(shape.layers):
            for state in (buffers.h, buffers.c):
                ends.append(shape.of_layer(state, layer, later=1)[:, -shape.rows :].clone())
        top = buffers.outs[-1].clone()
        ctx.buffers, ctx.owner, ctx.masks = buffers, owner, masks
        if not any(ctx.needs_input_grad):
            _spare[owner] = buffers
        ctx.mark_non_differentiable(*ends)
        return (top, *ends)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        buffers, ctx.buffers = ctx.buffers, None  # the way back overwrites them
        if buffers is None:
            raise RuntimeError("the gradients of a window can be computed once only")
        grads = stacks_backward(buffers, ctx.masks, grad)
        d_inputs = buffers.d_inputs.clone()
        _spare[ctx.owner] = buffers
        return (None, None, None, None, d_inputs, *(one for of_run in grads for one in of_run))


def run_both_stacks(
    ways: tuple[Sequence[LSTMLayer], Sequence[LSTMLayer]],
    inputs: Tensor,
    starts: Sequence[LayerState],
    *,
    skip: bool,
    masks: Masks = None,
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
    first, rows = ways[0][0], starts[0][0].shape[1]
    shape = Shape(
        layers=len(starts),
        steps=inputs.shape[1] // rows,
        rows=rows,
        size=inputs.shape[-1],
        cells=first.cells,
        cell_clip=first.cell_clip,
        projection_clip=first.projection_clip,
        projects=first.projection is not None,
        skip=skip,
        dtype=inputs.dtype,
        device=inputs.device,
        precision=precision,
    )
    flat: list[Tensor | None] = []
    for pair in zip(*ways, strict=True):
        for run in pair:
            flat += [run.input_weight, run.recurrent_weight, run.shifted_bias(), run.projection]
    top, *ends = _BothStacks.apply(first, shape, list(starts), masks, inputs, *flat)  # type: ignore[no-untyped-call]
    return top, [(ends[k], ends[k + 1]) for k in range(0, len(ends), 2)]
