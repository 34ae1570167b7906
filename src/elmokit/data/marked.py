"""Readers of texts in which spans are marked: relations of SemEval-2010 task 8, pronouns of GAP.

A token with a mark inside is split there, so that marked spans are always whole tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from elmokit.data.examples import Pronoun, Related, Span, Tokens
from elmokit.data.labeled import BadLines, Reading
from elmokit.data.lines import BadRecord, good_lines, reporting
from elmokit.data.tables import plain_name
from elmokit.errors import ElmokitError
from elmokit.io.lines import FilePath, name_of
from elmokit.text.readers import Tokenize
from elmokit.text.tokenize import token_offsets, token_span

NUMBERED = re.compile(r"\s*(\d+)\t(.*)", re.DOTALL)
MARKER = re.compile(r"(</?e[12]>)")
GAP_COLUMNS = ("id", "text", "pronoun", "pronoun_offset", "a", "a_offset", "b", "b_offset")
GAP_LABELS = ("a_coref", "b_coref")


# ---- relations
def read_relations(path: FilePath, reading: Reading) -> Iterator[Related]:
    """Read sentences with <e1> and <e2> around two entities, in the format of SemEval-2010 task 8.

    A line has a number, a tab and the sentence in quotes; the next lines may have the relation, a
    comment, and nothing.
    """
    for (where, sentence), *below in _blocks(path, reading.bad):
        with reporting(reading.bad, where):
            yield _related(where, sentence, [line.strip() for _, line in below], reading)


def _blocks(path: FilePath, bad: BadLines) -> Iterator[list[tuple[str, str]]]:
    """Yield each line with a number, or the first after an empty one, and the lines below it."""
    block: list[tuple[str, str]] = []
    for where, text in good_lines(path, bad):
        if block and (not text or NUMBERED.match(text)):
            yield block
            block = []
        if text:
            block.append((where, text))
    if block:
        yield block


def _related(where: str, sentence: str, below: Iterable[str], reading: Reading) -> Related:
    numbered = NUMBERED.fullmatch(sentence)
    if numbered is None:
        raise BadRecord("the line must have a number, a tab and a sentence")
    identifier, marked = numbered[1], numbered[2].strip()
    if len(marked) > 1 and marked[0] == marked[-1] == '"':
        marked = marked[1:-1]
    text, spans = unmarked(marked)
    label = next((line for line in below if not line.startswith("Comment")), None)
    if reading.labeled and label is None:
        raise BadRecord("there is no relation below the sentence")
    tokens, (first, second) = tokens_and_spans(text, spans, reading.tokenize)
    return Related((tokens,), where, first, second, label if reading.labeled else None, identifier)


def unmarked(marked: str) -> tuple[str, list[Span]]:
    """Return the text without markers, and the characters of both entities."""
    text, *rest = MARKER.split(marked)  # the markers, and what follows each, in turn
    positions: dict[str, int] = {}
    for marker, following in zip(rest[::2], rest[1::2], strict=True):
        if marker in positions:
            raise BadRecord(f"the sentence has {marker} twice")
        positions[marker] = len(text)
        text += following
    spans = []
    for first, last in (("<e1>", "</e1>"), ("<e2>", "</e2>")):
        if first not in positions or last not in positions:
            raise BadRecord(f"the sentence has no entity between {first} and {last}")
        if not text[positions[first] : positions[last]].strip():
            raise BadRecord(f"there is nothing between {first} and {last}")
        spans.append((positions[first], positions[last]))
    return text, spans


# ---- pronouns
def read_gap(path: FilePath, reading: Reading) -> Iterator[Pronoun]:
    """Read passages with a pronoun and two names, in the TSV format of GAP."""
    bad, labeled = reading.bad, reading.labeled
    lines = good_lines(path, bad, filled=True)
    header = [plain_name(cell) for cell in next(lines, ("", ""))[1].split("\t")]
    for name in (*GAP_COLUMNS, *GAP_LABELS) if labeled else GAP_COLUMNS:
        if name not in header:
            raise ElmokitError(
                f"{name_of(path)} has no column {name!r} in its first line, which in GAP's files "
                "is ID, Text, Pronoun, Pronoun-offset, A, A-offset, A-coref, B, …"
            )
    for where, line in lines:
        cells = line.split("\t")
        with reporting(bad, where):
            if len(cells) != len(header):
                raise BadRecord(
                    f"the line has {len(cells)} columns, but the first one {len(header)}"
                )
            row = dict(zip(header, cells, strict=True))
            label = _gap_label(row) if labeled else None
            spans = [_span_in_text(row, name) for name in ("pronoun", "a", "b")]
            tokens, (at, a, b) = tokens_and_spans(row["text"], spans, reading.tokenize)
            yield Pronoun((tokens,), where, row["id"], at[0], a, b, label)


def _span_in_text(row: Mapping[str, str], name: str) -> Span:
    expected, offset = row[name], row[f"{name}_offset"]
    if not expected.strip():
        raise BadRecord(f"the column {name!r} is empty")
    if not offset.strip().isdecimal():
        raise BadRecord(f"the offset of {expected!r} is not a number: {offset!r}")
    start = int(offset)
    text = row["text"][start : start + len(expected)]
    if text != expected:
        raise BadRecord(f"{expected!r} is not at character {start} of the text: there is {text!r}")
    return start, start + len(expected)


def _gap_label(row: Mapping[str, str]) -> str:
    values = [row[column].strip().upper() for column in GAP_LABELS]
    for value in values:
        if value not in ("TRUE", "FALSE"):
            raise BadRecord(f"the label of each name must be TRUE or FALSE, not {value!r}")
    if values == ["TRUE", "TRUE"]:
        raise BadRecord("the pronoun cannot refer to both names")
    return "A" if values[0] == "TRUE" else "B" if values[1] == "TRUE" else "NEITHER"


# ---- spans of characters as spans of tokens
def tokens_and_spans(
    text: str, spans: Sequence[Span], tokenize: Tokenize
) -> tuple[Tokens, list[Span]]:
    """Tokenize a text, split at the ends of `spans` of characters; return tokens and token spans.

    >>> tokens_and_spans("a baby-seat", [(2, 6)], str.split)
    (('a', 'baby', '-seat'), [(1, 2)])
    """
    ends = sorted({end for span in spans for end in span})
    offsets: list[Span] = []
    for start, end in token_offsets(text, tokenize(text)):
        inside = [position for position in ends if start < position < end]
        offsets += zip([start, *inside], [*inside, end], strict=True)
    tokens = tuple(text[start:end] for start, end in offsets)
    return tokens, [token_span(offsets, start, end) for start, end in spans]
