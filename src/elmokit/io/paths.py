"""Paths: the input files and outputs that a user names, and the cache folder."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from elmokit.errors import ElmokitError, InvalidInput, MissingFile, UnsupportedFormat, explained
from elmokit.io.lines import FilePath


def find_files(corpus: FilePath | Sequence[FilePath]) -> list[Path]:
    """Return the files that paths, globs and folders name, each once, sorted by name."""
    files: set[Path] = set()
    for name in [corpus] if isinstance(corpus, str | os.PathLike) else corpus:
        path = Path(name).expanduser()
        if is_folder(path):
            matches = {p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")}
        elif is_file(path):
            matches = {path}
        else:
            names = glob.glob(str(path), recursive=True)  # noqa: PTH207
            matches = {Path(p) for p in names if is_file(p)}
        if not matches:
            where = os.fspath(name)
            raise MissingFile(f"there is no text at {where!r}: give files, globs or folders")
        files |= matches
    if not files:
        raise InvalidInput("no corpus was given: name files, globs or folders")
    return sorted(files)


def check_output(
    path: FilePath | None, *, inputs: Iterable[FilePath | None] = (), overwrite: bool = False
) -> None:
    """Raise early if `path` cannot be written, is an input, or exists without `overwrite`."""
    if path is None:
        return
    problem = f"cannot write {os.fspath(path)[:99]}"  # such as a name that is too long
    with explained(problem, OSError, RuntimeError, ValueError):
        output = Path(path).expanduser().absolute()
        if not output.parent.is_dir():
            raise MissingFile(f"there is no folder {output.parent} to write {path} to")
        try:
            output.lstat()
        except FileNotFoundError:
            return
    check_no_input(path, inputs)
    if is_special(output) or (output.exists() and not output.is_file()):
        kind = "a folder" if output.is_dir() else "not a regular file"
        raise ElmokitError(f"{path} is {kind}: name a file to write")
    if not overwrite:
        raise ElmokitError(
            f"{path} already exists: choose another name, or replace it with --overwrite"
        )


def check_no_input(output: FilePath, inputs: Iterable[FilePath | None]) -> None:
    """Raise if an output is an input or a file in an input folder, or a folder that has an input.

    Links make no difference. None, "-" and names of files that do not exist are ignored.
    """
    target = _file_id(output)
    for name in inputs:
        if target is None or name is None or os.fspath(name) == "-" or _file_id(name) is None:
            continue
        path = Path(name).expanduser()
        inside = path.rglob("*") if path.is_dir() else ()
        if any(_file_id(other) == target for other in (path, *path.resolve().parents, *inside)):
            raise ElmokitError(f"{output} would overwrite the input {name}: choose another output")


def _file_id(path: FilePath) -> tuple[int, int] | None:
    """Return what identifies a file or folder whatever its name is; None if it does not exist."""
    with suppress(OSError, RuntimeError, ValueError):
        status = Path(path).expanduser().stat()
        return status.st_dev, status.st_ino
    return None


def is_file(path: FilePath) -> bool:
    """Like `Path.is_file()`, but False for invalid names instead of an exception."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: FilePath) -> bool:
    """Like `Path.is_dir()`, but False for invalid names instead of an exception."""
    return os.path.isdir(path)  # noqa: PTH112


def is_special(path: FilePath) -> bool:
    """Tell whether a path is among devices and processes, such as /dev/stdout.

    That may lead to a regular file, but cannot be replaced like one.
    """
    folder = os.path.realpath(Path(path).absolute().parent)
    return folder in ("/dev", "/dev/fd") or folder.startswith("/proc/")


def is_inside(path: FilePath, folder: FilePath) -> bool:
    """Tell whether a path leads to a folder or into it, also through links."""
    with suppress(OSError, ValueError, RuntimeError):  # There can be no such path.
        return Path(path).expanduser().resolve().is_relative_to(Path(folder).resolve())
    return False


def check_regular(path: Path, *, missing_ok: bool = False) -> None:
    """Raise unless `path` is a regular file: a pipe blocks, and a device has no end."""
    if os.path.exists(path) and not is_file(path):  # noqa: PTH110 (False for invalid names)
        raise UnsupportedFormat(f"{path} is a folder, a pipe or a device, not a regular file")
    if not missing_ok and not is_file(path):
        raise MissingFile(f"there is no file {path}")


def file_inside(folder: Path, *names: str) -> Path | None:
    """Return the first file in the folder that one of the names leads to, None without any file.

    Raise if all lead out of the folder. The file itself may be a link, as in the Hub's cache.
    """
    files = [path for name in names if is_file(path := folder / name)]
    for path in files:
        if is_inside(path.parent, folder):
            return path
    if files:
        raise UnsupportedFormat(f"{folder} names a file outside of it: put {files[0]} into it")
    return None


def cache_folder(kind: str) -> Path | None:
    """Return the folder, if there is one, for data that can be computed again; create nothing."""
    if chosen := os.environ.get("ELMOKIT_CACHE"):
        return Path(chosen) / kind
    if (chosen := os.environ.get("XDG_CACHE_HOME", "")) and Path(chosen).is_absolute():
        return Path(chosen) / "elmokit" / kind
    try:
        return Path.home() / ".cache" / "elmokit" / kind
    except RuntimeError:
        return None
