"""State dicts in files of `torch.save`, read without executing anything in them.

With `weights_only`, torch accepts tensors and plain containers and refuses everything else. A zip
file, as torch has written since 1.6, is mapped into memory and its checksums are verified here,
because torch trusts any size that the file declares. The older layout stores its sizes twice, and
torch compares them.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import UnsupportedFormat, explained
from elmokit.formats.checkpoint import Tensors
from elmokit.io.paths import check_regular


def read(path: Path, choose: Callable[[list[str]], list[str]] | None = None) -> Tensors:
    """Read the tensors of a file by name, as float32; `choose` selects among the names."""
    import torch

    stored = _load(path)
    if not isinstance(stored, Mapping) or not stored:
        raise UnsupportedFormat(f"{path} is not a state dict: it has no tensors by name")
    if choose is not None:
        names = choose([name for name in stored if isinstance(name, str)])
        stored = {name: stored[name] for name in names}
    declared = 0
    for name, tensor in stored.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise UnsupportedFormat(f"{path} is not a state dict: it has more than tensors by name")
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not plain or not tensor.is_floating_point():
            raise UnsupportedFormat(f"{path}: the tensor {name!r} is not floating point")
        declared += tensor.numel() * tensor.element_size()
    size = path.stat().st_size
    if declared > size:  # A tensor can repeat values that are stored once.
        raise UnsupportedFormat(f"{path} declares {declared:,} bytes of weights but has {size:,}")
    # Copy, so that the file does not stay mapped. Building the model finds infinities.
    return {name: np.array(tensor.detach().float().numpy()) for name, tensor in stored.items()}


def write(tensors: Tensors, path: Path) -> None:
    """Write tensors as a state dict."""
    import torch

    torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, path)


def _load(path: Path) -> Any:
    import torch

    check_regular(path)
    problem = f"{path} is damaged or has more than tensors in it; nothing in it was executed"
    # torch raises many kinds, most with long texts.
    with explained(problem, Exception, raising=UnsupportedFormat, reason=False):
        if zipped := zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if any(member.compress_type for member in archive.infolist()):
                    problem = f"{path} is compressed, which files of torch.save are not"
                    raise UnsupportedFormat(problem)
                if damaged := archive.testzip():
                    problem = f"{path} is damaged: the checksum of {damaged!r} is wrong"
                    raise UnsupportedFormat(problem)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about later versions of torch
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
