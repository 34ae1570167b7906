"""The LSTM stacks of both directions with a hand-written backward pass, for training.

Computes the same as `LSTMLayer` under autograd, several times faster:
  - what is independent is one batched operation: both directions, and layer l at step t together
    with layer l + 1 at step t - 1 (`lstm_buffers` draws this wavefront and explains runs, ticks);
  - a step's input and the hidden state before it stand side by side and are multiplied at once, on
    a CPU by weights in oneDNN's blocks, which are made once for all steps of a window;
  - the loop works in place and keeps only what the backward pass needs;
  - the backward pass loops once; each weight's gradient is one product after the loop;
  - buffers and views are made once and used for window after window.

One step of one run, with the state (h', c') of the step before:

    forward                                          backward, from dL/dy and from what the
                                                     next step left in dL/dh and dL/dc
    a = [W, U] [x, h'] + b                (F1)       dL/dh += dL/dy                          (B1)
    i, f, o = sigmoid(a_i, a_f, a_o)      (F2)       dL/dp  = dL/dh where |p| < clip else 0  (B2)
    g = tanh(a_g)                         (F3)       dL/dm  = P^T dL/dp                      (B3)
    c = clip(f * c' + i * g)              (F4)       dL/do  = dL/dm * tanh(c)                (B4)
    m = o * tanh(c)                       (F5)       dL/dc += dL/dm * o * (1 - tanh(c)^2)    (B5)
    p = P m                               (F6)       dL/dc  = 0 where c was clipped          (B6)
    h = clip(p)                           (F7)       dL/di, dL/df, dL/dg = dL/dc * g, c', i  (B7)
    y = h, or h + y_below with skip       (F8)       dL/dc' = dL/dc * f                      (B8)
    x of the layer above = mask * y       (F9)       dL/da  = dL/d(i, f, o) * s * (1 - s)    (B9)
                                                     dL/da_g = dL/dg * (1 - g^2)             (B10)
                                                     [dL/dx, dL/dh'] = [W, U]^T dL/da        (B11)
                                                     dL/dy_below = mask * dL/dx (+ dL/dy)    (B12)

    over all steps     dL/d[W, U] = sum dL/da [x, h']^T                                      (B13)
                       dL/db = sum dL/da,   dL/dP = sum dL/dp m^T                            (B14)

States are detached: no gradient flows into the state at the start of a window or out of the state
at its end. Products may be made in bfloat16; states, gates and gradients stay float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.config import BiLMConfig
from elmokit.model.fast.lstm_buffers import Buffers, Shape, Tick
from elmokit.model.kernels.linear import mixed_mm, to_precision
from elmokit.model.lstm import LayerState, LSTMLayer

Masks = Sequence[Tensor] | None
"""For each layer, what to multiply its input with (dropout): (2, steps * rows, size)."""
MINUS_ONE = torch.tensor(-1.0, device="cpu")  # A scalar tensor works with tensors on any device.

# Buffers of windows that are done, for as long as the first layer of their model exists.
_spare: WeakKeyDictionary[LSTMLayer, Buffers] = WeakKeyDictionary()


def run_both_stacks(
    config: BiLMConfig,
    directions: tuple[Sequence[LSTMLayer], Sequence[LSTMLayer]],
    inputs: Tensor,
    starts: Sequence[LayerState],
    *,
    masks: Masks = None,
    precision: torch.dtype | None = None,
) -> tuple[Tensor, list[LayerState]]:
    """Run both stacks; return the top outputs (2, steps * rows, size), and (h, c) of each layer.

    Args:
        config: that of the model.
        directions: its forward layers and its backward layers.
        inputs: token vectors, in the order in which each direction reads: (2, steps * rows, size).
        starts: (h, c) of each layer to start from: (2, rows, size) and (2, rows, cells).
        masks: for each layer, what its input is multiplied with: dropout, already scaled.
        precision: of matrix products, if it is not that of the weights.
    """
    first, rows = directions[0][0], starts[0][0].shape[1]
    steps = inputs.shape[1] // rows
    shape = Shape(config, steps, rows, inputs.dtype, inputs.device, precision)
    weights: list[Tensor | None] = []  # four for each run
    for pair in zip(*directions, strict=True):
        for layer in pair:
            weights += [layer.input_weight, layer.recurrent_weight]
            weights += [layer.shifted_bias(), layer.projection]
    top, *ends = _BothStacks.apply(first, shape, list(starts), masks, inputs, *weights)  # type: ignore[no-untyped-call]
    return top, list(zip(ends[::2], ends[1::2], strict=True))


class _BothStacks(torch.autograd.Function):
    """Both stacks for autograd, which follows flat arguments only: four weights for each run."""

    @staticmethod
    def forward(
        ctx: Any, owner: Any, shape: Shape, starts: Any, masks: Any, inputs: Tensor, *weights: Any
    ) -> Any:
        buffers = _spare.pop(owner, None)
        if buffers is None or buffers.shape != shape:
            buffers = Buffers(shape)
        buffers.load([weights[start : start + 4] for start in range(0, len(weights), 4)])
        stacks_forward(buffers, inputs, starts, masks)
        ends = []  # h and c of each layer after its last step: (2, rows, …)
        for layer in range(shape.config.num_layers):
            for state in (buffers.hidden, buffers.cell):
                ends.append(shape.steps_of(layer, state, after=True)[:, -shape.rows :].clone())
        top = buffers.outputs[-1].clone()
        ctx.buffers, ctx.owner, ctx.masks = buffers, owner, masks
        if not any(ctx.needs_input_grad):
            _spare[owner] = buffers
        ctx.mark_non_differentiable(*ends)
        return (top, *ends)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        buffers, ctx.buffers = ctx.buffers, None  # The backward pass overwrites them.
        if buffers is None:
            raise RuntimeError("the gradients of a window can be computed only once")
        d_weights = stacks_backward(buffers, ctx.masks, grad)
        d_inputs = buffers.d_inputs.clone()
        _spare[ctx.owner] = buffers
        return (None, None, None, None, d_inputs, *(d for of_run in d_weights for d in of_run))


def stacks_forward(b: Buffers, inputs: Tensor, starts: Sequence[LayerState], masks: Masks) -> None:
    """Fill the buffers from inputs (2, steps * rows, size); equations F1 to F9."""
    shape, config = b.shape, b.shape.config
    for layer, (hidden, cell) in enumerate(starts):
        shape.steps_of(layer, b.hidden)[:, : shape.rows] = hidden
        shape.steps_of(layer, b.cell)[:, : shape.rows] = cell
    _drop(inputs, None if masks is None else masks[0], out=shape.steps_of(0, b.x))
    step_masks = None if masks is None else [torch.split(m, shape.rows, dim=1) for m in masks]
    for tick in b.ticks:
        v = tick.forward
        _compute_gates(b, tick)  # F1, F2, F3: i, f, o, g
        torch.mul(v.gate_forget, v.cell_before, out=v.cell)
        v.cell.addcmul_(v.gate_input, v.candidate)  # F4: c = f * c' + i * g
        _clip(v.cell, config.cell_clip, out=v.cell)  # F4: c = clip(c)
        _to_tanh(torch.mul(v.cell, 2, out=v.tanh_cell).sigmoid_())  # tanh(c)
        torch.mul(v.gate_output, v.tanh_cell, out=v.cell_output)  # F5: m = o * tanh(c)
        if config.project_state:
            mixed_mm(v.cell_output, b.projection_t[tick.runs], out=v.projected)  # F6: p = P m
            _clip(v.projected, config.projection_clip, out=v.hidden)  # F7: h = clip(p)
        else:
            v.hidden.copy_(v.cell_output)  # h = m
        for s in tick.layer_steps:
            if s.below is not None:
                torch.add(s.hidden, s.below, out=s.output)  # F8: y = h + y_below
            if s.input_above is not None:
                mask = None if step_masks is None else step_masks[s.layer + 1][s.step]
                _drop(s.output, mask, out=s.input_above)  # F9


def _compute_gates(b: Buffers, tick: Tick) -> None:
    """Write the activated gates of a tick; equations F1 to F3.

    The candidate's weights are doubled (`Buffers.load`), so its sigmoid is sigmoid(2 a_g).
    """
    v = tick.forward
    if b.blocks is None:
        a = mixed_mm(v.input_and_hidden, b.weight_t[tick.runs]).add_(b.bias[tick.runs])
        torch.sigmoid(a, out=v.gates)  # (runs, rows, 4 cells)
    else:
        for block, input_and_hidden, gates in zip(
            b.blocks[tick.runs], v.input_and_hidden_by_run, v.gates_by_run, strict=True
        ):
            torch.sigmoid(block(input_and_hidden), out=gates)  # (rows, 4 cells)
    _to_tanh(v.candidate)


def stacks_backward(b: Buffers, masks: Masks, grad: Tensor) -> list[list[Tensor | None]]:
    """Compute all gradients from that of the top outputs, (2, steps * rows, size); B1 to B14.

    Return those of W, U, b and P for each run; `b.d_inputs` receives that of the inputs.
    """
    shape, config, aten = b.shape, b.shape.config, torch.ops.aten
    b.d_input_and_hidden.zero_()  # No gradient comes from behind the window.
    b.d_cell.zero_()
    shape.steps_of(config.num_layers - 1, b.d_output).copy_(grad)
    step_masks = None if masks is None else [torch.split(m, shape.rows, dim=1) for m in masks]
    for tick in reversed(b.ticks):
        v, d = tick.forward, tick.backward
        torch.add(d.d_output, d.d_hidden, out=d.d_projected)  # B1: dL/dh, in the memory of dL/dp
        if config.project_state:
            _clip_backward(d.d_projected, v.hidden, config.projection_clip)  # B2: dL/dp
            mixed_mm(d.d_projected, b.projection[tick.runs], out=d.d_cell_output)  # B3: dL/dm
        torch.mul(d.d_cell_output, v.tanh_cell, out=d.d_gate_output)  # B4: dL/do
        # B5: dL/dc += dL/dm * o * (1 - tanh(c)^2), in the memory of dL/dm.
        d.d_cell_output.mul_(v.gate_output)
        aten.tanh_backward.grad_input(d.d_cell_output, v.tanh_cell, grad_input=d.d_cell_output)
        d.d_cell.add_(d.d_cell_output)
        _clip_backward(d.d_cell, v.cell, config.cell_clip)  # B6
        torch.mul(d.d_cell, v.candidate, out=d.d_gate_input)  # B7: dL/di = dL/dc * g
        torch.mul(d.d_cell, v.cell_before, out=d.d_gate_forget)  # B7: dL/df = dL/dc * c'
        torch.mul(d.d_cell, v.gate_input, out=d.d_candidate)  # B7: dL/dg = dL/dc * i
        d.d_cell.mul_(v.gate_forget)  # B8: dL/dc', which the step before adds to
        # B9, B10: dL/da replaces the gates, whose last use this is.
        aten.sigmoid_backward.grad_input(
            d.d_sigmoid_gates, v.sigmoid_gates, grad_input=v.sigmoid_gates
        )
        aten.tanh_backward.grad_input(d.d_candidate, v.candidate, grad_input=v.candidate)
        mixed_mm(v.gates, b.weight[tick.runs], out=d.d_input_and_hidden)  # B11: [dL/dx, dL/dh']
        for s in tick.layer_steps:  # B12
            mask = None if step_masks is None else step_masks[s.layer][s.step]
            _drop(s.d_input, mask, out=s.d_below)
            if s.below is not None:
                s.d_below.add_(s.d_output)
    return _weight_gradients(b)


def _weight_gradients(b: Buffers) -> list[list[Tensor | None]]:
    """Return the gradients of W, U, b and P of each run; equations B13 and B14."""
    shape, config = b.shape, b.shape.config
    gradients: list[list[Tensor | None]] = []
    for layer in range(config.num_layers):
        d_gates = shape.steps_of(layer, b.gates)  # dL/da by now: (2, steps * rows, 4 cells)
        input_and_hidden = shape.steps_of(layer, b.input_and_hidden)  # (2, steps * rows, 2 size)
        factor = to_precision(input_and_hidden, shape.precision)
        d_weight = mixed_mm(d_gates.transpose(1, 2), factor)  # B13: (2, 4 cells, 2 size)
        d_bias = d_gates.sum(1)  # B14: (2, 4 cells)
        d_projection: Any = [None, None]
        if config.project_state:
            d_projected = shape.steps_of(layer, b.d_projected)  # (2, steps * rows, size)
            factor = to_precision(shape.steps_of(layer, b.cell_output), shape.precision)
            d_projection = mixed_mm(d_projected.transpose(1, 2), factor)  # B14: (2, size, cells)
        for direction in range(2):
            d_input_weight, d_recurrent_weight = d_weight[direction].chunk(2, dim=1)
            d_biases = [d_bias[direction], d_projection[direction]]
            gradients.append([d_input_weight, d_recurrent_weight, *d_biases])
    return gradients


def _drop(x: Tensor, mask: Tensor | None, out: Tensor) -> Tensor:
    """Write x with dropout into `out`; the same function serves forward and backward."""
    return out.copy_(x) if mask is None else torch.mul(x, mask, out=out)


def _to_tanh(x: Tensor) -> None:
    """Turn sigmoid(2 y) into tanh(y) = 2 sigmoid(2 y) - 1 in place.

    On a CPU this and the sigmoid take a third of the time of torch's tanh.
    """
    torch.add(MINUS_ONE, x, alpha=2, out=x)


def _clip(x: Tensor, clip: float, out: Tensor) -> None:
    """Write x clamped to [-clip, clip] into `out`; a clip of 0 means none."""
    if clip:
        torch.clamp(x, -clip, clip, out=out)
    elif x is not out:
        out.copy_(x)


def _clip_backward(grad: Tensor, y: Tensor, clip: float) -> None:
    """Set the gradient to 0 in place where the clamped y is at the bound."""
    if clip:
        torch.ops.aten.hardtanh_backward.grad_input(grad, y, -clip, clip, grad_input=grad)
