"""A graph of ONNX while it is written: nodes, weights and constants get their names here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import require

onnx: Any = require("onnx", extra="onnx", purpose="Exporting to ONNX")

WeightType = Literal["float32", "float16"]


class Graph:
    """Nodes and weights of a graph; each method adds a node and returns the name of its output."""

    def __init__(self, prefix: str = "", dtype: WeightType = "float32") -> None:
        self.prefix, self.dtype = prefix, dtype
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._constants: dict[tuple[Any, ...], str] = {}

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output."""
        return self.add_many(operator, *inputs, outputs=1, **attributes)[0]

    def add_many(
        self, operator: str, *inputs: str, outputs: int, body: Any = None, **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs."""
        name = f"{self.prefix}{operator}_{len(self.nodes)}"
        names = [f"{name}_{i}" for i in range(outputs)]
        if body is not None:
            attributes["body"] = body
        node = onnx.helper.make_node(operator, list(inputs), names, name=name, **attributes)
        self.nodes.append(node)
        return names

    def weight(self, name: str, array: NDArray[np.float32]) -> str:
        """Add a weight; a matrix is stored as float16 if the graph is, and computed in float32."""
        if self.dtype == "float16" and array.ndim > 1:
            return self.add("Cast", self._initializer(name, array.astype(np.float16)), to=1)
        return self._initializer(name, array.astype(np.float32))

    def integers(self, *values: int) -> str:
        """Add a list of integers, such as a shape or axes."""
        return self._constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """Add a float32 without dimensions."""
        return self._constant(np.array(value, np.float32))

    def _constant(self, array: NDArray[Any]) -> str:
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"{self.prefix}constant_{len(self._constants)}"
            self._constants[key] = self._initializer(name, array)
        return self._constants[key]

    def _initializer(self, name: str, array: NDArray[Any]) -> str:
        self.initializers.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name


def typed_value(name: str, shape: Sequence[str | int], kind: int = 1) -> Any:
    """Describe an input or an output; the type 1 is float32."""
    return onnx.helper.make_tensor_value_info(name, kind, list(shape))
