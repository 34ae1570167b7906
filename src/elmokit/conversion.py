"""`convert`: rewrite a model in another format and compare the outputs of both.

The result gets its final name only if the vectors, and the perplexity if there is one, agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError, InvalidInput, UnsupportedFormat
from elmokit.formats import bilm, many_langs, native
from elmokit.formats.checkpoint import Checkpoint, new_model_folder, renamed
from elmokit.formats.detect import read_checkpoint
from elmokit.io.paths import is_inside

Format = Literal["native", "bilm", "many_langs"]
Stored = Literal["float32", "float16"]

SAMPLES = [
    "He sat on the river bank and watched the boats .",
    "The bank of England raised its rate by 0.25 % .",
    "naïve Übermut 中文 텍스트 🙂 antidisestablishmentarianism",
]
VOCABULARY_SAMPLE = 20  # Number of words of the model's vocabulary, evenly spaced.
TOLERANCE = {"float32": 1e-5, "float16": 2e-2}
PERPLEXITY_TOLERANCE = {"float32": 1e-4, "float16": 5e-2}  # relative


@dataclass(frozen=True)
class Conversion:
    """A finished conversion and how much the outputs of both models differ."""

    source: str
    source_format: str
    config: BiLMConfig
    target: Path
    format: Format
    dtype: Stored
    max_difference: float
    """Largest absolute difference of any vector component."""
    perplexity: float | None
    """Perplexity of the source; None without a softmax."""
    new_perplexity: float | None
    """Perplexity of the result; None without a softmax."""

    @property
    def perplexity_difference(self) -> float:
        """Relative difference of the perplexities, 0 where one has none."""
        before, after = self.perplexity, self.new_perplexity
        if before is None or after is None or before == after:  # Both may be infinite.
            return 0.0
        return abs(after / before - 1)


def convert(
    source: str | Path,
    target: str | Path,
    *,
    to: Format = "native",
    dtype: Stored = "float32",
    overwrite: bool = False,
) -> Conversion:
    """Convert a model, and raise unless the result gives the same vectors and perplexity.

    `source` is any model that `elmokit.load` takes, `target` the folder to write; `overwrite`
    replaces a model in it. "many_langs" is for models on Unicode characters, "float16" for native.
    """
    if to != "native" and dtype != "float32":
        raise InvalidInput(
            f"the {to} format stores float32 only: use dtype float32, or convert to native"
        )
    if is_inside(source, target):
        raise InvalidInput(
            f"{source} is in the folder to write, {target}: choose another target, so that the "
            "source is kept"
        )
    checkpoint = read_checkpoint(source)
    samples = _samples(checkpoint)
    before, perplexity = _run(checkpoint, samples)  # First: a damaged source writes nothing.
    with new_model_folder(Path(target), overwrite=overwrite) as folder:
        if to == "native":
            metadata = {"converted_from": checkpoint.format, **checkpoint.metadata}
            is_native = checkpoint.format == "native"
            written = checkpoint if is_native else replace(checkpoint, metadata=metadata)
            native.write(written, folder, dtype=dtype, overwrite=True)  # The folder is empty.
        else:
            write = bilm.write if to == "bilm" else many_langs.write
            write(checkpoint, folder, overwrite=True)
        with renamed(folder, target):
            after, new_perplexity = _run(read_checkpoint(folder), samples)
        pairs = zip(before, after, strict=True)
        result = Conversion(
            source=str(source),
            source_format=checkpoint.format,
            config=checkpoint.config,
            target=Path(target),
            format=to,
            dtype=dtype,
            max_difference=max(float(np.abs(a - b).max(initial=0.0)) for a, b in pairs),
            perplexity=perplexity,
            new_perplexity=new_perplexity,
        )
        _check(result)
    return result


def _check(result: Conversion) -> None:
    if result.max_difference > TOLERANCE[result.dtype]:
        raise ElmokitError(
            f"{result.target}: the converted model gives different vectors "
            f"(difference {result.max_difference:.1e}); nothing was written"
        )
    share = result.perplexity_difference
    if share > PERPLEXITY_TOLERANCE[result.dtype] or np.isnan(share):
        raise ElmokitError(
            f"{result.target}: the converted model has perplexity {result.new_perplexity:.4f}, "
            f"the source {result.perplexity:.4f}; nothing was written"
        )


def _samples(checkpoint: Checkpoint) -> list[str]:
    """Return a few sentences, and words of the model's own vocabulary if it has one."""
    words = checkpoint.vocabulary or []
    if checkpoint.dictionaries is not None:
        words = checkpoint.dictionaries.words or checkpoint.dictionaries.characters or []
    ids = np.linspace(0, len(words) - 1, min(VOCABULARY_SAMPLE, len(words))).astype(int)
    return [*SAMPLES, " ".join(words[i] for i in ids)]


def _run(
    checkpoint: Checkpoint, samples: list[str]
) -> tuple[list[NDArray[np.float32]], float | None]:
    """Return the layers of each sentence, and the perplexity of a model with a softmax."""
    from elmokit.embed import Embedder

    elmo = Embedder.from_pretrained(checkpoint, tokenizer="whitespace")
    predicts = elmo.model.softmax is not None and elmo.vocabulary is not None
    layers = [sentence.layers for sentence in elmo.stream(samples)]
    if not all(np.isfinite(array).all() for array in layers):
        raise UnsupportedFormat(
            f"{checkpoint.source} gives vectors that are not finite: its weights are damaged"
        )
    return layers, elmo.perplexity(samples).average if predicts else None
