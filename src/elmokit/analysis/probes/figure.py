"""The figure of a probe: accuracy by layer, with what is reached without the layers as lines.

It is drawn here and saved by style.py: a `Figure` can be looked at by its parts.
"""

from __future__ import annotations

from typing import Any

from elmokit.figures import ELMO, FAINT, INK, WIDTH, styled

LINES = ((0, (1, 1.5)), (0, (4, 2)), "-.")  # of the base lines
FAR = 30.0  # points


@styled()
def draw_probe(result: dict[str, Any], *, title: str = "Accuracy by layer") -> Any:
    """All tokens in one panel, the words not seen in training in another, if there are any."""
    from matplotlib.figure import Figure

    panels = {"all tokens": "accuracy", "words not seen in training": "unseen"}
    if result["layers"][0]["unseen"] is None:
        panels.pop("words not seen in training")
    wide = WIDTH if len(panels) == 2 else 0.6 * WIDTH
    figure: Any = Figure(figsize=(wide, 3.2), layout="constrained")
    for axes, (name, value) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        _draw_panel(axes, result, value)
        axes.set_title(name)
    figure.axes[0].set_ylabel("dev accuracy, per cent")
    named: dict[str, Any] = {}
    for axes in figure.axes:
        handles, names = axes.get_legend_handles_labels()
        named |= dict(zip(names, handles, strict=True))
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=2)
    figure.suptitle(title, fontsize="medium", fontweight="bold", x=0.01, ha="left")
    return figure


def _draw_panel(axes: Any, result: dict[str, Any], value: str) -> None:
    scores = [100 * score[value] for score in result["layers"]]
    names = [score["name"] for score in result["layers"]]
    single = len(scores) - 2  # behind them stand the average and the mix
    axes.plot(range(single), scores[:single], "o-", color=ELMO, ms=5, lw=1.4, label="one layer")
    axes.plot(
        range(single, single + 2),
        scores[single:],
        "s",
        color=ELMO,
        mfc="white",
        label="several layers",
    )
    for place, score in enumerate(scores):
        rises = place + 1 < single and scores[place + 1] > score  # the line would cross it
        axes.annotate(
            f"{score:.1f}",
            (place, score),
            xytext=(0, -13 if rises else 6),
            textcoords="offset points",
            ha="center",
            fontsize="small",
            color=INK,
        )
    _draw_others(axes, result, value, floor=min(scores) - FAR)
    axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
    axes.set_xlim(-0.4, len(names) - 0.6)


def _draw_others(axes: Any, result: dict[str, Any], value: str, *, floor: float) -> None:
    """Base lines; one that is far below all layers is only named, so that these stay apart."""
    others = [*result["guesses"], *([result["static"]] if result["static"] else [])]
    below = []
    for style, other in zip(LINES, others, strict=False):
        height = 100 * other[value]
        if height >= floor:
            axes.axhline(height, color=FAINT, lw=1.1, ls=style, label=other["name"], zorder=0)
        else:
            below.append(f"↓ {other['name']}: {height:.1f}")
    if below:
        axes.text(
            0.99,
            0.02,
            "\n".join(below),
            transform=axes.transAxes,
            ha="right",
            fontsize="small",
            color=INK,
        )
    axes.margins(y=0.15)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.07 * len(below) * (high - low), high)  # room for their names
