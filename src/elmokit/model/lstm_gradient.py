"""The LSTM stacks of both directions with a backward pass written by hand, for training.

The same numbers as `LSTMLayer` under autograd, several times faster:
  - what can be computed at the same time is one computation: both directions, and layer l at step t
    with layer l + 1 at step t - 1. So every tensor is (runs, …), a run being one layer of one
    direction, and a tick of the loop is one batched product for all runs;
  - a step's input and the state before it stand side by side and are multiplied at once;
  - the loop works in place, and keeps what the way back needs: the activated gates, the cells,
    their tanh and the hidden vectors before the projection;
  - the way back loops once; every weight's gradient is one product after the loop.

Runs are ordered by layer: forward 0, backward 0, forward 1, and so on. Layer l reads its first step
at tick l, so in tensors of all ticks, (runs, ticks * rows, …), the places before are unused.

States are cut from the gradient: none flows into the state at the start, nor out of that at the
end. Products may be made in bfloat16; states, gates and gradients are float32 all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.model.lstm import LSTMLayer
from elmokit.model.products import batched_product, lowered

LayerState = tuple[Tensor, Tensor]
Masks = Sequence[Tensor] | None


@dataclass(frozen=True)
class Shape:
    """What the layers have in common, and which of them read which step when."""

    layers: int
    steps: int
    rows: int
    cell_clip: float
    projection_clip: float
    skip: bool
    """From the second layer on, a layer's input is added to its output."""
    precision: torch.dtype | None = None
    """Of matrix products; None for that of the weights."""

    @property
    def ticks(self) -> int:
        """Until the last layer has read the last step."""
        return self.steps + self.layers - 1

    def layers_at(self, tick: int) -> range:
        """The layers that read a step: the first ones early, the last ones late."""
        return range(max(0, tick - self.steps + 1), min(self.layers, tick + 1))

    def runs_at(self, tick: int) -> slice:
        """The runs of these layers."""
        layers = self.layers_at(tick)
        return slice(2 * layers.start, 2 * layers.stop)

    def by_tick(self, tensor: Tensor, later: int = 0) -> list[Tensor]:
        """Of (runs, ticks * rows, …), what the runs of each tick have there, or a tick later."""
        parts = torch.split(tensor, self.rows, dim=1)[later : later + self.ticks]
        return [
            part if len(self.layers_at(tick)) == self.layers else part[self.runs_at(tick)]
            for tick, part in enumerate(parts)
        ]

    def of_layer(self, tensor: Tensor, layer: int, later: int = 0) -> Tensor:
        """Of (runs, ticks * rows, …), the steps of one layer: (2, steps * rows, …)."""
        start = (layer + later) * self.rows
        return tensor[2 * layer : 2 * layer + 2, start : start + self.steps * self.rows]

    def by_step(self, tensors: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """Each layer's steps, of tensors (2, steps * rows, …)."""
        return [torch.split(tensor, self.rows, dim=1) for tensor in tensors]


@dataclass(frozen=True)
class Weights:
    """The weights of all runs."""

    both: Tensor  # of the input and of the state: (runs, 4 cells, 2 size)
    bias: Tensor  # with the forget gate's constant: (runs, 1, 4 cells)
    projection: Tensor | None  # (runs, size, cells)

    @classmethod
    def gather(cls, flat: Sequence[Any], precision: torch.dtype | None) -> Weights:
        """From the four tensors of each run."""
        into, recurrent, bias, projection = (list(flat[kind::4]) for kind in range(4))
        both = into[0].new_empty(len(into), len(into[0]), 2 * into[0].shape[1])
        for number, pair in enumerate(zip(into, recurrent, strict=True)):
            torch.cat(pair, dim=1, out=both[number])
        last = None if projection[0] is None else lowered(torch.stack(projection), precision)
        return cls(lowered(both, precision), torch.stack(bias)[:, None], last)


@dataclass
class Saved:
    """What the way back needs."""

    both: Tensor
    """Inputs with their dropout, and beside them h before each tick, which is h after the tick
    before: (runs, (ticks + 1) * rows, 2 size)."""
    c: Tensor
    """Before each tick, likewise: (runs, (ticks + 1) * rows, cells)."""
    gates: Tensor  # activated: (runs, ticks * rows, 4 cells)
    tanh_c: Tensor  # (runs, ticks * rows, cells)
    hidden: Tensor  # before the projection: (runs, ticks * rows, cells)

    @property
    def x(self) -> Tensor:
        """The inputs."""
        return self.both[..., : self.both.shape[-1] // 2]

    @property
    def h(self) -> Tensor:
        """The states."""
        return self.both[..., self.both.shape[-1] // 2 :]


def _gates(gates: Tensor) -> tuple[Tensor, ...]:
    """Views of gates (…, 4 cells): the three sigmoids together, each of them, and the memory."""
    cells = gates.shape[-1] // 4
    return (gates[..., : 3 * cells], *gates.chunk(4, dim=-1))


def _drop(x: Tensor, mask: Tensor | None, out: Tensor) -> Tensor:
    """Write a layer's input with its dropout, or the gradient on its way back."""
    return out.copy_(x) if mask is None else torch.mul(x, mask, out=out)


def _transposed(matrices: Tensor) -> Tensor:
    """(runs, n, m) as (runs, m, n), in the order in memory with which products are fastest.

    Part by part, so that a cache holds what is read and written: up to three times as fast.
    """
    runs, n, m = matrices.shape
    result = matrices.new_empty(runs, m, n)
    for start in range(0, n, 256):
        part = slice(start, start + 256)
        result[:, :, part] = matrices[:, part].transpose(1, 2)
    return result


def stacks_forward(
    inputs: Tensor, weights: Weights, starts: Sequence[LayerState], masks: Masks, shape: Shape
) -> tuple[Tensor, Saved]:
    """The top outputs for inputs (2, steps * rows, size), and what the way back needs."""
    runs, places, rows = 2 * shape.layers, shape.ticks * shape.rows, shape.rows
    size, cells = inputs.shape[-1], starts[0][1].shape[-1]
    saved = Saved(
        both=inputs.new_empty(runs, places + rows, 2 * size),
        c=inputs.new_empty(runs, places + rows, cells),
        gates=inputs.new_empty(runs, places, 4 * cells),
        tanh_c=inputs.new_empty(runs, places, cells),
        hidden=inputs.new_empty(runs, places, cells),
    )
    for layer, (h, c) in enumerate(starts):
        shape.of_layer(saved.h, layer)[:, :rows] = h
        shape.of_layer(saved.c, layer)[:, :rows] = c
    each = range(shape.layers)
    outs = [shape.of_layer(saved.h, layer, later=1) for layer in each]
    steps_h = shape.by_step(outs)
    if shape.skip:
        outs[1:] = [torch.empty_like(inputs) for _ in outs[1:]]
    steps_out = shape.by_step(outs)
    steps_x = shape.by_step([shape.of_layer(saved.x, layer) for layer in each])
    steps_mask = None if masks is None else shape.by_step(masks)
    _drop(inputs, None if masks is None else masks[0], out=shape.of_layer(saved.x, 0))
    both_t = _transposed(weights.both)
    projection_t = None if weights.projection is None else _transposed(weights.projection)
    views = (saved.both, *_gates(saved.gates), saved.c, saved.tanh_c, saved.hidden)
    after = (shape.by_tick(saved.c, later=1), shape.by_tick(saved.h, later=1))
    for tick, (
        both, three, gate_i, gate_f, gate_o, memory, c_before, tanh_c, hidden, c, h,
    ) in enumerate(zip(*map(shape.by_tick, views), *after, strict=True)):  # fmt: skip
        now = shape.runs_at(tick)
        raw = batched_product(both, both_t[now]).add_(weights.bias[now])
        torch.sigmoid(raw[..., : 3 * cells], out=three)
        torch.tanh(raw[..., 3 * cells :], out=memory)
        torch.mul(gate_f, c_before, out=c).addcmul_(gate_i, memory)
        if shape.cell_clip:
            c.clamp_(-shape.cell_clip, shape.cell_clip)
        torch.tanh(c, out=tanh_c)
        torch.mul(gate_o, tanh_c, out=hidden)
        projected = hidden
        if projection_t is not None:
            projected = batched_product(hidden, projection_t[now])
            if shape.projection_clip:
                projected.clamp_(-shape.projection_clip, shape.projection_clip)
        h.copy_(projected)
        for layer in shape.layers_at(tick):
            step = tick - layer
            out = steps_out[layer][step]
            if layer and shape.skip:
                torch.add(steps_h[layer][step], steps_out[layer - 1][step], out=out)
            if layer + 1 < shape.layers:
                mask = None if steps_mask is None else steps_mask[layer + 1][step]
                _drop(out, mask, out=steps_x[layer + 1][step])
    return outs[-1].contiguous(), saved


def stacks_backward(
    saved: Saved, weights: Weights, masks: Masks, shape: Shape, grad: Tensor
) -> tuple[Tensor, list[Tensor | None]]:
    """Gradients of the inputs (2, steps * rows, size), and of the four tensors of each run.

    The gradients of the gates take the gates' place in memory, where they are still at hand.
    """
    runs, size, rows, top = len(saved.gates), grad.shape[-1], shape.rows, shape.layers - 1
    d_out, d_projected = (
        grad.new_empty(runs, shape.ticks * rows, size) for _ in range(2)
    )  # the latter before the clip
    d_both = grad.new_zeros(runs, rows, 2 * size)
    d_c_all = saved.c.new_zeros(runs, rows, saved.c.shape[-1])
    scratch_all = torch.empty_like(saved.gates[:, :rows])
    d_inputs = torch.empty_like(grad)
    shape.of_layer(d_out, top).copy_(grad)
    steps_d_out = shape.by_step([shape.of_layer(d_out, layer) for layer in range(shape.layers)])
    steps_d_in = [*shape.by_step([d_inputs]), *steps_d_out]  # of each layer: of the one below
    steps_mask = None if masks is None else shape.by_step(masks)
    views = (saved.gates, *_gates(saved.gates), saved.c, saved.tanh_c, d_out, d_projected)
    after = (shape.by_tick(saved.c, later=1), shape.by_tick(saved.h, later=1))
    ticks = list(zip(*map(shape.by_tick, views), *after, strict=True))
    for tick in range(shape.ticks - 1, -1, -1):
        (
            gates, three, gate_i, gate_f, gate_o, memory, c_before, tanh_c, d_now, d_h, c, h,
        ) = ticks[tick]  # fmt: skip
        now = shape.runs_at(tick)
        d_c, (s_three, s_i, s_f, s_o, s_m) = d_c_all[now], _gates(scratch_all[now])
        d_hidden = torch.add(d_now, d_both[now, :, size:], out=d_h)
        if weights.projection is not None:
            _clip_backward(d_h, h, shape.projection_clip)
            d_hidden = batched_product(d_h, weights.projection[now])  # (runs, rows, cells)
        torch.mul(d_hidden, tanh_c, out=s_o)
        d_hidden.mul_(gate_o)
        d_c.add_(torch.ops.aten.tanh_backward(d_hidden, tanh_c))
        _clip_backward(d_c, c, shape.cell_clip)
        torch.mul(d_c, memory, out=s_i)
        torch.mul(d_c, c_before, out=s_f)
        torch.mul(d_c, gate_i, out=s_m)
        d_c.mul_(gate_f)
        torch.ops.aten.sigmoid_backward.grad_input(s_three, three, grad_input=three)
        torch.ops.aten.tanh_backward.grad_input(s_m, memory, grad_input=memory)
        batched_product(gates, weights.both[now], out=d_both[now])
        for layer in shape.layers_at(tick):
            step = tick - layer
            d_in = d_both[2 * layer : 2 * layer + 2, :, :size]
            mask = None if steps_mask is None else steps_mask[layer][step]
            below = _drop(d_in, mask, out=steps_d_in[layer][step])
            if layer and shape.skip:
                below.add_(steps_d_out[layer][step])
    return d_inputs, _weight_gradients(saved, d_projected, weights, shape)


def _weight_gradients(
    saved: Saved, d_projected: Tensor, weights: Weights, shape: Shape
) -> list[Tensor | None]:
    """Of each run: input, state, bias and projection; `saved.gates` has the gates' gradients."""
    size = d_projected.shape[-1]
    grads: list[Tensor | None] = []
    for layer in range(shape.layers):
        parts = (saved.gates, saved.both, d_projected, saved.hidden)
        d_gates, both, d_last, hidden = (shape.of_layer(part, layer) for part in parts)
        d_both = batched_product(d_gates.transpose(1, 2), lowered(both, shape.precision))
        d_bias = d_gates.sum(1)
        d_projection: Any = (None, None)
        if weights.projection is not None:
            d_projection = batched_product(d_last.transpose(1, 2), lowered(hidden, shape.precision))
        for way in range(2):
            grads += [d_both[way, :, :size], d_both[way, :, size:], d_bias[way], d_projection[way]]
    return grads


def _clip_backward(grad: Tensor, y: Tensor, clip: float) -> None:
    """No gradient where y was cut to the bound; a clip of 0 cuts nothing."""
    if clip:
        torch.ops.aten.hardtanh_backward.grad_input(grad, y, -clip, clip, grad_input=grad)


class _BothStacks(torch.autograd.Function):
    """Flat tensors in and out, since autograd follows only these: four weights a run."""

    @staticmethod
    def forward(ctx: Any, shape: Shape, starts: Any, masks: Any, x: Tensor, *flat: Any) -> Any:
        weights = Weights.gather(flat, shape.precision)
        top, saved = stacks_forward(x, weights, starts, masks, shape)
        ctx.kept, ctx.masks, ctx.shape = (saved, weights), masks, shape
        ends = []
        for layer in range(shape.layers):
            for state in (saved.h, saved.c):
                ends.append(shape.of_layer(state, layer, later=1)[:, -shape.rows :].clone())
        ctx.mark_non_differentiable(*ends)
        return (top, *ends)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        kept, ctx.kept = ctx.kept, None  # the way back overwrites it
        if kept is None:
            raise RuntimeError("the gradients of a window can be computed once only")
        saved, weights = kept
        d_inputs, grads = stacks_backward(saved, weights, ctx.masks, ctx.shape, grad)
        return (None, None, None, d_inputs, *grads)


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
        cell_clip=first.cell_clip,
        projection_clip=first.projection_clip,
        skip=skip,
        precision=precision,
    )
    flat: list[Tensor | None] = []
    for pair in zip(*ways, strict=True):
        for run in pair:
            flat += [run.input_weight, run.recurrent_weight, run.shifted_bias(), run.projection]
    top, *ends = _BothStacks.apply(shape, list(starts), masks, inputs, *flat)  # type: ignore[no-untyped-call]
    return top, [(ends[k], ends[k + 1]) for k in range(0, len(ends), 2)]
