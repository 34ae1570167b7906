"""Tag schemes that mark spans: IOB1, IOB2, IOBES, BILOU, BMES, and plain tags that mark none.

Internally spans are always IOB2: the first token of a span has B-, the others I-, and tokens
outside of spans O. A tag may have no type: B, I and O alone are IOB2 too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

# The letters of the first token of a span, of the inner ones, of the last, and of an only token.
# In IOB1 a span begins with B only if it directly follows another of its type.
SCHEMES = {
    "iob2": ("B", "I", "I", "B"),
    "iob1": ("B", "I", "I", "I"),
    "iobes": ("B", "I", "E", "S"),
    "bilou": ("B", "I", "L", "U"),
    "bmes": ("B", "M", "E", "S"),
}
PLAIN = "plain"
MAX_STRAY_TAGS = 0.01  # share of misspelled tags that does not make all tags plain


def is_tag_of(tag: str, scheme: str) -> bool:
    """Tell whether a scheme has such a tag."""
    return scheme == PLAIN or tag == "O" or _letter(tag) in SCHEMES[scheme]


def scheme_of(sentences: Sequence[Sequence[str]]) -> str:
    """Return the scheme that all tags of some sentences belong to, or all but a few mistakes.

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
    if strays[best] > (MAX_STRAY_TAGS * counts.total() if is_typed else 0):
        return PLAIN
    return _first_or_second_iob(sentences) if best == "iob2" else best


def _first_or_second_iob(sentences: Sequence[Sequence[str]]) -> str:
    """Return IOB1 if some span begins with I and none with a B that IOB1 does not need."""
    begins_inside = needless = False
    for tags in sentences:
        for before, tag in zip(["O", *tags], tags, strict=False):
            follows = before != "O" and before[1:] == tag[1:]
            begins_inside |= tag[0] == "I" and not follows
            needless |= tag[0] == "B" and not follows
    return "iob1" if begins_inside and not needless else "iob2"


def to_iob2(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Return tags of a scheme as IOB2. A continuation of nothing becomes a beginning.

    >>> to_iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC"], "iob1")
    ('B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC')
    """
    if scheme == PLAIN:
        return tuple(tags)
    begin, inside, end, single = SCHEMES[scheme]
    closing = {end, single} - {begin, inside}
    result, open_type = [], None  # the type of the span that may continue
    for tag in tags:
        letter, kind = tag[0], tag[1:]
        continues = letter in (inside, end) and kind == open_type
        result.append("O" if tag == "O" else ("I" if continues else "B") + kind)
        open_type = None if tag == "O" or letter in closing else kind
    return tuple(result)


def _letter(tag: str) -> str:
    """Return B of B-LOC and of B; "" if a tag cannot mark a span."""
    match = re.fullmatch(r"([BIMELSU])(?:-.+)?", tag)
    return match[1] if match else ""
