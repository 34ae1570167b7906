"""`elmokit.load`: a model of any format, ready to embed text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmokit.formats.checkpoint import Checkpoint, check_tensors
from elmokit.formats.detect import read_checkpoint

if TYPE_CHECKING:
    from elmokit.embed import Embedder


def load(
    model: str | Path | None = None,
    *,
    precision: Literal["float32", "float16", "int8"] = "float32",
    tokenizer: str | None = None,
    jieba_dict: str | Path | None = None,
    device: str = "cpu",
    warm: bool | str | Path = False,
    **settings: Any,
) -> Embedder:
    """Load a model of any format.

    Args:
        model: A folder, a file or an archive of elmokit, bilm-tf, TensorFlow, ELMoForManyLangs or
            AllenNLP, a member of an archive ("models.zip/small"), or `owner/name` on the Hugging
            Face Hub. "english", the default, and "chinese" are included; "./english" is a folder.
        precision: Precision of the weights at inference. On a CPU "float16" and "int8" are faster
            for models as large as the original; "float16" is slower for small ones.
        tokenizer: Tokenizer of strings: "elmokit", "whitespace" or "chinese" (default: "chinese"
            for a model that elmokit trained with it, "elmokit" for all others).
        jieba_dict: Dictionary file for "chinese", a word per line, instead of the model's own.
        device: Device to compute on, such as "cpu" or "cuda".
        warm: Compute the token vectors of the model's vocabulary now, see `Embedder.warm_up`. A
            path names the file that keeps them.
        **settings: Other arguments of `Embedder`.
    """
    checkpoint = read_checkpoint(model)  # First: bad files are reported before torch is imported.
    from elmokit.embed import Embedder

    settings["precision"] = precision
    embedder = Embedder.from_pretrained(
        checkpoint, tokenizer=tokenizer, jieba_dict=jieba_dict, device=device, **settings
    )
    if warm:
        embedder.warm_up(file=None if warm is True else warm)
    return embedder


def read_valid(model: str | Path | None = None) -> Checkpoint:
    """Read a model; raise unless its tensors are those of its configuration."""
    checkpoint = read_checkpoint(model)
    from elmokit.model.bilm import expected_shapes

    check_tensors(checkpoint, expected_shapes(checkpoint.config))
    return checkpoint
