"""The style of all figures, and how they are written: the same figure gives the same file."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError, require
from elmokit.io.atomic import write_file
from elmokit.io.paths import check_output
from elmokit.progress import logger

FORMATS = (".png", ".svg")
DPI = 200  # of a PNG
WIDTH = 6.3  # inches: the text of a printed page
INK, FAINT, ELMO = "0.15", "0.55", "#1f5a96"  # also distinct in black and white
SHADES = ("#c6d9ec", "#7ba7d0", "#1f5a96", "#0b2545", "#000000")
COLORS = (ELMO, "#c8571b", "#2f7d4f", "#7d3c98", "#8a6d00", "#3d3d3d", "#0097a7", "#ad1457")
MARKERS = "os^DvPX*<>p"  # 11 markers and 8 colors, coprime, so 88 distinct combinations
STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # Words may have dollar signs.
    "svg.hashsalt": "elmokit",  # The same figure gives the same file.
}
LATIN = "DejaVu Sans"  # comes with matplotlib
# Beginnings of the names of fonts with Chinese characters, in order of preference.
CHINESE = """Noto Sans CJK SC, Noto Sans SC, Noto Sans CJK, Source Han Sans, PingFang,
Microsoft YaHei, Hiragino Sans GB, WenQuanYi, SimHei, Heiti, STHeiti, Arial Unicode MS,
Droid Sans Fallback"""
MAX_NAMED = 8  # characters named in a message


def check_figure(path: str | None, **rule: Any) -> None:
    """Raise if a figure cannot be drawn or written to `path`; `rule` is that of `check_output`."""
    if path is None:
        return
    if Path(path).suffix.lower() not in FORMATS:
        raise ElmokitError(f"a figure is a .png or .svg file, but {path} has another extension")
    check_output(path, **rule)
    require("matplotlib", extra="plots", purpose="A figure")


@contextmanager
def styled() -> Iterator[None]:
    """Draw with our sizes and fonts, in a `with` block or as a decorator."""
    import matplotlib

    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    log.setLevel(logging.ERROR)  # Do not warn about fonts without a bold face.
    try:
        with matplotlib.rc_context({**STYLE, "font.family": fonts()}):
            yield
    finally:
        log.setLevel(level)


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of that size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def legend_entries(figure: Any) -> dict[str, Any]:
    """Return what the panels of a figure have labeled, each label once, with its handle."""
    legends = (axes.get_legend_handles_labels() for axes in figure.axes)
    return {label: handle for both in legends for handle, label in zip(*both, strict=True)}


def write_figure(figure: Any, path: str) -> None:
    """Write a figure in the format of its extension; warn about characters that no font has."""
    kind = Path(path).suffix.lower().removeprefix(".")
    options: Any = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": DPI}
    content = io.BytesIO()
    with styled(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")  # matplotlib warns of each missing character.
        figure.savefig(content, format=kind, **options)
    codes = (re.match(r"Glyph (\d+) .*missing", str(warning.message)) for warning in caught)
    characters = {chr(int(code[1])) for code in codes if code}
    if missing := sorted(filter(str.isprintable, characters)):
        named = " ".join(missing[:MAX_NAMED]) + (" …" if len(missing) > MAX_NAMED else "")
        logger.warning(
            f"no installed font has {named}: {path} shows boxes instead; install a font that has "
            "them, such as Noto Sans CJK (on Debian and Ubuntu: apt install fonts-noto-cjk)"
        )
    write_file(Path(path).expanduser(), content.getvalue())


@cache
def fonts() -> list[str]:
    """Return the font families to look for a character in: Latin, and Chinese if installed."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    if not _chinese_fonts(fontManager):  # matplotlib caches a list: look for fonts installed since.
        listed = {Path(entry.fname) for entry in fontManager.ttflist}
        for path in sorted(findSystemFonts()):
            if Path(path) not in listed:
                with suppress(OSError, RuntimeError, ValueError):  # if matplotlib cannot read it
                    fontManager.addfont(path)
    return [LATIN, *_chinese_fonts(fontManager)[:1]]


def _chinese_fonts(manager: Any) -> list[str]:
    names = sorted({entry.name for entry in manager.ttflist})
    begins = [begin.strip() for begin in CHINESE.split(",")]
    return [name for begin in begins for name in names if name.startswith(begin)]
