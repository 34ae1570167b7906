"""The public names of elmokit.analysis."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

from elmokit import analysis


@pytest.mark.parametrize("name", analysis.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(analysis, name).__doc__
    assert name in dir(analysis)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'build_sense'"):
        analysis.build_sense  # type: ignore[attr-defined]  # noqa: B018


def test_the_library_imports_neither_commands_nor_tasks() -> None:
    modules = [
        module.name for module in pkgutil.walk_packages(analysis.__path__, "elmokit.analysis.")
    ]
    assert len(modules) > 20
    assert all(importlib.import_module(name) for name in modules)
    code = (
        f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
        "print([n for n in sys.modules if n.startswith(('elmokit.cli', 'elmokit.tasks'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
