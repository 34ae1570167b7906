"""The folder of a model: written atomically, and the metadata that a published one may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError
from elmokit.io.atomic import atomic_folder
from elmokit.io.jsonfile import read_json

MODEL_FILES = ("config.json", "options.json", "model.safetensors", "*.hdf5")


@contextmanager
def new_model_folder(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Like `atomic_folder`, but replace only a folder that is empty or has a model in it."""
    if overwrite and folder.exists():
        is_empty = folder.is_dir() and not any(folder.iterdir())
        if not is_empty and not any(next(folder.glob(name), None) for name in MODEL_FILES):
            raise ElmokitError(f"{folder} is not a model folder, so it is not replaced")
    with atomic_folder(folder, overwrite=overwrite) as temporary:
        yield temporary


def published_metadata(folder: Path) -> dict[str, Any]:
    """Return the contents of `meta.json`, which archives of the NLPL repository have."""
    try:
        return {"meta": read_json(folder / "meta.json")}
    except ElmokitError:  # The file is missing or of another kind.
        return {}
