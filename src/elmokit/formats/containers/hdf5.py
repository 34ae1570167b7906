"""HDF5 files as plain data: the datasets are listed before anything is read into memory.

Links, external and virtual storage are refused, and so is more data than the file can hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import UnsupportedFormat, explained
from elmokit.io.paths import check_regular

if TYPE_CHECKING:
    import h5py

MAX_ITEMS = 10_000  # datasets and groups
# Weights barely compress; a file that declares more than 64 MB and 20 times its size is corrupt.
MIN_LIMIT, MAX_RATIO = 64 << 20, 20


def open_hdf5(path: Path) -> h5py.File:
    """Open a file for reading."""
    import h5py

    check_regular(path)
    try:
        return h5py.File(path, "r")
    except (OSError, ValueError) as error:
        truncated = "truncated" in str(error)
        reason = "it is truncated" if truncated else "it is damaged or of another format"
        raise UnsupportedFormat(f"{path} is not an HDF5 file that can be read: {reason}") from None


def shapes_of(file: h5py.File) -> dict[str, tuple[int, ...]]:
    """Return the shape of every dataset; raise if they cannot all be in a file of this size."""
    path = file.filename
    shapes: dict[str, tuple[int, ...]] = {}
    declared = 0
    damaged = f"{path} is damaged: its list of datasets cannot be read"
    # h5py raises many kinds for damaged files.
    with explained(damaged, Exception, raising=UnsupportedFormat, reason=False):
        for name, dataset in _datasets(file, count(1)):
            if dataset.dtype.kind != "f" or dataset.shape is None:
                raise UnsupportedFormat(f"{path}: the dataset {name!r} is not floating point")
            shapes[name] = dataset.shape
            declared += dataset.size * dataset.dtype.itemsize
    size = Path(path).stat().st_size
    if declared > max(MIN_LIMIT, MAX_RATIO * size):  # HDF5 can declare data that was never written.
        raise UnsupportedFormat(f"{path} declares {declared:,} bytes of weights but has {size:,}")
    return shapes


def _datasets(
    group: h5py.Group, visited: Iterator[int], prefix: str = ""
) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield every dataset inside the file itself; raise if there is a link."""
    import h5py

    path = group.file.filename
    for name in group:
        full = f"{prefix}{name}"
        if next(visited) > MAX_ITEMS:  # Hard links can form circles.
            raise UnsupportedFormat(f"{path} has more datasets and groups than a model has")
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise UnsupportedFormat(f"{path}: {full!r} is a link; only plain datasets are read")
        item = group[name]
        if isinstance(item, h5py.Group):
            if full.count("/") > 8:
                raise UnsupportedFormat(f"{path}: groups are nested too deeply at {full!r}")
            yield from _datasets(item, visited, f"{full}/")
        elif not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
            raise UnsupportedFormat(f"{path}: {full!r} is not a plain dataset")
        else:
            yield full, item


def read_dataset(file: h5py.File, name: str) -> NDArray[np.float32]:
    """Read a dataset as float32."""
    try:
        with np.errstate(over="ignore"):  # The caller reports overflow to inf.
            return file[name][...].astype(np.float32, copy=False)  # type: ignore[no-any-return]
    except MemoryError:
        raise UnsupportedFormat(f"{file.filename}: the dataset {name!r} is too large") from None
    except Exception:
        raise UnsupportedFormat(f"{file.filename}: the dataset {name!r} is damaged") from None
