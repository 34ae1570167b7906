"""Select layers and pool tokens: what to keep of the layers that the biLM computes.

A layer selector is "all", "top", "average", a layer index, or one weight per layer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InvalidInput, explained

if TYPE_CHECKING:
    from torch import Tensor

Layers: TypeAlias = "str | int | Sequence[float]"
Pooling = Literal["mean", "max", "min", "sum", "first", "last", "ends"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


def parse_layers(text: str) -> Layers:
    """Parse a layer selector of the command line: a word, an index, or comma-separated weights.

    >>> parse_layers("top"), parse_layers("0.5,0.25,0.25")
    ('top', [0.5, 0.25, 0.25])
    """
    if "," not in text:
        return text
    problem = f"layer weights must be comma-separated numbers, not {text!r}"
    with explained(problem, ValueError, raising=InvalidInput, reason=False):
        return [float(weight) for weight in text.split(",")]


def layer_weights(layers: Layers, num_layers: int) -> NDArray[np.float32]:
    """Return the mixing matrix of a selector over layers 0..num_layers: (results, num_layers + 1).

    >>> layer_weights("top", 2)
    array([[0., 0., 1.]], dtype=float32)
    """
    identity = np.eye(num_layers + 1, dtype=np.float32)
    if isinstance(layers, str):
        if re.fullmatch(r"-?[0-9]{1,9}", layers):
            layers = int(layers)
        elif layers in ("all", "top", "average"):
            average = np.full((1, num_layers + 1), 1 / (num_layers + 1), np.float32)
            return {"all": identity, "top": identity[-1:], "average": average}[layers]
    if isinstance(layers, int | np.integer) and not isinstance(layers, bool):
        if -num_layers - 1 <= layers <= num_layers:
            return identity[[layers]]
        raise InvalidInput(f"there is no layer {layers}; this model has layers 0 to {num_layers}")
    try:
        with np.errstate(over="ignore"):
            weights = np.asarray(layers, np.float32)
    except (ValueError, TypeError, OverflowError):
        weights = np.empty(0, np.float32)
    if weights.shape != (num_layers + 1,) or not np.isfinite(weights).all():
        raise InvalidInput(
            f"layers must be 'all', 'top', 'average', an index from 0 to {num_layers} "
            f"or {num_layers + 1} weights, not {layers!r}"
        )
    return weights[None]


def layer_index(layer: str | int, num_layers: int) -> int:
    """Return the index of one layer in a table of layers 0..num_layers followed by their average.

    >>> layer_index("top", 2), layer_index("average", 2), layer_index("0", 2)
    (2, 3, 0)
    """
    known = {str(index): index for index in range(num_layers + 1)}
    known |= {"top": num_layers, "average": num_layers + 1}
    if str(layer) not in known:
        raise InvalidInput(f"layer must be 0 to {num_layers}, top or average, not {str(layer)!r}")
    return known[str(layer)]


def layer_names(num_layers: int) -> list[str]:
    """Return the row names of such a table.

    >>> layer_names(1)
    ['layer 0', 'layer 1', 'average']
    """
    return [*(f"layer {index}" for index in range(num_layers + 1)), "average"]


def combine(layers: Tensor, weights: NDArray[np.float32]) -> Tensor:
    """Mix layers (L + 1, positions, dim) by weights (results, L + 1): (results, positions, dim)."""
    import torch

    chosen = weights.argmax(axis=1)
    if np.array_equal(weights, np.eye(weights.shape[1], dtype=np.float32)[chosen]):
        if len(chosen) == len(layers):
            return layers
        return layers[torch.from_numpy(chosen).to(layers.device)]  # (results, positions, dim)
    matrix = torch.from_numpy(weights).to(layers)  # its dtype and device: (results, L + 1)
    return torch.einsum("kl,lnd->knd", matrix, layers)


def pool(layers: NDArray[Any], pooling: Pooling) -> NDArray[Any]:
    """Pool the tokens of a sentence into one vector: (layers, tokens, dim) to (layers, dim)."""
    check_pooling(pooling)
    if layers.shape[1] == 0:
        return np.zeros((layers.shape[0], layers.shape[2]), layers.dtype)
    if pooling in ("first", "last"):
        return layers[:, 0 if pooling == "first" else -1]
    if pooling == "ends":
        half = layers.shape[2] // 2
        return np.concatenate([layers[:, -1, :half], layers[:, 0, half:]], axis=1)
    if pooling in ("mean", "sum"):
        # Sum in float32: float16 vectors of a long sentence would overflow or lose precision.
        return getattr(layers, pooling)(axis=1, dtype=np.float32).astype(layers.dtype)  # type: ignore[no-any-return]
    return getattr(layers, pooling)(axis=1)  # type: ignore[no-any-return]


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors to length 1 along the last axis; zero vectors stay 0."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(length, 1e-12)  # type: ignore[no-any-return]


def pool_and_scale(
    layers: NDArray[Any], pooling: Pooling | None, *, normalize: bool
) -> NDArray[Any]:
    """Pool the tokens of a sentence and scale its vectors to length 1, as far as asked for."""
    vectors = layers if pooling is None else pool(layers, pooling)
    return unit(vectors.astype(np.float32)).astype(vectors.dtype) if normalize else vectors


def check_pooling(pooling: str) -> None:
    """Raise if `pooling` is unknown."""
    if pooling not in POOLINGS:
        raise InvalidInput(f"pooling must be one of {', '.join(POOLINGS)}, not {pooling!r}")
