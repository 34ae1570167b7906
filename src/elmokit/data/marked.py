"""Readers of texts in which spans are marked: relations of SemEval-2010 task 8, pronouns of GAP.

The marks are places between characters. The text is tokenized without them; a token that has a
mark inside is cut there, so that marked spans are always whole tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from elmokit.data.examples import Pronoun, Related, Span
from elmokit.data.labeled import BadLines
from elmokit.data.lines import Unfit, filled_lines, good_lines, place
from elmokit.data.tables import plain_name
from elmokit.errors import ElmokitError
from elmokit.io.lines import FilePath, name_of
from elmokit.text.readers import Tokenize
from elmokit.text.tokenize import token_offsets, token_span

NUMBERED = re.compile(r"\s*(\d+)\t(.*)", re.DOTALL)
MARKER = re.compile(r"<(/?)(e[12])>")
GAP_COLUMNS = ("id", "text", "pronoun", "pronoun_offset", "a", "a_offset", "b", "b_offset")
GAP_LABELS = ("a_coref", "b_coref")


# ---- relations


@dataclass
class Block:
    """A sentence with its number, and the lines below it."""

    line: int
    text: str
    below: list[str] = field(default_factory=list)


def read_relations(
    path: FilePath, *, tokenize: Tokenize, labeled: bool = True, bad: BadLines
) -> Iterator[Related]:
    """Sentences with <e1> and <e2> around two entities, in the format of SemEval-2010 task 8.

    A line has a number, a tab and the sentence in quotes; below there may be a line with the
    relation, one with a comment, and an empty one.
    """
    for block in _blocks(path, bad):
        where = place(path, block.line)
        try:
            yield _related(block, where, tokenize, labeled=labeled)
        except Unfit as problem:
            bad(where, str(problem))


def _blocks(path: FilePath, bad: BadLines) -> Iterator[Block]:
    """Each line with a number, or the first behind an empty one, and the lines below it."""
    block = None
    for number, text in good_lines(path, bad):
        if text and block and not NUMBERED.match(text):
            block.below.append(text.strip())
            continue
        if block:
            yield block
        block = Block(number, text) if text else None
    if block:
        yield block


def _related(block: Block, where: str, tokenize: Tokenize, *, labeled: bool) -> Related:
    numbered = NUMBERED.fullmatch(block.text)
    if numbered is None:
        raise Unfit("the line should have a number, a tab and a sentence")
    identifier, quoted = numbered.groups()
    text, spans = _unmarked(_without_quotes(quoted))
    label = next((line for line in block.below if not line.startswith("Comment")), None)
    if labeled and label is None:
        raise Unfit("there is no relation below the sentence")
    tokens, (first, second) = tokens_and_spans(text, spans, tokenize)
    return Related((tokens,), where, first, second, label if labeled else None, identifier)


def _without_quotes(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _unmarked(marked: str) -> tuple[str, list[Span]]:
    """The text without markers, and the characters of both entities."""
    text, end, places = "", 0, dict[str, int]()
    for marker in MARKER.finditer(marked):
        text += marked[end : marker.start()]
        end = marker.end()
        if marker[0] in places:
            raise Unfit(f"the sentence has {marker[0]} twice")
        places[marker[0]] = len(text)
    return text + marked[end:], [_entity(text, places, name) for name in ("e1", "e2")]


def _entity(text: str, places: Mapping[str, int], name: str) -> Span:
    start, end = (places.get(marker) for marker in (f"<{name}>", f"</{name}>"))
    if start is None or end is None:
        raise Unfit(f"the sentence has no entity between <{name}> and </{name}>")
    if not text[start:end].strip():
        raise Unfit(f"there is nothing between <{name}> and </{name}>")
    return start, end


# ---- pronouns


def read_gap(
    path: FilePath, *, tokenize: Tokenize, labeled: bool = True, bad: BadLines
) -> Iterator[Pronoun]:
    """Passages with a pronoun and two names, in the TSV format of GAP."""
    lines = filled_lines(path, bad)
    header = [plain_name(cell) for cell in next(lines, (0, ""))[1].split("\t")]
    for name in (*GAP_COLUMNS, *GAP_LABELS) if labeled else GAP_COLUMNS:
        if name not in header:
            raise ElmokitError(
                f"{name_of(path)} has no column {name!r} in its first line, which in GAP's files "
                "is ID, Text, Pronoun, Pronoun-offset, A, A-offset, A-coref, B, …"
            )
    for number, line in lines:
        where, cells = place(path, number), line.split("\t")
        try:
            if len(cells) != len(header):
                raise Unfit(f"the line has {len(cells)} columns, and the first one {len(header)}")
            row = dict(zip(header, cells, strict=True))
            yield _pronoun(row, where, tokenize, labeled=labeled)
        except Unfit as problem:
            bad(where, str(problem))


def _pronoun(row: Mapping[str, str], where: str, tokenize: Tokenize, *, labeled: bool) -> Pronoun:
    label = _gap_label(row) if labeled else None
    places = [_place_in_text(row, name) for name in ("pronoun", "a", "b")]
    tokens, (pronoun, first, second) = tokens_and_spans(row["text"], places, tokenize)
    return Pronoun((tokens,), where, row["id"], pronoun[0], first, second, label)


def _place_in_text(row: Mapping[str, str], name: str) -> Span:
    """The characters of a name or of the pronoun, which must stand there."""
    wanted, offset = row[name], row[f"{name}_offset"]
    if not wanted.strip():
        raise Unfit(f"the column {name!r} is empty")
    if not offset.strip().isdecimal():
        raise Unfit(f"the offset of {wanted!r} is no number: {offset!r}")
    start = int(offset)
    found = row["text"][start : start + len(wanted)]
    if found != wanted:
        raise Unfit(f"{wanted!r} is not at character {start} of the text: there is {found!r}")
    return start, start + len(wanted)


def _gap_label(row: Mapping[str, str]) -> str:
    values = [row[column].strip().upper() for column in GAP_LABELS]
    for value in values:
        if value not in ("TRUE", "FALSE"):
            raise Unfit(f"it should say TRUE or FALSE of each name, not {value!r}")
    if values == ["TRUE", "TRUE"]:
        raise Unfit("the pronoun cannot mean both names")
    return "A" if values[0] == "TRUE" else "B" if values[1] == "TRUE" else "NEITHER"


# ---- spans of characters as spans of tokens


def tokens_and_spans(
    text: str, spans: Sequence[Span], tokenize: Tokenize
) -> tuple[tuple[str, ...], list[Span]]:
    """The tokens of a text, cut at the ends of the `spans` of characters, and those as tokens.

    >>> tokens_and_spans("a baby-seat", [(2, 6)], str.split)
    (('a', 'baby', '-seat'), [(1, 2)])
    """
    ends = {end for span in spans for end in span}
    offsets = _cut(token_offsets(text, tokenize(text)), ends)
    tokens = tuple(text[start:end] for start, end in offsets)
    return tokens, [token_span(offsets, start, end) for start, end in spans]


def _cut(offsets: Iterable[Span], places: Iterable[int]) -> list[Span]:
    """Tokens, given by their characters, cut wherever one of the `places` is inside."""
    pieces: list[Span] = []
    for start, end in offsets:
        inside = sorted(place for place in places if start < place < end)
        pieces += zip([start, *inside], [*inside, end], strict=True)
    return pieces
