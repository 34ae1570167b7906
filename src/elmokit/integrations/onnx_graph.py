"""The biLM as an ONNX graph, written operator by operator.

ONNX's own LSTM has neither a projection nor clips, so each layer is a `Scan` over its steps. No
step needs a mask: padding follows the last word, and the backward direction reads each sentence
reversed by its own length (`ReverseSequence`). `</S>` is never read forward, nor `<S>` backward, so
that each direction has one step more than there are words.

    ids ─► token encoder ─► x ─┬─► <S>, x ──────────► Scan … ─► without <S> ────────────┐
                               │                                                        ├─► layers
                               └─► </S>, x reversed ► Scan … ─► without </S>, reversed ─┘

Inside the graph sentences are time-major: (words, batch, columns).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.formats.checkpoint import Tensors
from elmokit.integrations.onnx_nodes import Graph, WeightType, onnx, typed_value
from elmokit.text.dictionaries import HEADER

OPSET = 18
IR_VERSION = 8  # the one of opset 18, so that older runtimes read the file
INPUTS = {"characters": "character_ids", "words": "word_ids", "unicode": "ids"}


def build(
    config: BiLMConfig,
    tensors: Tensors,
    boundaries: NDArray[np.float32],
    *,
    dtype: WeightType = "float32",
    softmax: bool = False,
) -> Any:
    """Return the graph of a model as an ONNX ModelProto.

    Args:
        config: The sizes of the model.
        tensors: The tensors by the names of its parameters.
        boundaries: Token vectors of `<S>` and `</S>`: (2, projection_dim).
        dtype: Type of the stored matrices.
        softmax: Whether the log probabilities of all words are outputs too.
    """
    return _Builder(config, tensors, dtype).model(boundaries, softmax)


class _Builder:
    """Writes the parts of the graph, in the order of the flow."""

    def __init__(self, config: BiLMConfig, tensors: Tensors, dtype: WeightType) -> None:
        self.config, self.tensors = config, tensors
        self.graph = Graph(dtype=dtype)

    def model(self, boundaries: NDArray[np.float32], softmax: bool) -> Any:
        """Return the whole model."""
        graph, size = self.graph, self.config.projection_dim
        ids = INPUTS[self.config.token_encoder]
        shape = graph.add("Shape", ids)
        batch = graph.add("Slice", shape, *map(graph.integers, (0, 1)))  # (1,)
        self.words = graph.add("Slice", shape, *map(graph.integers, (1, 2)))  # (1,)
        self.batch = batch
        x = self._reshape(self._encode(self._time_major(ids)), self.words, batch, size)
        begin, end = (
            self._expand(graph.weight(name, vector), size)
            for name, vector in zip(("begin_sentence", "end_sentence"), boundaries, strict=True)
        )  # (1, batch, size) each
        forward = self._direction("forward", graph.add("Concat", begin, x, axis=0))
        backward = self._direction("backward", graph.add("Concat", end, self._reverse(x), axis=0))
        outputs = {"layers": self._layers(forward, backward)}
        if softmax:
            outputs |= self._softmax(forward[-1], backward[-1])
        return self._proto(ids, {name: self._masked(value) for name, value in outputs.items()})

    # ------------------------------------------------------------------ token encoders
    def _time_major(self, ids: str) -> str:
        """Return the ids of all words in one list, time-major: (words * batch, columns)."""
        graph = self.graph
        if self.config.token_encoder == "words":
            flat = graph.add("Transpose", ids, perm=[1, 0])
            return graph.add("Reshape", flat, graph.add("Mul", self.words, self.batch))
        turned = graph.add("Transpose", ids, perm=[1, 0, 2])  # (words, batch, columns)
        rows = graph.add("Mul", self.words, self.batch)
        columns = graph.add("Slice", graph.add("Shape", ids), *map(graph.integers, (2, 3)))
        return graph.add("Reshape", turned, graph.add("Concat", rows, columns, axis=0))

    def _encode(self, ids: str) -> str:
        """Return token vectors: (words * batch, projection_dim)."""
        graph, encoder = self.graph, self.config.token_encoder
        if encoder == "words":
            return graph.add("Gather", self._weight("token_encoder.words"), ids)
        if encoder == "characters":
            table = self.tensors["token_encoder.characters"]
            padded = np.concatenate([np.zeros_like(table[:1]), table])  # Id 0 means "no word".
            x = self._convolve(graph.add("Gather", graph.weight("characters", padded), ids))
        else:
            x = self._encode_unicode(ids)
        return self._linear("token_encoder.projection", x) if self.config.project_tokens else x

    def _encode_unicode(self, ids: str) -> str:
        """Return the word's own vector beside what is read from its characters."""
        graph, parts = self.graph, []
        if self.config.word_dim:
            words = graph.add("Gather", ids, graph.integers(0), axis=1)  # (rows, 1)
            words = graph.add("Squeeze", words, graph.integers(1))
            parts.append(graph.add("Gather", self._weight("token_encoder.words"), words))
        if self.config.character_dim:
            columns = map(graph.integers, (HEADER, 1 << 31, 1))
            characters = graph.add("Slice", ids, *columns)
            x = graph.add("Gather", self._weight("token_encoder.characters"), characters)
            has_filters = self.config.has_filters
            parts.append(self._convolve(x) if has_filters else self._read_by_lstm(ids, x))
        return graph.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]

    def _read_by_lstm(self, ids: str, x: str) -> str:
        """Return the last states of an LSTM over characters in both directions: (rows, 2 size)."""
        graph, name = self.graph, "token_encoder.character_lstm"
        weights = [
            graph.weight(f"{name}.{part}", np.stack(self._both_directions(f"{name}.{part}_l0")))
            for part in ("weight_ih", "weight_hh")
        ]
        sides = [self._both_directions(f"{name}.{part}_l0") for part in ("bias_ih", "bias_hh")]
        bias = graph.weight(f"{name}.bias", np.concatenate([np.stack(s) for s in sides], axis=1))
        lengths = graph.add("Gather", ids, graph.integers(1), axis=1)
        lengths = graph.add("Squeeze", lengths, graph.integers(1))
        # A row of padding has no characters; the operator needs at least one.
        lengths = graph.add("Cast", graph.add("Max", lengths, graph.integers(1)), to=6)
        turned = graph.add("Transpose", x, perm=[1, 0, 2])  # (characters, rows, size)
        _, states = graph.add_many(
            "LSTM", turned, *weights, bias, lengths,
            outputs=2, hidden_size=self.config.character_dim, direction="bidirectional",
        )  # fmt: skip
        return graph.add("Flatten", graph.add("Transpose", states, perm=[1, 0, 2]))

    def _both_directions(self, name: str) -> list[NDArray[np.float32]]:
        """Return a tensor of each direction, its gates i, f, g, o in ONNX's order i, o, f, g."""
        result = []
        for direction in ("", "_reverse"):
            i, f, g, o = np.split(self.tensors[name + direction], 4)
            result.append(np.concatenate([i, o, f, g]))
        return result

    def _convolve(self, x: str) -> str:
        """Characters to what the highway layers return: (rows, length, dim) to (rows, filters)."""
        graph, maxima = self.graph, []
        turned = graph.add("Transpose", x, perm=[0, 2, 1])  # (rows, dim, length)
        for i in range(len(self.config.filters)):
            name = f"token_encoder.convolutions.{i}"
            weights = (self._weight(f"{name}.weight"), self._weight(f"{name}.bias"))
            windows = graph.add("Conv", turned, *weights)  # (rows, filters, windows)
            maxima.append(graph.add("ReduceMax", windows, graph.integers(2), keepdims=0))
        activation = {"relu": "Relu", "tanh": "Tanh"}[self.config.activation]
        result = graph.add(activation, graph.add("Concat", *maxima, axis=1))
        for i in range(self.config.highway_layers):
            result = self._highway(f"token_encoder.highways.{i}", result)
        return result

    def _highway(self, name: str, x: str) -> str:
        """Return g * relu(transform(x)) + (1 - g) * x with g = sigmoid(gate(x))."""
        graph = self.graph
        gate = graph.add("Sigmoid", self._linear(f"{name}.gate", x))
        new = graph.add("Relu", self._linear(f"{name}.transform", x))
        kept = graph.add("Mul", graph.add("Sub", graph.number(1.0), gate), x)
        return graph.add("Add", graph.add("Mul", gate, new), kept)

    # ------------------------------------------------------------------ LSTMs
    def _direction(self, name: str, x: str) -> list[str]:
        """Return the outputs of all layers of one direction: (words + 1, batch, size) each."""
        outputs = [x]
        for i in range(self.config.num_layers):
            y = self._lstm(f"{name}_layers.{i}", x)
            x = self.graph.add("Add", y, x) if i and self.config.skip_connections else y
            outputs.append(x)
        return outputs

    def _lstm(self, name: str, x: str) -> str:
        """Run one layer: (steps, batch, size) to (steps, batch, size)."""
        graph, cells = self.graph, self.config.lstm_dim
        bias = self.tensors[f"{name}.bias"].copy()
        bias[cells : 2 * cells] += self.config.forget_bias
        gates = graph.add("MatMul", x, self._transposed(f"{name}.input_weight"))
        gates = graph.add("Add", gates, graph.weight(f"{name}.bias", bias))
        h, c = self._zeros(self.config.projection_dim), self._zeros(cells)
        _, _, outputs = graph.add_many(
            "Scan", h, c, gates, outputs=3, num_scan_inputs=1, body=self._step(name)
        )
        return outputs

    def _step(self, name: str) -> Any:
        """Return the body of a Scan: h, c and the gates of one step's input to new h and c."""
        config, body = self.config, Graph(f"{name}.step.")
        h, c, x = (body.prefix + part for part in ("h", "c", "x"))
        recurrent = body.add("MatMul", h, self._transposed(f"{name}.recurrent_weight"))
        cells = config.lstm_dim
        i, f, o, g = body.add_many(
            "Split", body.add("Add", x, recurrent), body.integers(*[cells] * 4), outputs=4, axis=1
        )  # (batch, cells) each
        i, f, o = (body.add("Sigmoid", gate) for gate in (i, f, o))
        new = body.add("Mul", i, body.add("Tanh", g))
        new_c = body.add("Add", body.add("Mul", f, c), new)
        new_c = self._clip(body, new_c, config.cell_clip)
        new_h = body.add("Mul", o, body.add("Tanh", new_c))  # (batch, cells)
        if config.project_state:
            projected = body.add("MatMul", new_h, self._transposed(f"{name}.projection"))
            new_h = self._clip(body, projected, config.projection_clip)  # (batch, size)
        result = body.add("Identity", new_h)
        sizes = {h: config.projection_dim, c: cells, x: 4 * cells}
        sizes |= {new_h: config.projection_dim, new_c: cells, result: config.projection_dim}
        values = [typed_value(value, ["batch", size]) for value, size in sizes.items()]
        return onnx.helper.make_graph(
            body.nodes, f"{name}.step", values[:3], values[3:], body.initializers
        )

    @staticmethod
    def _clip(graph: Graph, x: str, bound: float) -> str:
        return graph.add("Clip", x, graph.number(-bound), graph.number(bound)) if bound else x

    # ------------------------------------------------------------------ outputs
    def _layers(self, forward: list[str], backward: list[str]) -> str:
        """Put both directions of all layers together: (L + 1, words, batch, dim)."""
        graph = self.graph
        layers = []
        for one, other in zip(forward, backward, strict=True):
            halves = (self._steps(one, 1), self._reverse(self._steps(other, 1)))
            both = graph.add("Concat", *halves, axis=2)  # (words, batch, dim)
            layers.append(graph.add("Unsqueeze", both, graph.integers(0)))
        return graph.add("Concat", *layers, axis=0)

    def _softmax(self, forward: str, backward: str) -> dict[str, str]:
        """Return the log probability of every word at each position, given one side of it.

        The output after `<S>` and the words before a word predicts it; backward likewise.
        """
        graph = self.graph
        before = self._steps(forward, 0)  # (words, batch, size)
        after = self._reverse(self._steps(backward, 0))
        weights = self._transposed("softmax.weight"), self._weight("softmax.bias")
        results = {}
        for name, x in (("forward", before), ("backward", after)):
            logits = graph.add("Add", graph.add("MatMul", x, weights[0]), weights[1])
            log_probabilities = graph.add("LogSoftmax", logits, axis=-1)
            layer = graph.add("Unsqueeze", log_probabilities, graph.integers(0))
            results[f"{name}_log_probabilities"] = layer  # (1, words, batch, vocabulary)
        return results

    def _masked(self, x: str) -> str:
        """Turn (…, words, batch, columns) to (…, batch, words, columns), with 0 where padded."""
        graph = self.graph
        words = graph.add("Squeeze", self.words, graph.integers(0))
        zero, one = (graph.add("Squeeze", graph.integers(i), graph.integers(0)) for i in (0, 1))
        positions = graph.add("Range", zero, words, one)
        ends = graph.add("Unsqueeze", "lengths", graph.integers(1))  # (batch, 1)
        mask = graph.add("Less", positions, ends)  # (batch, words)
        mask = graph.add("Unsqueeze", mask, graph.integers(2))
        turned = graph.add("Transpose", x, perm=[0, 2, 1, 3])
        return graph.add("Where", mask, turned, graph.number(0.0))

    def _proto(self, ids: str, outputs: dict[str, str]) -> Any:
        """Return the model with its inputs and outputs."""
        graph, config = self.graph, self.config
        for name, value in outputs.items():
            last = value
            if name != "layers":
                last = graph.add("Squeeze", value, graph.integers(0))
            graph.nodes.append(onnx.helper.make_node("Identity", [last], [name], name=name))
        columns = {"characters": [config.max_characters], "words": []}
        shape = ["batch", "words", *columns.get(config.token_encoder, ["columns"])]
        integer = onnx.TensorProto.INT64
        inputs = [typed_value(ids, shape, integer), typed_value("lengths", ["batch"], integer)]
        shapes: dict[str, list[str | int]] = {
            name: ["batch", "words", config.vocabulary_size] for name in outputs
        }
        shapes["layers"] = [config.num_layers + 1, "batch", "words", config.dim]
        results = [typed_value(name, shapes[name]) for name in outputs]
        proto = onnx.helper.make_graph(graph.nodes, "elmo", inputs, results, graph.initializers)
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        return onnx.helper.make_model(
            proto, opset_imports=opsets, ir_version=IR_VERSION, producer_name="elmokit"
        )

    # ------------------------------------------------------------------ small pieces
    def _weight(self, name: str) -> str:
        return self.graph.weight(name, self.tensors[name])

    def _transposed(self, name: str) -> str:
        """Add a weight as the right side of a product; the graph is where a Scan finds it too."""
        return self.graph.weight(name, self.tensors[name].T)

    def _linear(self, name: str, x: str) -> str:
        product = self.graph.add("MatMul", x, self._transposed(f"{name}.weight"))
        return self.graph.add("Add", product, self._weight(f"{name}.bias"))

    def _reshape(self, x: str, *shape: str | int) -> str:
        parts = [self.graph.integers(part) if isinstance(part, int) else part for part in shape]
        return self.graph.add("Reshape", x, self.graph.add("Concat", *parts, axis=0))

    def _expand(self, x: str, size: int) -> str:
        """Repeat (size,) for each sentence: (1, batch, size)."""
        one, columns = self.graph.integers(1), self.graph.integers(size)
        return self.graph.add(
            "Expand", x, self.graph.add("Concat", one, self.batch, columns, axis=0)
        )

    def _zeros(self, size: int) -> str:
        """Return the state of a layer that has not read anything: (batch, size)."""
        shape = self.graph.add("Concat", self.batch, self.graph.integers(size), axis=0)
        return self.graph.add("ConstantOfShape", shape)

    def _reverse(self, x: str) -> str:
        """Reverse each sentence by its own length: (words, batch, columns)."""
        return self.graph.add("ReverseSequence", x, "lengths", time_axis=0, batch_axis=1)

    def _steps(self, x: str, start: int) -> str:
        """Return `words` of the words + 1 steps, from `start` on."""
        graph = self.graph
        end = graph.add("Add", self.words, graph.integers(start))
        return graph.add("Slice", x, graph.integers(start), end, graph.integers(0))
