"""The figures of a comparison: scores, sample efficiency, weights of layers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from elmokit import figures as style
from elmokit.tasks.compare.conditions import WITH, WITHOUT
from elmokit.tasks.compare.summary import TITLES, percentage


def draw_all(results: dict[str, Any], folder: Path) -> bool:
    """Write all figures that the results have data for; return False without matplotlib."""
    if find_spec("matplotlib") is None:
        return False
    with style.styled():
        drawn = {
            "figure": draw_rows(results),
            "sample_efficiency": draw_curve(results),
            "weights": draw_weights(results),
        }
    for name, figure in drawn.items():
        for extension in style.FORMATS if figure is not None else ():
            style.write_figure(figure, str(folder / f"{name}{extension}"))
    return True


def draw_rows(results: dict[str, Any]) -> Any:
    """Draw the mean and spread of each condition and its single runs, a panel for each table."""
    tables = {name: [line for line in t if line["n"]] for name, t in results["tables"].items()}
    sizes = [len(lines) + 1.2 for lines in tables.values()]
    figure = style.new_figure(style.WIDTH, 0.5 + 0.27 * sum(sizes))
    panels = figure.subplots(len(tables), 1, sharex=True, squeeze=False, height_ratios=sizes)
    for axes, (name, lines) in zip(panels[:, 0], tables.items(), strict=True):
        for row, line in enumerate(lines):
            color = style.INK if line["label"] == WITHOUT else style.ELMO
            _draw_row(axes, row, line["scores"][results["metric"]], color=color)
        axes.set_yticks(range(len(lines)), [line["label"] for line in lines])
        axes.set_ylim(len(lines) - 0.4, -0.6)  # The first row is at the top.
        axes.tick_params(left=False)
        axes.set_title(f"{TITLES[name]}: {results['task']}")
        if lines:
            base = 100 * lines[0]["scores"][results["metric"]]["mean"]
            axes.axvline(base, color=style.FAINT, lw=0.8, ls=":", zorder=0)
    panels[-1, 0].set_xlabel(f"dev {results['metric']}, percent")
    return figure


def _draw_row(axes: Any, row: int, value: dict[str, Any], *, color: str) -> None:
    mean, around = 100 * value["mean"], 100 * (value["spread"] or 0)
    single = [100 * v for v in value["values"]]
    axes.plot(single, [row] * len(single), "|", color=color, alpha=0.6, ms=9, zorder=2)
    axes.errorbar(mean, row, xerr=around, fmt="o", color=color, ms=5, capsize=3, lw=1.3, zorder=3)
    look = {"va": "center", "fontsize": "small", "color": style.INK}
    axes.annotate(percentage(value), (1.01, row), xycoords=("axes fraction", "data"), **look)


def draw_curve(results: dict[str, Any]) -> Any:
    """Draw the score over the size of the training data; return None if not measured."""
    from matplotlib.ticker import NullLocator

    points = [p for p in results["sample_efficiency"] if all(r["n"] for r in p["rows"].values())]
    if not points:
        return None
    figure = style.new_figure(0.75 * style.WIDTH, 3.2)
    axes = figure.subplots()
    percents = [point["percent"] for point in points]
    looks = {WITH: ("s-", style.ELMO), WITHOUT: ("o--", style.INK)}
    for label, (line, color) in looks.items():
        scores = [point["rows"][label]["scores"][results["metric"]] for point in points]
        means = np.array([100 * score["mean"] for score in scores])
        around = np.array([100 * (score["spread"] or 0) for score in scores])
        axes.fill_between(percents, means - around, means + around, color=color, alpha=0.18, lw=0)
        axes.plot(percents, means, line, color=color, ms=4.5, lw=1.4, label=label)
    axes.set(
        xscale="log", xlabel="training data, percent", ylabel=f"dev {results['metric']}, percent"
    )
    axes.set_xticks(percents, [f"{percent:g}" for percent in percents])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title(f"Sample efficiency: {results['task']}")
    axes.grid(axis="y", color="0.9", lw=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="lower right")
    return figure


def draw_weights(results: dict[str, Any]) -> Any:
    """Draw the weights of the learned mixes, a panel for each placement; None without any."""
    learned = [line for line in results["weights"] if line["layers"] == "all"]
    if not learned:
        return None
    names = [name for name in ("input", "output") if any(m["mix"] == name for m in learned)]
    groups = {name: [line for line in learned if line["mix"] == name] for name in names}
    sizes = [len(lines) + 0.4 for lines in groups.values()]
    figure = style.new_figure(min(style.WIDTH, 1.6 + 1.15 * sum(sizes)), 2.9)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False, width_ratios=sizes)[0]
    for axes, (name, lines) in zip(panels, groups.items(), strict=True):
        _draw_mixes(axes, lines)
        axes.set_title(f"mix at the {name}")
    panels[0].set_ylabel("weight in the mix")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _draw_mixes(axes: Any, lines: list[dict[str, Any]]) -> None:
    num_layers = len(lines[0]["weights"])
    width = 0.8 / num_layers
    for layer in range(num_layers):
        shares = [line["weights"][layer] for line in lines]
        axes.bar(
            [group + (layer - (num_layers - 1) / 2) * width for group in range(len(lines))],
            [share["mean"] for share in shares],
            width,
            yerr=[share["spread"] or 0 for share in shares],
            color=style.SHADES[layer % len(style.SHADES)],
            edgecolor=style.INK,
            linewidth=0.6,
            error_kw={"lw": 0.9, "capsize": 2, "ecolor": style.INK},
            label=f"layer {layer}",
        )
    axes.axhline(1 / num_layers, color=style.FAINT, lw=0.8, ls=":")  # the average, the initial mix
    labels = [f"{line['placement']}\nλ = {line['l2']:g}" for line in lines]
    axes.set_xticks(range(len(lines)), labels)
    axes.set_xlim(-0.6, len(lines) - 0.4)
    axes.tick_params(bottom=False)
