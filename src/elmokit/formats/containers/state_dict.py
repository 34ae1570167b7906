"""Files of `torch.save` that hold tensors by name, read without executing anything in them.

torch's reader for weights alone takes tensors and plain containers and refuses all else. A zip
file, as torch writes it since 1.6, is mapped into memory and its checksums are compared: torch
itself would believe any size that the file declares. The older layout says its sizes twice, and
torch compares those.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Tensors


def read(path: Path, choose: Callable[[list[str]], list[str]] | None = None) -> Tensors:
    """The tensors of a file by their names, as float32; with `choose`, only some of the names."""
    import torch

    found = _load(path)
    if not isinstance(found, Mapping) or not found:
        raise ElmokitError(f"{path} holds no tensors by name")
    if choose is not None:
        chosen = choose([name for name in found if isinstance(name, str)])
        found = {name: found[name] for name in chosen}
    promised = 0
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ElmokitError(f"{path} holds something else than tensors by name")
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not plain or not tensor.is_floating_point():
            raise ElmokitError(f"{path}: the tensor {name!r} holds no floating numbers")
        promised += tensor.numel() * tensor.element_size()
    size = path.stat().st_size
    if promised > size:  # a tensor can repeat what was written once
        raise ElmokitError(f"{path} declares {promised:,} bytes of weights but has only {size:,}")
    # Copies: nothing keeps the file mapped. Infinities are found when the model is built.
    return {name: np.array(tensor.detach().float().numpy()) for name, tensor in found.items()}


def shapes_of(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor."""
    return {name: array.shape for name, array in tensors.items()}


def write(tensors: Tensors, path: Path) -> None:
    """Write tensors by their names, as `load_state_dict` takes them."""
    import torch

    torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, path)


def _load(path: Path) -> Any:
    import torch

    if not path.is_file():
        raise ElmokitError(f"there is no file {path}")
    try:
        zipped = zipfile.is_zipfile(path)
        if zipped:
            _check_zip(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what torch will do in later versions
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except ElmokitError:
        raise
    except Exception:  # torch has many, most of them long
        raise ElmokitError(
            f"{path} is not a file of tensors alone, or is damaged; nothing in it was executed"
        ) from None


def _check_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type for member in archive.infolist()):
            raise ElmokitError(f"{path} is packed; torch stores its tensors as they are")
        damaged = archive.testzip()
    if damaged:
        raise ElmokitError(f"{path} is damaged: the checksum of {damaged!r} is wrong")
