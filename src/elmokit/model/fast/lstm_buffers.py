"""The memory in which the LSTM stacks of a window are computed, there and back.

Every tensor is (runs, …), a run being one layer of one direction, ordered by layer: forward 0,
backward 0, forward 1, and so on. A tick is a step of all layers at once, layer l being l steps
behind. Tensors of all ticks are (runs, ticks * rows, …): layer l reads its first step at tick l,
and its places before are unused. The views that a tick takes are made once, for window after
window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmokit.model.fast.linear import BlockedLinear, has_blocks


@dataclass(frozen=True)
class Shape:
    """What the layers have in common: windows of the same shape can use the same memory."""

    layers: int
    steps: int
    rows: int
    size: int
    cells: int
    cell_clip: float
    projection_clip: float
    projects: bool
    skip: bool
    """From the second layer on, a layer's input is added to its output."""
    dtype: torch.dtype
    device: torch.device
    precision: torch.dtype | None = None
    """Of matrix products; None for that of the weights."""

    @property
    def runs(self) -> int:
        """Layers of all directions."""
        return 2 * self.layers

    @property
    def ticks(self) -> int:
        """Until the last layer has read the last step."""
        return self.steps + self.layers - 1

    def layers_at(self, tick: int) -> range:
        """The layers that read a step: the first ones early, the last ones late."""
        return range(max(0, tick - self.steps + 1), min(self.layers, tick + 1))

    def of_layer(self, tensor: Tensor, layer: int, later: int = 0) -> Tensor:
        """Of (runs, ticks * rows, …), the steps of one layer: (2, steps * rows, …)."""
        start = (layer + later) * self.rows
        return tensor[2 * layer : 2 * layer + 2, start : start + self.steps * self.rows]


class Tick(NamedTuple):
    """What the runs of one tick read and write, as views of the buffers: (runs, rows, …)."""

    now: slice
    """Which runs they are."""
    both: Tensor
    each_both: tuple[Tensor, ...]
    """The same, run by run."""
    gates: Tensor
    each_gates: tuple[Tensor, ...]
    three: Tensor
    """Those that are sigmoids: of the input, to forget, of the output."""
    gate_i: Tensor
    gate_f: Tensor
    gate_o: Tensor
    memory: Tensor
    c_before: Tensor
    c: Tensor
    tanh_c: Tensor
    hidden: Tensor
    projected: Tensor
    h: Tensor
    d_out: Tensor
    d_projected: Tensor
    d_hidden: Tensor
    d_both: Tensor
    d_h_before: Tensor
    d_c: Tensor
    d_gate_i: Tensor
    d_gate_f: Tensor
    d_gate_o: Tensor
    d_memory: Tensor
    d_three: Tensor
    steps: list[Step]


class Step(NamedTuple):
    """What one layer of a tick has to do with its neighbours: (2, rows, size)."""

    layer: int
    number: int
    h: Tensor
    out: Tensor
    """h, or with a skip connection a place of its own."""
    below: Tensor | None
    """The output of the layer below, if there is a skip connection."""
    x_above: Tensor | None
    """The input of the layer above, if there is one."""
    d_x: Tensor
    d_out: Tensor
    d_below: Tensor
    """The gradient of the output of the layer below, or of the inputs."""


class Buffers:
    """The memory of one window in work.

    The gradients of the gates take the gates' place, where they are still at hand.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        runs, rows, size, cells = shape.runs, shape.rows, shape.size, shape.cells
        places = shape.ticks * rows

        def empty(*sizes: int, dtype: torch.dtype = shape.dtype) -> Tensor:
            return torch.empty(sizes, dtype=dtype, device=shape.device)

        factors = shape.precision or shape.dtype
        self.weight = empty(runs, 4 * cells, 2 * size, dtype=factors)  # of input and state
        self.blocks: list[BlockedLinear] | None = None  # or, where there are none, transposed:
        if not has_blocks(self.weight):
            self.weight_t = empty(runs, 2 * size, 4 * cells, dtype=factors)
        self.bias = empty(runs, 1, 4 * cells)  # the memory's doubled, as in blocks and weight_t
        self.projection = empty(runs, size, cells, dtype=factors)
        self.projection_t = empty(runs, cells, size, dtype=factors)
        # Inputs with their dropout, and beside them h before each tick, that is after the one
        # before; likewise the cells.
        self.both = empty(runs, places + rows, 2 * size)
        self.x, self.h = self.both[..., :size], self.both[..., size:]
        self.c = empty(runs, places + rows, cells)
        self.gates = empty(runs, places, 4 * cells)  # activated
        self.tanh_c = empty(runs, places, cells)
        self.hidden = empty(runs, places, cells)  # before the projection
        self.outs = [shape.of_layer(self.h, layer, later=1) for layer in range(shape.layers)]
        if shape.skip:
            self.outs[1:] = [empty(*out.shape) for out in self.outs[1:]]
        self.projected = empty(runs, rows, size)
        self.d_inputs = empty(2, shape.steps * rows, size)
        self.d_out = empty(runs, places, size)
        self.d_projected = empty(runs, places, size)  # before the clip
        self.d_hidden = empty(runs, rows, cells)
        self.d_both = empty(runs, rows, 2 * size)
        self.d_c = empty(runs, rows, cells)
        self.d_gates = empty(runs, rows, 4 * cells)  # before the activation's own
        self.ticks = [self._tick(tick) for tick in range(shape.ticks)]

    def _tick(self, tick: int) -> Tick:
        shape, rows, three = self.shape, self.shape.rows, 3 * self.shape.cells
        layers = shape.layers_at(tick)
        now = slice(2 * layers.start, 2 * layers.stop)
        here, after = (
            slice(tick * rows, (tick + 1) * rows),
            slice((tick + 1) * rows, (tick + 2) * rows),
        )
        both, gates, d_gates = self.both[now, here], self.gates[now, here], self.d_gates[now]
        gate_i, gate_f, gate_o, memory = gates.chunk(4, dim=-1)
        d_gate_i, d_gate_f, d_gate_o, d_memory = d_gates.chunk(4, dim=-1)
        d_projected = self.d_projected[now, here]
        return Tick(
            now=now,
            both=both,
            each_both=both.unbind(),
            gates=gates,
            each_gates=gates.unbind(),
            three=gates[..., :three],
            gate_i=gate_i,
            gate_f=gate_f,
            gate_o=gate_o,
            memory=memory,
            c_before=self.c[now, here],
            c=self.c[now, after],
            tanh_c=self.tanh_c[now, here],
            hidden=self.hidden[now, here],
            projected=self.projected[now],
            h=self.h[now, after],
            d_out=self.d_out[now, here],
            d_projected=d_projected,
            d_hidden=self.d_hidden[now] if shape.projects else d_projected,
            d_both=self.d_both[now],
            d_h_before=self.d_both[now, :, shape.size :],
            d_c=self.d_c[now],
            d_gate_i=d_gate_i,
            d_gate_f=d_gate_f,
            d_gate_o=d_gate_o,
            d_memory=d_memory,
            d_three=d_gates[..., :three],
            steps=[self._step(layer, tick - layer) for layer in layers],
        )

    def _step(self, layer: int, number: int) -> Step:
        shape, rows = self.shape, self.shape.rows
        here = slice(number * rows, (number + 1) * rows)
        d_below = shape.of_layer(self.d_out, layer - 1) if layer else self.d_inputs
        last = layer + 1 == shape.layers
        return Step(
            layer=layer,
            number=number,
            h=shape.of_layer(self.h, layer, later=1)[:, here],
            out=self.outs[layer][:, here],
            below=self.outs[layer - 1][:, here] if layer and shape.skip else None,
            x_above=None if last else shape.of_layer(self.x, layer + 1)[:, here],
            d_x=self.d_both[2 * layer : 2 * layer + 2, :, : shape.size],
            d_out=shape.of_layer(self.d_out, layer)[:, here],
            d_below=d_below[:, here],
        )

    def load(self, weights: Sequence[Sequence[Any]]) -> None:
        """Take the four weights of each run.

        On the way forward the memory's are doubled: so one sigmoid does for all gates, since
        tanh(y) = 2 sigmoid(2 y) - 1.
        """
        memory = slice(-self.shape.cells, None)
        for run, (into, recurrent, bias, projection) in enumerate(weights):
            torch.cat((into, recurrent), dim=1, out=self.weight[run])
            self.bias[run, 0] = bias
            if projection is not None:
                self.projection[run] = projection
        self.bias[..., memory].mul_(2)
        if has_blocks(self.weight):
            self.weight[:, memory].mul_(2)
            pairs = zip(self.weight, self.bias.flatten(1), strict=True)
            self.blocks = [BlockedLinear(weight, bias) for weight, bias in pairs]
            self.weight[:, memory].div_(2)
        else:
            _transpose(self.weight, self.weight_t)
            self.weight_t[..., memory].mul_(2)
        if self.shape.projects:
            _transpose(self.projection, self.projection_t)


def _transpose(matrices: Tensor, out: Tensor) -> None:
    """(runs, n, m) as (runs, m, n), in the order in memory with which products are fastest.

    Part by part, so that a cache holds what is read and written: up to three times as fast.
    """
    for start in range(0, matrices.shape[1], 256):
        part = slice(start, start + 256)
        out[:, :, part] = matrices[:, part].transpose(1, 2)
