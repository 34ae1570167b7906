"""Paths: the input files and outputs that a user names, and the cache folder."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from elmokit.errors import ElmokitError, UnsupportedFormat
from elmokit.io.lines import FilePath


def find_files(corpus: FilePath | Sequence[FilePath]) -> list[Path]:
    """Return the files that paths, globs and folders name, each once, sorted by name."""
    names = [corpus] if isinstance(corpus, str | os.PathLike) else list(corpus)
    files: set[Path] = set()
    for name in [os.fspath(given) for given in names]:
        path = Path(name).expanduser()
        if is_folder(path):
            matches = {p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")}
        elif is_file(path):
            matches = {path}
        else:
            matches = {Path(p) for p in glob.glob(str(path), recursive=True)}  # noqa: PTH207
            matches = {p for p in matches if p.is_file()}
        if not matches:
            raise ElmokitError(f"there is no text at {name!r}: give files, globs or folders")
        files |= matches
    if not files:
        raise ElmokitError("no corpus was given: name files, globs or folders")
    return sorted(files)


def check_output(path: str | None) -> None:
    """Raise before the work, not after it, if the folder to write `path` to does not exist."""
    if path is not None and not is_folder(Path(path).absolute().parent):
        raise ElmokitError(f"there is no folder {Path(path).absolute().parent} to write {path} to")


def is_file(path: FilePath) -> bool:
    """Like `Path.is_file()`, but False for invalid names instead of an exception."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: FilePath) -> bool:
    """Like `Path.is_dir()`, but False for invalid names instead of an exception."""
    return os.path.isdir(path)  # noqa: PTH112


def is_inside(path: FilePath, folder: FilePath) -> bool:
    """Tell whether a path leads to a folder or into it, also through links."""
    with suppress(OSError, ValueError, RuntimeError):  # There can be no such path.
        return Path(path).expanduser().resolve().is_relative_to(Path(folder).resolve())
    return False


def check_regular(path: Path) -> None:
    """Raise for anything but a file or nothing: a pipe blocks, and a device has no end."""
    if os.path.exists(path) and not is_file(path):  # noqa: PTH110 (False for invalid names)
        raise UnsupportedFormat(f"{path} is a folder, a pipe or a device, not a regular file")


def file_inside(folder: Path, *names: str) -> Path | None:
    """Return the first file that one of the names in a model's files leads to, None if none does.

    Raise if all lead out of the folder. The file itself may be a link, as in the cache of the
    Hugging Face Hub.
    """
    files = [path for name in names if is_file(path := folder / name)]
    for path in files:
        if is_inside(path.parent, folder):
            return path
    if files:
        raise UnsupportedFormat(f"{folder} names a file outside of it: put {files[0]} into it")
    return None


def cache_folder(kind: str) -> Path | None:
    """Return the folder for data that can be computed again; it need not exist.

    It is below ELMOKIT_CACHE, XDG_CACHE_HOME or ~/.cache; None if the user has no home either.
    """
    if chosen := os.environ.get("ELMOKIT_CACHE"):
        return Path(chosen) / kind
    if (chosen := os.environ.get("XDG_CACHE_HOME", "")) and Path(chosen).is_absolute():
        return Path(chosen) / "elmokit" / kind
    try:
        return Path.home() / ".cache" / "elmokit" / kind
    except RuntimeError:
        return None
