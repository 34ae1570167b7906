"""Measure the width of text in a terminal or a figure."""

from __future__ import annotations

import unicodedata


def text_width(text: str) -> int:
    """Return the number of terminal columns that a text takes; Chinese characters take two."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
