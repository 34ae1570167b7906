"""The output folder of a training run: one run at a time, and nothing of a user's in its way.

    OUT/elmokit-run.json    marks the folder as that of a run of one command
    OUT/training/           checkpoints and other working files
    OUT/...                 the model, reports and figures

A folder that is not empty and has no such file is never written to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elmokit.errors import ElmokitError, explained
from elmokit.io.atomic import locked, remove_leftovers
from elmokit.io.lines import FilePath
from elmokit.io.marker import MARKER, Command, read_marker, write_marker
from elmokit.io.paths import is_inside

TRAINING = "training"
FOLDERS = (TRAINING, "tensorboard", "vectors", "runs")


@contextmanager
def open_folder(
    out: FilePath, command: Command, *, inputs: Iterable[FilePath | None] = (), owner: bool = True
) -> Iterator[Path]:
    """Create and lock the output folder of a run while the block runs; yield its absolute path.

    Raise if the folder has anything in it but a run of the same command, or if one of the `inputs`,
    which the run reads, is inside it. A new folder to which the run has written nothing is removed
    at the end. Of several processes only one is the `owner`: the others change nothing.
    """
    # A name may be too long, or ~user unknown.
    with explained(f"cannot write into {os.fspath(out)}", OSError, RuntimeError):
        folder = Path(out).expanduser().absolute()
        training = folder / TRAINING
        is_new = not folder.exists()
        if owner:
            check_folder(folder, command)
            for path in inputs:
                check_apart(folder, path)
            training.mkdir(parents=True, exist_ok=True)
    if not owner:
        yield folder
        return
    with locked(folder):
        for own in (folder, training):
            remove_leftovers(own)
        write_marker(folder, command)
        try:
            yield folder
        finally:
            if _is_unused(folder):
                (folder / MARKER).unlink()
            with suppress(OSError):  # They are not empty, as after most runs.
                training.rmdir()
                if is_new:
                    folder.rmdir()


def check_folder(folder: Path, command: Command) -> None:
    """Raise if `folder` is not new, empty, or the folder of a run of the same command."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ElmokitError(f"{folder} is a file, not a folder")
    before = read_marker(folder)
    if before not in (None, command):
        raise ElmokitError(
            f"{folder} is the folder of a run of elmokit {before}, not of elmokit {command}: "
            "choose another folder"
        )
    if before is None and not _is_unused(folder):
        what = "already contains a model" if (folder / "config.json").exists() else "is not empty"
        raise ElmokitError(f"{folder} {what}: choose another folder, or one that is empty")
    for link in filter(Path.is_symlink, (folder / name for name in FOLDERS)):
        raise ElmokitError(
            f"{link} is a link, and nothing is written through it: link the whole folder instead"
        )


def check_apart(folder: Path, path: FilePath | None) -> None:
    """Raise if an input is inside the output folder, or the folder inside the input."""
    if path is None or not os.path.exists(given := os.path.expanduser(path)):  # noqa: PTH110, PTH111
        return  # It is a name on the Hub, or a reader will report it.
    if is_inside(given, folder):
        raise ElmokitError(
            f"{path} is inside the output folder {folder}: choose an output folder elsewhere"
        )
    if is_inside(folder, given):
        raise ElmokitError(
            f"the output folder {folder} is inside {path}, which is read: choose one elsewhere"
        )


def _is_unused(folder: Path) -> bool:
    """Tell whether there is nothing but the marker, perhaps half-written, and empty `training`."""
    names = {path.name for path in folder.iterdir() if MARKER not in path.name}
    training = folder / TRAINING
    return not names or (names == {TRAINING} and training.is_dir() and not any(training.iterdir()))
