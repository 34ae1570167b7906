"""What every command of this room shares: a model with its kept layers, a table, a JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.progress import check_threads
from elmokit.text.width import text_width

if TYPE_CHECKING:
    from elmokit.store import LayerStore


def open_store(
    model: str, *, device: str = "cpu", threads: int | None = None, tokenizer: str | None = None
) -> LayerStore:
    """Load a model, with the store of layers that it has computed in any run."""
    check_threads(threads)
    import torch

    from elmokit.loading import load
    from elmokit.store import LayerStore

    if threads is not None:
        torch.set_num_threads(threads)
    settings: dict[str, Any] = {} if tokenizer is None else {"tokenizer": tokenizer}
    return LayerStore(load(model, device=device, **settings))


def table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows below their names, in columns: the first one to the left, the others to the right.

    >>> print(table(["", "F1"], [["layer 1", 0.5], ["词", 12]]))
               F1
    layer 1  0.50
    词         12
    """
    cells = [list(names), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(text_width, column)) for column in zip(*cells, strict=True)]
    return "\n".join(_line(row, widths) for row in cells)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        (cell + " " * (width - text_width(cell)), " " * (width - text_width(cell)) + cell)
        for cell, width in zip(cells, widths, strict=True)
    )
    return "  ".join([first[0], *(right for _, right in rest)]).rstrip()


def write_result(
    path: str | None, command: str, settings: dict[str, Any], result: dict[str, Any]
) -> None:
    """Write a result as JSON, with the command and the settings that gave it; none if no path."""
    if path is None:
        return
    from elmokit import __version__
    from elmokit.io.atomic import write_file

    whole = {"command": command, "elmokit": __version__, "settings": settings, **result}
    write_file(Path(path), [json.dumps(whole, indent=1, ensure_ascii=False) + "\n"])
