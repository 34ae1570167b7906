"""The device of a run, and whether it supports the requested precision."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import torch

from elmokit.embed import check_device
from elmokit.errors import ElmokitError
from elmokit.pretrain.settings import Precision

# Some CPUs report bfloat16 but die with SIGILL, so test it in a throw-away process. The sizes make
# torch choose the same kernels as training does.
PROBE = """
import torch
torch.set_num_threads(1)
a, b = torch.ones(64, 512).bfloat16(), torch.ones(512, 256).bfloat16()
assert (a @ b == 512).all() and (a.t() @ a == 64).all()
c = torch.ones(256, 16, 20).bfloat16()
assert (torch.conv1d(c, torch.ones(64, 16, 4).bfloat16()) == 64).all()
"""


def keep_freed_memory() -> None:
    """Let each step reuse the memory that the step before has freed, if the C library can.

    Otherwise large blocks are returned and faulted in again page by page: a tenth of a step.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, to the maximum that glibc accepts.
        mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD


def pick_device(name: str) -> torch.device:
    """Return the device to train on: of several GPUs, the one assigned to this process."""
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    check_device(name)
    device = torch.device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise if the device does not support `precision`."""
    if precision == "float32":
        return
    what, is_supported = "processor", device.type != "cpu" or processor_has_bfloat16()
    if device.type == "cuda":
        what, is_supported = "GPU", torch.cuda.is_bf16_supported(including_emulation=False)
    if not is_supported:
        raise ElmokitError(f"this {what} does not support bfloat16: leave --precision at float32")


def processor_has_bfloat16() -> bool:
    """Return whether this processor multiplies bfloat16 correctly."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False)
    return done.returncode == 0
