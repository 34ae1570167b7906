"""The notebooks of the tutorials: the text and code of their pages, and they run."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from children import HANGS
from documents import ROOT, blocks

pytest.importorskip("nbformat", reason="nbformat is not installed")
import nbformat

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# The code of the other Chinese pages is that of the English ones.
RUN = ["embed", "reviews", "reviews.zh-CN", "senses", "ner", "pretrain"]


@pytest.fixture(scope="module")
def hooks() -> Any:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("hooks")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_a_notebook_has_all_code_of_its_page(page: Path, hooks: Any, tmp_path: Path) -> None:
    hooks.write_notebook(page, tmp_path / "page.ipynb")
    notebook = nbformat.read(tmp_path / "page.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    figures = [source for source in code if "Image(" in source]
    assert len(figures) == page.read_text(encoding="utf-8").count("](../images/")
    code = [source for source in code if source not in figures]
    run = [block for block in blocks(page) if block.language in ("python", "console")]
    assert len(code) == len(run)
    for source, block in zip(code, run, strict=True):
        if block.language == "python":
            assert source == block.text.strip()
        else:
            shown = [line for line in block.text.splitlines() if line.startswith("$ ")]
            assert source.startswith("%%bash -e\n")
            assert [f"$ {line}" for line in source.splitlines() if f"$ {line}" in shown] == shown
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert ".md)" not in text
    assert "images/" not in text
    assert text.startswith(page.read_text(encoding="utf-8").partition("\n")[0])


def test_the_same_page_gives_the_same_bytes(hooks: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        hooks.write_notebook(TUTORIALS[0], tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_a_notebook_runs(
    name: str, hooks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("nbclient", "ipykernel", "sklearn", "jieba", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from nbclient import NotebookClient

    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    hooks.write_notebook(ROOT / "docs" / "tutorials" / f"{name}.md", tmp_path / "page.ipynb")
    notebook = nbformat.read(tmp_path / "page.ipynb", as_version=4)
    limits: Any = {"timeout": HANGS, "startup_timeout": HANGS}
    folder = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, kernel_name="python3", resources=folder, **limits).execute()
    printed = json.dumps([cell.get("outputs") for cell in notebook.cells])
    assert "stdout" in printed
    assert "Traceback" not in printed
