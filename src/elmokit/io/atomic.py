"""Write files and folders atomically: a reader sees the old version or the complete new one.

Everything is synced to the disk before it gets its final name, so that this also holds after a
power failure. This is the only module that writes temporary files and renames them.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import ElmokitError, reason_of


@contextmanager
def atomic_file(path: Path, *, temporary: Path | None = None) -> Iterator[io.BufferedRandom]:
    """Open a binary file that is renamed to `path` when the block ends without an error.

    An error deletes it. The data goes to `temporary`, by default a unique hidden file beside
    `path`; a run that must find and delete the leftovers of a killed one names it.
    """
    if temporary is None:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(descriptor)
        temporary = Path(name)
        temporary.chmod(0o644)  # mkstemp makes files that only their owner can read.
    try:
        with temporary.open("w+b") as file:
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
    try:
        with atomic_file(path) as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                file.writelines(piece.encode("utf-8") for piece in content)
    except OSError as error:
        raise ElmokitError(f"cannot write {path}: {reason_of(error)}") from None


@contextmanager
def atomic_folder(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` when the block ends without an error."""
    folder = Path(folder).absolute()
    if folder.exists() and not overwrite:
        raise ElmokitError(f"{folder} already exists: remove it or allow overwriting it")
    if not folder.parent.is_dir():
        raise ElmokitError(f"there is no folder {folder.parent} to write {folder.name} into")
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ElmokitError(f"cannot write into {folder.parent}: {reason_of(error)}") from None
    try:
        yield temporary
        temporary.chmod(0o755)
        for file in temporary.iterdir():
            file.chmod(0o644)  # safetensors makes files that only their owner can read.
            _sync(file)
        aside = temporary.with_name(temporary.name + ".old")
        replace_folder(temporary, folder, aside=aside, remove=_remove_tree)
    except OSError as error:
        raise ElmokitError(f"cannot write {folder}: {reason_of(error)}") from None
    finally:
        _remove_tree(temporary)


def replace_folder(
    source: Path, target: Path, *, aside: Path, remove: Callable[[Path], None]
) -> None:
    """Rename `source` to `target`, replacing a folder that is there.

    A folder cannot be renamed over one that is not empty, so the old one is renamed to `aside`
    first, and deleted by `remove` at the end. If the second rename fails, the first is undone.
    """
    if target.exists():
        if aside.exists():  # from a run that was killed here
            remove(aside)
        target.rename(aside)
    try:
        source.rename(target)
    except BaseException:
        if aside.exists():
            aside.rename(target)
        raise
    sync_folder(target.absolute().parent)
    if aside.exists():
        remove(aside)


def _remove_tree(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _sync(file: Path) -> None:
    with file.open("r+b") as stream:
        os.fsync(stream.fileno())


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
    """Keep other processes out of a folder while the block runs.

    The operating system releases the lock however the process ends. Without such locks (on
    Windows, on some network drives) nothing is locked.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ElmokitError(
                f"another process is writing to {folder}: wait until it ends, or choose another "
                "output"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)
