"""`elmokit serve --open` opens the explorer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from serving import running
from tiny import softmax_elmo


def test_open_starts_the_browser_with_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    softmax_elmo().save_pretrained(tmp_path / "tiny")
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{opened}"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with running(tmp_path, str(tmp_path / "tiny"), "--open") as server:
        deadline = time.monotonic() + 20
        while not opened.exists() or not opened.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert opened.read_text() == server.address
        assert server.stop() == 0
