"""Where a run computes, and whether that place has the precision that is asked for."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import Literal

import torch

from elmokit.errors import ElmokitError

Precision = Literal["float32", "bf16"]

# Some processors announce bfloat16 and are stopped by its first instruction, so a process that
# nobody needs tries. The sizes are such that torch takes the product that training takes.
PROBE = """
import torch
torch.set_num_threads(1)
a, b = torch.ones(64, 512).bfloat16(), torch.ones(512, 256).bfloat16()
assert (a @ b == 512).all() and (a.t() @ a == 64).all()
c = torch.ones(256, 16, 20).bfloat16()
assert (torch.conv1d(c, torch.ones(64, 16, 4).bfloat16()) == 64).all()
"""


TRIM, MMAP = -1, -3  # glibc's mallopt: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD


def keep_freed_memory() -> None:
    """Let each step take the memory that the step before has freed, where the C library can.

    By default large blocks go back to the system and come again page by page, which costs a tenth
    of a step. The process never holds more than its largest step needs.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(MMAP, 32 << 20)  # the largest that glibc takes
        mallopt(TRIM, (1 << 31) - 1)


def pick_device(name: str) -> torch.device:
    """The device to train on; of several GPUs the one that this process was given."""
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ElmokitError(f"cannot train on {name!r}: {str(error).splitlines()[0]}") from None
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def check_precision(precision: Precision, device: torch.device) -> None:
    """Refuse bfloat16 where there is none."""
    if precision == "float32":
        return
    if device.type == "cpu" and not processor_has_bfloat16():
        raise ElmokitError("this processor computes no bfloat16: leave --precision at float32")
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ElmokitError("this GPU computes no bfloat16: leave --precision at float32")


def processor_has_bfloat16() -> bool:
    """Whether products in bfloat16 come out right on this processor."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False)
    return done.returncode == 0
