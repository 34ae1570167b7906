"""The biLM without gradients: the same numbers as `BiLM.forward`, several times faster.

What makes it fast:
  - the convolutions over characters are sums of table rows, as there are few characters;
  - the input's share of the gates is one product for many steps;
  - the sentences are sorted and the batch shrinks as they end, in place, without padding;
  - forward and backward layers run at the same time, each with half of the threads;
  - the states after `<S>` and before `</S>` are constants of the model, computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.model.bilm import BiLM, BiLMState, LayerState
from elmokit.model.char_cnn import CharCNN, Highway
from elmokit.model.fast.directions import both
from elmokit.model.fast.linear import Float32Linear, Linear, Precision, make_linear
from elmokit.model.lstm import LSTMLayer
from elmokit.model.packing import Packing, pack
from elmokit.model.unicode_encoder import UnicodeEncoder
from elmokit.text.characters import PADDING_ID

GATE_FLOATS = 8 << 20  # hoisted gates at once, in numbers, where their memory is used again
FRESH_FLOATS = 1 << 20  # the same where each product takes new memory: little, so that it is warm
BAG_WORDS = 256  # words whose convolutions are computed at once


class FastCharCNN:
    """Characters to token vectors by table look-ups."""

    def __init__(self, encoder: CharCNN, precision: Precision) -> None:
        characters = functional.pad(encoder.characters.detach(), (0, 0, 1, 0))
        self.rows = len(characters)
        self.tables, self.biases, self.widths = [], [], []
        for convolution in encoder.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            weight = convolution.weight.detach()  # (filters, character_dim, width)
            products = [characters @ weight[:, :, k].t() for k in range(weight.shape[2])]
            self.tables.append(torch.cat(products))  # (width * rows, filters)
            self.biases.append(convolution.bias.detach().clone())  # type: ignore[union-attr]
            self.widths.append(weight.shape[2])
        self.tanh = encoder.activation == "tanh"
        self.highways = pack_highways(encoder.highways, precision)
        last = encoder.projection
        self.projection = None if last is None else make_linear(last.weight, last.bias, precision)

    def __call__(self, ids: Tensor) -> Tensor:
        """Character ids (words, max_characters) to vectors (words, projection_dim)."""
        used = (ids != PADDING_ID).sum(dim=1)
        order = torch.argsort(used)  # words of one length together: little padding is summed
        x = torch.empty(len(ids), sum(table.shape[1] for table in self.tables), device=ids.device)
        for rows in torch.split(order, BAG_WORDS):
            longest = int(used[rows[-1]])
            x[rows] = torch.cat(list(self._maxima(ids[rows], longest)), dim=1)
        if self.tanh:
            x.tanh_()
        else:
            x.relu_()
        x = through_highways(self.highways, x)
        return x if self.projection is None else self.projection(x)

    def _maxima(self, ids: Tensor, longest: int) -> Iterator[Tensor]:
        """The maximum of each filter over all windows: (words, filters) for each width."""
        for table, bias, width in zip(self.tables, self.biases, self.widths, strict=True):
            trimmed = ids[:, : min(ids.shape[1], longest + width)]  # one window of padding stays
            windows = trimmed.unfold(1, width, 1)  # (words, positions, width)
            offsets = torch.arange(width, device=ids.device, dtype=ids.dtype) * self.rows
            bags = (windows + offsets).reshape(-1, width)
            sums = functional.embedding_bag(bags, table, mode="sum")
            yield sums.view(len(ids), windows.shape[1], -1).amax(dim=1).add_(bias)


class FastUnicodeEncoder:
    """Characters and words of dictionaries to token vectors, some words at a time."""

    def __init__(self, encoder: UnicodeEncoder, precision: Precision) -> None:
        self.encoder = encoder
        self.highways = pack_highways(encoder.highways, precision)
        last = encoder.projection
        self.projection = make_linear(last.weight, last.bias, precision)

    def __call__(self, ids: Tensor) -> Tensor:
        """Ids (words, 2 + characters) to vectors (words, projection_dim)."""
        vectors = torch.empty(len(ids), self.encoder.projection.out_features, device=ids.device)
        order = torch.argsort(ids[:, 1])  # words of one length together: little padding is read
        for rows in torch.split(order, BAG_WORDS):
            x = through_highways(self.highways, self.encoder.read_characters(ids[rows]))
            vectors[rows] = self.projection(self.encoder.with_words(ids[rows], x))
        return vectors


def pack_highways(highways: nn.ModuleList, precision: Precision) -> list[Linear]:
    """Gate and transform of each highway layer as one product."""
    packed = []
    for highway in highways:
        assert isinstance(highway, Highway)
        weight = torch.cat([highway.gate.weight, highway.transform.weight])
        bias = torch.cat([highway.gate.bias, highway.transform.bias])
        packed.append(make_linear(weight, bias, precision))
    return packed


def through_highways(highways: list[Linear], x: Tensor) -> Tensor:
    """(words, n) through every highway layer."""
    for highway in highways:
        gate, transform = highway(x).chunk(2, dim=1)
        x = gate.sigmoid_().mul(transform.relu_()).add_(gate.neg_().add_(1).mul_(x))
    return x


def fast_encoder(encoder: nn.Module, precision: Precision) -> Callable[[Tensor], Tensor]:
    """What gives the numbers of a token encoder faster, if anything does."""
    if isinstance(encoder, CharCNN):
        return FastCharCNN(encoder, precision)
    if isinstance(encoder, UnicodeEncoder):
        return FastUnicodeEncoder(encoder, precision)
    return encoder


class FastLSTMLayer:
    """One direction of one layer over packed sentences, in place."""

    def __init__(self, layer: LSTMLayer, precision: Precision) -> None:
        self.cells, self.size = layer.cells, layer.size
        self.cell_clip, self.projection_clip = layer.cell_clip, layer.projection_clip
        # Many rows at once: reading weights costs little there, and float32 computes faster.
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
        """Packed x (positions, size) to packed outputs; c holds the last cell states then."""
        out = torch.empty(len(x), self.size, device=x.device)
        reused = isinstance(self.from_input, Float32Linear)
        rows = max(sizes[0], (GATE_FLOATS if reused else FRESH_FLOATS) // (4 * self.cells))
        room = min(len(x), rows)
        buffer = torch.empty(room if reused else 0, 4 * self.cells, device=x.device)
        scratch = torch.empty(sizes[0], self.cells, device=x.device)
        start = step = 0
        while start < len(x):
            rows, last = 0, step
            while last < len(sizes) and rows + sizes[last] <= room:
                rows += sizes[last]
                last += 1
            block = self.from_input.into(x[start : start + rows], buffer[:rows])
            parts = sizes[step:last]
            for gates, y in zip(
                torch.split(block, parts),
                torch.split(out[start : start + rows], parts),
                strict=True,
            ):
                self._step(gates, h, c, scratch, y)
                h = y
            start, step = start + rows, last
        return out

    def _step(self, gates: Tensor, h: Tensor, c: Tensor, scratch: Tensor, y: Tensor) -> None:
        n, cells = len(gates), self.cells
        if n < len(c):
            h, c, scratch = h[:n], c[:n], scratch[:n]
        self.recurrent.add_to(gates, h)
        gates[:, : 3 * cells].sigmoid_()
        gates[:, 3 * cells :].tanh_()
        gate_i, gate_f, gate_o, memory = gates.chunk(4, dim=1)
        c.mul_(gate_f).addcmul_(gate_i, memory)
        if self.cell_clip:
            c.clamp_(-self.cell_clip, self.cell_clip)
        torch.tanh(c, out=scratch).mul_(gate_o)
        if self.projection is None:
            y.copy_(scratch)
            return
        h = self.projection.into(scratch, y)
        if self.projection_clip:
            torch.clamp(h, -self.projection_clip, self.projection_clip, out=y)
        elif h is not y:
            y.copy_(h)


class FastBiLM:
    """A snapshot of a biLM for inference; made anew when the weights have changed."""

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
                self._run_direction(way, self.boundaries[way : way + 1], [1], state)[1]
                for way, state in enumerate((zeros.forward, zeros.backward))
            ]

    def layers(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Every layer of sentences given as token vectors, without carried state.

        Args:
            vectors: token vectors, sentence after sentence: (positions, projection_dim).
            lengths: tokens of each sentence, on the CPU: (sentences,).

        Returns:
            The layers in the same order: (L + 1, positions, dim).
        """
        start = [
            [(h.expand(len(lengths), -1), c.repeat(len(lengths), 1)) for h, c in way]
            for way in self.start
        ]
        return self._layers(vectors, pack(lengths), start)[0]

    def carried_layers(
        self, vectors: Tensor, lengths: Tensor, state: BiLMState | None
    ) -> tuple[Tensor, BiLMState]:
        """The same with boundaries as tokens among the vectors, and the state passed on.

        The state has a row for each place in the batch; None starts from zeros.
        """
        packing = pack(lengths)
        order = packing.order.to(self.device)
        before = state or BiLMState.zeros(self.config, len(lengths), self.device)
        start = before.take(order)
        layers, after = self._layers(vectors, packing, [start.forward, start.backward])
        return layers, before.put(order, BiLMState(*after))

    def _layers(
        self, vectors: Tensor, packing: Packing, start: list[list[LayerState]]
    ) -> tuple[Tensor, list[list[LayerState]]]:
        size, n = self.config.projection_dim, len(vectors)
        result = torch.empty(len(self.directions[0]) + 1, n, 2 * size, device=self.device)
        result[0, :, :size] = vectors
        result[0, :, size:] = vectors
        if n == 0:
            return result, start
        places = (packing.sentence_major, packing.sentence_major[packing.turned])

        def run(way: int) -> list[LayerState]:
            place = places[way].to(self.device)
            outputs, states = self._run_direction(way, vectors[place], packing.sizes, start[way])
            for layer, output in enumerate(outputs, 1):
                result[layer, place, way * size : (way + 1) * size] = output
            return states

        return result, both(run, self.device, torch.inference_mode)

    def _run_direction(
        self, way: int, x: Tensor, sizes: list[int], start: list[LayerState]
    ) -> tuple[list[Tensor], list[LayerState]]:
        """All layers of one direction: packed outputs, and the state after each sentence."""
        outputs, states = [], []
        steps = torch.tensor(sizes)
        rows = torch.arange(sizes[0])
        last = (steps[None, :] > rows[:, None]).sum(1) - 1  # the step at which each row ends
        ends = ((steps.cumsum(0) - steps)[last] + rows).to(x.device)  # where that output stands
        for number, layer in enumerate(self.directions[way]):
            h, c = start[number]
            c = c.clone()
            y = layer(x, sizes, h, c)
            states.append((y[ends], c))
            x = y + x if number and self.config.skip_connections else y
            outputs.append(x)
        return outputs, states


def parameter_version(module: nn.Module) -> tuple[int, ...]:
    """Return numbers that change when a parameter of a module is changed or moved."""
    return tuple(value for p in module.parameters() for value in (p.data_ptr(), p._version))
