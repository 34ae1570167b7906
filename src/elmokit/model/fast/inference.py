"""The biLM without gradients: the same numbers as `BiLM.forward`, several times faster.

What makes it fast:
  - convolutions over characters are sums of table rows (`char_tables`);
  - the part of the gates that depends on the input alone is one product for many steps;
  - sentences are sorted and the batch shrinks as they end, in place and without padding;
  - forward and backward layers run at the same time, each with half of the threads, or one
    after the other where few rows leave the time to reading weights;
  - the states after `<S>` and before `</S>` are constants of the model, computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.encoders import CharCNN, Highway, UnicodeEncoder
from elmokit.model.fast.directions import run_both_directions
from elmokit.model.kernels.char_tables import make_width_table, sum_windows, table_rows
from elmokit.model.kernels.linear import (
    BlockedLinear,
    Float32Linear,
    Linear,
    Precision,
    make_linear,
    mkl_is_slow,
)
from elmokit.model.lstm import LayerState, LSTMLayer, Packing, pack
from elmokit.text.characters import PADDING_ID

# Elements of the gates computed in one product: many if they go into a buffer that is reused, few
# if the kernel allocates new memory each time, so that the memory stays in the cache. oneDNN needs
# enough rows for the time that reading the weights takes.
REUSED_GATE_FLOATS = 8 << 20
NEW_GATE_FLOATS, NEW_GATE_ROWS = 1 << 20, 256
# Up to so many rows a step is bound by reading weights: one direction after the other, with all
# threads on each product, keeps a layer's weights in the caches of all cores.
NARROW_ROWS = 2
NARROW_ROWS_BLOCKED = 8  # where oneDNN multiplies
NARROW_ROWS_LARGE = 64  # with weights that no cache of a core holds, where that cache is small
SMALL_WEIGHT = 1 << 19  # elements; the steps of smaller models are shorter than calls of oneDNN
ENCODER_WORDS = 256  # words whose convolutions are computed at once


class FastCharCNN:
    """`CharCNN` by table look-ups."""

    def __init__(self, encoder: CharCNN, precision: Precision) -> None:
        characters = encoder.padded_characters()
        convolutions = [cast(nn.Conv1d, convolution) for convolution in encoder.convolutions]
        self.tables = [make_width_table(characters, c) for c in convolutions]
        self.biases = [cast(Tensor, c.bias).detach().clone() for c in convolutions]
        self.n_filters = sum(map(len, self.biases))
        self.activate_ = torch.tanh_ if encoder.activation == "tanh" else torch.relu_
        self.highways = pack_highways(encoder.highways, precision)
        # A BLAS that is not slow rounds the projection less than oneDNN does, in little more time.
        last = encoder.projection
        self.projection = (
            None if last is None else make_linear(last.weight, last.bias, precision, blocks=False)
        )

    def __call__(self, ids: Tensor) -> Tensor:
        """Encode character ids (words, max_characters) as vectors (words, projection_dim)."""
        lengths = (ids != PADDING_ID).sum(dim=1)  # (words,)
        order = torch.argsort(lengths)  # Words of one length together have little padding.
        x = torch.empty(len(ids), self.n_filters, device=ids.device)
        for rows in torch.split(order, ENCODER_WORDS):
            x[rows] = self._maxima(ids[rows], longest=int(lengths[rows[-1]]))
        x = run_highways(self.highways, self.activate_(x))
        return x if self.projection is None else self.projection(x)

    def _maxima(self, ids: Tensor, longest: int) -> Tensor:
        """Return each filter's maximum over all windows of ids (words, max_characters)."""
        maxima = []
        for table, bias in zip(self.tables, self.biases, strict=True):
            width = table.shape[1]
            trimmed = ids[:, : longest + width]  # One window of padding remains.
            sums = sum_windows(table_rows(trimmed, width), table)  # (words, windows, filters)
            maxima.append(sums.amax(dim=1).add_(bias))
        return torch.cat(maxima, dim=1)


class FastUnicodeEncoder:
    """`UnicodeEncoder` with prepared weights, some words at a time."""

    def __init__(self, encoder: UnicodeEncoder, precision: Precision) -> None:
        self.encoder = encoder
        self.highways = pack_highways(encoder.highways, precision)
        last = encoder.projection
        self.projection = make_linear(last.weight, last.bias, precision, blocks=False)

    def __call__(self, ids: Tensor) -> Tensor:
        """Encode ids (words, 2 + characters) as vectors (words, projection_dim)."""
        vectors = torch.empty(len(ids), self.encoder.projection.out_features, device=ids.device)
        order = torch.argsort(ids[:, 1])  # Words of one length together have little padding.
        for rows in torch.split(order, ENCODER_WORDS):
            x = run_highways(self.highways, self.encoder.read_characters(ids[rows]))
            vectors[rows] = self.projection(self.encoder.with_words(ids[rows], x))
        return vectors


def pack_highways(highways: nn.Sequential, precision: Precision) -> list[Linear]:
    """Return gate and transform of each highway layer as one product: (words, n) to (…, 2 n)."""
    packed = []
    for highway in highways:
        assert isinstance(highway, Highway)
        weight = torch.cat([highway.gate.weight, highway.transform.weight])
        bias = torch.cat([highway.gate.bias, highway.transform.bias])
        packed.append(make_linear(weight, bias, precision))
    return packed


def run_highways(highways: list[Linear], x: Tensor) -> Tensor:
    """Run x (words, n) through every highway layer."""
    for highway in highways:
        gate, transform = highway(x).chunk(2, dim=1)  # (words, n) each
        # gate * relu(transform) + (1 - gate) * x
        x = gate.sigmoid_().mul(transform.relu_()).add_(gate.neg_().add_(1).mul_(x))
    return x


def fast_encoder(encoder: nn.Module, precision: Precision) -> Callable[[Tensor], Tensor]:
    """Return a faster equivalent of a token encoder, or the encoder itself if there is none."""
    if isinstance(encoder, CharCNN):
        return FastCharCNN(encoder, precision)
    if isinstance(encoder, UnicodeEncoder):
        return FastUnicodeEncoder(encoder, precision)
    return encoder


class FastLSTMLayer:
    """`LSTMLayer` over packed sentences, in place."""

    def __init__(self, layer: LSTMLayer, precision: Precision) -> None:
        self.cells, self.size = layer.cells, layer.size
        self.cell_clip, self.projection_clip = layer.cell_clip, layer.projection_clip
        # The input product has many rows. There reading weights costs little and float32 computes
        # faster, so float16 weights are only rounded.
        half = precision == "float16"
        weight = layer.input_weight.half().float() if half else layer.input_weight
        self.from_input = make_linear(
            weight, layer.shifted_bias(), "float32" if half else precision, blocks=False
        )
        few_by_blas = layer.recurrent_weight.numel() < SMALL_WEIGHT
        self.recurrent = make_linear(
            layer.recurrent_weight, None, precision, few_by_blas=few_by_blas
        )
        self.projection = (
            None
            if layer.projection is None
            else make_linear(layer.projection, None, precision, few_by_blas=few_by_blas)
        )

    def __call__(self, x: Tensor, sizes: list[int], h: Tensor, c: Tensor) -> Tensor:
        """Run over packed x (positions, size) and return the packed outputs.

        c (sentences, cells) is updated in place to the last cell states.
        """
        outputs = torch.empty(len(x), self.size, device=x.device)
        reuses = isinstance(self.from_input, Float32Linear)
        width = 4 * self.cells
        fitting = (REUSED_GATE_FLOATS if reuses else NEW_GATE_FLOATS) // width
        if isinstance(self.from_input, BlockedLinear):
            fitting = max(fitting, NEW_GATE_ROWS)
        max_rows = min(len(x), max(sizes[0], fitting))
        buffer = torch.empty(max_rows if reuses else 0, width, device=x.device)
        start = step = 0
        while start < len(x):  # one block: the steps that fit into the buffer
            rows, last = 0, step
            while last < len(sizes) and rows + sizes[last] <= max_rows:
                rows += sizes[last]
                last += 1
            block = slice(start, start + rows)
            gates = self.from_input.into(x[block], buffer[:rows])  # (rows, 4 cells)
            h = self._run_steps(gates, sizes[step:last], h, c, outputs[block])
            start, step = start + rows, last
        return outputs

    def _run_steps(
        self, gates: Tensor, sizes: list[int], h: Tensor, c: Tensor, outputs: Tensor
    ) -> Tensor:
        """Read one token of each of n sentences in each step, with n from `sizes`, never rising.

        A step on few rows takes little longer than calling its operations, so that the views of
        all steps are made at once. The gates W x + b of all steps, (rows, 4 cells), are
        overwritten. h (n, size) is the output of the step before. The cell states c (n, cells) and
        `outputs` (rows, size) are written. Return the outputs of the last step, (n, size).
        """
        cells, cell_clip, clip = self.cells, self.cell_clip, self.projection_clip
        sigmoids, candidates = torch.split(gates, [3 * cells, cells], dim=1)
        parts = (gates, sigmoids, *sigmoids.chunk(3, dim=1), candidates, outputs)
        memory = torch.empty(sizes[0], cells, device=gates.device)  # for sigmoid(o) * tanh(c)
        n = sizes[0]
        h, c = h[:n], c[:n]
        for all_gates, sigmoid, gate_input, gate_forget, gate_output, candidate, y in zip(
            *(torch.split(part, sizes) for part in parts), strict=True
        ):
            if len(y) < n:
                n = len(y)
                h, c, memory = h[:n], c[:n], memory[:n]
            self.recurrent.add_to(all_gates, h)
            sigmoid.sigmoid_()
            candidate.tanh_()
            c.mul_(gate_forget).addcmul_(gate_input, candidate)
            if cell_clip:
                c.clamp_(-cell_clip, cell_clip)
            h = torch.tanh(c, out=memory).mul_(gate_output)  # (n, cells)
            if self.projection is None:
                h = y.copy_(h)
                continue
            h = self.projection.into(h, y)
            if clip:
                h = torch.clamp(h, -clip, clip, out=y)
            elif h is not y:
                h = y.copy_(h)
        return h


def narrow_rows(recurrent: Linear) -> int:
    """Return the largest batch for which one direction runs after the other."""
    if not isinstance(recurrent, BlockedLinear):
        return NARROW_ROWS
    is_slow = recurrent.is_large and mkl_is_slow()
    return NARROW_ROWS_LARGE if is_slow else NARROW_ROWS_BLOCKED


class FastBiLM:
    """A snapshot of a biLM for inference; make another one when the weights have changed."""

    def __init__(self, model: BiLM, boundaries: Tensor, precision: Precision = "float32") -> None:
        """Pack the weights; `boundaries` are the ids of `<S>` and `</S>`, (2, columns)."""
        self.config = model.config
        with torch.inference_mode():
            self.encode = fast_encoder(model.token_encoder, precision)
            self.directions = [
                [FastLSTMLayer(layer, precision) for layer in layers]  # type: ignore[arg-type]
                for layers in (model.forward_layers, model.backward_layers)
            ]
            self.narrow_rows = narrow_rows(self.directions[0][0].recurrent)
            self.device = next(model.parameters()).device
            marks = self.encode(boundaries.to(self.device)).chunk(2)  # (1, projection_dim) each
            zeros = BiLMState.zeros(self.config, 1, self.device)
            self.start = [
                self._run_direction(direction, marks[direction], [1], state)[1]
                for direction, state in enumerate((zeros.forward, zeros.backward))
            ]

    def run(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Compute all layers of sentences, each starting after its boundary.

        Token vectors, sentence after sentence (positions, projection_dim), and the length of each
        sentence, on the CPU, give hidden states in the same order: (L + 1, positions, dim).
        """
        start = [
            [(h.expand(len(lengths), -1), c.repeat(len(lengths), 1)) for h, c in layers]
            for layers in self.start
        ]
        return self._run((vectors, vectors), pack(lengths), start)[0]

    def run_with_state(
        self, vectors: Tensor, lengths: Tensor, state: BiLMState | None
    ) -> tuple[Tensor, BiLMState]:
        """Compute all layers from a carried state; also return the state after them.

        Here the boundaries are tokens among the vectors. The state has one row per sentence of
        the batch; None starts from zeros.
        """
        packing = pack(lengths)
        order = packing.order.to(self.device)
        before = state or BiLMState.zeros(self.config, len(lengths), self.device)
        start = before.take(order)
        both = (vectors, vectors)
        hidden_states, after = self._run(both, packing, [start.forward, start.backward])
        return hidden_states, before.put(order, BiLMState(*after))

    def run_parts(
        self, vectors: tuple[Tensor, Tensor], lengths: Tensor, state: BiLMState
    ) -> tuple[Tensor, BiLMState]:
        """Read on in sentences: each direction another part of them, of the same length.

        `vectors` are those of the parts that are read forward and backward, sentence after
        sentence. The state has one row per sentence. Return the hidden states, whose halves belong
        to different tokens, and the state after them.
        """
        packing = pack(lengths)
        order = packing.order.to(self.device)
        start = state.take(order)
        hidden_states, after = self._run(vectors, packing, [start.forward, start.backward])
        return hidden_states, state.put(order, BiLMState(*after))

    def _run(
        self, vectors: tuple[Tensor, Tensor], packing: Packing, start: list[list[LayerState]]
    ) -> tuple[Tensor, list[list[LayerState]]]:
        """Run both directions; return (L + 1, positions, dim) and their last states."""
        size, n = self.config.projection_dim, len(vectors[0])
        result = torch.empty(self.config.num_layers + 1, n, 2 * size, device=self.device)
        result[0, :, :size], result[0, :, size:] = vectors
        if n == 0:
            return result, start
        sentence_major = (packing.sentence_major, packing.sentence_major[packing.reversed])

        def run(direction: int) -> list[LayerState]:
            positions = sentence_major[direction].to(self.device)  # of the packed tokens
            columns = slice(direction * size, (direction + 1) * size)
            outputs, states = self._run_direction(
                direction, vectors[direction][positions], packing.sizes, start[direction]
            )
            for layer, output in enumerate(outputs, 1):
                result[layer, positions, columns] = output
            return states

        if packing.sizes[0] <= self.narrow_rows:
            return result, [run(0), run(1)]
        return result, run_both_directions(run, self.device, torch.inference_mode)

    def _run_direction(
        self, direction: int, x: Tensor, sizes: list[int], start: list[LayerState]
    ) -> tuple[list[Tensor], list[LayerState]]:
        """Run all layers of one direction; return packed outputs and each sentence's last state."""
        outputs, states = [], []
        steps = torch.tensor(sizes)
        rows = torch.arange(sizes[0])
        last = (steps[None, :] > rows[:, None]).sum(1) - 1  # last step of each row, (sentences,)
        ends = ((steps.cumsum(0) - steps)[last] + rows).to(x.device)  # its packed position
        for i, layer in enumerate(self.directions[direction]):
            h, c = start[i]
            c = c.clone()
            y = layer(x, sizes, h, c)  # (positions, size)
            states.append((y[ends], c))
            x = y + x if i and self.config.skip_connections else y
            outputs.append(x)
        return outputs, states
