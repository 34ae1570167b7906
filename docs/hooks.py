"""A hook of mkdocs: the reference of the command line is generated from the commands themselves."""

from __future__ import annotations

import re
from typing import Any

MARKER = "<!-- the commands -->"


def on_page_markdown(markdown: str, **context: Any) -> str:
    """Replace the marker of a page by the description of all commands."""
    return markdown.replace(MARKER, commands()) if MARKER in markdown else markdown


def commands() -> str:
    """Return a section for each command, with its arguments and options."""
    from elmokit.cli.main import build_app

    text = build_app().generate_docs(output_format="markdown", heading_level=1)
    sections = text[text.index("## elmokit ") :]
    return re.sub(r"\*\*\[required\]\*\*", "(required)", sections)
