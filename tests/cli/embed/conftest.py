"""A tiny model, a folder with a text, and the command that runs there."""

from __future__ import annotations

from pathlib import Path

import pytest
from children import CONTEXT
from embed_command import TEXT, TOKENS, Run, Vectors, save_model

import elmokit.embed
from elmokit.cli.main import main
from elmokit.embed import Embedder
from elmokit.workers import Workers


@pytest.fixture(autouse=True)
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers need not import torch; tests/test_workers.py has those that do."""
    monkeypatch.setattr(Workers, "_context", CONTEXT)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny", seed=1)


@pytest.fixture(scope="module")
def elmo(model: Path) -> Embedder:
    return elmokit.load(model)


@pytest.fixture(scope="module")
def expected(elmo: Embedder) -> list[Vectors]:
    """All layers of every sentence of TEXT, each embedded alone."""
    return [elmo.embed([tokens])[0].layers for tokens in TOKENS]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command runs: names in its arguments are relative to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELMOKIT_DEBUG", raising=False)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.fixture
def embed(folder: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `elmokit embed … --quiet` in this process; returns what is on stderr."""

    def run(*arguments: object, code: int = 0) -> str:
        words = [str(argument) for argument in arguments]
        if not any(word.startswith("--model") for word in words):
            words += ["--model", str(model)]
        capsys.readouterr()
        got = main(["embed", *words, "--quiet"])
        out, err = capsys.readouterr()
        assert (got, out) == (code, ""), err
        return err

    return run


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make parts of a few sentences, which a real model fills with thousands."""
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 12)  # 21 tokens of all layers
