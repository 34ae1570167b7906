"""Write and read the array of an .npy file piece by piece, without holding all of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


def write_npy_header(file: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Start an .npy file whose array of `shape` is then written row by row."""
    description = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)


def read_npy_rows(file: IO[bytes]) -> Iterator[NDArray[Any]]:
    """Yield the rows of the array in an .npy file that is open for reading."""
    np.lib.format.read_magic(file)
    (length, *shape), _, dtype = np.lib.format.read_array_header_1_0(file)
    row_bytes = dtype.itemsize * math.prod(shape)
    for _ in range(length):
        yield np.frombuffer(file.read(row_bytes), dtype).reshape(shape)
