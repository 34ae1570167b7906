"""Readers of sentences in columns, one token per line: CoNLL, CoNLL-U, and roles of predicates.

file ─► sentences of rows ─► tokens and tags ─► spans as IOB2 (schemes.py) ─► examples
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import dropwhile, groupby
from typing import NamedTuple

from elmokit.data.examples import Tagged
from elmokit.data.labeled import BadLines, Reading, words
from elmokit.data.lines import decoded_lines, good_lines, location
from elmokit.data.schemes import is_tag_of, scheme_of, to_iob2
from elmokit.data.tables import Column
from elmokit.errors import ElmokitError, plural
from elmokit.io.lines import FilePath, name_of
from elmokit.text.readers import extension_of

Row = tuple[str, list[str]]  # the location of the line, and its cells
Problem = tuple[str, str]  # the location of a line, and why it cannot be used
Requested = dict[str, Column]
CONLLU_COLUMNS = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
NEVER_EMPTY = ("UPOS", "XPOS")  # in other columns of CoNLL-U _ is a value
TEXT_EXTENSIONS = (".txt", ".text", "")
NOT_A_WORD = re.compile(r"\d+[-.]\d+(?![^\t])")  # a range such as 3-4, an empty node such as 8.1
DOCUMENT_MARKS = (["#begin", "document"], ["#end", "document"])  # of CoNLL-2012
NO_PREDICATE = ("-", "_", "0")
KINDS = ("auto", "conll", "conllu", "text")


class Layout(NamedTuple):
    """The columns of a file; they count from 0."""

    of: dict[str, int]  # The columns of "token", "tag" and "predicate" that are read.
    no_tag: str  # What marks a missing tag.
    has_roles: bool  # Whether the tags of each predicate are in the columns after it.
    width: int | None  # Required number of columns, if one is counted from the end.


def read_tagged(
    path: FilePath,
    reading: Reading,
    *,
    label_column: Column = None,
    text_column: Column = None,
    predicate_column: Column = None,
    scheme: str = "auto",
    kind: str = "auto",
) -> Iterator[Tagged]:
    """Read sentences with a tag for each token, spans as IOB2.

    Columns are numbers from 1, negative from the end, or names of CoNLL-U such as XPOS. With a
    `predicate_column` there is an example for each row that has anything but -, _ or 0 there: the
    tags of the sentence's first predicate are in the column after it, and so on.

    `kind` is "conll", "conllu" or "text"; "auto" decides by the extension. Text has no tags: .txt
    is text only if the examples need none.
    """
    if kind not in KINDS:
        raise ElmokitError(f"unknown kind of file {kind!r}: choose one of {', '.join(KINDS)}")
    if kind == "auto":
        extension = extension_of(path)
        is_text = extension in TEXT_EXTENSIONS and not reading.labeled
        kind = "conllu" if extension == ".conllu" else "text" if is_text else "conll"
    if kind == "text":
        return _plain_sentences(path, reading)
    requested = {"token": text_column, "tag": label_column, "predicate": predicate_column}
    examples = _examples(path, kind, requested, reading)
    if reading.labeled:
        return _with_spans_in_iob2(examples, scheme, reading.bad)
    return (example for example, _ in examples)


def _plain_sentences(path: FilePath, reading: Reading) -> Iterator[Tagged]:
    for where, line in good_lines(path, reading.bad, filled=True):
        if tokens := words(line, reading.tokenize):
            yield Tagged((tokens,), where, None)
        else:
            reading.bad(where, "the sentence is empty")


def _with_spans_in_iob2(
    examples: Iterable[tuple[Tagged, list[str]]], scheme: str, bad: BadLines
) -> Iterator[Tagged]:
    """Yield the examples with their tags as IOB2; each comes with the locations of its lines."""
    if scheme == "auto":
        examples = list(examples)
        scheme = scheme_of([example.tags or () for example, _ in examples])
    for example, locations in examples:
        tags = example.tags or ()
        wrong = next((i for i, tag in enumerate(tags) if not is_tag_of(tag, scheme)), None)
        if wrong is None:
            yield replace(example, tags=to_iob2(tags, scheme))
        else:
            bad(locations[wrong], f"{tags[wrong]!r} is not a tag of {scheme.upper()}")


# ---- examples
def _examples(
    path: FilePath, kind: str, requested: Requested, reading: Reading
) -> Iterator[tuple[Tagged, list[str]]]:
    """Yield examples with the tags of the file, and the locations of their lines."""
    layout = None
    for rows, problem in _sentences(path, is_conllu=kind == "conllu"):
        if layout is None and rows:
            width = len(rows[0][1])
            layout = _layout(name_of(path), kind, width, requested, labeled=reading.labeled)
        problem = problem or (_misfit(rows, layout) if layout else None)
        if problem:
            reading.bad(*problem)
        elif layout:
            locations = [where for where, _ in rows]
            for example in _examples_of(rows, layout):
                yield example, locations
    if layout is None:
        raise ElmokitError(f"{name_of(path)} has no sentences")


def _examples_of(rows: Sequence[Row], layout: Layout) -> Iterator[Tagged]:
    columns = list(zip(*(cells for _, cells in rows), strict=False))
    texts, where = (columns[layout.of["token"]],), rows[0][0]
    if "predicate" not in layout.of:
        yield Tagged(texts, where, columns[layout.of["tag"]] if "tag" in layout.of else None)
        return
    predicate = layout.of["predicate"]
    for order, token in enumerate(_predicates(rows, predicate), start=1):
        tags = columns[predicate + order] if layout.has_roles else None
        yield Tagged(texts, where, tags, predicate=token)


def _predicates(rows: Sequence[Row], column: int) -> list[int]:
    return [token for token, (_, cells) in enumerate(rows) if cells[column] not in NO_PREDICATE]


# ---- the columns of a row
def _layout(name: str, kind: str, width: int, requested: Requested, *, labeled: bool) -> Layout:
    """Return the requested columns, or the usual ones; `width` is that of the first row."""
    usual = {"token": "FORM", "tag": "UPOS"} if kind == "conllu" else {"token": 1, "tag": -1}
    chosen = usual | {what: column for what, column in requested.items() if column is not None}
    if "predicate" in chosen or not labeled:
        del chosen["tag"]
    columns = {what: _index(name, kind, column, width) for what, column in chosen.items()}
    if len(set(columns.values())) < len(columns):
        first = f"{name} has the tokens in column {columns['token'] + 1}"
        raise ElmokitError(f"{first}: choose another column for the rest")
    return Layout(
        columns,
        no_tag="_" if chosen.get("tag") in NEVER_EMPTY else "",
        has_roles=labeled and "predicate" in columns,
        width=width if any(str(column).startswith("-") for column in chosen.values()) else None,
    )


def _index(name: str, kind: str, column: str | int, width: int) -> int:
    if kind == "conllu" and str(column).upper() in CONLLU_COLUMNS:
        column_number = CONLLU_COLUMNS.index(str(column).upper()) + 1
    else:
        try:
            column_number = int(column)
        except ValueError:
            have = ", ".join(CONLLU_COLUMNS) if kind == "conllu" else "numbers, not names"
            raise ElmokitError(f"{name} has no column {column!r}: it has {have}") from None
    if not 1 <= abs(column_number) <= width:
        raise ElmokitError(f"{name} has no column {column}: it has {plural(width, 'column')}")
    return column_number - 1 if column_number > 0 else width + column_number


def _misfit(rows: Sequence[Row], layout: Layout) -> Problem | None:
    """Return the problem of the first row that lacks something."""
    for where, cells in rows:
        count = plural(len(cells), "column")
        if layout.width not in (None, len(cells)):
            return where, f"the line has {count}, but the first one has {layout.width}"
        for what, column in layout.of.items():
            if column >= len(cells):
                return where, f"the line has {count}, but the {what} is in column {column + 1}"
            if cells[column] in ("", layout.no_tag * (what == "tag")):
                return where, f"the {what} is empty"
    predicate = layout.of.get("predicate", 0)
    predicates = len(_predicates(rows, predicate))
    for where, cells in rows if layout.has_roles else ():
        tags = cells[predicate + 1 :]
        if len(tags) != predicates or not all(tags):
            filled = sum(map(bool, tags))
            return where, f"tags in the line: {filled}, predicates in its sentence: {predicates}"
    return None


# ---- rows
def _sentences(path: FilePath, *, is_conllu: bool) -> Iterator[tuple[list[Row], Problem | None]]:
    """Yield what is between blank lines, unless it is only comments, and its first problem."""
    width = 0  # of the sentence before
    for is_blank, lines in groupby(decoded_lines(path), lambda line: line[1:] == ("", "")):
        if is_blank:
            continue
        rows: list[Row] = []
        problem = None
        for line, text, reason in lines:
            if reason:
                problem = problem or (location(path, line), reason)
            # A line of CoNLL-U may also be a comment, a range of words or an empty node.
            elif not is_conllu or not (text.startswith("#") or NOT_A_WORD.match(text)):
                rows.append((location(path, line), _cells(text)))
        if not is_conllu:
            rows = _without_comments(rows, width)
        if rows or problem:
            width = len(rows[-1][1]) if rows else width
            yield rows, problem


def _cells(text: str) -> list[str]:
    # Split at tabs, else at spaces only: a token may contain other white space.
    if "\t" in text:
        return [cell.strip(" ") for cell in text.split("\t")]
    return [cell for cell in text.split(" ") if cell]


def _without_comments(rows: Iterable[Row], width: int) -> list[Row]:
    # A comment begins with # and has another number of columns than the rows: # is a word too.
    rows = [r for r in rows if r[1][0] != "-DOCSTART-" and r[1][:2] not in DOCUMENT_MARKS]
    width = next((len(cells) for _, cells in rows if not cells[0].startswith("#")), width)
    return list(dropwhile(lambda r: r[1][0].startswith("#") and len(r[1]) != width, rows))
