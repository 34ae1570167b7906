"""Tensor names of a format beside ours, as data that works both ways.

A format is a table of rows: this tensor of a file, of this shape, holds these tensors of ours, and
how one becomes the other. Nothing but transposes, splits, signs and orders of gates is ever needed.
`read_rows` takes a file by such a table, `write_rows` gives the tensors for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Tensors, is_finite

Array = NDArray[np.float32]
Shape = tuple[int, ...]


class Row(NamedTuple):
    """One tensor of a file and the tensors of the model that it holds."""

    theirs: str
    shape: Shape
    ours: tuple[str, ...]
    read: Callable[[Array], tuple[Array, ...]]
    write: Callable[..., Array]


def same(name: str, shape: Shape, ours: str) -> Row:
    """A tensor as it is."""
    return Row(name, shape, (ours,), lambda array: (array,), lambda array: array)


def transposed(name: str, shape: Shape, ours: str) -> Row:
    """A matrix that multiplies from the other side."""
    return Row(name, shape, (ours,), lambda array: (array.T,), lambda array: array.T)


def padded(row: Row) -> Row:
    """The same table with a row more before all others, which stands for padding."""
    number, *columns = row.shape
    return row._replace(
        shape=(number + 1, *columns),
        read=lambda array: row.read(array[1:]),
        write=lambda array: np.pad(row.write(array), ((1, 0), (0, 0))),
    )


def read_rows(
    rows: Iterable[Row],
    shapes: Mapping[str, Shape],
    fetch: Callable[[str], Array],
    where: object,
    *,
    kind: str = "tensor",
    known_by: str = "its options",
) -> Tensors:
    """All tensors of a file by our names, or one sentence that names the one that does not fit.

    Args:
        rows: the table.
        shapes: what the file has, compared with the table before anything is read.
        fetch: reads a tensor.
        where: what to call the file.
        kind: what the file calls a tensor.
        known_by: what the table was made from.
    """
    rows = list(rows)
    if extra := sorted(set(shapes) - {row.theirs for row in rows}):
        raise ElmokitError(f"{where} has a {kind} {extra[0]!r} that {known_by} do not describe")
    for row in rows:
        if row.theirs not in shapes:
            raise ElmokitError(f"{where} lacks the {kind} {row.theirs!r}")
        if shapes[row.theirs] != row.shape:
            raise ElmokitError(
                f"{where}: the {kind} {row.theirs!r} has the shape {list(shapes[row.theirs])} "
                f"where {known_by} give {list(row.shape)}"
            )
    tensors: Tensors = {}
    for row in rows:
        array = fetch(row.theirs)
        if not is_finite(array):
            raise ElmokitError(
                f"{where}: the {kind} {row.theirs!r} has values that are not finite (NaN)"
            )
        for name, part in zip(row.ours, row.read(array), strict=True):
            tensors[name] = np.ascontiguousarray(part)
    return tensors


def write_rows(rows: Iterable[Row], tensors: Tensors) -> Iterator[tuple[str, Array]]:
    """The names of a file and their tensors, one after the other."""
    for row in rows:
        array = row.write(*(tensors[name] for name in row.ours))
        yield row.theirs, np.ascontiguousarray(array, np.float32)
