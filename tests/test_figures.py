"""The style of figures: fonts, and how figures are written."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import complaint

from elmokit import figures as style
from elmokit.analysis.plots.draw import draw_pair
from elmokit.analysis.plots.maps import TokenPair
from elmokit.figures import write_figure

pytest.importorskip("matplotlib")


def pair_figure(first: list[str], second: list[str]) -> Any:
    cosines = np.full((3, len(first), len(second)), 0.5, np.float32)
    return draw_pair(TokenPair(first, second, cosines), 1)


def test_characters_that_no_font_has_are_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(style, "fonts", lambda: [style.LATIN])
    picture = tmp_path / "pair.png"
    write_figure(pair_figure(["中", "文", "naïve", "Привет"], ["文", "中"]), str(picture))
    assert caplog.record_tuples == [
        (
            "elmokit",
            logging.WARNING,
            f"no installed font has 中 文: {picture} shows boxes instead; install a font that has "
            "them, such as Noto Sans CJK (on Debian and Ubuntu: apt install fonts-noto-cjk)",
        )
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")
    caplog.clear()
    write_figure(pair_figure("一 二 三 四 五 六 七 八 九".split(), ["a"]), str(picture))
    assert "一 七 三 九 二 五 八 六 …: " in caplog.text
    caplog.clear()
    write_figure(pair_figure(["中"], ["a"]), str(tmp_path / "pair.svg"))
    assert "no installed font has 中: " in caplog.text


def test_chinese_is_drawn_where_a_font_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if len(style.fonts()) == 1:
        pytest.skip("no font with Chinese characters is installed")
    figure = pair_figure(["银行", "河岸", "。"], ["bank"])
    write_figure(figure, str(tmp_path / "pair.svg"))
    assert not caplog.records
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of each glyph that is missing
        with style.styled():
            figure.savefig(tmp_path / "pair.png")


def test_fonts_installed_since_matplotlib_made_its_list_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from matplotlib import font_manager

    class Entry:
        name, fname = "DejaVu Sans", "/fonts/DejaVu.ttf"

    class Manager:
        def __init__(self) -> None:
            self.ttflist = [Entry()]

        def addfont(self, path: str) -> None:
            if path.endswith("broken.ttf"):
                raise RuntimeError("no font")
            entry = Entry()
            entry.name, entry.fname = "Noto Sans CJK JP", path
            self.ttflist.append(entry)

    paths = ["/fonts/DejaVu.ttf", "/fonts/broken.ttf", "/fonts/new.ttc"]
    monkeypatch.setattr(font_manager, "fontManager", manager := Manager())
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: paths)
    style.fonts.cache_clear()
    try:
        assert style.fonts() == ["DejaVu Sans", "Noto Sans CJK JP"]
        assert [entry.fname for entry in manager.ttflist] == [paths[0], paths[2]]
    finally:
        style.fonts.cache_clear()


def test_a_figure_that_cannot_be_written_raises(tmp_path: Path) -> None:
    figure = pair_figure(["a"], ["b"])
    (tmp_path / "folder.png").mkdir()
    message = complaint(lambda: write_figure(figure, str(tmp_path / "folder.png")))
    assert message.startswith(f"cannot write {tmp_path / 'folder.png'}: ")
