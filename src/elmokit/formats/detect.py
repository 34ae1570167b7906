"""`elmokit.load`: finds out what a path or a name is, by looking at the files, and loads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmokit.errors import ElmokitError
from elmokit.formats import (
    allennlp,
    archive,
    bilm,
    hub,
    many_langs,
    native,
    tensor_bundle,
    tensorflow,
)
from elmokit.formats.checkpoint import Checkpoint

if TYPE_CHECKING:
    from elmokit.embed import Embedder

SHIPPED = "shipped"  # the name of the model inside the package
PRETRAINED = Path(__file__).parent.parent / "pretrained"


def load(
    model: str | Path | None = None,
    *,
    precision: Literal["float32", "float16", "int8"] = "float32",
    tokenizer: str = "elmokit",
    device: str = "cpu",
    **settings: Any,
) -> Embedder:
    """Load a model of any format.

    Args:
        model: a native folder, an HDF5 file of weights with its options beside it, a folder or an
            archive with both, a checkpoint or a module of TensorFlow, a folder or an archive of
            ELMoForManyLangs, a task model of AllenNLP with an ELMo inside, or `owner/name` on the
            Hugging Face Hub; the model that ships with elmokit when not given.
        precision: of the weights at inference; "float16" and "int8" are faster on a CPU.
        tokenizer: what splits strings: "elmokit", "whitespace" or "chinese".
        device: where to run, such as "cpu" or "cuda".
        **settings: more settings of `Embedder`.
    """
    checkpoint = read_checkpoint(model)  # first: bad files are told of before torch is imported
    from elmokit.embed import Embedder

    _check_device(device)
    embedder = Embedder.from_checkpoint(
        checkpoint, precision=precision, tokenizer=tokenizer, **settings
    )
    return embedder if device == "cpu" else embedder.to(device)


def read_checkpoint(model: str | Path | None = None) -> Checkpoint:
    """Read whatever `model` names, without building it."""
    if model is None or model == SHIPPED:
        if not native.is_native(PRETRAINED):
            raise ElmokitError("this installation has no model of its own; name a model to load")
        return native.read(PRETRAINED)
    path = Path(model).expanduser()
    if path.is_dir():
        return _read_folder(path)
    if path.is_file():
        return _read_file(path)
    if path.with_name(path.name + tensor_bundle.INDEX).is_file():  # what TensorFlow calls its name
        return tensorflow.read_training(path)
    if isinstance(model, str) and hub.is_repository(model):
        return _read_folder(hub.download(model))
    raise ElmokitError(f"there is no file or folder {path}")


def _check_device(device: str) -> None:
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: built without CUDA
        reason = str(error).splitlines()[0]
        raise ElmokitError(f"the device {device!r} cannot be used here: {reason}") from None


def _read_file(path: Path) -> Checkpoint:
    if archive.is_archive(path):
        with archive.unpacked(path) as folder:
            try:
                found = _read_folder(_inner_folder(folder, path))
            except ElmokitError as error:  # nobody knows the temporary folder
                raise ElmokitError(str(error).replace(str(folder), str(path))) from None
        return replace(found, source=str(path))
    if path.suffix in bilm.SUFFIXES:
        return bilm.read(path)
    if path.suffix == tensor_bundle.INDEX:
        return tensorflow.read_training(path.with_suffix(""))
    parts = (*tensorflow.NAMES, *many_langs.PARTS, *allennlp.WEIGHTS)
    if path.name in (native.WEIGHTS, native.CONFIG, bilm.OPTIONS, *parts):
        return _read_folder(path.parent)
    raise ElmokitError(
        f"{path} is not a model: give a folder, an .hdf5 file or an archive "
        f"({', '.join(archive.SUFFIXES)})"
    )


def _read_folder(folder: Path) -> Checkpoint:
    if native.is_native(folder):
        return native.read(folder)
    if many_langs.is_many_langs(folder):
        return many_langs.read(folder)
    if allennlp.is_task_model(folder):
        return allennlp.read(folder)
    if tensorflow.is_module(folder):
        return tensorflow.read_module(folder)
    if prefix := tensorflow.find_checkpoint(folder):  # it has the softmax that an export lacks
        return tensorflow.read_training(prefix)
    weights = sorted(file for s in bilm.SUFFIXES for file in folder.glob(f"[!.]*{s}"))
    if len(weights) == 1:
        return bilm.read(weights[0])
    if weights:
        names = ", ".join(file.name for file in weights)
        raise ElmokitError(f"{folder} has several weight files: name one of {names}")
    raise ElmokitError(
        f"{folder} is not a model folder: it has neither {native.CONFIG} with {native.WEIGHTS} "
        "nor an .hdf5 file with its options nor a TensorFlow checkpoint nor a model of "
        "ELMoForManyLangs nor a task model of AllenNLP"
    )


def _inner_folder(folder: Path, path: Path) -> Path:
    """The folder inside an archive that holds the model."""
    endings = (*bilm.SUFFIXES, f".ckpt*{tensor_bundle.INDEX}")
    names = (native.WEIGHTS, tensorflow.PROGRAM, many_langs.LAYERS, *allennlp.WEIGHTS)
    wanted = (*names, *(f"[!.]*{ending}" for ending in endings))  # ._* is macOS's
    places = sorted({file.parent for pattern in wanted for file in folder.rglob(pattern)})
    if len(places) == 1:
        return places[0]
    raise ElmokitError(f"{path} holds {'several models' if places else 'no model'}")
