"""Programs that tests run besides Python."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def find_program(name: str) -> str | None:
    """Return the path of a program that pip or the system has installed, or None."""
    beside = str(Path(sys.executable).parent)
    return shutil.which(name, path=beside) or shutil.which(name)
