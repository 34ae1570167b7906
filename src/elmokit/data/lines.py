"""From a file of examples to its lines, with their locations and problems.

A line that cannot be used is reported to `bad` (see `BadLines` in labeled.py), and reading
continues with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.io.lines import COMPRESSIONS, MAX_LINE_BYTES, FilePath, name_of, read_lines

if TYPE_CHECKING:
    from typing import TypeAlias

    Bad: TypeAlias = Callable[[str, str], None]


class BadRecord(Exception):
    """Why a line or a part of a file cannot be used, as a sentence for `bad`."""


def extension_of(path: FilePath) -> str:
    """Return the extension in lower case, without that of the compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def location(path: FilePath, number: int) -> str:
    """Name a line of a file, for messages."""
    return f"{name_of(path)}, line {number}"


def decoded_lines(path: FilePath) -> Iterator[tuple[int, str, str]]:
    """Yield the lines of a file: the number from 1, the text, and its problem, if any.

    Blank lines have no text; those at the end of the file are skipped.
    """
    blank: list[int] = []
    for number, text, problem in _checked_lines(path):
        if problem or text.strip():
            yield from ((line, "", "") for line in blank)
            blank = []
            yield number, text, problem
        else:
            blank.append(number)


def _checked_lines(path: FilePath) -> Iterator[tuple[int, str, str]]:
    is_cut = False  # The line is too long for memory, and more of it follows.
    for piece in read_lines(path, errors="surrogateescape"):
        was_cut, is_cut = is_cut, not piece.ended
        if was_cut:
            continue
        if is_cut:
            yield piece.line, "", f"the line is longer than {MAX_LINE_BYTES >> 20} MB"
        elif not is_unicode(piece.text):
            yield piece.line, "", "the line is not UTF-8"
        else:
            yield piece.line, piece.text, ""


def is_unicode(text: str) -> bool:
    """Tell whether a text can be encoded: halves of surrogate pairs cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def good_lines(path: FilePath, bad: Bad) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers from 1; report those that are not UTF-8."""
    for number, text, problem in decoded_lines(path):
        if problem:
            bad(location(path, number), problem)
        else:
            yield number, text


def filled_lines(path: FilePath, bad: Bad) -> Iterator[tuple[int, str]]:
    """Yield the same lines, but report blank lines inside the file too."""
    for number, text in good_lines(path, bad):
        if text:
            yield number, text
        else:
            bad(location(path, number), "the line is empty")


def is_text(value: Any) -> bool:
    """Tell whether a value of JSON is a string that can be encoded."""
    return isinstance(value, str) and is_unicode(value)
