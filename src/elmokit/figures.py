"""The look of all figures, and how they become files.

They are as wide as the text of a printed page, are told apart without colours, have fonts for
Chinese where one is installed, and the same figure gives the same file.
"""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError, require
from elmokit.io.atomic import write_file
from elmokit.io.paths import check_output

FORMATS = (".png", ".svg")
DOTS = 200  # an inch, of a PNG
WIDTH = 6.3  # inches: the text of a printed page
INK, FAINT, ELMO = "0.15", "0.55", "#1f5a96"  # also told apart in black and white
SHADES = ("#c6d9ec", "#7ba7d0", "#1f5a96", "#0b2545", "#000000")
COLOURS = (ELMO, "#c8571b", "#2f7d4f", "#7d3c98", "#8a6d00", "#3d3d3d", "#0097a7", "#ad1457")
MARKERS = "os^DvPX*<>p"  # as many as no multiple of the colours: together they give 88 looks
STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # words may have dollar signs
    "svg.hashsalt": "elmokit",  # the same figure gives the same file
}
LATIN = "DejaVu Sans"  # comes with matplotlib
# The beginnings of the names of fonts that have Chinese characters, those to be preferred first.
CHINESE = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Noto Sans CJK",
    "Source Han Sans",
    "PingFang",
    "Microsoft YaHei",
    "Hiragino Sans GB",
    "WenQuanYi",
    "SimHei",
    "Heiti",
    "STHeiti",
    "Arial Unicode MS",
    "Droid Sans Fallback",
)
MOST_NAMED = 8  # characters in a complaint


def check_figure(path: str | None) -> None:
    """Say before the work, not after it, that a figure cannot be drawn or written."""
    if path is None:
        return
    if Path(path).suffix.lower() not in FORMATS:
        raise ElmokitError(f"a figure is a .png or .svg file, and {path} is named as neither")
    check_output(path)
    require("matplotlib", extra="plots", purpose="A figure")


@contextmanager
def styled() -> Iterator[None]:
    """Draw with our sizes and fonts; also to be written above a function that draws."""
    import matplotlib

    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    log.setLevel(logging.ERROR)  # a font that has no bold is no news
    try:
        with matplotlib.rc_context({**STYLE, "font.family": fonts()}):
            yield
    finally:
        log.setLevel(level)


def write_figure(figure: Any, path: str) -> None:
    """Write a figure as its extension says; characters that no font has are named on stderr."""
    if missing := missing_characters(figure):
        named = " ".join(missing[:MOST_NAMED]) + (" …" if len(missing) > MOST_NAMED else "")
        print(
            f"elmokit: no font here has {named}: boxes stand for them in {path}; install one that "
            "has them, such as Noto Sans CJK (on Debian and Ubuntu: apt install fonts-noto-cjk)",
            file=sys.stderr,
        )
    kind = Path(path).suffix.lower().removeprefix(".")
    same: Any = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": DOTS}
    drawn = io.BytesIO()
    with styled(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the same characters, one by one
        figure.savefig(drawn, format=kind, **same)
    write_file(Path(path), drawn.getvalue())


# ---------------------------------------------------------------------- fonts
@cache
def fonts() -> list[str]:
    """The families to look for a character in, in this order: Latin, and Chinese if there is one.

    matplotlib keeps a list of fonts; those that were installed since are looked for too.
    """
    from matplotlib.font_manager import findSystemFonts, fontManager

    found = _chinese_font()
    if found is None:
        listed = {Path(entry.fname) for entry in fontManager.ttflist}
        for path in sorted(findSystemFonts()):
            if Path(path) not in listed:
                _add(path)
        found = _chinese_font()
    return [LATIN] if found is None else [LATIN, found]


def _chinese_font() -> str | None:
    from matplotlib.font_manager import fontManager

    names = sorted({entry.name for entry in fontManager.ttflist})
    return next((name for begin in CHINESE for name in names if name.startswith(begin)), None)


def _add(path: str) -> None:
    from matplotlib.font_manager import fontManager

    try:
        fontManager.addfont(path)
    except (OSError, RuntimeError, ValueError):  # no font that matplotlib can read
        return


@styled()
def missing_characters(figure: Any) -> list[str]:
    """Characters of a figure's texts that none of its fonts has, each once, sorted."""
    from matplotlib.text import Text

    texts = {text.get_text() for text in figure.findobj(Text)}
    wanted = {c for text in texts for c in text if ord(c) > 126 and c.isprintable()}
    return sorted(c for c in wanted if not any(ord(c) in _characters(name) for name in fonts()))


@cache
def _characters(family: str) -> frozenset[int]:
    """The code points that a font has."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties(family=[family]))).get_charmap())
