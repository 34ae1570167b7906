"""One LSTM layer in one direction, with projection and clips, over packed sentences.

Packed means time-major without padding: all first tokens, then all second tokens of the
sentences that have one, and so on, the sentences sorted by falling length. So each step works
on the first rows only, and no padding is ever computed. A backward layer gets its sentences
turned round; it runs like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import BiLMConfig

GATES = ("input", "forget", "output", "memory")  # the three sigmoids stand side by side


class LSTMLayer(nn.Module):
    """c = clip(sigmoid(f + forget_bias) c + sigmoid(i) tanh(m)); h = clip(P sigmoid(o) tanh(c))."""

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
        """Uniform by fan-in and fan-out (Glorot), biases zero, as the original training did."""
        bound = (6.0 / (2 * self.size + 4 * self.cells)) ** 0.5
        nn.init.uniform_(self.input_weight, -bound, bound)
        nn.init.uniform_(self.recurrent_weight, -bound, bound)
        nn.init.zeros_(self.bias)
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    def shifted_bias(self) -> Tensor:
        """The bias with the forget gate's constant added: (4 * cells,)."""
        shift = torch.zeros_like(self.bias)
        shift[self.cells : 2 * self.cells] = self.forget_bias
        return self.bias + shift

    def forward(
        self, x: Tensor, sizes: Sequence[int], state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run over packed x and give the packed outputs and the state after each sentence.

        Args:
            x: packed inputs, (positions, size).
            sizes: sentences at each step, falling; they sum to `positions`.
            state: h (sentences, size) and c (sentences, cells) to start from.
        """
        h, c = state
        gates = functional.linear(x, self.input_weight, self.shifted_bias())  # (positions, 4 cells)
        recurrent = self.recurrent_weight.t()
        # Read along its rows, a product is summed in one order on every processor: that of the
        # original, to whose numbers the result then is closer.
        projection = None if self.projection is None else self.projection.t().contiguous()
        outputs: list[Tensor] = []
        ended: list[tuple[Tensor, Tensor]] = []
        for now in torch.split(gates, list(sizes)):
            if len(now) < len(h):  # the shortest sentences have ended: keep their state
                ended.append((h[len(now) :], c[len(now) :]))
                h, c = h[: len(now)], c[: len(now)]
            h, c = self._step(torch.addmm(now, h, recurrent), c, projection)
            outputs.append(h)
        ended.append((h, c))
        final = (
            torch.cat([h for h, _ in reversed(ended)]),
            torch.cat([c for _, c in reversed(ended)]),
        )
        return (torch.cat(outputs) if outputs else x.new_zeros(0, self.size)), final

    def _step(self, gates: Tensor, c: Tensor, projection: Tensor | None) -> tuple[Tensor, Tensor]:
        """One token of each sentence: gates (n, 4 cells), c (n, cells) to the new h and c."""
        gate_i, gate_f, gate_o = torch.sigmoid(gates[:, : 3 * self.cells]).chunk(3, dim=1)
        c = torch.addcmul(gate_f * c, gate_i, torch.tanh(gates[:, 3 * self.cells :]))
        if self.cell_clip:
            c = c.clamp(-self.cell_clip, self.cell_clip)
        h = gate_o * torch.tanh(c)  # (n, cells)
        if projection is not None:
            h = torch.mm(h, projection)  # (n, size)
            if self.projection_clip:
                h = h.clamp(-self.projection_clip, self.projection_clip)
        return h, c
