"""`elmokit convert SOURCE TARGET`: one format to another, then both compared by what they say.

The result is written beside its final place, loaded again and compared with the source; it gets
its name only if the vectors, and the perplexity where there is a softmax, are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.formats import bilm, many_langs, native
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.detect import read_checkpoint
from elmokit.formats.model_folder import new_model_folder

Format = Literal["native", "bilm", "many_langs"]
Stored = Literal["float32", "float16"]

SAMPLES = [
    "He sat on the river bank and watched the boats .",
    "The bank of England raised its rate by 0.25 % .",
    "naïve Übermut 中文 텍스트 🙂 antidisestablishmentarianism",
]
OWN_WORDS = 20  # of the model's own words, from the first to the last
TOLERANCE = {"float32": 1e-5, "float16": 2e-2}
PERPLEXITY_TOLERANCE = {"float32": 1e-4, "float16": 5e-2}  # as a share of it


def convert(
    source: str,
    target: str,
    *,
    to: Format = "native",
    dtype: Stored = "float32",
    overwrite: bool = False,
) -> None:
    """Convert a model and check that source and result give the same vectors.

    Args:
        source: a model folder, weights file, archive or Hub name, of any format that is read.
        target: the folder to write.
        to: "native" (config.json, model.safetensors), "bilm" (options.json, weights.hdf5) or, for
            models on Unicode characters, "many_langs" (config.json, token_embedder.pkl, …).
        dtype: of the weights on disk; float16 halves the size and is for native only.
        overwrite: replace the target if it exists.
    """
    if to != "native" and dtype != "float32":
        raise ElmokitError(f"the {to} format holds float32; use dtype float32 or to=native")
    checkpoint = read_checkpoint(source)
    print(f"{source}: {_found(checkpoint)}")
    samples = _samples(checkpoint)
    before = _say(checkpoint, samples)  # before writing: a broken source leaves no target
    with new_model_folder(Path(target), overwrite=overwrite) as making:
        _write(checkpoint, making, to, dtype)
        after = _say(_read_again(making, target), samples)
        _compare(before, after, f"{target}: {to} format, {dtype}", dtype)


def _found(checkpoint: Checkpoint) -> str:
    """What a source is, in a line."""
    config = checkpoint.config
    parts = [
        f"{checkpoint.format} format",
        f"{config.num_layers} layers of {config.lstm_dim}/{config.projection_dim}",
        {"words": f"on {config.n_words:,} words", "characters": "on characters"}.get(
            config.token_encoder, "on Unicode characters"
        ),
        f"a softmax over {config.vocabulary_size:,} words"
        if config.vocabulary_size
        else "no softmax",
    ]
    return ", ".join(parts)


def _samples(checkpoint: Checkpoint) -> list[str]:
    """A few sentences, and words of the model's own language wherever it has a list of them."""
    words = checkpoint.vocabulary or []
    if checkpoint.dictionaries is not None:
        words = checkpoint.dictionaries.words or checkpoint.dictionaries.characters or []
    places = np.linspace(0, len(words) - 1, min(OWN_WORDS, len(words))).astype(int)
    return [*SAMPLES, " ".join(words[place] for place in places)]


@dataclass(frozen=True)
class _Said:
    """What a model says of the samples."""

    layers: list[NDArray[np.float32]]
    perplexity: float | None
    """None without a softmax."""


def _say(checkpoint: Checkpoint, samples: list[str]) -> _Said:
    from elmokit.embed import Embedder

    elmo = Embedder.from_checkpoint(checkpoint, tokenizer="whitespace")
    predicts = elmo.model.softmax is not None and elmo.vocabulary is not None
    layers = [sentence.layers for sentence in elmo.stream(samples)]
    if not all(np.isfinite(found).all() for found in layers):
        raise ElmokitError(f"{checkpoint.source} gives vectors that are not finite: it is damaged")
    return _Said(layers, elmo.perplexity(samples).average if predicts else None)


def _write(checkpoint: Checkpoint, folder: Path, to: Format, dtype: Stored) -> None:
    """Into an empty folder, which is replaced."""
    if to != "native":
        write = bilm.write if to == "bilm" else many_langs.write
        write(checkpoint, folder, overwrite=True)
        return
    if checkpoint.format != "native":
        metadata = {"converted_from": checkpoint.format, **checkpoint.metadata}
        checkpoint = replace(checkpoint, metadata=metadata)
    native.write(checkpoint, folder, dtype=dtype, overwrite=True)


def _read_again(folder: Path, target: str) -> Checkpoint:
    try:
        return read_checkpoint(folder)
    except ElmokitError as error:  # nobody knows the temporary folder
        raise ElmokitError(str(error).replace(str(folder), target)) from None


def _compare(before: _Said, after: _Said, what: str, dtype: Stored) -> None:
    """Print by how much two models differ; an error if that is more than rounding."""
    worst = max(
        float(np.abs(one - other).max(initial=0.0))
        for one, other in zip(before.layers, after.layers, strict=True)
    )
    if worst > TOLERANCE[dtype]:
        raise ElmokitError(
            f"{what}: the converted model gives other vectors (difference {worst:.1e})"
        )
    line = f"{what}; vectors differ by {worst:.1e} at most"
    if before.perplexity is not None and after.perplexity is not None:
        same = after.perplexity == before.perplexity  # they may be infinite
        share = 0.0 if same else abs(after.perplexity / before.perplexity - 1)
        if share > PERPLEXITY_TOLERANCE[dtype] or np.isnan(share):
            raise ElmokitError(
                f"{what}: the converted model has another perplexity: {after.perplexity:.4f} "
                f"where the source has {before.perplexity:.4f}"
            )
        line += f", perplexity {before.perplexity:.2f} and {after.perplexity:.2f}"
    elif before.perplexity is not None:
        line += "; the softmax is not kept"
    print(line)
