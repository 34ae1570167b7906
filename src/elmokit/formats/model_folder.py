"""The folder of a model: written atomically, and the metadata that a published one may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError
from elmokit.io.atomic import atomic_folder
from elmokit.io.jsonfile import read_json

# All files that the native, the bilm and the many_langs format write.
MODEL_FILES = (
    *("config.json", "model.safetensors", "vocab.txt", "characters.txt", "words.txt"),
    *("options.json", "weights.hdf5"),
    *("char.dic", "word.dic", "token_embedder.pkl", "encoder.pkl", "cnn_*.json", "lstm_*.json"),
)


@contextmanager
def new_model_folder(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Like `atomic_folder`, but replace only a folder that is empty or has a model in it."""
    with atomic_folder(folder, replace=MODEL_FILES if overwrite else None) as temporary:
        yield temporary


def published_metadata(folder: Path) -> dict[str, Any]:
    """Return the contents of `meta.json`, which archives of the NLPL repository have."""
    try:
        return {"meta": read_json(folder / "meta.json")}
    except ElmokitError:  # The file is missing or of another kind.
        return {}
