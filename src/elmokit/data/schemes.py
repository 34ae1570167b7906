"""Schemes of tags that mark spans: IOB1, IOB2, IOBES, BILOU, BMES, and plain tags that mark none.

Inside elmokit spans are always IOB2: a span's first token has B-, the others I-, and all outside
of spans O. A tag may have no type: B, I and O alone are IOB2 too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from elmokit.errors import ElmokitError

# The letters of a span's first token, of the inner ones, of the last, and of a span's only token.
# In IOB1 a span begins with B only if it stands right behind another of its type.
SCHEMES = {
    "iob2": ("B", "I", "I", "B"),
    "iob1": ("B", "I", "I", "I"),
    "iobes": ("B", "I", "E", "S"),
    "bilou": ("B", "I", "L", "U"),
    "bmes": ("B", "M", "E", "S"),
}
PLAIN = "plain"
STRAY_TAGS = 0.01  # so many tags of a file may be misspelt without making all of them plain


def check_scheme(scheme: str) -> None:
    """Refuse the name of a scheme that is none."""
    if scheme not in (*SCHEMES, PLAIN, "auto"):
        choices = ", ".join(SCHEMES)
        raise ElmokitError(
            f"there is no scheme of tags named {scheme!r}: it may be auto, {choices} or {PLAIN}"
        )


def is_tag_of(tag: str, scheme: str) -> bool:
    """Whether a scheme has such a tag."""
    return scheme == PLAIN or tag == "O" or _letter(tag) in SCHEMES[scheme]


def are_spans(tags: Iterable[str]) -> bool:
    """Whether tags mark spans, in any scheme.

    >>> are_spans(["O", "B-LOC", "I-LOC"]), are_spans(["DET", "NOUN"])
    (True, False)
    """
    return scheme_of([tuple(tags)]) != PLAIN


def scheme_of(sentences: Sequence[Sequence[str]]) -> str:
    """The scheme that the tags of some sentences are in.

    It is the one that all tags belong to, or all but a few that must be mistakes.

    >>> scheme_of([["I-PER", "I-PER", "O"]]), scheme_of([["B-PER", "E-PER", "O"]])
    ('iob1', 'iobes')
    """
    counts = Counter(tag for tags in sentences for tag in tags)
    is_typed = any(_letter(tag) and "-" in tag for tag in counts)
    strays = {
        scheme: sum(n for tag, n in counts.items() if not is_tag_of(tag, scheme))
        for scheme in SCHEMES
        if scheme != "iob1"
    }
    best = min(strays, key=strays.__getitem__)
    if strays[best] > (STRAY_TAGS * counts.total() if is_typed else 0):
        return PLAIN
    return _first_or_second_iob(sentences) if best == "iob2" else best


def _first_or_second_iob(sentences: Sequence[Sequence[str]]) -> str:
    """IOB1 if some span begins with I and none with a B that IOB1 does not need."""
    begins_inside = needless = False
    for tags in sentences:
        for before, tag in zip(["O", *tags], tags, strict=False):
            follows = before != "O" and before[1:] == tag[1:]
            begins_inside |= tag[0] == "I" and not follows
            needless |= tag[0] == "B" and not follows
    return "iob1" if begins_inside and not needless else "iob2"


def to_iob2(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Tags of a scheme as IOB2. What goes on with no beginning before it is a beginning.

    >>> to_iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC"], "iob1")
    ('B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC')
    """
    if scheme == PLAIN:
        return tuple(tags)
    begin, inside, end, single = SCHEMES[scheme]
    closing = {end, single} - {begin, inside}
    found, open_type = [], None  # the type of the span that may go on
    for tag in tags:
        letter, kind = tag[0], tag[1:]
        if tag == "O":
            found.append(tag)
            open_type = None
            continue
        goes_on = letter in (inside, end) and kind == open_type
        found.append(("I" if goes_on else "B") + kind)
        open_type = None if letter in closing else kind
    return tuple(found)


def from_iob2(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """IOB2 as tags of another scheme.

    >>> from_iob2(["B-PER", "I-PER", "B-PER", "O"], "iobes")
    ('B-PER', 'E-PER', 'S-PER', 'O')
    """
    if scheme in (PLAIN, "iob2"):
        return tuple(tags)
    found = []
    for before, tag, after in zip(("O", *tags), tags, (*tags[1:], "O"), strict=False):
        kind = tag[1:]
        is_first, is_last = tag[0] == "B", after != "I" + kind
        if tag == "O":
            found.append(tag)
        elif scheme == "iob1":
            touches = before != "O" and before[1:] == kind
            found.append(("B" if is_first and touches else "I") + kind)
        else:
            begin, inside, end, single = SCHEMES[scheme]
            letter = (single if is_last else begin) if is_first else (end if is_last else inside)
            found.append(letter + kind)
    return tuple(found)


def _letter(tag: str) -> str:
    """B of B-LOC and of B; empty if a tag cannot mark a span."""
    found = re.fullmatch(r"([BIMELSU])(?:-.+)?", tag)
    return found[1] if found else ""
