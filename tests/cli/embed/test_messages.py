"""`elmokit embed` shows how far it is, and how much it has done."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from embed_command import names_in, python

import elmokit.cli.embed
import elmokit.embed
import elmokit.embed_file
from elmokit.cli.main import main
from elmokit.layers import POOLINGS

WITH_SMALL_WINDOWS = """
import sys
import elmokit.embed
from elmokit.cli.main import main
elmokit.embed.WINDOW_BYTES = 1 << 16
sys.exit(main(["embed", *sys.argv[1:]]))
"""


@pytest.mark.skipif(os.name == "nt", reason="needs a terminal as POSIX has them")
def test_a_terminal_shows_speed_and_remaining_time(folder: Path, model: Path) -> None:
    import fcntl
    import pty
    import termios

    (folder / "text.txt").write_text(("word" * 20 + " more\n") * 3000)  # four blocks of 64 KB
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))  # rows, columns
    arguments = ["text.txt", "vectors.npy", "--batch-tokens", "64", "--pooling", "mean"]
    command = [sys.executable, "-c", WITH_SMALL_WINDOWS, *arguments, "--model", str(model)]
    shown = b""
    settings = {**os.environ, "TQDM_MININTERVAL": "0"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=folder, env=settings) as child:
        os.close(theirs)
        while piece := read_terminal(ours):
            shown += piece
    os.close(ours)
    text = shown.decode()
    assert child.returncode == 0, text
    shares = {int(share) for share in re.findall(r"(\d+)%\|", text)}
    assert {0, 100} < shares  # and some in between
    assert re.search(r"\d+%\|.*\[\d\d:\d\d<\d\d:\d\d, .*[\d,]+ tokens/s\]", text)
    last = text.splitlines()[-1]
    assert re.fullmatch(
        r"vectors.npy: 3,000 sentences; 6,000 tokens embedded in [\d.]+ s", last.strip()
    )


def test_the_summary_counts_one_sentence_in_the_singular(
    folder: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("one.txt").write_text("one\n")
    assert main(["embed", "one.txt", "vectors.h5", "--model", str(model)]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"vectors.h5: 1 sentence; 1 token embedded in [\d.]+ s", last)


def test_the_choices_of_pooling_are_those_of_the_library() -> None:
    hint = get_type_hints(elmokit.cli.embed.embed)["pooling"]  # Literal[…] | None
    assert get_args(get_args(hint)[0]) == POOLINGS


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # Linux raises this when nobody writes there any more.
        return b""


def test_quiet_prints_nothing_at_all(folder: Path, model: Path) -> None:
    arguments = ["text.txt", "vectors.h5", "--model", str(model), "--quiet"]
    done = python("-m", "elmokit", "embed", *arguments, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert names_in(folder) == ["text.txt", "vectors.h5"]
