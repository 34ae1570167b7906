"""The curves of a training run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elmokit.figures import STYLE
from elmokit.pretrain.log import draw_training_curves
from elmokit.tasks.report import draw_curves as draw_task_curves
from elmokit.training import curves
from elmokit.training.curves import Curve, Panel, draw_curves


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn instead of written."""
    pytest.importorskip("matplotlib")
    figures: list[Any] = []
    monkeypatch.setattr(curves, "write_figure", lambda figure, path: figures.append(figure))
    return figures


def check_look(figure: Any) -> None:
    """Check that the x axes have whole numbers, and that the figure looks like all others."""
    for axes in figure.axes:
        low, high = axes.get_xlim()
        ticks = [x for x in axes.get_xticks() if low <= x <= high]
        assert ticks
        assert all(x == int(x) for x in ticks)
        assert not axes.spines["top"].get_visible()
        assert axes.xaxis.label.get_fontsize() == STYLE["font.size"]
        assert axes.get_legend() is None or not axes.get_legend().get_frame_on()


@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 40])
def test_the_curves_of_a_task_have_whole_epochs(drawn: list[Any], epochs: int) -> None:
    mixes = {"input": {"weights": [0.2, 0.5, 0.3], "scale": 1.0}}
    line = {"loss": 0.5, "dev": {"accuracy": 0.9}, "mixes": mixes}
    history = [{"epoch": epoch, **line} for epoch in range(1, epochs + 1)]
    report = {"history": history, "best_epoch": 1, "mixes": mixes}
    assert draw_task_curves(report, Path("curves.png"))
    (figure,) = drawn
    assert [axes.get_xlabel() for axes in figure.axes] == ["epoch"] * 3
    check_look(figure)


@pytest.mark.parametrize("steps", [1, 20, 90, 100_000])
def test_the_curves_of_a_pretraining_have_whole_steps(
    drawn: list[Any], steps: int, tmp_path: Path
) -> None:
    heldout = {"forward": 90.0, "backward": 80.0, "average": 85.0}
    lines = [{"step": 1, "loss": 5.0}, {"step": steps, "heldout": heldout}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert draw_training_curves(tmp_path / "log.jsonl", Path("curves.png"))
    (figure,) = drawn
    assert figure.axes[0].get_xlabel() == "step"
    check_look(figure)


def test_a_curve_without_a_name_needs_no_legend(drawn: list[Any]) -> None:
    assert draw_curves([Panel("loss", [Curve([1, 2], [3.0, 2.0])], best=2)], Path("curves.png"))
    assert drawn[0].axes[0].get_legend() is None


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
