"""From a file of examples to its lines, with their places, and with what is wrong with them.

What cannot be used is told to `bad` (see `BadLines` in data.py), and the next line follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.io.lines import COMPRESSIONS, MAX_LINE_BYTES, FilePath, name_of, read_lines

if TYPE_CHECKING:
    from typing import TypeAlias

    Bad: TypeAlias = Callable[[str, str], None]


class Unfit(Exception):
    """Why a line or a part of a file cannot be used, in a sentence for `bad`."""


def extension_of(path: FilePath) -> str:
    """The extension, in lower case and without that of the compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def place(path: FilePath, number: int) -> str:
    """A line of a file, for messages."""
    return f"{name_of(path)}, line {number}"


def decoded_lines(path: FilePath) -> Iterator[tuple[int, str, str]]:
    """The lines of a file: the number from 1, the text, and what is wrong with it, if anything.

    Blank lines have no text; those at the end of the file are left out.
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
    is_cut = False  # the line is too long for memory, and more of it follows
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
    """Whether all characters are real ones: halves of surrogate pairs cannot be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def good_lines(path: FilePath, bad: Bad) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers from 1; what cannot be decoded is bad."""
    for number, text, problem in decoded_lines(path):
        if problem:
            bad(place(path, number), problem)
        else:
            yield number, text


def filled_lines(path: FilePath, bad: Bad) -> Iterator[tuple[int, str]]:
    """The same, where a blank line inside the file is bad too."""
    for number, text in good_lines(path, bad):
        if text:
            yield number, text
        else:
            bad(place(path, number), "the line is empty")


def is_text(value: Any) -> bool:
    """Whether a value of JSON is a string that can be written again."""
    return isinstance(value, str) and is_unicode(value)
