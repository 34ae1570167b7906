"""Print and write results: tables for the terminal, JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import elmokit
from elmokit.io.atomic import write_file
from elmokit.text.unicode import text_width


def table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format rows below a header; the first column is aligned left, the others right.

    >>> print(table(["", "F1"], [["layer 1", 0.5], ["词", 12]]))
               F1
    layer 1  0.50
    词         12
    """
    lines = [list(names)]
    for row in rows:
        rounded = (f"{value:.2f}" if isinstance(value, float) else value for value in row)
        lines.append(["-" if value is None else str(value) for value in rounded])
    widths = [max(map(text_width, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        for i, (cell, width) in enumerate(zip(line, widths, strict=True)):
            padding = " " * (width - text_width(cell))
            line[i] = padding + cell if i else cell + padding
    return "\n".join("  ".join(line).rstrip() for line in lines)


def percent(share: float | None) -> float | None:
    """Return a share times 100; None stays None."""
    return None if share is None else 100 * share


def write_result(
    path: str | None, command: str, settings: Mapping[str, Any], result: Mapping[str, Any]
) -> None:
    """Write a result as JSON, with the command and its settings; do nothing without a path."""
    if path is None:
        return
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= asdict(value) if is_dataclass(type(value)) else {name: value}
    content = {"command": command, "elmokit": elmokit.__version__, "settings": flat, **result}
    write_file(Path(path).expanduser(), [json.dumps(content, indent=1, ensure_ascii=False) + "\n"])
