"""What to take of a model's layers: which or which mix, and how tokens become a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import ElmokitError

if TYPE_CHECKING:
    from typing import TypeAlias

Layers: TypeAlias = "str | int | Sequence[float]"
Pooling = Literal["mean", "max", "min", "sum", "first", "last", "ends"]
POOLINGS: tuple[Pooling, ...] = ("mean", "max", "min", "sum", "first", "last", "ends")


def layer_weights(layers: Layers, top: int) -> NDArray[np.float32]:
    """What to compute from layers 0..top, as a matrix: (results, top + 1)."""
    identity = np.eye(top + 1, dtype=np.float32)
    if isinstance(layers, str):
        if re.fullmatch(r"-?[0-9]{1,9}", layers):
            layers = int(layers)
        elif layers in ("all", "top", "average"):
            average = np.full((1, top + 1), 1 / (top + 1), np.float32)
            return {"all": identity, "top": identity[-1:], "average": average}[layers]
    if isinstance(layers, int | np.integer) and not isinstance(layers, bool):
        if -top - 1 <= layers <= top:
            return identity[[layers]]
        raise ElmokitError(f"there is no layer {layers}; this model has layers 0 to {top}")
    try:
        with np.errstate(over="ignore"):
            weights = np.asarray(layers, np.float32)
    except (ValueError, TypeError, OverflowError):
        weights = np.empty(0, np.float32)
    if weights.shape != (top + 1,) or not np.isfinite(weights).all():
        raise ElmokitError(
            f"layers must be 'all', 'top', 'average', an index from 0 to {top} "
            f"or {top + 1} weights, not {layers!r}"
        )
    return weights[None]


def combine(layers: Tensor, weights: NDArray[np.float32]) -> Tensor:
    """The wanted combinations of layers (L + 1, positions, dim): (results, positions, dim)."""
    chosen = weights.argmax(axis=1)
    if np.array_equal(weights, np.eye(weights.shape[1], dtype=np.float32)[chosen]):
        if len(chosen) == len(layers):
            return layers
        return layers[torch.from_numpy(chosen).to(layers.device)]
    matrix = torch.from_numpy(weights).to(layers.device)
    return torch.einsum("kl,lnd->knd", matrix, layers)


def pool(layers: NDArray[Any], pooling: Pooling) -> NDArray[Any]:
    """One vector from a sentence's tokens: (layers, tokens, dim) to (layers, dim)."""
    check_pooling(pooling)
    if layers.shape[1] == 0:
        return np.zeros((layers.shape[0], layers.shape[2]), layers.dtype)
    if pooling == "first":
        return layers[:, 0]
    if pooling == "last":
        return layers[:, -1]
    if pooling == "ends":
        half = layers.shape[2] // 2
        return np.concatenate([layers[:, -1, :half], layers[:, 0, half:]], axis=1)
    if pooling in ("mean", "sum"):  # in float32, whatever the vectors are stored as
        return getattr(layers, pooling)(axis=1, dtype=np.float32).astype(layers.dtype)  # type: ignore[no-any-return]
    return getattr(layers, pooling)(axis=1)  # type: ignore[no-any-return]


def check_pooling(pooling: str) -> None:
    """Refuse the name of a pooling that there is not."""
    if pooling not in POOLINGS:
        raise ElmokitError(f"pooling must be one of {', '.join(POOLINGS)}, not {pooling!r}")
