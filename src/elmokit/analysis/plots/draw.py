"""Draw the figures of `elmokit plot` from their numbers, each as a matplotlib `Figure`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit import figures as style
from elmokit.analysis.plots.maps import TokenPair, WordMap
from elmokit.text.unicode import text_width

if TYPE_CHECKING:
    from elmokit.analysis.probes.probe import ProbeResult
    from elmokit.language import Surprisal

MAX_PANELS = 4  # per row
MAX_NUMBERS = 14  # columns of a heat map with a number in each cell
MAX_LETTERS = 20  # of a word at an axis
ROW_WORDS = 34  # words of a text per row
CHARACTER = 0.072  # inches: the width of about a letter, or of half a Chinese character
SMALL, TINY = 8.0, 7.0  # font sizes
TITLE: Any = {"x": 0.01, "ha": "left", "weight": "bold", "fontsize": 10}
# Of surprisal: direction, label, line style, color, filling of the markers.
FORWARD = ("forward", "given the words before", "o-", style.ELMO, style.ELMO)
BACKWARD = ("backward", "given the words after", "s--", style.INK, "white")
UNKNOWN = "not in the vocabulary"
LINE_STYLES = ((0, (1, 1.5)), (0, (4, 2)), "-.")  # of the baselines
NOTE: Any = {"fontsize": "small", "color": style.INK}
MAX_DISTANCE = 30.0  # percentage points below the layers at which a baseline is still drawn


def group_style(i: int) -> dict[str, Any]:
    """Return the style of the points of group `i`, one of 88, distinct in black and white too."""
    color = style.COLORS[i % len(style.COLORS)]
    face = "white" if i % 2 else color
    return {"marker": style.MARKERS[i % len(style.MARKERS)], "facecolor": face, "edgecolor": color}


def short(word: str) -> str:
    """Shorten a word so that it fits an axis."""
    return word if len(word) <= MAX_LETTERS else f"{word[: MAX_LETTERS - 1]}…"


def rotation(words: Sequence[str], space: float) -> tuple[dict[str, Any], float]:
    """Return how to rotate words at an axis if each has `space` inches, and their height then."""
    turn: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    if _width(words) + CHARACTER <= space:
        turn = {"rotation": 0}
    elif space < 0.3:
        turn = {"rotation": 90}
    return turn, _width(words) * math.sin(math.radians(turn["rotation"]))


def _width(words: Sequence[str]) -> float:
    """Return the width of the longest word in inches."""
    return CHARACTER * max(map(text_width, words))


# ---------------------------------------------------------------------- a word's uses
@style.styled()
def draw_uses(maps: Sequence[WordMap]) -> Any:
    """Draw the uses of each word, a panel for each layer, in the style of their senses."""
    count = len(maps[0].points)
    rows = math.ceil(count / MAX_PANELS)
    heights = [0.65 + 1.75 * rows + 0.18 * _legend_size(word_map.senses)[0] for word_map in maps]
    figure = style.new_figure(style.WIDTH, sum(heights))
    parts = figure.subfigures(len(maps), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, word_map in zip(parts, maps, strict=True):
        _draw_word(part, word_map, rows, math.ceil(count / rows))
    return figure


def _legend_size(senses: Sequence[str]) -> tuple[int, int]:
    """Return the rows and columns of the legend; there are no rows if the senses are unknown."""
    columns = int(style.WIDTH / (_width(senses) + 5 * CHARACTER))
    columns = max(1, min(len(senses), columns))
    return math.ceil(len(senses) / columns) if any(senses) else 0, columns


def _draw_word(part: Any, word_map: WordMap, rows: int, columns: int) -> None:
    part.suptitle(f"{word_map.word}: {len(word_map.uses)} uses", **TITLE)
    panels = part.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(word_map.points) :]:
        panel.set_axis_off()
    for layer, name in enumerate(word_map.names):
        _draw_points(panels[layer], word_map, layer)
        measures = {"purity": word_map.purity, "silhouette": word_map.silhouette}
        known = [f"{n} {values[layer]:.2f}" for n, values in measures.items() if values is not None]
        panels[layer].set_title("\n".join([name, *known]), weight="normal")
    legend_rows, legend_columns = _legend_size(word_map.senses)
    if legend_rows:
        entries = panels[0].get_legend_handles_labels()
        part.legend(*entries, loc="outside lower center", ncols=legend_columns)


def _draw_points(axes: Any, word_map: WordMap, layer: int) -> None:
    senses = [use.sense for use in word_map.uses]
    for i, sense in enumerate(word_map.senses):
        points = word_map.points[layer][[name == sense for name in senses]]
        axes.scatter(*points.T, s=20, linewidths=0.9, label=sense, **group_style(i))
    axes.set(xticks=[], yticks=[])
    axes.margins(0.12)
    axes.spines[:].set(visible=True, color=style.FAINT, linewidth=0.6)
    if word_map.is_one_point[layer]:
        text = "one point:\nthis layer knows\nthe spelling only"
        axes.annotate(text, (0.5, 0.06), xycoords="axes fraction", ha="center", fontsize=TINY)
        return
    axes.set_aspect("equal", adjustable="datalim")  # Distances are true in both directions.
    first, second = word_map.shares[layer]
    axes.set_xlabel(f"1st component, {first:.0%}", fontsize=TINY, labelpad=2)
    axes.set_ylabel(f"2nd, {second:.0%}", fontsize=TINY, labelpad=2)


# ---------------------------------------------------------------------- task models
@style.styled()
def draw_weights(names: Sequence[str], mixes: Sequence[Mapping[str, Sequence[float]]]) -> Any:
    """Draw the share of each layer in the mixes of task models, a panel for each placement.

    Args:
        names: Name of each model.
        mixes: Of each model the shares of layers 0..L in its mix at the "input" or "output".
    """
    both = ("input", "output")
    placements = [name for name in both if any(name in model for model in mixes)]
    layers = max(len(shares) for model in mixes for shares in model.values())
    width = min(style.WIDTH, 0.5 + _width(names) + len(placements) * 0.62 * layers)
    figure = style.new_figure(max(width, 2.8), 0.75 + 0.28 * len(mixes))
    panels = figure.subplots(1, len(placements), sharey=True, squeeze=False)[0]
    for axes, placement in zip(panels, placements, strict=True):
        shares = np.full((len(mixes), layers), np.nan)
        for row, model in enumerate(mixes):
            shares[row, : len(model.get(placement, []))] = model.get(placement, [])
        _draw_cells(axes, shares, low=0.0)
        axes.set_title(f"mix at the {placement}")
        axes.set_xticks(range(layers), [f"layer {layer}" for layer in range(layers)])
        axes.tick_params(labelsize=SMALL)
    panels[0].set_yticks(range(len(mixes)), names)
    return figure


# ---------------------------------------------------------------------- two sentences
@style.styled()
def draw_pair(pair: TokenPair, layer: int) -> Any:
    """Draw the cosines of the tokens of two sentences in one layer as a heat map."""
    cosines = pair.cosines[layer]
    rows, columns = [short(t) for t in pair.first], [short(t) for t in pair.second]
    beside = _width(rows) + 1.0  # the words and the color bar
    cell = min(0.5, (style.WIDTH - beside) / len(columns))
    turn, height = rotation(columns, cell)
    width = max(beside + cell * len(columns), 2.8)
    figure = style.new_figure(width, 0.8 + height + 0.25 * len(rows))
    axes = figure.subplots()
    low = min(0.0, math.floor(10 * float(cosines.min())) / 10)
    mesh = _draw_cells(axes, cosines, low=low, numbers=len(columns) <= MAX_NUMBERS)
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    turn["ha"] = "left" if turn["rotation"] == 45 else "center"
    axes.set_xticks(range(len(columns)), columns, **turn)
    axes.tick_params(top=False, left=False)
    figure.colorbar(mesh, ax=axes, label="cosine", pad=0.02, aspect=30).outline.set_visible(False)
    figure.suptitle(pair.names[layer], **TITLE)
    return figure


def _draw_cells(axes: Any, values: NDArray[Any], *, low: float, numbers: bool = True) -> Any:
    """Draw a cell for each of the values (rows, columns), darker for more; the first row on top."""
    from matplotlib.colors import LinearSegmentedColormap

    dark = LinearSegmentedColormap.from_list("elmokit", ["white", *style.SHADES[:4]])
    height, width = values.shape
    edges = np.arange(width + 1) - 0.5, np.arange(height + 1) - 0.5
    looks = {"cmap": dark, "vmin": low, "vmax": 1, "edgecolor": "white", "linewidth": 0.8}
    mesh = axes.pcolormesh(*edges, np.ma.masked_invalid(values), **looks)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    axes.spines[:].set_visible(False)
    axes.tick_params(bottom=False, left=False)
    for (row, column), value in np.ndenumerate(values) if numbers else ():
        if not np.isnan(value):
            color = "white" if value - low > 0.55 * (1 - low) else style.INK
            middle = {"ha": "center", "va": "center"}
            shown = f"{value:.2f}".replace("-0.00", "0.00").replace("-", "\N{MINUS SIGN}")
            axes.text(column, row, shown, color=color, fontsize=TINY, **middle)
    return mesh


# ---------------------------------------------------------------------- surprisal
@style.styled()
def draw_surprisal(sentences: Sequence[Surprisal]) -> Any:
    """Draw the surprisal of each word of a text in both directions, in rows of 34 words."""
    words = [short(token) for sentence in sentences for token in sentence.tokens]
    count, row_words = math.ceil(len(words) / ROW_WORDS), min(len(words), ROW_WORDS)
    width = style.WIDTH if count > 1 else min(style.WIDTH, max(3.8, 1.0 + 0.42 * len(words)))
    turn, height = rotation(words, (width - 0.7) / row_words)
    figure = style.new_figure(width, 0.5 + count * (1.45 + height))
    rows = figure.subplots(count, 1, sharey=True, squeeze=False)[:, 0]
    for i, axes in enumerate(rows):
        start = i * ROW_WORDS
        _draw_row(axes, sentences, start, start + ROW_WORDS)
        shown = words[start : start + ROW_WORDS]
        axes.set_xticks(range(start, start + len(shown)), shown, **turn)
        axes.tick_params(axis="x", labelsize=SMALL, length=2)
        axes.set_xlim(start - 0.7, start + row_words - 0.3)
        axes.set_ylabel("surprisal, bits")
        axes.grid(axis="y", color="0.9", lw=0.6)
        axes.set_axisbelow(True)
    rows[0].set_ylim(bottom=0)
    entries = style.legend_entries(figure)
    order = [label for label in (FORWARD[1], BACKWARD[1], UNKNOWN) if label in entries]
    handles = [entries[label] for label in order]
    figure.legend(handles, order, loc="outside upper left", ncols=len(order))
    return figure


def _draw_row(axes: Any, sentences: Sequence[Surprisal], start: int, end: int) -> None:
    """Draw words `start` to `end` of a text, with a dotted line between sentences."""
    position, total = 0, sum(len(sentence.tokens) for sentence in sentences)
    for sentence in sentences:
        x = np.arange(position, position + len(sentence.tokens))
        inside = (x >= start) & (x < end)
        position += len(sentence.tokens)
        if not inside.any():
            continue
        for unknown in x[inside & ~sentence.known]:
            axes.axvspan(unknown - 0.5, unknown + 0.5, color="0.9", lw=0, zorder=0, label=UNKNOWN)
        for direction, label, line, color, fill in (FORWARD, BACKWARD):
            bits = getattr(sentence, direction)[inside]
            looks = {"color": color, "markerfacecolor": fill, "markersize": 3.5, "linewidth": 1.0}
            axes.plot(x[inside], bits, line, label=label, **looks)
        if start < position < min(end, total):
            axes.axvline(position - 0.5, color=style.FAINT, linewidth=0.7, linestyle=":")


# ---------------------------------------------------------------------- probes
@style.styled()
def draw_probe(result: ProbeResult, *, title: str = "Accuracy by layer") -> Any:
    """Draw all tokens in one panel, and words not seen in training in another if there are any."""
    panels = {"all tokens": "accuracy"}
    if result.layers[0].unseen is not None:
        panels["words not seen in training"] = "unseen"
    figure = style.new_figure(style.WIDTH if len(panels) == 2 else 0.6 * style.WIDTH, 3.2)
    for i, (name, value) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), i)
        _draw_panel(axes, result, value)
        axes.set_title(name)
    figure.axes[0].set_ylabel("dev accuracy, percent")
    entries = style.legend_entries(figure)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=2)
    figure.suptitle(title, fontsize="medium", fontweight="bold", x=0.01, ha="left")
    return figure


def _draw_panel(axes: Any, result: ProbeResult, value: str) -> None:
    scores = [100 * getattr(score, value) for score in result.layers]
    names = [score.name for score in result.layers]
    single = len(scores) - 2  # The average and the mix come last.
    axes.plot(scores[:single], "o-", color=style.ELMO, ms=5, lw=1.4, label="one layer")
    hollow: Any = {"color": style.ELMO, "mfc": "white", "label": "several layers"}
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
    for line, baseline in zip(LINE_STYLES, baselines, strict=False):
        height = 100 * getattr(baseline, value)
        if height >= floor:
            axes.axhline(height, color=style.FAINT, lw=1.1, ls=line, label=baseline.name, zorder=0)
        else:
            below.append(f"↓ {baseline.name}: {height:.1f}")
    if below:
        axes.text(0.99, 0.02, "\n".join(below), transform=axes.transAxes, ha="right", **NOTE)
    axes.margins(y=0.15)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.07 * len(below) * (high - low), high)  # space for their names
