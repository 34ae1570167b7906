"""The biLM without gradients: the same numbers as `BiLM.forward`, several times faster.

What makes it fast:
  - convolutions over characters are sums of table rows (`char_tables`);
  - the part of the gates that depends on the input alone is one product for many steps;
  - sentences are sorted and the batch shrinks as they end, in place and without padding;
  - forward and backward layers run at the same time, each with half of the threads;
  - the states after `<S>` and before `</S>` are constants of the model, computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.encoders import CharCNN, Highway, UnicodeEncoder
from elmokit.model.fast.char_tables import make_width_table, sum_windows, table_rows
from elmokit.model.fast.directions import run_both_directions
from elmokit.model.fast.linear import Float32Linear, Linear, Precision, make_linear
from elmokit.model.lstm import LayerState, LSTMLayer, Packing, pack
from elmokit.text.characters import PADDING_ID

# Elements of the gates computed in one product: many if they go into a buffer that is reused, few
# if the kernel allocates new memory each time, so that the memory stays in the cache.
REUSED_GATE_FLOATS = 8 << 20
NEW_GATE_FLOATS = 1 << 20
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
        last = encoder.projection
        self.projection = None if last is None else make_linear(last.weight, last.bias, precision)

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
        self.projection = make_linear(last.weight, last.bias, precision)

    def __call__(self, ids: Tensor) -> Tensor:
        """Encode ids (words, 2 + characters) as vectors (words, projection_dim)."""
        vectors = torch.empty(len(ids), self.encoder.projection.out_features, device=ids.device)
        order = torch.argsort(ids[:, 1])  # Words of one length together have little padding.
        for rows in torch.split(order, ENCODER_WORDS):
            x = run_highways(self.highways, self.encoder.read_characters(ids[rows]))
            vectors[rows] = self.projection(self.encoder.with_words(ids[rows], x))
        return vectors


def pack_highways(highways: nn.ModuleList, precision: Precision) -> list[Linear]:
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
            weight, layer.shifted_bias(), "float32" if half else precision
        )
        self.recurrent = make_linear(layer.recurrent_weight, None, precision)
        self.projection = (
            None if layer.projection is None else make_linear(layer.projection, None, precision)
        )

    def __call__(self, x: Tensor, sizes: list[int], h: Tensor, c: Tensor) -> Tensor:
        """Run over packed x (positions, size) and return the packed outputs.

        c (sentences, cells) is updated in place to the last cell states.
        """
        outputs = torch.empty(len(x), self.size, device=x.device)
        reuses = isinstance(self.from_input, Float32Linear)
        limit = REUSED_GATE_FLOATS if reuses else NEW_GATE_FLOATS
        max_rows = min(len(x), max(sizes[0], limit // (4 * self.cells)))
        buffer = torch.empty(max_rows if reuses else 0, 4 * self.cells, device=x.device)
        cell_output = torch.empty(sizes[0], self.cells, device=x.device)
        start = step = 0
        while start < len(x):  # one block: the steps that fit into the buffer
            rows, last = 0, step
            while last < len(sizes) and rows + sizes[last] <= max_rows:
                rows += sizes[last]
                last += 1
            block = slice(start, start + rows)
            gates = self.from_input.into(x[block], buffer[:rows])  # (rows, 4 cells)
            for step_gates, y in zip(
                torch.split(gates, sizes[step:last]),
                torch.split(outputs[block], sizes[step:last]),
                strict=True,
            ):
                self._step(step_gates, h, c, cell_output, y)
                h = y
            start, step = start + rows, last
        return outputs

    def _step(self, gates: Tensor, h: Tensor, c: Tensor, cell_output: Tensor, y: Tensor) -> None:
        """Read one token of each of n sentences.

        Args:
            gates: W x + b, (n, 4 cells).
            h: outputs of the step before, at least (n, size).
            c: cell states, at least (n, cells); updated.
            cell_output: memory for sigmoid(o) * tanh(c), at least (n, cells).
            y: memory for the outputs, (n, size).
        """
        n, cells = len(gates), self.cells
        if n < len(c):
            h, c, cell_output = h[:n], c[:n], cell_output[:n]
        self.recurrent.add_to(gates, h)
        gates[:, : 3 * cells].sigmoid_()
        gates[:, 3 * cells :].tanh_()
        gate_input, gate_forget, gate_output, candidate = gates.chunk(4, dim=1)  # (n, cells) each
        c.mul_(gate_forget).addcmul_(gate_input, candidate)
        if self.cell_clip:
            c.clamp_(-self.cell_clip, self.cell_clip)
        torch.tanh(c, out=cell_output).mul_(gate_output)
        if self.projection is None:
            y.copy_(cell_output)
            return
        h = self.projection.into(cell_output, y)
        if self.projection_clip:
            torch.clamp(h, -self.projection_clip, self.projection_clip, out=y)
        elif h is not y:
            y.copy_(h)


def run_sentence(
    layers: Sequence[FastLSTMLayer], x: Tensor, start: Sequence[LayerState]
) -> tuple[Tensor, list[LayerState]]:
    """Run one layer of both directions over one sentence, step by step side by side.

    For one row a step is a few tiny operations, and calling them costs more than computing them.
    So both directions share each of them, and the views that they need are made in advance.

    Args:
        layers: the layer's forward and backward half.
        x: what each direction reads, in its own order: (2, tokens, size).
        start: outputs (1, size) and cell states (1, cells) of each direction before the sentence.

    Returns:
        The outputs, in each direction's own order (2, tokens, size), and the last states.
    """
    cells, cell_clip, clip = layers[0].cells, layers[0].cell_clip, layers[0].projection_clip
    tokens, size = x.shape[1], layers[0].size
    gates = torch.empty(tokens, 2, 4 * cells, device=x.device)
    for direction, layer in enumerate(layers):
        product = layer.from_input.into(x[direction], gates[:, direction])
        if product.data_ptr() != gates[:, direction].data_ptr():
            gates[:, direction] = product
    outputs = torch.empty(tokens + 1, 2, size, device=x.device)  # of the start, then of each token
    outputs[0] = torch.cat([h for h, _ in start])
    c = torch.cat([c for _, c in start])  # (2, cells)
    cell_output = torch.empty_like(c)
    recurrent = [layer.recurrent.add_to for layer in layers]
    projections = [layer.projection for layer in layers]
    halves = list(cell_output.split(1))  # (1, cells) each
    gate_rows, output_rows = (
        [list(rows[:, direction : direction + 1].unbind()) for direction in (0, 1)]
        for rows in (gates, outputs)
    )  # [direction][token]: (1, 4 cells), (1, size)
    sigmoids, candidates = gates[..., : 3 * cells].unbind(), gates[..., 3 * cells :].unbind()
    inputs, forgets, exposed = gates[..., : 3 * cells].chunk(3, dim=2)
    steps = zip(
        sigmoids, candidates, inputs.unbind(), forgets.unbind(), exposed.unbind(), strict=True
    )
    for t, (sigmoid, candidate, gate_input, gate_forget, gate_output) in enumerate(steps):
        for direction in (0, 1):
            recurrent[direction](gate_rows[direction][t], output_rows[direction][t])
        sigmoid.sigmoid_()
        candidate.tanh_()
        c.mul_(gate_forget).addcmul_(gate_input, candidate)
        if cell_clip:
            c.clamp_(-cell_clip, cell_clip)
        torch.tanh(c, out=cell_output).mul_(gate_output)
        for direction, projection in enumerate(projections):
            y = output_rows[direction][t + 1]
            h = halves[direction] if projection is None else projection.into(halves[direction], y)
            if h is not y:
                y.copy_(h)
        if clip and projections[0] is not None:
            outputs[t + 1].clamp_(-clip, clip)
    last = zip(outputs[-1].split(1), c.split(1), strict=True)
    return outputs[1:].transpose(0, 1), list(last)


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
            self.device = next(model.parameters()).device
            self.boundaries = self.encode(boundaries.to(self.device))  # (2, projection_dim)
            zeros = BiLMState.zeros(self.config, 1, self.device)
            self.start = [
                self._run_direction(
                    direction, self.boundaries[direction : direction + 1], [1], state
                )[1]
                for direction, state in enumerate((zeros.forward, zeros.backward))
            ]

    def run(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Compute all layers of sentences, each starting after its boundary.

        Args:
            vectors: token vectors, sentence after sentence: (positions, projection_dim).
            lengths: tokens of each sentence, on the CPU: (sentences,).

        Returns:
            The hidden states in the same order: (L + 1, positions, dim).
        """
        if len(lengths) == 1:
            return self._run_sentence(vectors, self.start)[0]
        start = [
            [(h.expand(len(lengths), -1), c.repeat(len(lengths), 1)) for h, c in layers]
            for layers in self.start
        ]
        return self._run(vectors, pack(lengths), start)[0]

    def run_with_state(
        self, vectors: Tensor, lengths: Tensor, state: BiLMState | None
    ) -> tuple[Tensor, BiLMState]:
        """Compute all layers from a carried state; also return the state after them.

        Here the boundaries are tokens among the vectors. The state has one row per sentence of
        the batch; None starts from zeros.
        """
        before = state or BiLMState.zeros(self.config, len(lengths), self.device)
        packing = pack(lengths)
        order = packing.order.to(self.device)
        start = before.take(order)
        hidden_states, after = self._run(vectors, packing, [start.forward, start.backward])
        return hidden_states, before.put(order, BiLMState(*after))

    def _run(
        self, vectors: Tensor, packing: Packing, start: list[list[LayerState]]
    ) -> tuple[Tensor, list[list[LayerState]]]:
        """Run both directions; return (L + 1, positions, dim) and their last states."""
        if packing.sizes[:1] == [1]:
            return self._run_sentence(vectors, start)
        size, result = self.config.projection_dim, self._make_result(vectors)
        if len(vectors) == 0:
            return result, start
        sentence_major = (packing.sentence_major, packing.sentence_major[packing.reversed])

        def run(direction: int) -> list[LayerState]:
            positions = sentence_major[direction].to(self.device)  # of the packed tokens
            columns = slice(direction * size, (direction + 1) * size)
            outputs, states = self._run_direction(
                direction, vectors[positions], packing.sizes, start[direction]
            )
            for layer, output in enumerate(outputs, 1):
                result[layer, positions, columns] = output
            return states

        return result, run_both_directions(run, self.device, torch.inference_mode)

    def _make_result(self, vectors: Tensor) -> Tensor:
        """Return memory for all layers (L + 1, positions, dim), of which the first is filled."""
        n, size = vectors.shape
        result = torch.empty(self.config.num_layers + 1, n, 2 * size, device=self.device)
        result[0].view(n, 2, size)[:] = vectors[:, None]
        return result

    def _run_sentence(
        self, vectors: Tensor, start: list[list[LayerState]]
    ) -> tuple[Tensor, list[list[LayerState]]]:
        """Do what `_run` does for one sentence, both directions side by side."""
        size, result = self.config.projection_dim, self._make_result(vectors)
        x = torch.stack([vectors, vectors.flip(0)])  # (2, tokens, size)
        states: list[list[LayerState]] = [[], []]
        for i, layers in enumerate(zip(*self.directions, strict=True)):
            y, last = run_sentence(layers, x, [start[0][i], start[1][i]])
            for direction in (0, 1):
                states[direction].append(last[direction])
            x = y + x if i and self.config.skip_connections else y
            result[i + 1, :, :size] = x[0]
            result[i + 1, :, size:] = x[1].flip(0)
        return result, states

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
