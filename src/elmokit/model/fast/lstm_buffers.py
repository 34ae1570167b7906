"""Memory in which `lstm_gradient` computes the LSTM stacks of a window, forward and backward.

Layer l at step t needs layer l - 1 at step t and itself at step t - 1, so at any moment one step of
every layer can be computed at once. Such a diagonal is a *tick*: at tick k, layer l is at step
k - l. With 2 layers and 4 steps:

    tick          0      1      2      3      4
              ┌──────┬──────┬──────┬──────┬──────┐
    layer 0   │ t=0  │ t=1  │ t=2  │ t=3  │  –   │    layers_at(0) = layer 0
              ├──────┼──────┼──────┼──────┼──────┤    layers_at(1) = layers 0 and 1
    layer 1   │  –   │ t=0  │ t=1  │ t=2  │ t=3  │    layers_at(4) = layer 1
              └──────┴──────┴──────┴──────┴──────┘

The forward pass goes through the ticks from left to right, the backward pass from right to left.

Both directions are computed together too. A *run* is one layer of one direction, ordered by layer:
forward 0, backward 0, forward 1, backward 1, … The runs of a tick are therefore one slice, and each
operation of a tick is one batched operation on tensors (runs, rows, …).

Buffers that keep all ticks are (runs, ticks * rows, …), as in the drawing with a pair of runs for
each line; places marked – are never read. `hidden` and `cell` have one tick more: at tick k they
hold the state *before* the step, which writes the state after it to tick k + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elmokit.config import BiLMConfig
from elmokit.model.kernels.linear import BlockedLinear, has_blocks


@dataclass(frozen=True)
class Shape:
    """Everything that decides the size and use of the buffers; equal shapes can share them."""

    config: BiLMConfig
    """Below, `size` is its projection_dim, and `cells` its lstm_dim."""
    steps: int
    rows: int
    """Number of text streams in the batch."""
    dtype: torch.dtype
    device: torch.device
    precision: torch.dtype | None = None
    """Precision of matrix products; None for that of the weights."""

    @property
    def runs(self) -> int:
        """Number of layers in both directions."""
        return 2 * self.config.num_layers

    @property
    def ticks(self) -> int:
        """Number of ticks until the last layer has read the last step."""
        return self.steps + self.config.num_layers - 1

    def layers_at(self, tick: int) -> range:
        """Return the layers that are at work: the first ones early, the last ones late."""
        return range(max(0, tick - self.steps + 1), min(self.config.num_layers, tick + 1))

    def rows_at(self, index: int) -> slice:
        """Return the rows of a tick in (runs, ticks * rows, …), or of a step in `steps_of`."""
        return slice(index * self.rows, (index + 1) * self.rows)

    def steps_of(self, layer: int, buffer: Tensor, *, after: bool = False) -> Tensor:
        """Return a view of the steps of one layer in both directions: (2, steps * rows, …).

        `after` starts one tick later, where the states after each step are.
        """
        start = (layer + after) * self.rows
        return buffer[2 * layer : 2 * layer + 2, start : start + self.steps * self.rows]


class ForwardViews:
    """What the runs of a tick read and write in the forward pass.

    Each is a view (runs, rows, columns), with `size` or `cells` columns where nothing else is said.
    """

    def __init__(self, b: Buffers, runs: slice, now: slice, after: slice) -> None:
        # [x, h'], the input beside the hidden state before the step: 2 * size columns.
        self.input_and_hidden = b.input_and_hidden[runs, now]
        self.input_and_hidden_by_run = self.input_and_hidden.unbind()
        # [i, f, o, g], activated: 4 * cells columns. The backward pass puts their gradients here.
        self.gates = b.gates[runs, now]
        self.gates_by_run = self.gates.unbind()
        self.sigmoid_gates = self.gates[..., : 3 * b.shape.config.lstm_dim]  # [i, f, o]
        i, f, o, g = self.gates.chunk(4, dim=-1)
        self.gate_input, self.gate_forget, self.gate_output, self.candidate = i, f, o, g
        self.cell_before = b.cell[runs, now]  # c'
        self.cell = b.cell[runs, after]  # c
        self.tanh_cell = b.tanh_cell[runs, now]  # tanh(c)
        self.cell_output = b.cell_output[runs, now]  # m = o * tanh(c)
        self.projected = b.projected[runs]  # p = P m, before the clip
        self.hidden = b.hidden[runs, after]  # h, after the clip


class BackwardViews:
    """Gradients that the runs of a tick read and write: d_name is dL/d(name), (runs, rows, …)."""

    def __init__(self, b: Buffers, runs: slice, now: slice) -> None:
        config, d_gates = b.shape.config, b.d_gates[runs]
        self.d_output = b.d_output[runs, now]  # dL/dy: of the layer's output, with skip connection
        self.d_projected = b.d_projected[runs, now]  # dL/dp
        self.d_cell_output = b.d_cell_output[runs] if config.project_state else self.d_projected
        self.d_input_and_hidden = b.d_input_and_hidden[runs]  # [dL/dx, dL/dh']
        # dL/dh as the step after this one left it; its own dL/dh' after the tick.
        self.d_hidden = self.d_input_and_hidden[..., config.projection_dim :]
        self.d_cell = b.d_cell[runs]  # dL/dc likewise
        self.d_sigmoid_gates = d_gates[..., : 3 * config.lstm_dim]  # [dL/di, dL/df, dL/do]
        i, f, o, g = d_gates.chunk(4, dim=-1)
        self.d_gate_input, self.d_gate_forget, self.d_gate_output, self.d_candidate = i, f, o, g


class LayerStep:
    """What one layer of a tick exchanges with the layers below and above: (2, rows, size)."""

    def __init__(self, b: Buffers, layer: int, step: int) -> None:
        shape, config, rows = b.shape, b.shape.config, b.shape.rows_at(step)
        has_skip, is_top = layer > 0 and config.skip_connections, layer + 1 == config.num_layers
        d_below = shape.steps_of(layer - 1, b.d_output) if layer else b.d_inputs
        self.layer, self.step = layer, step
        self.hidden = shape.steps_of(layer, b.hidden, after=True)[:, rows]
        # h or, with a skip connection, h plus the output of the layer below.
        self.output = b.outputs[layer][:, rows]
        self.below = b.outputs[layer - 1][:, rows] if has_skip else None
        self.input_above = None if is_top else shape.steps_of(layer + 1, b.x)[:, rows]
        self.d_input = b.d_input_and_hidden[2 * layer : 2 * layer + 2, :, : config.projection_dim]
        self.d_output = shape.steps_of(layer, b.d_output)[:, rows]
        # Gradient of the output of the layer below or, for layer 0, of the token vectors.
        self.d_below = d_below[:, rows]


class Tick:
    """One step of all layers that are at work, as views of the buffers."""

    def __init__(self, b: Buffers, tick: int) -> None:
        shape = b.shape
        layers, now, after = shape.layers_at(tick), shape.rows_at(tick), shape.rows_at(tick + 1)
        self.runs = slice(2 * layers.start, 2 * layers.stop)  # of the layers at work
        self.forward = ForwardViews(b, self.runs, now, after)
        self.backward = BackwardViews(b, self.runs, now)
        self.layer_steps = [LayerStep(b, layer, tick - layer) for layer in layers]


class Buffers:
    """Memory of one window, from its forward pass to the end of its backward pass."""

    def __init__(self, shape: Shape) -> None:
        self.shape, config = shape, shape.config
        runs, rows, size, cells = shape.runs, shape.rows, config.projection_dim, config.lstm_dim
        kept = shape.ticks * rows

        def empty(*sizes: int, dtype: torch.dtype = shape.dtype) -> Tensor:
            return torch.empty(sizes, dtype=dtype, device=shape.device)

        # Weights. Those of the forward pass have the candidate's part doubled: see `load`.
        factors = shape.precision or shape.dtype
        self.weight = empty(runs, 4 * cells, 2 * size, dtype=factors)  # [W, U], not doubled
        self.blocks: list[BlockedLinear] | None = None  # [W, U] in oneDNN's blocks, doubled
        if not has_blocks(self.weight):  # Without blocks, the forward pass uses the transpose.
            self.weight_t = empty(runs, 2 * size, 4 * cells, dtype=factors)  # doubled
        self.bias = empty(runs, 1, 4 * cells)  # doubled
        self.projection = empty(runs, size, cells, dtype=factors)  # P
        self.projection_t = empty(runs, cells, size, dtype=factors)
        # States before each tick, and after the last one.
        self.input_and_hidden = empty(runs, kept + rows, 2 * size)
        self.x = self.input_and_hidden[..., :size]  # with dropout
        self.hidden = self.input_and_hidden[..., size:]
        self.cell = empty(runs, kept + rows, cells)
        # What the backward pass needs of each tick.
        self.gates = empty(runs, kept, 4 * cells)
        self.tanh_cell = empty(runs, kept, cells)
        self.cell_output = empty(runs, kept, cells)
        self.outputs = [
            shape.steps_of(layer, self.hidden, after=True) for layer in range(config.num_layers)
        ]  # (2, steps * rows, size) each
        if config.skip_connections:
            self.outputs[1:] = [empty(*output.shape) for output in self.outputs[1:]]
        self.d_output = empty(runs, kept, size)
        self.d_projected = empty(runs, kept, size)
        self.d_inputs = empty(2, shape.steps * rows, size)
        # What only the tick at work needs.
        self.projected = empty(runs, rows, size)
        self.d_cell_output = empty(runs, rows, cells)
        self.d_input_and_hidden = empty(runs, rows, 2 * size)
        self.d_cell = empty(runs, rows, cells)
        self.d_gates = empty(runs, rows, 4 * cells)  # of the activated gates
        self.ticks = [Tick(self, tick) for tick in range(shape.ticks)]

    def load(self, weights: Sequence[Sequence[Any]]) -> None:
        """Copy W, U, b and P of each run.

        For the forward pass the candidate's weights and bias are doubled. As tanh(a) is
        2 sigmoid(2 a) - 1, one sigmoid then serves for all four gates.
        """
        candidate = slice(-self.shape.config.lstm_dim, None)
        for run, (input_weight, recurrent_weight, bias, projection) in enumerate(weights):
            torch.cat((input_weight, recurrent_weight), dim=1, out=self.weight[run])
            self.bias[run, 0] = bias
            if projection is not None:
                self.projection[run] = projection
        self.bias[..., candidate].mul_(2)
        if has_blocks(self.weight):
            self.weight[:, candidate].mul_(2)
            pairs = zip(self.weight, self.bias.flatten(1), strict=True)
            self.blocks = [BlockedLinear(weight, bias) for weight, bias in pairs]
            self.weight[:, candidate].div_(2)
        else:
            _transpose(self.weight, self.weight_t)
            self.weight_t[..., candidate].mul_(2)
        if self.shape.config.project_state:
            _transpose(self.projection, self.projection_t)


def _transpose(matrices: Tensor, out: Tensor) -> None:
    """Write (runs, n, m) as contiguous (runs, m, n), the layout in which products are fastest.

    Part by part, so that what is read and written fits into the cache: up to three times as fast.
    """
    for start in range(0, matrices.shape[1], 256):
        part = slice(start, start + 256)
        out[:, :, part] = matrices[:, part].transpose(1, 2)
