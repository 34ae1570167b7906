"""The curves of a training run."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.training.curves import Curve, Panel, _draw, draw_curves


def test_the_epochs_on_the_axis_are_whole_numbers() -> None:
    figures = pytest.importorskip("matplotlib.figure")
    axes = figures.Figure().subplots()
    _draw(axes, Panel("loss", [Curve([1, 2, 3], [3.0, 2.0, 1.0])], best=2))
    assert all(tick == int(tick) for tick in axes.get_xticks())
    assert axes.get_legend() is None


def test_the_curves_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    panels = [Panel("a", [Curve([1], [1.0], "one")]), Panel("b", [], y_scale="log")]
    assert draw_curves(panels, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_nothing_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert not draw_curves([Panel("a", [])], tmp_path / "curves.png")
