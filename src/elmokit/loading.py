"""`elmokit.load`: a model of any format, ready to embed text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmokit.errors import ElmokitError, reason_of
from elmokit.formats.detect import read_checkpoint

if TYPE_CHECKING:
    from elmokit.embed import Embedder


def load(
    model: str | Path | None = None,
    *,
    precision: Literal["float32", "float16", "int8"] = "float32",
    tokenizer: str | None = None,
    device: str = "cpu",
    **settings: Any,
) -> Embedder:
    """Load a model of any format.

    Args:
        model: a native folder, an HDF5 file of weights with its options beside it, a folder or an
            archive with both, a checkpoint or a module of TensorFlow, a folder or an archive of
            ELMoForManyLangs, a task model of AllenNLP with an ELMo inside, something in an archive
            ("models.zip/small"), or `owner/name` on the Hugging Face Hub; the model that ships
            with elmokit when not given.
        precision: of the weights at inference; "float16" and "int8" are faster on a CPU.
        tokenizer: what splits strings: "elmokit", "whitespace" or "chinese"; if not given,
            "chinese" for a model that elmokit has trained with it, and "elmokit" for all others.
        device: where to run, such as "cpu" or "cuda".
        **settings: more settings of `Embedder`.
    """
    checkpoint = read_checkpoint(model)  # First: bad files are reported before torch is imported.
    from elmokit.embed import Embedder

    _check_device(device)
    embedder = Embedder.from_checkpoint(
        checkpoint, precision=precision, tokenizer=tokenizer, **settings
    )
    return embedder if device == "cpu" else embedder.to(device)


def _check_device(device: str) -> None:
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: built without CUDA
        raise ElmokitError(
            f"the device {device!r} cannot be used here: {reason_of(error)}"
        ) from None
