"""Folders that appear whole or not at all; text and JSON read with a sentence for errors."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError

LARGEST_JSON = 64 << 20
LARGEST_TEXT = 1 << 30
LONGEST_REASON = 200  # characters


@contextmanager
def new_folder(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its name when the block ends well."""
    folder = Path(folder).absolute()
    if folder.exists() and not overwrite:
        raise ElmokitError(f"{folder} exists already; remove it or allow to overwrite it")
    if not folder.parent.is_dir():
        raise ElmokitError(f"there is no folder {folder.parent} to write {folder.name} into")
    try:
        making = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ElmokitError(f"cannot write into {folder.parent}: {error.strerror}") from None
    try:
        yield making
        making.chmod(0o755)
        for file in making.iterdir():
            file.chmod(0o644)  # safetensors makes its files for their owner only
            sync(file)
        if folder.exists():
            aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
            folder.rename(aside / folder.name)
            try:
                making.rename(folder)
            except BaseException:
                (aside / folder.name).rename(folder)
                aside.rmdir()
                raise
            shutil.rmtree(aside, ignore_errors=True)
        else:
            making.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise ElmokitError(f"cannot write {folder}: {reason_of(error)}") from None
    finally:
        shutil.rmtree(making, ignore_errors=True)


@contextmanager
def new_model_folder(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """The same for a model; what is there is replaced only if it is empty or a model's too."""
    marks = ("config.json", "options.json", "model.safetensors", "*.hdf5")
    if overwrite and folder.exists():
        found = list(folder.iterdir()) if folder.is_dir() else [folder]
        if found and not any(next(folder.glob(mark), None) for mark in marks):
            raise ElmokitError(f"{folder} is not a model folder; it is not replaced")
    with new_folder(folder, overwrite=overwrite) as making:
        yield making


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs.

    The system lets go of the lock however the process ends. Where there are no such locks (on
    Windows, on some network drives) nobody is kept out.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ElmokitError(
                f"another process is at work in {folder}: wait for its end or choose another output"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(handle)


def cache_folder(kind: str) -> Path | None:
    """Where to keep what can be made again: below ELMOKIT_CACHE, or in the user's cache.

    It need not exist. None if this user has no home and names no place.
    """
    if chosen := os.environ.get("ELMOKIT_CACHE"):
        return Path(chosen) / kind
    if (chosen := os.environ.get("XDG_CACHE_HOME", "")) and Path(chosen).is_absolute():
        return Path(chosen) / "elmokit" / kind
    try:
        return Path.home() / ".cache" / "elmokit" / kind
    except RuntimeError:
        return None


def write_whole(path: Path, pieces: Iterable[str] | bytes) -> None:
    """Write a file so that at every moment there is the old one or the whole new one."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise ElmokitError(f"cannot write {path}: {error.strerror}") from None
    making = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            if isinstance(pieces, bytes):
                stream.write(pieces)
            else:
                stream.writelines(piece.encode("utf-8") for piece in pieces)
        making.chmod(0o644)
        sync(making)
        making.replace(path)
    except OSError as error:
        raise ElmokitError(f"cannot write {path}: {error.strerror}") from None
    finally:
        making.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Have the system write a file or a folder's entries to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reason_of(error: Exception) -> str:
    """What somebody else's error says, in a line that may be part of a sentence."""
    said = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(said).splitlines()[0].rstrip(":")[:LONGEST_REASON]


def is_file(path: Path) -> bool:
    """Whether there is a file, whatever somebody wrote as its name."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # such as a name that is too long
        return False


def read_text(path: Path) -> str:
    """UTF-8 text from a file; its line ends are left as they are."""
    try:
        if path.stat().st_size > LARGEST_TEXT:
            raise ElmokitError(f"{path} is too large for a list of words")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ElmokitError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ElmokitError(f"{path} is not UTF-8 text (byte {error.start})") from None


def published_metadata(folder: Path) -> dict[str, Any]:
    """What `meta.json` says of a model: the archives of the NLPL repository have one."""
    try:
        return {"meta": read_json(folder / "meta.json")}
    except ElmokitError:  # there is none, or it is of another kind
        return {}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise ElmokitError(f"{path} is too large for a configuration")
        values = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ElmokitError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ElmokitError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ElmokitError(f"{path} holds no JSON object")
    return values


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file."""
    import yaml

    path = Path(path).expanduser()
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise ElmokitError(f"{path} is too large for a configuration")
        values = yaml.safe_load(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ElmokitError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:LONGEST_REASON]
        raise ElmokitError(f"{path} is not valid YAML: {reason}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ElmokitError(f"{path} is not a YAML mapping of option names to values")
    return values
