"""What every test can ask for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# Threads that wait for each other sleep instead of spinning: tests often share their cores with
# processes that they start, and spinning makes both many times slower. Read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# In the background of a shell Ctrl-C is ignored, and children inherit that: the tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with checkpoints and data that are too big for the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("ELMOKIT_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder}: name another with ELMOKIT_SHARED")
    return folder


@pytest.fixture(scope="session")
def allennlp_python() -> str:
    """An interpreter that has AllenNLP, which elmokit itself never needs."""
    path = os.environ.get("ELMOKIT_ALLENNLP_PYTHON")
    if not path:
        pytest.skip("no interpreter with AllenNLP is named by ELMOKIT_ALLENNLP_PYTHON")
    return path


@pytest.fixture(scope="session")
def tensorflow_python() -> str:
    """An interpreter that has TensorFlow, which elmokit itself never needs."""
    path = os.environ.get("ELMOKIT_TENSORFLOW_PYTHON")
    if not path:
        pytest.skip("no interpreter with TensorFlow is named by ELMOKIT_TENSORFLOW_PYTHON")
    return path
