"""What the tests of `elmokit embed` share: texts, small models and looks at what is written."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmokit.config import BiLMConfig
from elmokit.embed import Embedder
from elmokit.model.bilm import BiLM
from elmokit.text.tokenize import tokenize
from elmokit.vectors.reader import read_vectors
from elmokit.vectors.writer import VectorWriter

Vectors = np.ndarray
Run = Callable[..., str]

SENTENCES = [
    "The river bank was steep.",
    "",
    "Dr. Ng doesn't owe the bank $1,234.56 (yet)...",
    "她 喜欢 naïve 🙂 café",
    "The river bank was steep.",
    "No",
    "   ",
    "A much longer sentence comes after the short ones , so that sorting by length moves it",
    "Straße und Москва",
    "",
    "last one",
]
TEXT = "\n".join(SENTENCES) + "\n"
TOKENS = [tokenize(sentence) for sentence in SENTENCES]
FORMATS = ["vectors.h5", "vectors.npz", "vectors.parquet", "vectors.npy"]


def save_model(folder: Path, *, seed: int, **sizes: Any) -> Path:
    """A model with random weights, as its user finds it on the disk."""
    torch.manual_seed(seed)
    form = {"character_dim": 4, "filters": ((1, 4), (2, 4)), "lstm_dim": 16, "projection_dim": 8}
    Embedder(BiLM(BiLMConfig(**{**form, **sizes})).eval()).save_pretrained(folder)
    return folder


def found_in(out: Path) -> list[Vectors]:
    return [np.array(layers) for _, _, layers in read_vectors(out)]


def check(result: list[Vectors], correct: list[Vectors], tolerance: float = 1e-5) -> None:
    assert [each.shape for each in result] == [each.shape for each in correct]
    for one, other in zip(result, correct, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def content_of(out: Path) -> bytes | dict[str, bytes]:
    if out.is_dir():
        return {path.name: path.read_bytes() for path in out.iterdir()}
    return out.read_bytes()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def as_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def stop_after(monkeypatch: pytest.MonkeyPatch, embed: Run, parts: int, *arguments: object) -> None:
    """Leave an unfinished run of that many parts behind, as Ctrl-C does."""
    real, calls = VectorWriter.write, iter(range(parts))

    def write(writer: VectorWriter, *part: Any) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        real(writer, *part)

    with monkeypatch.context() as patch:
        patch.setattr(VectorWriter, "write", write)
        assert embed(*arguments, code=130) == "elmokit: interrupted.\n"


def long_text(sentences: int, seed: int = 3) -> str:
    """Lines of one to six words, some of them empty and some repeated."""
    source = random.Random(seed)
    words = ["".join(source.choices("abcdeéöя中 ", k=source.randint(2, 9))) for _ in range(500)]
    words = [word.replace(" ", "") or "word" for word in words]
    lines = [" ".join(source.choices(words, k=source.randint(1, 6))) for _ in range(sentences)]
    for i in range(7, sentences, 20):
        lines[i] = ""
        lines[i - 1] = lines[i // 2]
    return "\n".join(lines) + "\n"


def python(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # waiting threads would only take turns
        **settings,
    )


def refuse(embed: Run, *arguments: object) -> str:
    """Run what must fail; gives the sentence."""
    before = names_in(Path())
    said = embed(*arguments, code=2)
    assert said.startswith("elmokit: error: ")
    assert said.count("\n") == 1
    assert said.endswith("\n")
    assert "Traceback" not in said
    assert names_in(Path()) == before
    return said


def write_rows(texts: Iterable[str]) -> list[dict[str, str]]:
    """Write rows.jsonl with an id for each text."""
    rows = [{"id": f"row {i} é", "text": text} for i, text in enumerate(texts)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows
