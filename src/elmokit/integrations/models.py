"""Load each model once per process, however many objects of other libraries use it.

Objects of other libraries are cloned, pickled and sent to other processes. They hold the settings
of a model instead of the model, and take it from here when they compute.

    shared_model     the user has named the model: it may be downloaded from the Hub
    recorded_model   an object or a file has noted it: it is never downloaded
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from elmokit.embed import Embedder
from elmokit.errors import InvalidInput
from elmokit.formats import detect
from elmokit.loading import load
from elmokit.model.kernels.linear import Precision

MAX_MODELS = 3  # A grid search over models uses them in turns.
Version = tuple[tuple[str, int, int], ...]


class ModelSettings(NamedTuple):
    """What `elmokit.load` needs to load a model."""

    model: str = "english"
    precision: Precision = "float32"
    tokenizer: str | None = None
    device: str = "cpu"


class SharedModel(NamedTuple):
    """A loaded model that many objects use."""

    embedder: Embedder
    fingerprint: str
    """Hash of everything that determines its vectors."""


# The folder of each repository of the Hub that this process has asked for, so that all objects
# have the same version of it.
_downloaded: dict[str, str] = {}


def shared_model(settings: ModelSettings) -> SharedModel:
    """Return the model with these settings, which is loaded again only if its files have changed.

    Args:
        settings: Name and settings of the model, as the user has given them.
    """
    name = settings.model
    if detect.is_on_hub(name):
        if name not in _downloaded:
            _downloaded[name] = detect.hub_folder(name)
        name = _downloaded[name]
    return _load(settings._replace(model=name), _version(name))


def recorded_model(settings: ModelSettings, fingerprint: str | None = None) -> SharedModel:
    """Return the model that an object or a file names; nothing is downloaded for it.

    Args:
        settings: Name and settings of the model.
        fingerprint: Raise if the model does not have this one, which it had before.
    """
    name = _downloaded.get(settings.model) or detect.recorded_model(settings.model)
    shared = _load(settings._replace(model=name), _version(name))
    if fingerprint not in (None, shared.fingerprint):
        raise InvalidInput(
            f"the model {settings.model} is not the one that this object was made with "
            f"(fingerprint {shared.fingerprint}, not {fingerprint}): restore it, or fit again"
        )
    return shared


@lru_cache(MAX_MODELS)
def _load(settings: ModelSettings, version: Version) -> SharedModel:
    embedder = load(**settings._asdict())
    return SharedModel(embedder, embedder.fingerprint())


def _version(model: str) -> Version:
    """Return what changes when the files of a model change; empty if it is not a path."""
    with contextlib.suppress(OSError, ValueError):
        path = Path(model)
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        states = [(file.name, file.stat()) for file in files]
        return tuple((name, state.st_mtime_ns, state.st_size) for name, state in states)
    return ()
