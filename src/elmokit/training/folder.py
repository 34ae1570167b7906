"""The output folder of a training run: one run at a time, and no other model in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elmokit.errors import ElmokitError
from elmokit.io.atomic import locked

TRAINING = "training"  # folder of the checkpoints, which marks an output folder as a run's own
CONFIG = "config.json"
HALF_WRITTEN = (".step-*", ".best.*")  # names that only our own temporary folders have


@contextmanager
def open_folder(folder: Path, *, owner: bool = True) -> Iterator[Path]:
    """Create and lock the output folder of a run while the block runs.

    Raise if the folder holds a model that no run in it has trained. Folders that are still empty
    at the end are removed.

    Args:
        folder: Output folder; its checkpoints are in `folder / "training"`.
        owner: False in those of several processes that only read; they neither create, lock nor
            remove anything.
    """
    if not owner:
        yield folder
        return
    training = folder / TRAINING
    if (folder / CONFIG).exists() and not training.is_dir():
        raise ElmokitError(f"{folder} already contains a model: choose another folder")
    try:
        training.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ElmokitError(f"cannot write into {folder}: {error.strerror}") from None
    with locked(training):
        for pattern in HALF_WRITTEN:  # by a run that was killed
            for path in training.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)
        try:
            yield folder
        finally:
            with suppress(OSError):  # They are not empty, as after most runs.
                training.rmdir()
                folder.rmdir()
