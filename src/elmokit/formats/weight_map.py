"""Maps between the tensor names of a format and ours, as data that works in both directions.

A format is a list of rows. Each says that one tensor of the file, of a given shape, holds certain
tensors of the model, and how to convert them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.formats.checkpoint import Shapes, Tensors, check_finite, check_shapes

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
    """Return the row of a tensor that is stored unchanged."""
    return Row(name, shape, (ours,), lambda array: (array,), lambda array: array)


def transposed(name: str, shape: Shape, ours: str) -> Row:
    """Return the row of a matrix that is stored transposed."""
    return Row(name, shape, (ours,), lambda array: (array.T,), lambda array: array.T)


def padded(row: Row) -> Row:
    """Return the row of the same table with one more row, for padding, at its beginning."""
    count, *columns = row.shape
    return row._replace(
        shape=(count + 1, *columns),
        read=lambda array: row.read(array[1:]),
        write=lambda array: np.pad(row.write(array), ((1, 0), (0, 0))),
    )


def read_rows(
    rows: Iterable[Row],
    shapes: Shapes,
    fetch: Callable[[str], Array],
    where: object,
    *,
    kind: str = "tensor",
    known_by: str = "its options",
) -> Tensors:
    """Read all tensors of a file by our names; raise if one is missing, unexpected or damaged."""
    rows = list(rows)
    check_shapes(shapes, {row.theirs: row.shape for row in rows}, where, kind, known_by)
    tensors: Tensors = {}
    for row in rows:
        array = fetch(row.theirs)
        check_finite(array, f"{where}: the {kind} {row.theirs!r}")
        for name, part in zip(row.ours, row.read(array), strict=True):
            tensors[name] = np.ascontiguousarray(part)
    return tensors


def write_rows(rows: Iterable[Row], tensors: Tensors) -> Iterator[tuple[str, Array]]:
    """Yield the tensors to write with their names in the file."""
    for row in rows:
        array = row.write(*(tensors[name] for name in row.ours))
        yield row.theirs, np.ascontiguousarray(array, np.float32)
