"""From a file of examples to its rows: TSV, CSV and JSON lines, columns by name or by number.

A reader says which columns it wants; here they are found, and each row comes with its place in the
file. What is wrong with a row is told to `bad`, and the next row follows.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from elmokit.data.lines import extension_of, filled_lines, good_lines, is_text, place
from elmokit.errors import ElmokitError
from elmokit.io.lines import FilePath, name_of

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.data.lines import Bad

    Cells: TypeAlias = "list[str]"
    Value: TypeAlias = "str | list[str] | None"

KINDS = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
GUESS_ROWS = 1000
SHOWN_CHARACTERS = 24


@dataclass(frozen=True)
class Wanted:
    """A column that a reader needs."""

    role: str
    """What it has, such as "label"."""
    option: str
    """The setting that names it."""
    known: tuple[str, ...]
    """Names that it often has, the surest first."""
    given: str | int | None = None
    """Its name or number, where the user says it."""
    needed: bool = True

    @property
    def number(self) -> int | None:
        """The number that the user gave, from 1, or from -1 at the end."""
        is_number = self.given is not None and re.fullmatch(r"[-+]?\d+", str(self.given))
        return int(self.given or 0) if is_number else None


def kind_of(path: FilePath) -> str:
    """What a file is by its extension: tsv, csv, jsonl, or text."""
    return KINDS.get(extension_of(path), "text")


def read_table(
    path: FilePath, wanted: Sequence[Wanted], bad: Bad
) -> Iterator[tuple[str, list[Value]]]:
    """Of each row: its place, and the values of the wanted columns in their order.

    The extension says what the file is; any other is read as TSV. A value is None where an
    optional column or a field of JSON is missing.
    """
    if kind_of(path) == "jsonl":
        return _json_rows(path, wanted, bad)
    return _cell_rows(path, wanted, bad)


# ---- cells


def _cell_rows(
    path: FilePath, wanted: Sequence[Wanted], bad: Bad
) -> Iterator[tuple[str, list[Value]]]:
    if kind_of(path) == "csv":
        rows = _csv_rows(path, bad)
    else:
        rows = ((number, text.split("\t")) for number, text in filled_lines(path, bad))
    head = list(islice(rows, GUESS_ROWS))
    if not head:
        raise ElmokitError(f"{name_of(path)} has no rows")
    columns = find_columns([cells for _, cells in head], wanted, name_of(path))
    width = len(head[0][1])
    has_header = _is_header(head[0][1], wanted, columns)
    for number, cells in islice(chain(head, rows), int(has_header), None):
        if problem := _misfit(cells, width, wanted, columns):
            bad(place(path, number), problem)
        else:
            values: list[Value] = [
                cells[i] if i is not None and i < len(cells) else None for i in columns
            ]
            yield place(path, number), values


def _misfit(
    cells: Cells, width: int, wanted: Sequence[Wanted], columns: Sequence[int | None]
) -> str:
    """What is wrong with the number of cells of a row, if anything."""
    if len(cells) > width:
        return f"the line has {len(cells)} columns, and the first one has {width}"
    for column, index in zip(wanted, columns, strict=True):
        if column.needed and index is not None and index >= len(cells):
            found = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
            return f"the line has {found}, and the {column.role} is in column {index + 1}"
    return ""


def _csv_rows(path: FilePath, bad: Bad) -> Iterator[tuple[int, Cells]]:
    """Rows with the number of the line where each begins: a quoted cell may go over several.

    After a row that cannot be read, reading goes on with the line behind its first one.
    """
    lines = good_lines(path, bad)
    taken: list[tuple[int, str]] = []
    again: list[tuple[int, str]] = []  # taken for a row that could not be read, last line first

    def texts() -> Iterator[str]:
        while line := again.pop() if again else next(lines, None):
            taken.append(line)
            yield line[1] + "\n"

    reader = csv.reader(texts(), strict=True)
    while True:
        taken.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            bad(place(path, taken[0][0]), f"the line is not CSV: {error}")
            again.extend(reversed(taken[1:]))
            reader = csv.reader(texts(), strict=True)
            continue
        if cells:
            yield taken[0][0], cells
        else:
            bad(place(path, taken[0][0]), "the line is empty")


# ---- which columns


def find_columns(head: Sequence[Cells], wanted: Sequence[Wanted], name: str) -> list[int | None]:
    """The index of each wanted column in the rows of a file, of which `head` are the first.

    By what the user gave, else by the names in the first row. If then so many columns are left as
    are wanted, they are taken in order, except that the label is the one with the fewest different
    values.
    """
    first = head[0]
    columns = [_given(column, first, name) for column in wanted]
    names = ["" if i in columns else plain_name(cell) for i, cell in enumerate(first)]
    for i, column in enumerate(wanted):
        if columns[i] is None:
            columns[i] = next((names.index(each) for each in column.known if each in names), None)
    left = [index for index in range(len(first)) if index not in columns]
    missing = [i for i, index in enumerate(columns) if index is None]
    if len(left) != len(missing):
        missing = [i for i in missing if wanted[i].needed]
    if missing and len(left) != len(missing):
        raise _unclear(wanted[missing[0]], _shown(first), name)
    if len(missing) > 1 and wanted[missing[-1]].role == "label":
        label = missing.pop()
        columns[label] = _label_column(head, left, wanted[label], name)
        left = [index for index in left if index != columns[label]]
    for i, index in zip(missing, left, strict=False):
        columns[i] = index
    return columns


def plain_name(name: str) -> str:
    """A name of a column as it is compared: `Sentence A` is `sentence_a`."""
    return name.strip().casefold().replace(" ", "_").replace("-", "_")


def _given(column: Wanted, first: Cells, name: str) -> int | None:
    """The index of a column that the user named or numbered, where it is there or must be."""
    if column.number is not None:
        number = column.number
        if 1 <= abs(number) <= len(first):
            return number - 1 if number > 0 else len(first) + number
    elif column.given in first:
        return first.index(str(column.given))
    if column.given is not None and column.needed:
        raise ElmokitError(f"{name} has no column {column.given!r}: it has {_shown(first)}")
    return None


def _label_column(head: Sequence[Cells], left: Sequence[int], label: Wanted, name: str) -> int:
    """The one that has clearly fewer different values and shorter ones than each other column."""
    columns = {index: [row[index] for row in head if index < len(row)] for index in left}
    counts = {index: len(set(cells)) for index, cells in columns.items()}
    lengths = {index: sum(map(len, cells)) for index, cells in columns.items()}
    best = min(left, key=lambda index: (counts[index], lengths[index]))
    others = [index for index in left if index != best]
    is_label = all(counts[best] < counts[i] and lengths[best] < lengths[i] for i in others)
    # Where nobody will ask for the label, the shortest may be it.
    if not is_label and label.needed:
        raise _unclear(label, _shown(head[0]), name)
    return best if is_label else min(left, key=lambda index: lengths[index])


def _unclear(column: Wanted, shown: str, name: str) -> ElmokitError:
    return ElmokitError(
        f"it is not clear which column of {name} has the {column.role}: name it with "
        f"{column.option}; there is {shown}"
    )


def _shown(first: Cells) -> str:
    shown = (
        cell if len(cell) <= SHOWN_CHARACTERS else cell[: SHOWN_CHARACTERS - 1] + "…"
        for cell in first
    )
    return ", ".join(f"{number} ({cell})" for number, cell in enumerate(shown, start=1))


def _is_header(first: Cells, wanted: Sequence[Wanted], columns: Sequence[int | None]) -> bool:
    """Whether the first row has names: one that is given, or one that is known."""
    pairs = [(column, i) for column, i in zip(wanted, columns, strict=True) if i is not None]
    is_named = any(column.given is not None and column.number is None for column, _ in pairs)
    return is_named or any(plain_name(first[i]) in column.known for column, i in pairs)


# ---- JSON lines


def _json_rows(
    path: FilePath, wanted: Sequence[Wanted], bad: Bad
) -> Iterator[tuple[str, list[Value]]]:
    objects = _json_objects(path, bad)
    head = list(islice(objects, GUESS_ROWS))
    if not head:
        raise ElmokitError(f"{name_of(path)} has no rows")
    fields = _find_fields([found for _, found in head], wanted, name_of(path))
    for number, found in chain(head, objects):
        values = [field and _field(found, field) for field in fields]
        wrong = next((i for i, value in enumerate(values) if not _is_value(value)), None)
        if wrong is None:
            yield place(path, number), [_value(value) for value in values]
        else:
            bad(place(path, number), f"the field {fields[wrong]!r} is no text and no list of words")


def _json_objects(path: FilePath, bad: Bad) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, text in filled_lines(path, bad):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            message = error.msg if isinstance(error, json.JSONDecodeError) else "it is too deep"
            bad(place(path, number), f"the line is not JSON: {message}")
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            bad(place(path, number), "the line is no JSON object with named fields")


def _find_fields(
    head: Iterable[dict[str, Any]], wanted: Sequence[Wanted], name: str
) -> list[str | None]:
    """The field of each wanted column: what is given, or a known name that the first rows have."""
    keys = list(dict.fromkeys(key for found in head for key in found))
    names = [plain_name(key) for key in keys]
    fields: list[str | None] = []
    for column in wanted:
        known = (keys[names.index(each)] for each in column.known if each in names)
        field = next(known, None) if column.given is None else str(column.given)
        if column.needed and field is None:
            raise _unclear(column, ", ".join(keys), name)
        if column.needed and field not in keys and str(field).partition(".")[0] not in keys:
            raise ElmokitError(f"{name} has no field {field!r}: it has {', '.join(keys)}")
        fields.append(field)
    return fields


def _field(found: Any, path: str) -> Any:
    """The value of a field, which may be a dotted path."""
    for key in [path] if path in found else path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(is_text, value))
    return value is None or isinstance(value, int | float) or is_text(value)


def _value(value: Any) -> Value:
    """Text and lists as they are; numbers and true and false as JSON has them."""
    return value if value is None or isinstance(value, str | list) else json.dumps(value)
