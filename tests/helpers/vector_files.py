"""Sentences with made vectors, and how they are written: what tests of vector files share."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import elmokit
from elmokit.vectors.shards import EmbeddedSentence as Sentence
from elmokit.vectors.writer import VectorWriter

NAMES = ["vectors.h5", "vectors.npz", "vectors.parquet", "vectors.npy"]
SETTINGS = {"model": "a1b2", "input": ["corpus.txt", 120], "dtype": "float32"}
TEXTS = [
    ["The", "bank", "opens", "."],
    [],
    ["她", "喜欢", "naïve", "🙂"],
    ["The", "bank", "opens", "."],
    ["broken", "\ud800byte"],
    [],
    ["one"],
    ["zero\0byte", '"quoted"', "tab\there"],
]
REPLACED = ["broken", "\ufffdbyte"]


def sentences(
    *, dtype: str = "float32", pooled: bool = False, layers: int = 3, dim: int = 5
) -> list[Sentence]:
    random = np.random.default_rng(7)
    return [
        Sentence(
            tokens,
            random.normal(size=(layers, dim) if pooled else (layers, len(tokens), dim)).astype(
                dtype
            ),
        )
        for tokens in TEXTS
    ]


def write(
    out: Path | str,
    content: list[Sentence] | None = None,
    *,
    settings: dict[str, Any] = SETTINGS,
    **options: Any,
) -> Path:
    """Do what `elmokit embed` does: skip what is done, write parts of three, finish."""
    content = sentences() if content is None else content
    writer = VectorWriter(out, settings, **options)
    for start in range(writer.done, len(content), 3):
        writer.write(content[start : start + 3])
    return writer.finish()


def content_of(out: Path) -> bytes | dict[str, bytes]:
    if out.is_dir():
        return {path.name: path.read_bytes() for path in out.iterdir()}
    return out.read_bytes()


def parts_of(out: Path) -> Path:
    return out.with_name(out.name + ".parts")


def begin(out: Path, parts: int = 2) -> None:
    """A run that stopped after some parts."""
    writer = VectorWriter(out, SETTINGS)
    for i in range(parts):
        writer.write(sentences()[3 * i : 3 * i + 3])


def run_python(command: list[str]) -> subprocess.CompletedProcess[str]:
    source = str(Path(elmokit.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
