"""`elmokit convert SOURCE TARGET`: one format to another, then both compared by their vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.formats import bilm, native
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.detect import read_checkpoint

SAMPLES = [
    "He sat on the river bank and watched the boats .",
    "The bank of England raised its rate by 0.25 % .",
    "naïve Übermut 中文 텍스트 🙂 antidisestablishmentarianism",
]
TOLERANCE = {"float32": 1e-5, "float16": 2e-2}


def convert(
    source: str,
    target: str,
    *,
    to: Literal["native", "bilm"] = "native",
    dtype: Literal["float32", "float16"] = "float32",
    overwrite: bool = False,
) -> None:
    """Convert a model and check that source and result give the same vectors.

    Args:
        source: a model folder, weights file, archive or Hub name, of any format that is read.
        target: the folder to write.
        to: "native" (config.json, model.safetensors) or "bilm" (options.json, weights.hdf5).
        dtype: of the weights on disk; float16 halves the size and is for native only.
        overwrite: replace the target if it exists.
    """
    checkpoint = read_checkpoint(source)
    config = checkpoint.config
    print(
        f"{source}: {checkpoint.format} format, {config.layers} layers of "
        f"{config.lstm_dim}/{config.projection_dim}"
    )
    vectors = _vectors(checkpoint)  # before writing: a broken source leaves no target
    if to == "bilm":
        if dtype != "float32":
            raise ElmokitError("the bilm format holds float32; use dtype float32 or to=native")
        bilm.write(checkpoint, Path(target), overwrite=overwrite)
    else:
        facts = {"converted_from": checkpoint.format, **checkpoint.facts}
        named = replace(
            checkpoint, facts=facts if checkpoint.format != "native" else checkpoint.facts
        )
        native.write(named, Path(target), dtype=dtype, overwrite=overwrite)
    worst = max(
        float(np.abs(before - after).max())
        for before, after in zip(vectors, _vectors(read_checkpoint(target)), strict=True)
    )
    print(f"{target}: {to} format, {dtype}; vectors differ by {worst:.1e} at most")
    if worst > TOLERANCE[dtype]:
        raise ElmokitError(f"the converted model gives other vectors (difference {worst:.1e})")


def _vectors(checkpoint: Checkpoint) -> list[NDArray[np.float32]]:
    from elmokit.embed import Embedder

    embedder = Embedder.from_checkpoint(checkpoint, tokenizer="whitespace")
    return [sentence.layers for sentence in embedder.embed(SAMPLES)]
