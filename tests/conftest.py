"""What every test can ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with checkpoints and data that are too big for the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("ELMOKIT_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder}: name another with ELMOKIT_SHARED")
    return folder
