"""One LSTM layer in one direction, with projection and clipping, over packed sentences.

The same tokens stand in three orders. Three sentences "a b c d", "e f" and "g h i":

    sentence-major    a b c d e f g h i                 how callers pass and get them
    padded            a b c d | e f . . | g h i .       (sentences, tokens), for task models
    packed            a g e   b h f   c i   d           what the LSTM layers read

Packed means time-major without padding, the longest sentence first. As sentences end, a step works
on the first rows only. A backward layer gets its sentences reversed and runs like a forward one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import BiLMConfig

LayerState = tuple[Tensor, Tensor]
"""State (h, c) of one LSTM layer: (rows, projection_dim) and (rows, lstm_dim)."""


@dataclass(frozen=True)
class Packing:
    """Index tensors that lead from one order of the tokens to another."""

    sizes: list[int]
    """Number of sentences at each step, never rising."""
    order: Tensor
    """Sentences by falling length: (sentences,)."""
    sentence_major: Tensor
    """Sentence-major position of each packed token: (positions,)."""
    packed: Tensor
    """Packed position of each sentence-major token: (positions,)."""
    reversed: Tensor
    """Packed position of the token as far from its sentence's end; its own inverse."""


def pack(lengths: Tensor) -> Packing:
    """Lay out sentences of the given lengths (sentences,), which are on the CPU."""
    order = torch.argsort(lengths, descending=True, stable=True)
    by_length = lengths[order]
    longest = int(by_length[0]) if len(lengths) else 0
    alive = torch.arange(longest)[:, None] < by_length[None, :]  # (tokens, sentences)
    starts = torch.cumsum(lengths, 0) - lengths
    step, row = alive.nonzero(as_tuple=True)  # (positions,) each
    sentence_major = starts[order][row] + step
    packed = torch.empty_like(sentence_major)
    packed[sentence_major] = torch.arange(len(packed))
    reversed_ = packed[starts[order][row] + by_length[row] - 1 - step]
    return Packing(alive.sum(1).tolist(), order, sentence_major, packed, reversed_)


class LSTMLayer(nn.Module):
    """LSTM with a projection of its output, and with clipping of cell and output.

        i, f, o, g = W x + U h + b                                   lstm_dim numbers each
        c = clip(sigmoid(f + forget_bias) * c + sigmoid(i) * tanh(g), cell_clip)
        h = clip(P (sigmoid(o) * tanh(c)), projection_clip)

    W is `input_weight`, U `recurrent_weight` and P `projection`. The rows of W, U and b are those
    of i, f, o and g in this order, so that the three sigmoids stand side by side.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        cells, size = config.lstm_dim, config.projection_dim
        self.cells, self.size = cells, size
        self.cell_clip, self.projection_clip = config.cell_clip, config.projection_clip
        self.forget_bias = config.forget_bias
        self.input_weight = nn.Parameter(torch.empty(4 * cells, size))
        self.recurrent_weight = nn.Parameter(torch.empty(4 * cells, size))
        self.bias = nn.Parameter(torch.zeros(4 * cells))
        self.projection = nn.Parameter(torch.empty(size, cells)) if config.project_state else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize by fan-in and fan-out (Glorot), biases to zero, as the original did."""
        bound = (6.0 / (2 * self.size + 4 * self.cells)) ** 0.5
        nn.init.uniform_(self.input_weight, -bound, bound)
        nn.init.uniform_(self.recurrent_weight, -bound, bound)
        nn.init.zeros_(self.bias)
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    def shifted_bias(self) -> Tensor:
        """Return the bias with `forget_bias` added to the forget gate's part: (4 * cells,)."""
        shift = torch.zeros_like(self.bias)
        shift[self.cells : 2 * self.cells] = self.forget_bias
        return self.bias + shift

    def forward(
        self, x: Tensor, sizes: Sequence[int], state: LayerState
    ) -> tuple[Tensor, LayerState]:
        """Run over packed x (positions, size); return the packed outputs and the last states.

        `sizes` are those of `Packing`, `state` h (sentences, size) and c (sentences, cells).
        """
        h, c = state
        gates = functional.linear(x, self.input_weight, self.shifted_bias())  # (positions, 4 cells)
        recurrent = self.recurrent_weight.t()  # (size, 4 cells)
        # A contiguous copy halves the time of a step's product.
        projection = None if self.projection is None else self.projection.t().contiguous()
        outputs: list[Tensor] = []
        ended: list[LayerState] = []
        for step_gates in torch.split(gates, list(sizes)):
            n = len(step_gates)
            if n < len(h):  # The shortest sentences have ended: keep their state.
                ended.append((h[n:], c[n:]))
                h, c = h[:n], c[:n]
            all_gates = torch.addmm(step_gates, h, recurrent)  # (n, 4 cells)
            h, c = self._step(all_gates, c, projection)
            outputs.append(h)
        ended.append((h, c))
        # (sentences, size) and (sentences, cells)
        h, c = (torch.cat(states[::-1]) for states in zip(*ended, strict=True))
        return (torch.cat(outputs) if outputs else x.new_zeros(0, self.size)), (h, c)

    def _step(self, gates: Tensor, c: Tensor, projection: Tensor | None) -> LayerState:
        """Read one token of each sentence: gates (n, 4 cells), c (n, cells) to the new h and c."""
        sigmoid_gates = torch.sigmoid(gates[:, : 3 * self.cells])  # (n, 3 cells)
        gate_input, gate_forget, gate_output = sigmoid_gates.chunk(3, dim=1)  # (n, cells) each
        candidate = torch.tanh(gates[:, 3 * self.cells :])  # (n, cells)
        c = torch.addcmul(gate_forget * c, gate_input, candidate)  # (n, cells)
        if self.cell_clip:
            c = c.clamp(-self.cell_clip, self.cell_clip)
        h = gate_output * torch.tanh(c)  # (n, cells)
        if projection is not None:
            h = torch.mm(h, projection)  # (n, size)
            if self.projection_clip:
                h = h.clamp(-self.projection_clip, self.projection_clip)
        return h, c
