"""Read and write small files of text, JSON and YAML, with a clear error for a bad one."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError, UnsupportedFormat, explained
from elmokit.io.atomic import atomic_file
from elmokit.io.paths import check_regular

MAX_CONFIG_BYTES = 64 << 20
MAX_TEXT_BYTES = 1 << 30


def read_text(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the UTF-8 text of a file such as a word list; line ends are left as they are."""
    return decode(read_bytes(path, max_bytes, "a word list"), path)


def decode(content: bytes, path: Path) -> str:
    """Return the UTF-8 text that a file contains."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsupportedFormat(f"{path} is not UTF-8 text (byte {error.start})") from None


def read_json(path: Path, *, max_bytes: int | None = None) -> dict[str, Any]:
    """Return the JSON object in a file."""
    content = read_bytes(path, max_bytes or MAX_CONFIG_BYTES, "a configuration")
    try:
        values = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedFormat(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise UnsupportedFormat(f"{path} is not a JSON object")
    return values


def try_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, an empty one if there is none that can be read."""
    with suppress(ElmokitError):
        return read_json(path)
    return {}


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file."""
    import yaml

    path = Path(path).expanduser()
    content = read_bytes(path, MAX_CONFIG_BYTES, "a configuration")
    try:
        values = yaml.safe_load(content.decode("utf-8"))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UnsupportedFormat(f"{path} is not valid YAML: {reason}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise UnsupportedFormat(f"{path} is not a YAML mapping of option names to values")
    return values


def read_bytes(path: Path, max_bytes: int, kind: str) -> bytes:
    """Return the content of a regular file of at most `max_bytes`; `kind` is for messages."""
    check_regular(path, missing_ok=True)
    with explained(f"cannot read {path}", OSError, ValueError):  # ValueError: a zero byte in it
        if path.stat().st_size > max_bytes:
            raise UnsupportedFormat(f"{path} is too large for {kind}")
        return path.read_bytes()


def as_json(content: Any) -> str:
    """Return JSON as people read it in a file: indented, and in any script."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, in ASCII, so that lone surrogates in tokens become escapes.

    The temporary file is `path` with `.tmp` added: see `ResumableFolder`, which deletes it.
    """
    with atomic_file(path, temporary=path.with_name(path.name + ".tmp")) as file:
        file.write(json.dumps(content).encode("ascii"))
