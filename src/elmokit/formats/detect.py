"""Find out by looking at the files which format a path or name has, and read it.

The modules of other formats are imported only if a model is not native, because that takes time.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.errors import ElmokitError, InvalidInput, MissingFile, UnsupportedFormat, explained
from elmokit.io.jsonfile import read_json, try_json
from elmokit.io.marker import read_marker
from elmokit.io.paths import check_regular, is_file
from elmokit.progress import logger

if TYPE_CHECKING:
    from elmokit.formats.checkpoint import Checkpoint

# The models inside the package by name; a `Path` is never such a name.
DEFAULT = "english"
PRETRAINED = Path(__file__).parent.parent / "pretrained"
SHIPPED: dict[object, Path] = {name: PRETRAINED / name for name in (DEFAULT, "chinese")}

# Files that identify the format of a folder, in the order in which the formats are tried. The
# patterns leave out hidden files, such as the ._* of macOS.
NATIVE = ("model.safetensors",)
MANY_LANGS = ("token_embedder.pkl", "encoder.pkl")
ALLENNLP = ("weights.th", "best.th")
HUB_MODULE = ("variables/variables.index",)
BILM = ("[!.]*.hdf5", "[!.]*.h5")
# Sidecar files: a path to one of these means its folder.
SIDECARS = ("config.json", "options.json", "checkpoint", "saved_model.pb", "tfhub_module.pb")
# Files that mark the folder of a model inside an archive.
PACKED = (*NATIVE, *MANY_LANGS, *ALLENNLP, "saved_model.pb", "[!.]*.ckpt*.index", *BILM)


def read_checkpoint(model: str | Path | None = None) -> Checkpoint:
    """Read the model that a path or name refers to, without building it."""
    if model in SHIPPED and Path(str(model)).is_dir():
        logger.warning(
            f"{model} is the included model: write ./{model} for the folder of that name"
        )
    model = DEFAULT if model is None else model
    if folder := SHIPPED.get(model):
        if not _has(folder, NATIVE):
            raise MissingFile(f"this installation of elmokit has no model {model}: name another")
        return _read_folder(folder)
    path = _path(model)
    if checkpoint := _read_path(path):
        return checkpoint
    if is_on_hub(model):
        return _read_folder(Path(hub_folder(str(model))))
    check_regular(path, missing_ok=True)
    raise MissingFile(f"there is no file or folder {path}{_similar(path)}")


def recorded_model(name: object) -> str:
    """Return what to load for a model that a file names: nothing is downloaded for it."""
    if not isinstance(name, str):
        raise UnsupportedFormat(f"the name of a model must be a text, not {name!r:.80}")
    return hub_folder(name, local_files_only=True) if is_on_hub(name) else name


def is_on_hub(name: str | Path) -> bool:
    """Tell whether a name can only mean a repository: nothing here, not even its first part."""
    from elmokit.formats.containers import hf_hub

    if name in SHIPPED or not isinstance(name, str) or not hf_hub.is_repository(name):
        return False
    return not Path(name).parent.is_dir() and not _exists(_path(name))


def hub_folder(name: str, *, local_files_only: bool = False) -> str:
    """Return the folder of a repository in the Hub's cache, downloading it if that is allowed."""
    from elmokit.formats.containers import hf_hub

    return str(hf_hub.download(name, local_files_only=local_files_only))


def _similar(path: Path) -> str:
    """Return a hint to what a missing path may mean, or ""."""
    missing = next((p for p in (*reversed(path.parents), path) if not os.path.lexists(p)), path)
    with suppress(OSError):
        names = [other.name for other in missing.parent.iterdir() if other != missing]
        for name in get_close_matches(missing.name, names, 1):
            return f": did you mean {missing.with_name(name)}?"
    return ""


def own_tokenizer(model: str | Path | None = None) -> str:
    """Return the tokenizer that `load` chooses for a model; a folder's weights are not read."""
    from elmokit.formats.checkpoint import tokenizer_of

    model = DEFAULT if model is None else model
    path = SHIPPED.get(model) or _path(model)
    if path.is_dir() and _has(path, NATIVE) and is_file(path / "config.json"):
        from elmokit.formats.native import metadata_of

        return tokenizer_of(metadata_of(read_json(path / "config.json"), path))
    if path.is_dir() or any(path.match(name) for name in BILM):  # These do not name a tokenizer.
        return tokenizer_of({})
    return tokenizer_of(read_checkpoint(model).metadata)


def lasting_name(model: str) -> str:
    """Return a name that is valid from every folder: the absolute path of a file or folder."""
    if model in SHIPPED:
        return model
    path = _path(model)
    return str(path.absolute()) if _exists(path) else model


def _exists(path: Path) -> bool:
    return path.exists() or _is_prefix(path) or any(outer.is_file() for outer in path.parents)


def _path(model: str | Path) -> Path:
    if model == "":
        raise InvalidInput("the name of the model is empty")
    # The name may be too long, or ~user unknown.
    problem = f"cannot look for {str(model)[:99]}"
    with explained(problem, OSError, RuntimeError, raising=InvalidInput):
        path = Path(model).expanduser()
        path.exists()
    return path


def _has(folder: Path, names: tuple[str, ...]) -> bool:
    return any(file.is_file() for name in names for file in folder.glob(name))


def _read_path(path: Path) -> Checkpoint | None:
    """Read a file or folder, perhaps inside an archive; return None if it does not exist."""
    if path.is_dir():
        return _read_folder(path)
    if path.is_file():
        return _read_file(path)
    if _is_prefix(path):
        return _read_file(path.with_name(f"{path.name}.index"))
    for outer in path.parents:
        if outer.is_file() and ".." not in path.relative_to(outer).parts:
            return _read_archive(outer, path)
    return None


def _is_prefix(path: Path) -> bool:
    """Tell whether a path is the prefix by which TensorFlow names a checkpoint."""
    return is_file(path.with_name(f"{path.name}.index"))


def _read_file(path: Path) -> Checkpoint:
    if any(path.match(name) for name in BILM):
        from elmokit.formats import bilm

        return bilm.read(path)
    if path.suffix == ".index":
        from elmokit.formats.tensorflow import variables

        return variables.read_training(path.with_suffix(""))
    if path.name in (*NATIVE, *MANY_LANGS, *ALLENNLP, *SIDECARS):
        return _read_folder(path.parent)
    return _read_archive(path, path)


def _read_archive(path: Path, requested: Path) -> Checkpoint:
    """Read the only model of an archive, or the one that `requested` names inside it."""
    from elmokit.formats.checkpoint import renamed
    from elmokit.formats.containers import archive

    if not path.name.lower().endswith(archive.SUFFIXES):
        known = f"a folder, an .hdf5 file or an archive ({', '.join(archive.SUFFIXES)})"
        raise UnsupportedFormat(f"{path} is not a model: give {known}")
    with archive.unpacked(path) as folder, renamed(folder, path):
        inside = folder / requested.relative_to(path)
        checkpoint = _read_path(inside if inside != folder else _inner_folder(folder))
        if checkpoint is None:
            raise MissingFile(f"there is no file or folder {inside}")
    weights = checkpoint.weights.replace(str(folder), str(path))
    return replace(checkpoint, source=str(requested), weights=weights)


def _inner_folder(folder: Path) -> Path:
    """Return the folder inside an archive that holds the model."""
    models = sorted({file.parent for name in PACKED for file in folder.rglob(name)})
    if len(models) == 1:
        return models[0]
    if models:
        names = ", ".join(map(str, models[:3])) + (", …" if len(models) > 3 else "")
        raise UnsupportedFormat(f"{folder} contains several models: name one of {names}")
    raise UnsupportedFormat(f"{folder} does not contain a model")


def _read_folder(folder: Path) -> Checkpoint:
    if _has(folder, NATIVE):
        from elmokit.formats import native

        if native.is_native(folder):
            return native.read(folder)
    from elmokit.formats import allennlp, bilm, many_langs
    from elmokit.formats.tensorflow import variables

    if _has(folder, MANY_LANGS):
        return many_langs.read(folder)
    if _has(folder, ALLENNLP):
        return allennlp.read(folder)
    if _has(folder, HUB_MODULE):
        return variables.read_module(folder)
    # Before the HDF5 files: a training checkpoint has the softmax, an export not.
    if prefix := variables.find_checkpoint(folder):
        return variables.read_training(prefix)
    weights = sorted(file for name in BILM for file in folder.glob(name))
    if len(weights) == 1:
        return bilm.read(weights[0])
    if weights:
        names = ", ".join(file.name for file in weights)
        several = f"name one of {names}, such as {weights[0]}"
        raise UnsupportedFormat(f"{folder} has several weight files: {several}")
    if known := _other_kind(folder):
        raise UnsupportedFormat(f"{folder} is not a biLM but {known}")
    raise UnsupportedFormat(
        f"{folder} is not a model folder: it has neither config.json with model.safetensors "
        "nor an .hdf5 file with its options nor a TensorFlow checkpoint nor a model of "
        "ELMoForManyLangs nor a task model of AllenNLP"
    )


def _other_kind(folder: Path) -> str:
    """Tell what a folder is that elmokit has written and that is not a biLM, or return ""."""
    command = None
    with suppress(ElmokitError):
        command = read_marker(folder)
    is_kind = str(try_json(folder / "config.json").get("format")).startswith
    kinds = {
        "a task model: elmokit predict and elmokit score take it": is_kind("elmokit task model"),
        "an inventory of senses: elmokit senses tag and score take it": is_kind("elmokit senses"),
        "the folder of elmokit compare: its results are in table.md": command == "compare",
        f"an unfinished run of elmokit {command}: the same command completes it": bool(command),
        "an index of neighbours: elmokit neighbours find takes it": _has(folder, ("vectors.f16",)),
        "a folder of vectors: elmokit.read_vectors reads it": _has(folder, ("part-*.npy",)),
    }
    return next((kind for kind, is_it in kinds.items() if is_it), "")
