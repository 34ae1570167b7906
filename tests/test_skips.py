"""A test whose library is missing is skipped on a developer's machine, but never in CI."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from documents import NEEDED, ROOT

TESTS = sorted((ROOT / "tests").glob("**/*.py"))


@pytest.fixture
def conftest(pytestconfig: pytest.Config) -> Any:
    """The conftest.py that pytest has loaded."""
    plugins = pytestconfig.pluginmanager.get_plugins()
    (found,) = (plugin for plugin in plugins if hasattr(plugin, "LIBRARIES"))
    return found


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of `importorskip`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("importorskip"):
            yield node


def skipped_without(path: Path) -> Iterator[str]:
    """Yield the modules without which tests of a file are skipped."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    loops = {
        ast.unparse(loop.target): ast.literal_eval(loop.iter)
        for loop in ast.walk(tree)
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Tuple) and list(calls(loop))
    }
    for call in calls(tree):
        name = call.args[0]
        if isinstance(name, ast.Constant):
            yield str(name.value)
        elif ast.unparse(name) in loops:
            yield from loops[ast.unparse(name)]
        else:
            assert path.name == "test_docs.py", f"{path.name}: which module is {ast.unparse(name)}?"
            yield from (package for packages in NEEDED.values() for package in packages)


def test_ci_needs_every_library_that_a_test_is_skipped_without(conftest: Any) -> None:
    named = {module.partition(".")[0] for path in TESTS for module in skipped_without(path)}
    assert {"pyarrow", "ray", "jieba", "orjson", "nbclient"} <= named  # each way to name them
    if sys.version_info < (3, 11):
        named.discard("mteb")  # It needs a newer Python.
    assert named - sys.stdlib_module_names <= set(conftest.LIBRARIES)


@pytest.mark.parametrize("library", ["pyarrow", "ray", "spacy", "transformers"])
def test_ci_stops_without_a_library_instead_of_skipping_its_tests(
    conftest: Any, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> SimpleNamespace | None:
        return None if name == library else SimpleNamespace()

    monkeypatch.setattr(conftest, "find_spec", found)
    monkeypatch.setattr(conftest, "find_program", str)
    monkeypatch.delenv("CI", raising=False)
    conftest.pytest_configure()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.UsageError, match=rf"CI runs their tests: \['{library}'\]"):
        conftest.pytest_configure()
