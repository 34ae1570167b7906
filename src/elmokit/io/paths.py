"""Paths that a user names: input files, and places to write to."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from elmokit.errors import ElmokitError


def find_files(corpus: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that paths, globs and folders name, each once, in the order of their names."""
    names = [corpus] if isinstance(corpus, str | os.PathLike) else list(corpus)
    found: set[Path] = set()
    for given in names:
        name = os.fspath(given)
        path = Path(name).expanduser()
        if path.is_dir():
            inside = {p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")}
        elif path.is_file():
            inside = {path}
        else:
            inside = {Path(p) for p in glob.glob(str(path), recursive=True)}  # noqa: PTH207
            inside = {p for p in inside if p.is_file()}
        if not inside:
            raise ElmokitError(f"there is no text at {name!r}: give files, globs or folders")
        found |= inside
    if not found:
        raise ElmokitError("no corpus was given: name files, globs or folders")
    return sorted(found)


def check_output(path: str | None) -> None:
    """Say before the work, not after it, that a file cannot be written."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise ElmokitError(f"there is no folder {Path(path).absolute().parent} to write {path} to")
