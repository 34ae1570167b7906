"""Long runs that can be resumed: an output is collected in a folder beside it, then renamed.

out.parts/      settings of the run and what it has written so far
out             appears when all is done
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from elmokit.errors import ElmokitError, MissingFile, UnsupportedFormat, explained
from elmokit.io import atomic
from elmokit.io.atomic import check_replaceable
from elmokit.io.jsonfile import read_json
from elmokit.io.lines import STANDARD_INPUT, FilePath
from elmokit.io.paths import check_no_input, is_file, is_folder, is_special

IDENTITY_BYTES = 1 << 20

T = TypeVar("T")


def parts_folder(out: Path) -> Path:
    """Return the folder in which `out` is collected: beside it, so that a rename suffices."""
    return out.with_name(out.name + ".parts")


def check_unused(
    out: Path, *, resume: bool, overwrite: bool, inputs: Iterable[FilePath | None] = ()
) -> None:
    """Raise if `out` or a run of it exists and is not to be resumed or replaced, or is an input."""
    if not out.name:
        raise ElmokitError(f"{out} is a folder: name an output in it")
    if is_special(out):
        raise ElmokitError(f"{out} is not a regular file: name a file to write")
    inputs = list(inputs)
    for path in (out, parts_folder(out)):
        check_no_input(path, inputs)
    with explained(f"cannot write {os.fspath(out)[:99]}", OSError):  # The name is too long.
        parts_folder(out).exists()
    if not out.absolute().parent.is_dir():
        raise MissingFile(f"there is no folder {out.parent} to write {out.name} into")
    if os.path.lexists(parts_folder(out)):
        if not (resume or overwrite):
            raise ElmokitError(
                f"{parts_folder(out)} holds an unfinished run: continue it with --resume, or start "
                "again with --overwrite"
            )
    elif os.path.lexists(out) and not overwrite:
        if resume:
            raise ElmokitError(f"{out} is complete: there is nothing to resume")
        raise ElmokitError(
            f"{out} already exists: choose another name, or replace it with --overwrite"
        )


class ResumableFolder:
    """Base of writers whose output grows in `parts_folder(out)` and is resumed after a kill.

    `settings` say what the output is made of: a run resumes only with the same ones. `resume`
    continues an unfinished run, or starts one if there is none; `overwrite` discards what is there.
    Both together continue an unfinished run or replace a finished output. As a context manager it
    leaves nothing behind when the run fails before anything is committed.

    A subclass commits data and implements the methods below that raise NotImplementedError.
    """

    KIND = "an output of this kind"
    """What the output is called in the message for a path that must not be replaced."""
    FILES: tuple[str, ...] = ()
    """Names, or patterns as in `fnmatch`, of the files in the folder; no others are deleted."""
    FIELDS: ClassVar[Mapping[str, str]] = {}
    """A field of each JSON file in the folder, by which it is told from those of others."""

    def __init__(
        self, out: str | Path, settings: Mapping[str, Any], *, resume: bool, overwrite: bool
    ) -> None:
        self.out = Path(out)
        self.folder = parts_folder(self.out)
        # Through JSON and back, so that a tuple equals the list that it is saved as.
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        # While another process writes to the folder, nothing in it may be deleted.
        lock = atomic.locked(self.folder) if is_folder(self.folder) else nullcontext()
        with explain_disk_errors(self.out), lock:
            atomic.remove_leftovers(self.out.parent, self.out.name)
            self._check_output(resume, overwrite)
            if resume and self.folder.exists():
                self._resume()
            else:
                self._begin()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._is_empty():
            with suppress(OSError):
                self._remove(self.folder)

    def _is_run(self, parts: Path) -> bool:
        """Tell by its content whether a folder with such names is an unfinished run, or damaged."""
        for name, field in self.FIELDS.items():
            with suppress(UnsupportedFormat):
                if is_file(parts / name) and field not in read_json(parts / name):
                    return False
        return True

    def _is_replaceable(self, out: Path) -> bool:
        """Tell by its content whether `out`, which exists and is not empty, is such an output."""
        raise NotImplementedError

    def _start(self) -> None:
        """Write the first files of a run into the new folder, if it begins with any."""

    def _resume(self) -> None:
        """Check the settings of the unfinished run and load its state."""
        raise NotImplementedError

    def _is_empty(self) -> bool:
        """Tell whether nothing is committed yet."""
        raise NotImplementedError

    def _remove(self, folder: Path) -> None:
        """Delete the files of such an output, and nothing that a user has put beside them."""
        atomic.remove_files(folder, self.FILES)

    def _check_output(self, resume: bool, overwrite: bool) -> None:
        """Raise if something is in the way that must not be resumed or replaced."""
        out, parts = self.out, self.folder
        if os.path.lexists(parts):
            check_replaceable(parts, self.FILES)
            if not self._is_run(parts):
                raise ElmokitError(f"{parts} is not an unfinished run, so it is kept")
        check_unused(out, resume=resume, overwrite=overwrite)
        if out.is_dir():
            check_replaceable(out, self.FILES)
        is_empty = out.is_dir() and not any(out.iterdir())
        if out.exists() and not is_empty and not self._is_replaceable(out):
            raise ElmokitError(f"{out} is not {self.KIND}, so it is not replaced")

    def _begin(self) -> None:
        if self.folder.exists():
            self._remove(self.folder)
        self.folder.mkdir()
        atomic.sync_folder(self.folder.parent)
        self._start()

    def _publish(self) -> None:
        """Rename the folder to `out`."""
        check_replaceable(self.out, self.FILES)
        atomic.replace_folder(self.folder, self.out)


def check_settings(folder: Path | str, saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise if a run would be resumed with other settings than it was started with."""
    for field in sorted(saved.keys() | given.keys()):
        before, now = (
            json.dumps(settings[field], ensure_ascii=False) if field in settings else "not set"
            for settings in (saved, given)
        )
        if before != now:
            raise ElmokitError(
                f"{folder} was started with other settings ({field} was {before} and is now "
                f"{now}): resume with the same settings, or start again with --overwrite"
            )


def input_identity(path: FilePath) -> dict[str, Any]:
    """Return what distinguishes an input file from others, without reading all of it."""
    file = Path(path)
    if os.fspath(path) == STANDARD_INPUT or not is_file(file):  # A pipe can be read only once.
        return {"name": "a pipe"}
    with file.open("rb") as stream:
        start = hashlib.blake2b(stream.read(IDENTITY_BYTES), digest_size=16).hexdigest()
    return {"bytes": file.stat().st_size, "start": start}


def other_input(input: FilePath, out: FilePath) -> ElmokitError:
    """Return the error for a run that is resumed with another input than it was started with."""
    return ElmokitError(
        f"{os.fspath(input)} is not the input that the unfinished run of {out} was started with: "
        "resume with the same input, or start again with --overwrite"
    )


def damaged(folder: Path, reason: str) -> ElmokitError:
    """Return the error for files of a run that are not as they were written."""
    return ElmokitError(f"{folder} is damaged ({reason}): start again with --overwrite")


@contextmanager
def explain_disk_errors(out: Path, *, kept: Path | None = None) -> Iterator[None]:
    """Turn an OSError while `out` is written into a sentence; `kept` is the folder of its parts."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        sentence = f"cannot write {out}: {reason} ({error.filename or 'while writing'})"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            sentence = (
                f"the disk is full ({reason}): {out} is not finished, but the parts done so far "
                f"are kept in {kept or parts_folder(out)}; free some space and continue with "
                "--resume"
            )
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            sentence = f"cannot write {out}: its folder does not allow it ({reason})"
        raise ElmokitError(sentence) from error
