"""`elmokit embed` on a disk that is full, or that cannot be written to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from embed_command import long_text

# Runs where "disk" is a small file system of its own; gives code and stderr of each run as JSON.
ON_A_SMALL_DISK = """
import contextlib, gc, io, json, os, subprocess, sys
from pathlib import Path
from elmokit.cli.main import main

def run(*arguments):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        options = ["--tokenizer=whitespace", "--quiet", "--model", sys.argv[1]]
        code = main(["embed", "text.txt", *arguments, *options])
    print(json.dumps([code, said.getvalue(), sorted(os.listdir("disk"))]))

def remount(options):
    gc.collect()  # a map of a file on the disk may hang on to the error that was caught
    subprocess.run(["mount", "-o", "remount," + options, "disk"], check=True)

run("disk/vectors.h5")
remount("size=1m")
run("disk/vectors.h5")
remount("size=8m")
run("disk/vectors.h5", "--resume")
run("whole.h5")
same = Path("whole.h5").read_bytes() == Path("disk/vectors.h5").read_bytes()
remount("ro")
run("disk/other.h5")
print(same)
"""


def test_a_full_or_read_only_disk_is_reported_and_nothing_is_half_written(
    folder: Path, model: Path
) -> None:
    (folder / "text.txt").write_text(long_text(1000), encoding="utf-8")  # 0.7 MB of vectors
    (folder / "disk").mkdir()
    mount = 'mount -t tmpfs -o size=256k none disk && echo mounted && exec "$@"'
    own = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", mount, "sh"]
    try:
        done = subprocess.run(
            [*own, sys.executable, "-c", ON_A_SMALL_DISK, str(model)],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if "mounted" not in done.stdout:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")
    _, *runs, same = done.stdout.splitlines()
    for_the_part, for_the_file, resumed, _, read_only = map(json.loads, runs)
    full = "elmokit: error: the disk is full"
    assert (for_the_part[0], for_the_part[2]) == (2, [])
    assert (for_the_file[0], for_the_file[2]) == (2, ["vectors.h5.parts"])
    for _, said, _ in (for_the_part, for_the_file):
        assert said.startswith(full)
        assert said.count("\n") == 1
    assert resumed == [0, "", ["vectors.h5"]]
    assert same == "True"
    assert (read_only[0], read_only[2]) == (2, ["vectors.h5"])
    assert "its folder does not allow it" in read_only[1]
    assert read_only[1].count("\n") == 1
