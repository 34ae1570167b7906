"""Arrays that may be larger than the memory."""

from __future__ import annotations

import math
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError

MAX_IN_MEMORY = 512 << 20  # bytes of one array; a larger one is a temporary file


def scratch_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an uninitialized array, mapped from a temporary file if it is very large."""
    size = math.prod(shape) * dtype.itemsize
    if size <= MAX_IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="elmokit-") as file:  # The map keeps it open.
        _allocate(file.fileno(), size)
        return np.memmap(file, dtype, "w+", shape=shape)


def _allocate(descriptor: int, size: int) -> None:
    """Reserve the space now: a full disk is an error here, but kills the process in a map."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        raise ElmokitError(
            f"a sentence's vectors need {size:,} bytes in {tempfile.gettempdir()}: "
            f"{error.strerror}; TMPDIR names another folder"
        ) from None
