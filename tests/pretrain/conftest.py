"""What the tests of pretraining share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_text import training_options


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """A training run of a second."""
    return training_options(tmp_path)


@pytest.fixture
def text(options: dict[str, Any]) -> Path:
    """The text of that run: a file of 400 tokenized sentences."""
    return Path(options["corpus"])
