"""From a file of examples to its lines, with their locations and problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from elmokit.io.lines import MAX_LINE_BYTES, FilePath, name_of, read_lines
from elmokit.text.unicode import is_unicode

# Takes the location of a line that is skipped, and why it cannot be used; may raise.
Bad = Callable[[str, str], None]


class BadRecord(Exception):
    """Why a line or a part of a file cannot be used, as a sentence for `bad`."""


@contextmanager
def reporting(bad: Bad, where: str) -> Iterator[None]:
    """Report to `bad` that the block could not use what is at `where`, if it raises `BadRecord`."""
    try:
        yield
    except BadRecord as problem:
        bad(where, str(problem))


def location(path: FilePath, line: int) -> str:
    """Name a line of a file, for messages."""
    return f"{name_of(path)}, line {line}"


def decoded_lines(path: FilePath) -> Iterator[tuple[int, str, str]]:
    """Yield the lines of a file: the number from 1, the text, and its problem, if any.

    Blank lines have no text; those at the end of the file are skipped.
    """
    blank: list[int] = []
    is_cut = False  # The line is too long for memory, and more of it follows.
    for piece in read_lines(path, errors="surrogateescape"):
        was_cut, is_cut = is_cut, not piece.ended
        if was_cut:
            continue
        problem = "" if is_unicode(piece.text) else "the line is not UTF-8"
        if is_cut:
            problem = f"the line is longer than {MAX_LINE_BYTES >> 20} MB"
        if problem or piece.text.strip():
            yield from ((line, "", "") for line in blank)
            blank = []
            yield piece.line, "" if problem else piece.text, problem
        else:
            blank.append(piece.line)


def good_lines(path: FilePath, bad: Bad, *, filled: bool = False) -> Iterator[tuple[str, str]]:
    """Yield lines with their locations; report those not UTF-8, or blank if they must be filled."""
    for line, text, problem in decoded_lines(path):
        if problem or (filled and not text):
            bad(location(path, line), problem or "the line is empty")
        else:
            yield location(path, line), text


def is_text(value: Any) -> bool:
    """Tell whether a value of JSON is a string that can be encoded."""
    return isinstance(value, str) and is_unicode(value)
