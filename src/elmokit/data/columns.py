"""Readers of sentences in columns, a token a line: CoNLL, CoNLL-U, and roles of a predicate.

file ─► sentences of rows ─► tokens and tags ─► spans as IOB2 (schemes.py) ─► examples
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, groupby
from typing import TYPE_CHECKING

from elmokit.data.examples import Tagged
from elmokit.data.labeled import BadLines, words
from elmokit.data.lines import decoded_lines, extension_of, filled_lines, place
from elmokit.data.schemes import check_scheme, is_tag_of, scheme_of, to_iob2
from elmokit.errors import ElmokitError
from elmokit.io.lines import FilePath, name_of
from elmokit.text.readers import Tokenize

if TYPE_CHECKING:
    from typing import TypeAlias

    Column: TypeAlias = "str | int | None"
    Row: TypeAlias = "tuple[int, list[str]]"  # the number of the line, its cells

CONLLU_COLUMNS = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
NEVER_EMPTY = ("UPOS", "XPOS")  # elsewhere in CoNLL-U _ may be as good a value as any
TEXT_EXTENSIONS = (".txt", ".text", "")
NOT_A_WORD = re.compile(r"\d+[-.]\d+")  # a range such as 3-4, an empty node such as 8.1
NO_PREDICATE = ("-", "_", "0")
KINDS = ("auto", "conll", "conllu", "text")


@dataclass(frozen=True)
class Layout:
    """Where things stand in the rows of a file; columns count from 0."""

    tokens: int
    tags: int | None
    """None where they are not read, or not in one column."""
    no_tag: str
    """What stands in the place of a tag that is missing."""
    predicate: int | None
    has_roles: bool
    """Whether each predicate's tags are read, out of the columns behind."""
    width: int | None
    """How many columns every row must have, where one is counted from the end."""


@dataclass(frozen=True)
class Sentence:
    """The rows of a sentence, and the first line of it that cannot be used, with the reason."""

    rows: list[Row]
    problem: tuple[int, str] | None


def read_tagged(
    path: FilePath,
    *,
    column: Column = None,
    token_column: Column = None,
    predicate_column: Column = None,
    scheme: str = "auto",
    kind: str = "auto",
    tokenize: Tokenize = str.split,
    labeled: bool = True,
    bad: BadLines,
) -> Iterator[Tagged]:
    """Sentences with a tag for each token, spans in IOB2.

    Columns are numbers from 1, negative from the end, or names of CoNLL-U such as XPOS. The tags
    are in the last one (CoNLL-U: UPOS), the tokens in the first one (CoNLL-U: FORM).

    With a `predicate_column` there is an example for each row that has something else than -, _ or
    0 there: that token is the predicate, and its tags are in a column of their own behind, those
    of the sentence's first predicate in the first one.

    `kind` is "conll", "conllu" or "text", with "auto" by the extension. Text, a sentence a line
    for `tokenize`, has no tags: .txt is text only if not `labeled`.
    """
    check_scheme(scheme)
    if kind not in KINDS:
        choices = ", ".join(KINDS)
        raise ElmokitError(f"there is no kind of file named {kind!r}: it may be one of {choices}")
    kind = _kind_of(path, labeled=labeled) if kind == "auto" else kind
    if kind == "text":
        return _plain_sentences(path, tokenize, bad)
    asked = {"token": token_column, "tag": column, "predicate": predicate_column}
    examples = _examples(path, kind, asked, labeled=labeled, bad=bad)
    if labeled:
        return _with_spans_in_iob2(path, examples, scheme, bad)
    return (example for example, _ in examples)


def file_scheme(
    path: FilePath,
    *,
    column: Column = None,
    token_column: Column = None,
    predicate_column: Column = None,
    bad: BadLines,
) -> str:
    """The scheme that the tags of a file are in, "plain" if they are no spans."""
    asked = {"token": token_column, "tag": column, "predicate": predicate_column}
    kind = _kind_of(path, labeled=True)
    examples = _examples(path, kind, asked, labeled=True, bad=bad)
    return scheme_of([example.tags or () for example, _ in examples])


def _kind_of(path: FilePath, *, labeled: bool) -> str:
    extension = extension_of(path)
    if extension == ".conllu":
        return "conllu"
    return "text" if extension in TEXT_EXTENSIONS and not labeled else "conll"


def _plain_sentences(path: FilePath, tokenize: Tokenize, bad: BadLines) -> Iterator[Tagged]:
    for number, line in filled_lines(path, bad):
        tokens = words(line, tokenize)
        if tokens:
            yield Tagged((tokens,), place(path, number), None)
        else:
            bad(place(path, number), "the sentence is empty")


def _with_spans_in_iob2(
    path: FilePath, examples: Iterable[tuple[Tagged, list[int]]], scheme: str, bad: BadLines
) -> Iterator[Tagged]:
    """The same examples with their tags translated; the numbers are those of their lines."""
    if scheme == "auto":
        examples = list(examples)
        scheme = scheme_of([example.tags or () for example, _ in examples])
    for example, numbers in examples:
        tags = example.tags or ()
        wrong = next((i for i, tag in enumerate(tags) if not is_tag_of(tag, scheme)), None)
        if wrong is None:
            yield replace(example, tags=to_iob2(tags, scheme))
        else:
            bad(place(path, numbers[wrong]), f"{tags[wrong]!r} is no tag of {scheme.upper()}")


# ---- examples


def _examples(
    path: FilePath, kind: str, asked: dict[str, Column], *, labeled: bool, bad: BadLines
) -> Iterator[tuple[Tagged, list[int]]]:
    """Examples with the tags that the file has, and the numbers of their lines."""
    layout = None
    for sentence in _sentences(path, is_conllu=kind == "conllu"):
        if layout is None and sentence.rows:
            width = len(sentence.rows[0][1])
            layout = _layout(name_of(path), kind, width, **asked, labeled=labeled)
        problem = sentence.problem or (layout and _misfit(sentence.rows, layout))
        if problem:
            bad(place(path, problem[0]), problem[1])
        elif layout:
            numbers = [number for number, _ in sentence.rows]
            for example in _examples_of(place(path, numbers[0]), sentence.rows, layout):
                yield example, numbers
    if layout is None:
        raise ElmokitError(f"{name_of(path)} has no sentences")


def _examples_of(where: str, rows: Sequence[Row], layout: Layout) -> Iterator[Tagged]:
    texts = (tuple(cells[layout.tokens] for _, cells in rows),)
    if layout.predicate is None:
        yield Tagged(texts, where, _column(rows, layout.tags))
        return
    for order, token in enumerate(_predicates(rows, layout.predicate), start=1):
        tags = _column(rows, layout.predicate + order if layout.has_roles else None)
        yield Tagged(texts, where, tags, predicate=token)


def _column(rows: Sequence[Row], column: int | None) -> tuple[str, ...] | None:
    return None if column is None else tuple(cells[column] for _, cells in rows)


def _predicates(rows: Sequence[Row], column: int) -> list[int]:
    return [token for token, (_, cells) in enumerate(rows) if cells[column] not in NO_PREDICATE]


# ---- what a row must have


def _layout(
    name: str,
    kind: str,
    width: int,
    *,
    token: Column,
    tag: Column,
    predicate: Column,
    labeled: bool,
) -> Layout:
    """The columns that are asked for, or the usual ones; `width` is that of the first row."""
    has_tags = labeled and predicate is None
    usual = ("FORM", "UPOS") if kind == "conllu" else (1, -1)
    columns: list[str | int] = [usual[0] if token is None else token]
    if has_tags:
        columns.append(usual[1] if tag is None else tag)
    if predicate is not None:
        columns.append(predicate)
    indices = [_index(name, kind, column, width) for column in columns]
    if len(set(indices)) < len(indices):
        raise ElmokitError(
            f"{name} has the tokens in column {indices[0] + 1}: nothing else can be read there"
        )
    return Layout(
        tokens=indices[0],
        tags=indices[1] if has_tags else None,
        no_tag="_" if has_tags and columns[1] in NEVER_EMPTY else "",
        predicate=None if predicate is None else indices[1],
        has_roles=labeled and predicate is not None,
        width=width if any(str(column).startswith("-") for column in columns) else None,
    )


def _index(name: str, kind: str, column: str | int, width: int) -> int:
    if kind == "conllu" and str(column).upper() in CONLLU_COLUMNS:
        number = CONLLU_COLUMNS.index(str(column).upper()) + 1
    else:
        try:
            number = int(column)
        except ValueError:
            have = ", ".join(CONLLU_COLUMNS) if kind == "conllu" else "numbers and no names"
            raise ElmokitError(f"{name} has no column {column!r}: it has {have}") from None
    if not 1 <= abs(number) <= width:
        raise ElmokitError(f"{name} has no column {column}: it has {_columns(width)}")
    return number - 1 if number > 0 else width + number


def _misfit(rows: Sequence[Row], layout: Layout) -> tuple[int, str] | None:
    """The first row that lacks something, with what it lacks."""
    needed = {"token": layout.tokens, "tag": layout.tags, "predicate": layout.predicate}
    for number, cells in rows:
        count = _columns(len(cells))
        if layout.width not in (None, len(cells)):
            return number, f"the line has {count}, and the first one has {layout.width}"
        for what, column in needed.items():
            if column is not None and column >= len(cells):
                return number, f"the line has {count}, and the {what} is in column {column + 1}"
            if column is not None and cells[column] in ("", layout.no_tag * (what == "tag")):
                return number, f"the {what} is empty"
    return _wrong_roles(rows, layout.predicate) if layout.has_roles else None


def _wrong_roles(rows: Sequence[Row], predicate: int | None) -> tuple[int, str] | None:
    """The first row that does not have a tag for each predicate of its sentence."""
    assert predicate is not None
    count = len(_predicates(rows, predicate))
    for number, cells in rows:
        tags = cells[predicate + 1 :]
        if len(tags) != count or not all(tags):
            found = sum(map(bool, tags))
            return number, f"the line has {found} tag(s), and its sentence {count} predicate(s)"
    return None


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


# ---- rows


def _sentences(path: FilePath, *, is_conllu: bool) -> Iterator[Sentence]:
    """What stands between blank lines, unless that is nothing but comments."""
    width = 0  # of the sentence before
    for is_blank, lines in groupby(decoded_lines(path), lambda line: line[1:] == ("", "")):
        if is_blank:
            continue
        rows, problem = list[tuple[int, list[str]]](), None
        for number, text, trouble in lines:
            if trouble:
                problem = problem or (number, trouble)
            elif not is_conllu or _is_word(text):
                rows.append((number, _cells(text)))
        if not is_conllu:
            rows = _without_comments(rows, width)
        if rows or problem:
            width = len(rows[-1][1]) if rows else width
            yield Sentence(rows, problem)


def _cells(text: str) -> list[str]:
    # At tabs, else at spaces alone: a token may have other white space in it.
    if "\t" in text:
        return [cell.strip(" ") for cell in text.split("\t")]
    return [cell for cell in text.split(" ") if cell]


def _marks_document(cells: list[str]) -> bool:
    """Whether a row is one of those between documents in CoNLL-2003 and CoNLL-2012."""
    return cells[0] == "-DOCSTART-" or cells[:2] in (["#begin", "document"], ["#end", "document"])


def _is_word(text: str) -> bool:
    """Whether a line of CoNLL-U is no comment, no range of a word in parts and no empty node."""
    return not text.startswith("#") and NOT_A_WORD.fullmatch(text.partition("\t")[0]) is None


def _without_comments(rows: Iterable[Row], width: int) -> list[Row]:
    """Without marks of documents, and comments before the sentence.

    A comment begins with # and has not as many columns as the rows: # is a word too.
    """
    rows = [row for row in rows if not _marks_document(row[1])]
    width = next((len(cells) for _, cells in rows if not cells[0].startswith("#")), width)
    return list(dropwhile(lambda r: r[1][0].startswith("#") and len(r[1]) != width, rows))
