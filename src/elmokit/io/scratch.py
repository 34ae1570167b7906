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
        try:  # Reserve the space now: a full disk is an error here, but ends the process in a map.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise ElmokitError(
                f"a sentence's vectors need {size:,} bytes in {tempfile.gettempdir()}: "
                f"{error.strerror}; TMPDIR names another folder"
            ) from None
        return np.memmap(file, dtype, "w+", shape=shape)
