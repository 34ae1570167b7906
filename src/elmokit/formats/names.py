"""Tensor names of the bilm format beside ours, as data that works both ways.

Each row of `bilm_table` says: this dataset, of this shape, holds these tensors of ours, and how
one becomes the other. Nothing but transposes, a split and an order of gates is ever needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig

Array = NDArray[np.float32]


class Row(NamedTuple):
    """One dataset of a file and the tensors of the model it holds."""

    theirs: str
    shape: tuple[int, ...]
    ours: tuple[str, ...]
    read: Callable[[Array], tuple[Array, ...]]
    write: Callable[..., Array]


def _same(name: str, shape: tuple[int, ...], ours: str) -> Row:
    return Row(name, shape, (ours,), lambda array: (array,), lambda array: array)


def _transposed(name: str, shape: tuple[int, ...], ours: str) -> Row:
    return Row(name, shape, (ours,), lambda array: (array.T,), lambda array: array.T)


def _convolution(name: str, shape: tuple[int, ...], ours: str) -> Row:
    """[1, width, characters, filters] to [filters, characters, width]."""
    return Row(
        name,
        shape,
        (ours,),
        lambda array: (array[0].transpose(2, 1, 0),),
        lambda array: array.transpose(2, 1, 0)[None],
    )


def _gates(array: Array, order: tuple[int, ...]) -> Array:
    """Reorder four blocks of columns (or of a vector)."""
    blocks = np.split(array, 4, axis=-1)
    return np.concatenate([blocks[k] for k in order], axis=-1)


# They order the gates input, memory, forget, output; we input, forget, output, memory.
_TO_OURS, _TO_THEIRS = (0, 2, 3, 1), (0, 3, 1, 2)


def _kernel(name: str, shape: tuple[int, ...], prefix: str, size: int) -> Row:
    """[input + recurrent, 4 cells] to two matrices [4 cells, size]."""

    def read(array: Array) -> tuple[Array, ...]:
        ordered = _gates(array, _TO_OURS)
        return ordered[:size].T, ordered[size:].T

    def write(from_input: Array, recurrent: Array) -> Array:
        return _gates(np.concatenate([from_input.T, recurrent.T]), _TO_THEIRS)

    return Row(name, shape, (f"{prefix}.input_weight", f"{prefix}.recurrent_weight"), read, write)


def _gate_bias(name: str, shape: tuple[int, ...], ours: str) -> Row:
    return Row(
        name,
        shape,
        (ours,),
        lambda array: (_gates(array, _TO_OURS),),
        lambda array: _gates(array, _TO_THEIRS),
    )


def bilm_table(config: BiLMConfig) -> list[Row]:
    """Every dataset of a bilm file for a model of this configuration."""
    return [
        *(_character_rows(config) if config.token_encoder == "characters" else _word_rows(config)),
        *(
            row
            for way in (0, 1)
            for layer in range(config.layers)
            for row in _lstm_rows(config, way, layer)
        ),
        *(_softmax_rows(config) if config.vocabulary_size else []),
    ]


def _character_rows(config: BiLMConfig) -> list[Row]:
    n, size = config.n_filters, config.projection_dim
    encoder = "token_encoder"
    rows = [
        _same("char_embed", (config.n_characters, config.character_dim), f"{encoder}.characters")
    ]
    for i, (width, number) in enumerate(config.filters):
        shape = (1, width, config.character_dim, number)
        rows.append(_convolution(f"CNN/W_cnn_{i}", shape, f"{encoder}.convolutions.{i}.weight"))
        rows.append(_same(f"CNN/b_cnn_{i}", (number,), f"{encoder}.convolutions.{i}.bias"))
    for k in range(config.highway_layers):
        for theirs, ours in (("carry", "gate"), ("transform", "transform")):
            place = f"{encoder}.highways.{k}.{ours}"
            rows.append(_transposed(f"CNN_high_{k}/W_{theirs}", (n, n), f"{place}.weight"))
            rows.append(_same(f"CNN_high_{k}/b_{theirs}", (n,), f"{place}.bias"))
    if config.project_tokens:
        rows.append(_transposed("CNN_proj/W_proj", (n, size), f"{encoder}.projection.weight"))
        rows.append(_same("CNN_proj/b_proj", (size,), f"{encoder}.projection.bias"))
    return rows


def _word_rows(config: BiLMConfig) -> list[Row]:
    return [_same("embedding", (config.n_words, config.projection_dim), "token_encoder.words")]


def _lstm_rows(config: BiLMConfig, way: int, layer: int) -> list[Row]:
    theirs = f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    ours = f"{('forward', 'backward')[way]}_layers.{layer}"
    cells, size = config.lstm_dim, config.projection_dim
    rows = [
        _kernel(f"{theirs}/W_0", (2 * size, 4 * cells), ours, size),
        _gate_bias(f"{theirs}/B", (4 * cells,), f"{ours}.bias"),
    ]
    if config.project_state:
        rows.append(_transposed(f"{theirs}/W_P_0", (cells, size), f"{ours}.projection"))
    return rows


def _softmax_rows(config: BiLMConfig) -> list[Row]:
    words, size = config.vocabulary_size, config.projection_dim
    return [
        _same("softmax/W", (words, size), "softmax.weight"),
        _same("softmax/b", (words,), "softmax.bias"),
    ]
