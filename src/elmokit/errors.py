"""Exceptions whose text is one sentence: what was wrong, where, and what to do.

Everything that a user can cause by input raises `ElmokitError` or one of its children; the command
line prints the sentence and exits with code 2. Any other exception is a bug in elmokit.

The children are standard exceptions too, so that callers can catch what they would expect:

    InvalidInput         ValueError           an argument or a value in a file is out of range
    MissingFile          FileNotFoundError    there is no such file, folder or repository
    UnsupportedFormat    ValueError           a file is damaged, or not of a format that is read
    MissingExtra         ImportError          an optional package is not installed
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


class ElmokitError(Exception):
    """A problem that the user can fix, explained in one sentence."""


class InvalidInput(ElmokitError, ValueError):
    """An argument or a configuration value that is not allowed.

    >>> try:
    ...     raise InvalidInput("batch_size must be at least 1, not 0")
    ... except ValueError as error:
    ...     print(error)
    batch_size must be at least 1, not 0
    """


class MissingFile(ElmokitError, FileNotFoundError):
    """A file, folder or repository that does not exist.

    It is made from a sentence alone: `errno` and `filename` are None.
    """


class UnsupportedFormat(ElmokitError, ValueError):
    """A file that is damaged, malicious, or not of a format that elmokit reads or writes."""


class MissingExtra(ElmokitError, ImportError):
    """An optional package that is not installed; the sentence names the extra that brings it."""


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional `module`, or raise `MissingExtra` with the command that installs it.

    >>> require("json", extra="none", purpose="nothing").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # The package is installed but broken: that is a different problem.
        raise MissingExtra(
            f"{purpose} needs the package {module.partition('.')[0]}: "
            f"pip install 'elmokit[{extra}]'"
        ) from None


@contextmanager
def explained(
    sentence: str,
    *kinds: type[Exception],
    raising: type[ElmokitError] = ElmokitError,
    reason: bool = True,
) -> Iterator[None]:
    """Turn errors of these kinds in the block into a sentence, with or without their reason.

    Errors that are sentences already stay as they are, also those that are OSErrors too.

    >>> with explained("cannot read x", ValueError):
    ...     int("a")
    Traceback (most recent call last):
    elmokit.errors.ElmokitError: cannot read x: invalid literal for int() with base 10: 'a'
    """
    try:
        yield
    except ElmokitError:
        raise
    except kinds as error:
        raise raising(f"{sentence}: {reason_of(error)}" if reason else sentence) from None


@contextmanager
def located(where: object, *, raising: type[ElmokitError] = UnsupportedFormat) -> Iterator[None]:
    """Begin the sentences of errors in the block with the file or folder that they are about."""
    try:
        yield
    except ElmokitError as error:
        raise raising(f"{where}: {error}") from None


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1.

    >>> plural(1, "use"), plural(1200, "use"), plural(0, "process")
    ('1 use', '1,200 uses', '0 processes')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def reason_of(error: Exception, max_length: int = 200) -> str:
    """Return the reason that another library's error gives, on one line to be part of a sentence.

    >>> reason_of(ValueError("bad header:\\nmore"))
    'bad header'
    """
    reason = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(reason).splitlines()[0].rstrip(":")[:max_length]
