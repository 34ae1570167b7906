"""The curves of a training run, panels side by side, as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from elmokit.figures import ELMO, FAINT, new_figure, styled, write_figure

PANEL = (3.4, 2.9)  # width and height in inches


@dataclass(frozen=True)
class Curve:
    """One line of a panel."""

    x: Sequence[float]
    y: Sequence[float]
    label: str | None = None
    """Name in the legend; None for a curve that needs none."""
    style: str = "-"
    """Line and marker as matplotlib writes them, such as "o-"."""
    color: str = ELMO


@dataclass(frozen=True)
class Panel:
    """One pair of axes and the curves in it."""

    y_label: str
    curves: Sequence[Curve]
    x_label: str = "epoch"
    y_scale: Literal["linear", "log"] = "linear"
    y_limits: tuple[float, float] | None = None
    best: float | None = None
    """Where on the x axis the best model was, marked by a dotted line."""


def draw_curves(panels: Sequence[Panel], path: Path) -> bool:
    """Draw panels side by side into a PNG; return False if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        return False
    from matplotlib.ticker import MaxNLocator

    with styled():
        figure = new_figure(PANEL[0] * len(panels), PANEL[1])
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(grid, panels, strict=True):
            for curve in panel.curves:
                line = {"color": curve.color, "label": curve.label, "lw": 1.2, "ms": 3}
                axes.plot(curve.x, curve.y, curve.style, **line)
            if panel.best is not None:
                axes.axvline(panel.best, lw=0.8, ls=":", color=FAINT)
            axes.set(xlabel=panel.x_label, ylabel=panel.y_label, yscale=panel.y_scale)
            # There is no half epoch or step. More than one tick would need some in one epoch.
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            if panel.y_limits is not None:
                axes.set_ylim(*panel.y_limits)
            if any(curve.label for curve in panel.curves):
                axes.legend(fontsize="small")
    write_figure(figure, str(path))
    return True
