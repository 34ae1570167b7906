"""From a file of examples to its rows: TSV, CSV and JSON lines, columns by name or by number."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from elmokit.data.lines import Bad, BadRecord, good_lines, is_text, reporting
from elmokit.errors import ElmokitError, plural
from elmokit.io.lines import FilePath, name_of
from elmokit.text.readers import extension_of

Column = str | int | None  # a name, or a number from 1, or from -1 at the end
Cells = list[str]
Value = str | list[str] | None
Rows = Iterator[tuple[str, list[Value]]]  # the location of each row, and its values

KINDS = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv"}
KINDS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")
GUESS_ROWS = 1000
SHOWN_CHARACTERS = 24


@dataclass(frozen=True)
class ColumnSpec:
    """A column that a reader needs."""

    role: str  # what it contains, such as "label"
    option: str  # the setting that names it
    known: Sequence[str]  # names that it often has, the most certain first
    given: Column = None  # its name or number, if the user gave one
    needed: bool = True

    @property
    def number(self) -> int | None:
        return int(str(self.given)) if re.fullmatch(r"[-+]?\d+", str(self.given)) else None


def kind_of(path: FilePath) -> str:
    """Return the kind of a file by its extension: tsv, csv, jsonl, or text."""
    return KINDS.get(extension_of(path), "text")


def read_table(path: FilePath, specs: Sequence[ColumnSpec], bad: Bad) -> Rows:
    """Yield the location of each row, and the values of the specified columns in their order.

    A value is None where an optional column or a field of JSON is missing.
    """
    kind, name = kind_of(path), name_of(path)
    rows: Iterator[tuple[str, Any]]
    if kind == "jsonl":
        rows = _json_objects(path, bad)
    elif kind == "csv":
        rows = _csv_rows(path, bad)
    else:
        rows = ((where, text.split("\t")) for where, text in good_lines(path, bad, filled=True))
    head = list(islice(rows, GUESS_ROWS))
    if not head:
        raise ElmokitError(f"{name} has no rows")
    first, records = head[0][1], [record for _, record in head]
    if kind == "jsonl":
        fields = _find_fields(records, specs, name)
        for where, record in chain(head, rows):
            with reporting(bad, where):
                yield where, [field and _value(record, field) for field in fields]
        return
    columns = find_columns(records, specs, name)
    has_header = _is_header(first, specs, columns)
    for where, cells in islice(chain(head, rows), int(has_header), None):
        with reporting(bad, where):
            _check_width(cells, len(first), specs, columns)
            yield where, [cells[i] if i is not None and i < len(cells) else None for i in columns]


def _check_width(
    cells: Cells, width: int, specs: Sequence[ColumnSpec], columns: Sequence[int | None]
) -> None:
    if len(cells) > width:
        raise BadRecord(f"the line has {len(cells)} columns, but the first one has {width}")
    for column, index in zip(specs, columns, strict=True):
        if column.needed and index is not None and index >= len(cells):
            count = plural(len(cells), "column")
            raise BadRecord(f"the line has {count}, but the {column.role} is in column {index + 1}")


def _csv_rows(path: FilePath, bad: Bad) -> Iterator[tuple[str, Cells]]:
    """Yield rows with the location of their first line: a quoted cell may span several lines."""
    lines = good_lines(path, bad)
    taken: list[tuple[str, str]] = []
    again: list[tuple[str, str]] = []  # lines of a row that could not be read, the last first

    def texts() -> Iterator[str]:
        while line := again.pop() if again else next(lines, None):
            taken.append(line)
            yield line[1] + "\n"

    while True:
        taken.clear()
        try:
            cells = next(csv.reader(texts(), strict=True), None)
        except csv.Error as error:
            bad(taken[0][0], f"the line is not CSV: {error}")
            again.extend(reversed(taken[1:]))
            continue
        if cells is None:
            return
        if cells:
            yield taken[0][0], cells
        else:
            bad(taken[0][0], "the line is empty")


# ---- which columns
def find_columns(head: Sequence[Cells], specs: Sequence[ColumnSpec], name: str) -> list[int | None]:
    """Return the index of each specified column, given the first rows of a file.

    Columns are found by what the user gave, else by the names in the first row. If as many columns
    are left as are still missing, they are taken in order, except that the label is the one with
    the fewest different values.
    """
    first = head[0]
    columns = [_given(column, first, name) for column in specs]
    names = ["" if i in columns else plain_name(cell) for i, cell in enumerate(first)]
    for i, column in enumerate(specs):
        if columns[i] is None:
            columns[i] = next((names.index(each) for each in column.known if each in names), None)
    left = [index for index in range(len(first)) if index not in columns]
    missing = [i for i, index in enumerate(columns) if index is None]
    if len(left) != len(missing):
        missing = [i for i in missing if specs[i].needed]
    if missing and len(left) != len(missing):
        raise _unclear(specs[missing[0]], _shown(first), name)
    if len(missing) > 1 and specs[missing[-1]].role == "label":
        label = missing.pop()
        columns[label] = _label_column(head, left, specs[label], name)
        left = [index for index in left if index != columns[label]]
    for i, index in zip(missing, left, strict=False):
        columns[i] = index
    return columns


def plain_name(name: str) -> str:
    """Normalize the name of a column: `Sentence A` is `sentence_a`."""
    return name.strip().casefold().replace(" ", "_").replace("-", "_")


def _given(column: ColumnSpec, first: Cells, name: str) -> int | None:
    """Return the index of a column that the user gave; raise if a needed one is missing."""
    if column.number is not None:
        if 1 <= abs(column.number) <= len(first):
            return column.number - 1 if column.number > 0 else len(first) + column.number
    elif column.given in first:
        return first.index(str(column.given))
    if column.given is not None and column.needed:
        raise ElmokitError(f"{name} has no column {column.given!r}: it has {_shown(first)}")
    return None


def _label_column(head: Sequence[Cells], left: Sequence[int], label: ColumnSpec, name: str) -> int:
    """Return the column with clearly fewer and shorter values than every other."""
    columns = {index: [row[index] for row in head if index < len(row)] for index in left}
    counts = {index: len(set(cells)) for index, cells in columns.items()}
    lengths = {index: sum(map(len, cells)) for index, cells in columns.items()}
    best = min(left, key=lambda index: (counts[index], lengths[index]))
    others = [index for index in left if index != best]
    is_label = all(counts[best] < counts[i] and lengths[best] < lengths[i] for i in others)
    # If the label is not needed, the shortest column may be it.
    if not is_label and label.needed:
        raise _unclear(label, _shown(head[0]), name)
    return best if is_label else min(left, key=lambda index: lengths[index])


def _unclear(column: ColumnSpec, shown: str, name: str) -> ElmokitError:
    return ElmokitError(
        f"cannot tell which column of {name} has the {column.role}: name it with "
        f"{column.option}; there is {shown}"
    )


def _shown(first: Cells) -> str:
    limit = SHOWN_CHARACTERS
    cells = (cell if len(cell) <= limit else cell[: limit - 1] + "…" for cell in first)
    return ", ".join(f"{i} ({cell})" for i, cell in enumerate(cells, start=1))


def _is_header(first: Cells, specs: Sequence[ColumnSpec], columns: Sequence[int | None]) -> bool:
    pairs = [(column, i) for column, i in zip(specs, columns, strict=True) if i is not None]
    is_named = any(column.given is not None and column.number is None for column, _ in pairs)
    return is_named or any(plain_name(first[i]) in column.known for column, i in pairs)


# ---- JSON lines
def _json_objects(path: FilePath, bad: Bad) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, text in good_lines(path, bad, filled=True):
        with reporting(bad, where):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is too deep"
                raise BadRecord(f"the line is not JSON: {reason}") from None
            if not isinstance(value, dict):
                raise BadRecord("the line is not a JSON object with named fields")
            yield where, value


def _find_fields(
    head: Iterable[dict[str, Any]], specs: Sequence[ColumnSpec], name: str
) -> list[str | None]:
    """Return the field of each column: the given one, or a known name in the first rows."""
    keys = list(dict.fromkeys(key for record in head for key in record))
    names = [plain_name(key) for key in keys]
    fields: list[str | None] = []
    for column in specs:
        known = (keys[names.index(each)] for each in column.known if each in names)
        field = next(known, None) if column.given is None else str(column.given)
        if column.needed and field is None:
            raise _unclear(column, ", ".join(keys), name)
        if column.needed and field not in keys and str(field).partition(".")[0] not in keys:
            raise ElmokitError(f"{name} has no field {field!r}: it has {', '.join(keys)}")
        fields.append(field)
    return fields


def _value(record: dict[str, Any], field: str) -> Value:
    """Return the value of a field, which may be a dotted path; numbers as JSON has them."""
    value: Any = record
    for key in [field] if field in record else field.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, int | float):
        return json.dumps(value)
    if value is not None and not all(map(is_text, value if isinstance(value, list) else [value])):
        raise BadRecord(f"the field {field!r} is neither a text nor a list of words")
    return value  # type: ignore[no-any-return]
