"""What the tests of several integrations ask for."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
from fake_hub import FakeHub
from reference import make_reference


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    """A Hub with one model, which is downloaded from a folder."""
    hub = FakeHub(make_reference().save(tmp_path / "hub").parent)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.download)
    monkeypatch.chdir(tmp_path)
    hub.forget()
    return hub
