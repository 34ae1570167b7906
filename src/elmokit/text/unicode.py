"""What a text is to a file and to a terminal."""

from __future__ import annotations

import re
import unicodedata


def is_unicode(text: str) -> bool:
    """Tell whether a text can be encoded: halves of surrogate pairs cannot."""
    return text.encode(errors="ignore").decode() == text


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def text_width(text: str) -> int:
    """Return the number of terminal columns that a text takes; Chinese characters take two."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
