"""How many columns of a terminal or a figure a text takes."""

from __future__ import annotations

import unicodedata


def text_width(text: str) -> int:
    """Columns of a terminal that a text takes: Chinese characters take two."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
