"""Maps between the tensor names of a format and ours, as data that works in both directions.

A format is a list of rows. Each says that one tensor of the file, of a given shape, holds certain
tensors of the model, and how to convert them: by transposing, splitting, negating or reordering
gates. `read_rows` reads a file by such a list, `write_rows` yields the tensors to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import UnsupportedFormat
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
    shapes: Mapping[str, Shape],
    fetch: Callable[[str], Array],
    where: object,
    *,
    kind: str = "tensor",
    known_by: str = "its options",
) -> Tensors:
    """Read all tensors of a file by our names; raise if one is missing, unexpected or damaged.

    The shapes are checked before `fetch` reads anything. Messages name the file (`where`), what
    its format calls a tensor (`kind`), and what determined the map (`known_by`).
    """
    rows = list(rows)
    if extra := min(shapes.keys() - {row.theirs for row in rows}, default=""):
        raise UnsupportedFormat(f"{where} has a {kind} {extra!r} that {known_by} do not describe")
    for row in rows:
        if row.theirs not in shapes:
            raise UnsupportedFormat(f"{where} lacks the {kind} {row.theirs!r}")
        if shapes[row.theirs] != row.shape:
            raise UnsupportedFormat(
                f"{where}: the {kind} {row.theirs!r} has the shape {list(shapes[row.theirs])} "
                f"but {known_by} need {list(row.shape)}"
            )
    tensors: Tensors = {}
    for row in rows:
        array = fetch(row.theirs)
        if not is_finite(array):
            raise UnsupportedFormat(
                f"{where}: the {kind} {row.theirs!r} has values that are not finite (NaN)"
            )
        for name, part in zip(row.ours, row.read(array), strict=True):
            tensors[name] = np.ascontiguousarray(part)
    return tensors


def write_rows(rows: Iterable[Row], tensors: Tensors) -> Iterator[tuple[str, Array]]:
    """Yield the tensors to write with their names in the file."""
    for row in rows:
        array = row.write(*(tensors[name] for name in row.ours))
        yield row.theirs, np.ascontiguousarray(array, np.float32)
