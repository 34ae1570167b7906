"""Errors that are sentences: what was wrong, where, and what to do.

Everything a user can cause by input raises `ElmokitError`; the command line prints its
sentence and leaves with exit code 2. A traceback means a defect in elmokit itself.
"""

from __future__ import annotations

import importlib
from types import ModuleType


class ElmokitError(Exception):
    """A problem with what the user gave us, told in one sentence."""


class MissingExtra(ElmokitError, ImportError):
    """An optional package is not installed."""


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional `module`, or say which extra brings it.

    >>> require("json", extra="none", purpose="nothing").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the package is there but broken inside: that is another problem
        raise MissingExtra(
            f"{purpose} needs the package {module.partition('.')[0]}: "
            f"pip install 'elmokit[{extra}]'"
        ) from None


def reason_of(error: Exception, max_length: int = 200) -> str:
    """Return the reason that another library's error gives, on one line to be part of a sentence.

    >>> reason_of(ValueError("bad header:\\nmore"))
    'bad header'
    """
    reason = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(reason).splitlines()[0].rstrip(":")[:max_length]
