"""`elmokit embed` takes memory for a window of the text, not for all of it."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest
from embed_command import check, long_text, python, save_model

import elmokit.cli.embed
import elmokit.embed
import elmokit.embed_file
from elmokit.vectors.shards import VectorShards

MEMORY = r"""
import json, re, sys
from pathlib import Path
import elmokit.embed
from elmokit.cli.main import main

def peak(*arguments):
    assert main(["embed", *arguments, "--quiet", "--model", sys.argv[1]]) == 0
    # Not what `resource` tells: on Linux that begins with the peak of the parent process.
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])

default = elmokit.embed.WINDOW_BYTES
elmokit.embed.WINDOW_BYTES = 1 << 20  # so that even the short file has several windows
peaks = [peak(name, name + ".npy", "--pooling", "mean") for name in ("short", "long")]
elmokit.embed.WINDOW_BYTES = default
peaks.append(peak("line", "line.h5", "--tokenizer=whitespace", "--batch-tokens=300000"))
print(json.dumps(peaks))
"""


RIVER = "a river of words runs on without a break from here to the sea and so it goes .".split()


MILLION_WORDS = (RIVER * 60_000)[:1_000_000]


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, list[int]]:
    """The highest use of memory, in bytes, after embedding files one larger than the other."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux, which tells the peak of a process")
    folder = tmp_path_factory.mktemp("memory")
    model = save_model(folder / "tiniest", seed=1, num_layers=1, lstm_dim=4, projection_dim=4)
    short = long_text(100)
    (folder / "short").write_text(short, encoding="utf-8")
    (folder / "long").write_text(short * 200, encoding="utf-8")
    (folder / "line").write_text(" ".join(MILLION_WORDS) + "\n")
    done = python("-c", MEMORY, str(model), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stderr, json.loads(done.stdout)


def test_memory_does_not_grow_with_the_file(peaks: tuple[Path, str, list[int]]) -> None:
    folder, _, (short, long, _) = peaks
    assert len(VectorShards(folder / "long.npy")) == 200 * 100
    assert long - short < 50e6


def test_a_line_of_a_million_words_is_read_in_windows(
    peaks: tuple[Path, str, list[int]],
) -> None:
    folder, said, (_, before, after) = peaks
    with h5py.File(folder / "line.h5", "r") as file:
        assert file["0"].shape == (2, 1_000_000, 8)
        elmo = elmokit.load(folder / "tiniest")
        for start in (0, 1024, 999_424):
            alone = elmo.embed([MILLION_WORDS[start : start + 1024]])[0].layers
            check([file["0"][:, start : start + 1024]], [alone])
    assert said == (
        "elmokit: sentence 0 has 1,000,000 tokens: the model reads it in windows of 1,024\n"
    )
    size_of_the_result = 2 * 1_000_000 * 8 * 4
    assert after - before < size_of_the_result + 300 * 1_000_000  # and 300 bytes a word
