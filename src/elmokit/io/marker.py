"""The file that marks a folder as the output of a training run, and names its command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, get_args

from elmokit.errors import ElmokitError
from elmokit.io.atomic import write_file
from elmokit.io.jsonfile import read_json

MARKER = "elmokit-run.json"
Command = Literal["pretrain", "adapt", "train", "compare"]


def write_marker(folder: Path, command: Command) -> None:
    """Mark a folder as the output of a run of `command`."""
    if not (folder / MARKER).exists():
        write_file(folder / MARKER, [json.dumps({"command": command}) + "\n"])


def read_marker(folder: Path) -> Command | None:
    """Return the command whose output a folder is, None if the folder is not marked."""
    if not (folder / MARKER).is_file():
        return None
    command = read_json(folder / MARKER).get("command")
    if command not in get_args(Command):
        raise ElmokitError(f"{folder / MARKER} names no command of elmokit that trains")
    return command
