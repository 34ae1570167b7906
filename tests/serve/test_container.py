"""The container file: linted, since no container engine runs with the tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT

from elmokit.serve.run import Settings

FILE = ROOT / "Dockerfile"


def test_the_dockerfile_has_nothing_that_hadolint_finds() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    linter = str(beside) if beside.is_file() else shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, str(FILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_container_is_not_root_and_checks_its_health() -> None:
    text = FILE.read_text()
    last = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER (?!root|0)\w+$", last, re.M)
    assert "/health" in last.partition("\nHEALTHCHECK")[2].partition("\n#")[0]
    port = str(Settings().port)
    assert f"EXPOSE {port}" in last
    assert f":{port}/health" in last


def test_everything_that_is_copied_is_there_and_not_ignored() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", FILE.read_text(), re.M)
    names = [name for line in copied for name in line.split()]
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert names
    for name in names:
        assert (ROOT / name).exists()
        assert f"!{name}" in kept
