"""Write files and folders atomically: a reader sees the old version or the complete new one.

Everything is synced to the disk before it gets its final name, so that this also holds after a
power failure. A temporary name is `.NAME.XXXXXXXX.elmokit`, locked while it is written: the next
writer of NAME deletes what a killed one has left. Nothing is written or deleted through a link.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from elmokit.errors import ElmokitError, MissingFile, explained
from elmokit.io.paths import is_folder

# ".old" is added to the temporary name of a folder that is being replaced.
LEFTOVER = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.elmokit(?P<old>\.old)?")


@contextmanager
def atomic_file(path: Path, *, temporary: Path | None = None) -> Iterator[io.BufferedRandom]:
    """Open a binary file that is renamed to `path` when the block ends without an error.

    An error deletes it. A link at `path` is replaced, not followed. `temporary` is another name for
    the temporary file, for folders that are cleaned up by name.
    """
    if temporary is None:
        remove_leftovers(path.parent, path.name)
        temporary = _temporary_name(path)
    elif os.path.lexists(temporary):  # a leftover, or somebody's link
        temporary.unlink()
    try:
        with temporary.open("x+b") as file:  # "x" never opens what somebody else has put there.
            _try_lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_file(path: Path, content: Iterable[str] | bytes) -> None:
    """Write bytes, or pieces of text as UTF-8, to a file atomically."""
    with explained(f"cannot write {path}", OSError), atomic_file(path) as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            file.writelines(piece.encode("utf-8") for piece in content)


@contextmanager
def atomic_folder(folder: Path, *, replace: Collection[str] | None = None) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` when the block ends without an error.

    A folder that exists is replaced if all of its files have, or match, the names in `replace`.
    """
    folder = Path(folder).absolute()
    check_replaceable(folder, replace)
    if not is_folder(folder.parent):
        raise MissingFile(f"there is no folder {folder.parent} to write {folder.name} into")
    with explained(f"cannot write {folder}", OSError):
        remove_leftovers(folder.parent, folder.name)
        temporary = _temporary_name(folder)
        temporary.mkdir()
        with _lock_of(temporary):
            try:
                yield temporary
                # Other libraries make files that only their owner can read.
                mode = stat.S_IMODE(temporary.stat().st_mode) & 0o666
                for file in temporary.iterdir():
                    file.chmod(mode)
                    with file.open("r+b") as stream:
                        os.fsync(stream.fileno())
                check_replaceable(folder, replace)
                replace_folder(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)


def check_replaceable(folder: Path, names: Collection[str] | None) -> None:
    """Raise if `folder` exists, unless it is a folder of files that have or match `names`."""
    if not os.path.lexists(folder):
        return
    if names is None:
        raise ElmokitError(
            f"{folder} already exists: choose another name, or replace it with --overwrite"
        )
    if folder.is_symlink() or not folder.is_dir():
        kind = "a link" if folder.is_symlink() else "not a folder"
        raise ElmokitError(f"{folder} is {kind}, so it is not replaced")
    with explained(f"cannot look into {folder}", OSError):
        others = sorted(
            p.name for p in folder.iterdir() if p.is_dir() or not matches(p.name, names)
        )
    if others:
        listed = ", ".join(others[:3]) + (", ..." if others[3:] else "")
        raise ElmokitError(
            f"{folder} is not replaced, because other files are in it ({listed}): move them, or "
            "choose another name"
        )


def matches(name: str, patterns: Collection[str]) -> bool:
    """Tell whether a file name is one of `patterns` or matches one, as in `fnmatch`."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def remove_files(folder: Path, names: Collection[str]) -> None:
    """Delete the files that match `names`, and the folder if it is then empty; follow no link."""
    if folder.is_symlink():
        return
    for path in folder.iterdir():
        if matches(path.name, names):
            path.unlink()
    with suppress(OSError):  # It has other files.
        folder.rmdir()


def replace_folder(source: Path, target: Path) -> None:
    """Rename `source` to `target`; a folder that is there is deleted: see `check_replaceable`.

    A folder cannot be renamed over one that is not empty, so the old one is renamed first. If the
    second rename fails, the first is undone; after a kill, the next `remove_leftovers` does that.
    """
    if not target.exists():
        source.rename(target)
        sync_folder(target.absolute().parent)
        return
    aside = Path(f"{_temporary_name(target)}.old")
    with _lock_of(target):
        target.rename(aside)
        try:
            source.rename(target)
        except BaseException:
            aside.rename(target)
            raise
        sync_folder(target.absolute().parent)
        old = aside.with_suffix("")  # A name that is never renamed back, whenever this is killed.
        aside.rename(old)
        shutil.rmtree(old)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Delete the temporary files and folders that killed processes have left in `folder`.

    An old version that was about to be replaced gets its name back if there is no new one. With
    `name`, only the temporary versions of that file or folder are deleted.
    """
    with suppress(OSError):
        for leftover in folder.iterdir():
            match = LEFTOVER.fullmatch(leftover.name)
            if match is None or leftover.is_symlink():
                continue
            target = leftover.with_name(match["name"])
            inner, is_nested = match["name"], False
            while nested := LEFTOVER.fullmatch(inner):  # A temporary folder was itself replaced.
                inner, is_nested = nested["name"], True
            if name is not None and _short_name(name) != inner:
                continue
            with suppress(OSError), _lock_of(leftover) as is_mine:
                if is_mine and match["old"] and not is_nested and not target.exists():
                    leftover.rename(target)
                elif is_mine and leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                elif is_mine:
                    leftover.unlink()


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{_short_name(path.name)}.{secrets.token_hex(4)}.elmokit")


def _short_name(name: str) -> str:
    """Return a name, or a hash of it if it is too long for more letters."""
    encoded = os.fsencode(name)
    return name if len(encoded) < 200 else hashlib.blake2b(encoded, digest_size=16).hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the renames inside `folder` survive a power failure, in their order."""
    if os.name == "nt":  # Windows cannot open a folder.
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs, however it ends.

    Without such locks (on Windows, on some network drives) nothing is locked.
    """
    with _lock_of(folder, unlocked=True) as is_mine:
        if not is_mine:
            raise ElmokitError(
                f"another process is writing to {folder}: wait until it ends, or choose another "
                "output"
            )
        yield


@contextmanager
def _lock_of(path: Path, *, unlocked: bool = False) -> Iterator[bool]:
    """Lock a path in the block; yield False if another process has it, `unlocked` without locks."""
    if os.name == "nt":
        yield unlocked
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        is_mine = _try_lock(descriptor)
        yield unlocked if is_mine is None else is_mine
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool | None:
    """Lock an open file; return False if another process has locked it, None without locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True
