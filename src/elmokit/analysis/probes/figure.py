"""Draw the result of a probe: accuracy by layer, with the baselines as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elmokit.figures import ELMO, FAINT, INK, WIDTH, legend_entries, new_figure, styled

if TYPE_CHECKING:
    from elmokit.analysis.probes.probe import ProbeResult

LINE_STYLES = ((0, (1, 1.5)), (0, (4, 2)), "-.")  # of the baselines
NOTE: Any = {"fontsize": "small", "color": INK}
MAX_DISTANCE = 30.0  # percentage points below the layers at which a baseline is still drawn


@styled()
def draw_probe(result: ProbeResult, *, title: str = "Accuracy by layer") -> Any:
    """Draw all tokens in one panel, and words not seen in training in another if there are any."""
    panels = {"all tokens": "accuracy"}
    if result.layers[0].unseen is not None:
        panels["words not seen in training"] = "unseen"
    figure = new_figure(WIDTH if len(panels) == 2 else 0.6 * WIDTH, 3.2)
    for i, (name, value) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), i)
        _draw_panel(axes, result, value)
        axes.set_title(name)
    figure.axes[0].set_ylabel("dev accuracy, percent")
    entries = legend_entries(figure)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=2)
    figure.suptitle(title, fontsize="medium", fontweight="bold", x=0.01, ha="left")
    return figure


def _draw_panel(axes: Any, result: ProbeResult, value: str) -> None:
    scores = [100 * getattr(score, value) for score in result.layers]
    names = [score.name for score in result.layers]
    single = len(scores) - 2  # The average and the mix come last.
    axes.plot(range(single), scores[:single], "o-", color=ELMO, ms=5, lw=1.4, label="one layer")
    hollow: Any = {"color": ELMO, "mfc": "white", "label": "several layers"}
    axes.plot(range(single, single + 2), scores[single:], "s", **hollow)
    for i, score in enumerate(scores):
        rises = i + 1 < single and scores[i + 1] > score  # The line would cross the number.
        offset: Any = {"xytext": (0, -13 if rises else 6), "textcoords": "offset points"}
        axes.annotate(f"{score:.1f}", (i, score), ha="center", **offset, **NOTE)
    _draw_baselines(axes, result, value, floor=min(scores) - MAX_DISTANCE)
    axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
    axes.set_xlim(-0.4, len(names) - 0.6)


def _draw_baselines(axes: Any, result: ProbeResult, value: str, *, floor: float) -> None:
    """Draw the baselines; only name one that is far below, so that the layers stay apart."""
    baselines = [*result.guesses, *([result.static] if result.static else [])]
    below = []
    for style, baseline in zip(LINE_STYLES, baselines, strict=False):
        height = 100 * getattr(baseline, value)
        if height >= floor:
            axes.axhline(height, color=FAINT, lw=1.1, ls=style, label=baseline.name, zorder=0)
        else:
            below.append(f"↓ {baseline.name}: {height:.1f}")
    if below:
        axes.text(0.99, 0.02, "\n".join(below), transform=axes.transAxes, ha="right", **NOTE)
    axes.margins(y=0.15)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.07 * len(below) * (high - low), high)  # space for their names
