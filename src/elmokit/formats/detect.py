"""Find out which format a path or a name is, by looking at the files, and read it.

The names by which files are recognised stand here beside each other. The module of a format is
imported only when its files are there: nobody waits for formats that are not used.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import ElmokitError, reason_of
from elmokit.io.jsonfile import read_json
from elmokit.io.paths import is_file

if TYPE_CHECKING:
    from elmokit.formats.checkpoint import Checkpoint

SHIPPED = "shipped"  # the name of the model inside the package
PRETRAINED = Path(__file__).parent.parent / "pretrained"

# What a folder of a format has in it; where there are several, the first counts. ._* is macOS's.
NATIVE = ("model.safetensors",)
MANY_LANGS = ("token_embedder.pkl", "encoder.pkl")
ALLENNLP = ("weights.th", "best.th")
HUB_MODULE = ("variables/variables.index",)
TRAINING = ("[!.]*.index",)  # before an export, as it has the softmax
BILM = ("[!.]*.hdf5", "[!.]*.h5")
# What lies beside them: whoever names it means its folder.
BESIDE = ("config.json", "options.json", "checkpoint", "saved_model.pb", "tfhub_module.pb")
# By which a model is found somewhere in an archive.
PACKED = (*NATIVE, *MANY_LANGS, *ALLENNLP, "saved_model.pb", "[!.]*.ckpt*.index", *BILM)


def read_checkpoint(model: str | Path | None = None) -> Checkpoint:
    """Read whatever `model` names, without building it."""
    if model is None or model == SHIPPED:
        if not _has(PRETRAINED, NATIVE):
            raise ElmokitError("this installation has no model of its own; name a model to load")
        return _read_folder(PRETRAINED)
    path = _path(model)
    if found := _read_path(path):
        return found
    from elmokit.formats.containers import hf_hub as hub

    if isinstance(model, str) and hub.is_repository(model):
        return _read_folder(hub.download(model))
    raise ElmokitError(f"there is no file or folder {path}")


def own_tokenizer(model: str | Path | None = None) -> str:
    """The tokenizer that `load` gives a model where none is named; of a folder, without weights."""
    from elmokit.formats.checkpoint import tokenizer_of

    path = PRETRAINED if model is None or model == SHIPPED else _path(model)
    if path.is_dir():
        return tokenizer_of(_metadata(path))
    if any(path.match(name) for name in BILM):  # they say nothing of it
        return tokenizer_of({})
    return tokenizer_of(read_checkpoint(model).metadata)


def lasting_name(model: str) -> str:
    """A name that means the same model from every folder: of a file or folder its whole path."""
    if model == SHIPPED:
        return model
    path = _path(model)
    found = path.exists() or _is_prefix(path) or any(outer.is_file() for outer in path.parents)
    return str(path.absolute()) if found else model


def _metadata(folder: Path) -> dict[str, Any]:
    """What the configuration of a native folder says of its model."""
    if not _has(folder, NATIVE) or not is_file(folder / "config.json"):
        return {}
    metadata = read_json(folder / "config.json").get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _path(model: str | Path) -> Path:
    try:
        path = Path(model).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:  # a name that is too long, a user who is not known
        raise ElmokitError(f"cannot look for {str(model)[:99]}: {reason_of(error)}") from None
    return path


def _has(folder: Path, names: tuple[str, ...]) -> bool:
    return any(file.is_file() for name in names for file in folder.glob(name))


def _read_path(path: Path) -> Checkpoint | None:
    """The model of a file or a folder, perhaps in an archive; None if there is no such thing."""
    if path.is_dir():
        return _read_folder(path)
    if path.is_file():
        return _read_file(path)
    if _is_prefix(path):
        from elmokit.formats.tensorflow import variables as tensorflow

        return tensorflow.read_training(path)
    for outer in path.parents:
        if outer.is_file() and ".." not in path.relative_to(outer).parts:
            return _read_archive(outer, path)
    return None


def _is_prefix(path: Path) -> bool:
    """Whether it is what TensorFlow calls the name of a checkpoint."""
    return is_file(path.with_name(f"{path.name}.index"))


def _read_file(path: Path) -> Checkpoint:
    if any(path.match(name) for name in BILM):
        return _read_hdf5(path)
    if path.suffix == ".index":
        from elmokit.formats.tensorflow import variables as tensorflow

        return tensorflow.read_training(path.with_suffix(""))
    if path.name in (*NATIVE, *MANY_LANGS, *ALLENNLP, *BESIDE):
        return _read_folder(path.parent)
    return _read_archive(path, path)


def _read_archive(path: Path, wanted: Path) -> Checkpoint:
    """The only model of an archive, or what `wanted` names in it."""
    from elmokit.formats.containers import archive

    if not archive.is_archive(path):
        raise ElmokitError(
            f"{path} is not a model: give a folder, an .hdf5 file or an archive "
            f"({', '.join(archive.SUFFIXES)})"
        )
    with archive.unpacked(path) as folder:
        inside = folder / wanted.relative_to(path)
        try:
            found = _read_path(inside if inside != folder else _inner_folder(folder))
            if found is None:
                raise ElmokitError(f"there is no file or folder {inside}")
        except ElmokitError as error:  # nobody knows the temporary folder
            raise ElmokitError(str(error).replace(str(folder), str(path))) from None
    weights = found.weights.replace(str(folder), str(path))
    return replace(found, source=str(wanted), weights=weights)


def _inner_folder(folder: Path) -> Path:
    """The folder inside an archive that holds the model."""
    places = sorted({file.parent for name in PACKED for file in folder.rglob(name)})
    if len(places) == 1:
        return places[0]
    if places:
        names = ", ".join(map(str, places[:3])) + (", …" if len(places) > 3 else "")
        raise ElmokitError(f"{folder} holds several models: name one of {names}")
    raise ElmokitError(f"{folder} holds no model")


def _read_folder(folder: Path) -> Checkpoint:
    if _has(folder, NATIVE):
        from elmokit.formats import native

        if native.is_native(folder):
            return native.read(folder)
    if _has(folder, MANY_LANGS):
        from elmokit.formats import many_langs

        return many_langs.read(folder)
    if _has(folder, ALLENNLP):
        from elmokit.formats import allennlp

        return allennlp.read(folder)
    if _has(folder, HUB_MODULE) or _has(folder, TRAINING):
        from elmokit.formats.tensorflow import variables as tensorflow

        if _has(folder, HUB_MODULE):
            return tensorflow.read_module(folder)
        if prefix := tensorflow.find_checkpoint(folder):
            return tensorflow.read_training(prefix)
    return _read_weights(folder)


def _read_weights(folder: Path) -> Checkpoint:
    """The only HDF5 file of a folder."""
    weights = sorted(file for name in BILM for file in folder.glob(name))
    if len(weights) == 1:
        return _read_hdf5(weights[0])
    if weights:
        names = ", ".join(file.name for file in weights)
        raise ElmokitError(
            f"{folder} has several weight files: name one of {names}, such as {weights[0]}"
        )
    raise ElmokitError(
        f"{folder} is not a model folder: it has neither config.json with model.safetensors "
        "nor an .hdf5 file with its options nor a TensorFlow checkpoint nor a model of "
        "ELMoForManyLangs nor a task model of AllenNLP"
    )


def _read_hdf5(path: Path) -> Checkpoint:
    from elmokit.formats import bilm, token_vectors

    return token_vectors.read(path) if token_vectors.is_table(path) else bilm.read(path)
