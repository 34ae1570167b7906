"""HDF5 files as plain data: what lies in a file is listed before anything is read into memory.

Only datasets of floating numbers in the file itself are taken. Links, external and virtual storage
are refused, and so is a file that declares more than it can hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError

if TYPE_CHECKING:
    import h5py

MOST_ITEMS = 10_000  # datasets and groups
SMALL, MOST_PACKED = 64 << 20, 20  # weights hardly compress: a larger promise is an empty one


def open_hdf5(path: Path) -> h5py.File:
    """Open a file to read it, or say in a sentence why that cannot be."""
    import h5py

    try:
        return h5py.File(path, "r")
    except OSError as error:
        if not path.is_file():
            raise ElmokitError(f"there is no file {path}") from None
        reason = "it is truncated" if "truncated" in str(error) else "it is damaged or another kind"
        raise ElmokitError(f"{path} is not an HDF5 file that can be read: {reason}") from None


def shapes_of(file: h5py.File, path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every dataset, nothing read yet; empty promises are refused."""
    shapes: dict[str, tuple[int, ...]] = {}
    promised = 0
    try:
        for name, dataset in _datasets(file, path):
            if dataset.dtype.kind != "f" or dataset.shape is None:
                raise ElmokitError(f"{path}: the dataset {name!r} holds no floating numbers")
            shapes[name] = dataset.shape
            promised += dataset.size * dataset.dtype.itemsize
    except ElmokitError:
        raise
    except Exception:  # h5py has many, for damage of many kinds
        raise ElmokitError(f"{path} is damaged: its list of datasets cannot be read") from None
    size = path.stat().st_size
    if promised > max(SMALL, MOST_PACKED * size):  # HDF5 can declare what was never written
        raise ElmokitError(f"{path} declares {promised:,} bytes of weights but has only {size:,}")
    return shapes


def _datasets(file: h5py.File, path: Path) -> Iterator[tuple[str, h5py.Dataset]]:
    """Every dataset that lies in the file itself; links elsewhere are refused, not followed."""
    import h5py

    number = count(1)

    def walk(group: h5py.Group, prefix: str) -> Iterator[tuple[str, h5py.Dataset]]:
        for name in group:
            full = f"{prefix}{name}"
            if next(number) > MOST_ITEMS:  # groups can be linked in circles
                raise ElmokitError(f"{path} has more in it than a model can have")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ElmokitError(f"{path}: {full!r} is a link; only plain datasets are read")
            item = group[name]
            if isinstance(item, h5py.Group):
                if full.count("/") > 8:
                    raise ElmokitError(f"{path}: groups are nested too deeply at {full!r}")
                yield from walk(item, f"{full}/")
            elif not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
                raise ElmokitError(f"{path}: {full!r} is not a plain dataset")
            else:
                yield full, item

    yield from walk(file, "")


def read_dataset(file: h5py.File, name: str, path: Path) -> NDArray[np.float32]:
    """A dataset, as float32."""
    try:
        with np.errstate(over="ignore"):  # infinities are told of by whoever asked
            return file[name][...].astype(np.float32, copy=False)  # type: ignore[no-any-return]
    except MemoryError:
        raise ElmokitError(f"{path}: the dataset {name!r} is too large") from None
    except Exception:
        raise ElmokitError(f"{path}: the dataset {name!r} is damaged") from None
