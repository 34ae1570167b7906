"""Named pipes are read as files are, and one that nobody writes into is a sentence."""

from __future__ import annotations

import gzip
import os
import threading
import time
from pathlib import Path

import pytest
from tiny import complaint

from elmokit.io import lines
from elmokit.io.lines import read_lines

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_pipe_that_nobody_writes_into_is_a_sentence(
    pipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "PIPE_SECONDS", 0.05)
    expected = f"{pipe} is a pipe that no process writes into"
    assert complaint(lambda: list(read_lines(pipe))) == expected


@pytest.mark.parametrize("pauses", [(0, 0), (0.1, 0), (0, 0.1)])
def test_a_pipe_is_read_however_slowly_it_is_written(
    pipe: Path, pauses: tuple[float, float]
) -> None:
    text = [f"line {i}" for i in range(20_000)]
    content = gzip.compress("\n".join(text).encode())

    def write() -> None:
        time.sleep(pauses[0])
        with pipe.open("wb") as file:
            time.sleep(pauses[1])
            file.write(content[:3])
            file.flush()
            time.sleep(pauses[1])
            file.write(content[3:])

    writer = threading.Thread(target=write)
    writer.start()
    assert [piece.text for piece in read_lines(pipe)] == text
    writer.join()
