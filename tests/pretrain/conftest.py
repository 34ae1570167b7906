"""What the tests of pretraining share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_text import TINY, make_sentences


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file of 400 tokenized sentences."""
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(words) + "\n" for words in make_sentences(400)))
    return path


@pytest.fixture
def options(text: Path, tmp_path: Path) -> dict[str, Any]:
    """A training run of a few seconds."""
    return {
        "corpus": str(text),
        "out": str(tmp_path / "model"),
        "model": TINY,
        "tokenizer": "whitespace",
        "valid_fraction": 0.1,
        "min_count": 1,
        "epochs": 2,
        "batch_size": 4,
        "unroll": 10,
        "eval_every": 25,
        "save_every": 10,
        "threads": 1,
        "quiet": True,
    }
