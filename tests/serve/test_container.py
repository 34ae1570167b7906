"""The container file: linted, since no container engine runs with the tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT
from programs import find_program

from elmokit.serve.run import Settings

FILE = ROOT / "Dockerfile"


def test_the_dockerfile_has_nothing_that_hadolint_finds() -> None:
    linter = find_program("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, str(FILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_ci_stops_without_hadolint_instead_of_skipping_its_test(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plugins = pytestconfig.pluginmanager.get_plugins()
    (conftest,) = (plugin for plugin in plugins if hasattr(plugin, "LIBRARIES"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    conftest.pytest_configure()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.UsageError, match="hadolint"):
        conftest.pytest_configure()


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
