"""From numbers to figures: the pictures of `elmokit plot`.

Each function gives a matplotlib `Figure`, which style.py writes. Groups differ in colour, in mark
and in filling, so that they are told apart in black and white too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.plots.maps import PLACES, Mixes, Pair, WordMap
from elmokit.figures import COLOURS, ELMO, FAINT, INK, MARKERS, SHADES, WIDTH, styled
from elmokit.text.width import text_width

if TYPE_CHECKING:
    from elmokit.language import Surprisal

MOST_PANELS = 4  # beside each other
MOST_NUMBERS = 14  # columns of a heat map with a number in each cell
MOST_LETTERS = 20  # of a word at an axis
ROW_WORDS = 34  # of a text, in one row
COLUMN = 0.072  # inches that half a Chinese character, or a letter, takes about
SMALL, TINY = 8.0, 7.0
HEAD: Any = {"x": 0.01, "ha": "left", "weight": "bold", "fontsize": 10}
# Of surprisal: name, line, colour, filling of the marks.
DIRECTIONS = (("forward", "o-", ELMO, ELMO), ("backward", "s--", INK, "white"))
LABELS = {"forward": "by the words before", "backward": "by the words after"}
UNKNOWN = "not in the vocabulary"


def look_of(number: int) -> dict[str, Any]:
    """How the points of a group look, which is one of 88 ways: every second group is hollow."""
    colour = COLOURS[number % len(COLOURS)]
    inside = "white" if number % 2 else colour
    return {"marker": MARKERS[number % len(MARKERS)], "facecolor": inside, "edgecolor": colour}


def short(word: str) -> str:
    """A word that fits an axis."""
    return word if len(word) <= MOST_LETTERS else f"{word[: MOST_LETTERS - 1]}…"


def turned(words: Sequence[str], room: float) -> dict[str, Any]:
    """How words must be turned to stand below an axis, each with so many inches of room."""
    needed = COLUMN * (max(map(text_width, words)) + 1)
    if needed <= room:
        return {"rotation": 0}
    if room < 0.3:
        return {"rotation": 90}
    return {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}


# ---------------------------------------------------------------------- a word's uses
@styled()
def draw_uses(maps: Sequence[WordMap]) -> Any:
    """The uses of each word, a panel for each layer, in the looks of their senses."""
    from matplotlib.figure import Figure

    count = len(maps[0].points)
    rows = math.ceil(count / MOST_PANELS)
    heights = [0.65 + 1.75 * rows + 0.18 * _legend_rows(each) for each in maps]
    figure: Any = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(maps), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, each in zip(parts, maps, strict=True):
        _draw_word(part, each, rows, math.ceil(count / rows))
    return figure


def _legend_rows(each: WordMap) -> int:
    return math.ceil(len(each.senses) / _legend_columns(each)) if any(each.senses) else 0


def _legend_columns(each: WordMap) -> int:
    widest = max(map(text_width, each.senses)) + 5
    return max(1, min(len(each.senses), int(WIDTH / (COLUMN * widest))))


def _draw_word(part: Any, each: WordMap, rows: int, columns: int) -> None:
    part.suptitle(f"{each.word}: {len(each.uses)} uses", **HEAD)
    panels = part.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(each.points) :]:
        panel.set_axis_off()
    for layer, name in enumerate(each.names):
        _draw_points(panels[layer], each, layer)
        numbers = {"purity": each.purity, "silhouette": each.silhouette}
        known = [f"{n} {found[layer]:.2f}" for n, found in numbers.items() if found is not None]
        panels[layer].set_title("\n".join([name, *known]), weight="normal")
    if len(each.senses) > 1 or any(each.senses):
        handles, labels = panels[0].get_legend_handles_labels()
        part.legend(handles, labels, loc="outside lower center", ncols=_legend_columns(each))


def _draw_points(axes: Any, each: WordMap, layer: int) -> None:
    senses = [use.sense for use in each.uses]
    for number, sense in enumerate(each.senses):
        points = each.points[layer][[name == sense for name in senses]]
        axes.scatter(*points.T, s=20, linewidths=0.9, label=sense, **look_of(number))
    axes.set(xticks=[], yticks=[])
    axes.margins(0.12)
    axes.spines[:].set(visible=True, color=FAINT, linewidth=0.6)
    if each.is_one_point[layer]:
        text = "one point:\nthis layer knows\nthe spelling only"
        axes.annotate(text, (0.5, 0.06), xycoords="axes fraction", ha="center", fontsize=TINY)
        return
    axes.set_aspect("equal", adjustable="datalim")  # distances are true in both directions
    first, second = each.shares[layer]
    axes.set_xlabel(f"1st component, {first:.0%}", fontsize=TINY, labelpad=2)
    axes.set_ylabel(f"2nd, {second:.0%}", fontsize=TINY, labelpad=2)


# ---------------------------------------------------------------------- task models
@styled()
def draw_weights(models: Sequence[Mixes]) -> Any:
    """The share of each layer in the mixes of task models: a line a model, a panel a place."""
    from matplotlib.figure import Figure

    places = [place for place in PLACES if any(place in model.places for model in models)]
    layers = max(len(shares) for model in models for shares in model.places.values())
    names = [f"{short(model.name)} ({model.task})" for model in models]
    room = COLUMN * max(map(text_width, names))
    width = min(WIDTH, 0.5 + room + len(places) * 0.62 * layers)
    size = (max(width, 2.8), 0.75 + 0.28 * len(models))
    figure: Any = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
    for axes, place in zip(panels, places, strict=True):
        shares = np.full((len(models), layers), np.nan)
        for row, model in enumerate(models):
            found = model.places.get(place, [])
            shares[row, : len(found)] = found
        _draw_cells(axes, shares, low=0.0)
        axes.set_title(f"mix at the {place}")
        axes.set_xticks(range(layers), [f"layer {layer}" for layer in range(layers)])
        axes.tick_params(labelsize=SMALL)
    panels[0].set_yticks(range(len(models)), names)
    return figure


# ---------------------------------------------------------------------- two sentences
@styled()
def draw_pair(pair: Pair, layer: int) -> Any:
    """The cosines of the tokens of two sentences in one layer, as a heat map."""
    from matplotlib.figure import Figure

    cosines = pair.cosines[layer]
    rows, columns = [short(t) for t in pair.first], [short(t) for t in pair.second]
    beside = COLUMN * max(map(text_width, rows)) + 1.0  # the words and the bar
    cell = min(0.5, (WIDTH - beside) / len(columns))
    turn = turned(columns, cell)
    above = COLUMN * max(map(text_width, columns)) * math.sin(math.radians(turn["rotation"]))
    size = (max(beside + cell * len(columns), 2.8), 0.8 + above + 0.25 * len(rows))
    figure: Any = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    low = min(0.0, math.floor(10 * float(cosines.min())) / 10)
    mesh = _draw_cells(axes, cosines, low=low, numbers=len(columns) <= MOST_NUMBERS)
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    turn["ha"] = "left" if turn["rotation"] == 45 else "center"
    axes.set_xticks(range(len(columns)), columns, **turn)
    axes.tick_params(top=False, left=False)
    figure.colorbar(mesh, ax=axes, label="cosine", pad=0.02, aspect=30).outline.set_visible(False)
    figure.suptitle(pair.names[layer], **HEAD)
    return figure


def _draw_cells(
    axes: Any, values: NDArray[np.floating[Any]], *, low: float, numbers: bool = True
) -> Any:
    """A cell for each of the values (rows, columns), darker for more; the first row on top."""
    from matplotlib.colors import LinearSegmentedColormap

    dark = LinearSegmentedColormap.from_list("elmokit", ["white", *SHADES[:4]])
    height, width = values.shape
    edges = np.arange(width + 1) - 0.5, np.arange(height + 1) - 0.5
    looks = {"cmap": dark, "vmin": low, "vmax": 1, "edgecolor": "white", "linewidth": 0.8}
    mesh = axes.pcolormesh(*edges, np.ma.masked_invalid(values), **looks)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    axes.spines[:].set_visible(False)
    axes.tick_params(bottom=False, left=False)
    for (row, column), value in np.ndenumerate(values) if numbers else ():
        if not np.isnan(value):
            colour = "white" if value - low > 0.55 * (1 - low) else INK
            middle = {"ha": "center", "va": "center"}
            shown = f"{value:.2f}".replace("-0.00", "0.00").replace("-", "\N{MINUS SIGN}")
            axes.text(column, row, shown, color=colour, fontsize=TINY, **middle)
    return mesh


# ---------------------------------------------------------------------- surprisal
@styled()
def draw_surprisal(sentences: Sequence[Surprisal]) -> Any:
    """The surprisal of each word of a text in both directions, in as many rows as it takes."""
    from matplotlib.figure import Figure

    total = sum(len(sentence.tokens) for sentence in sentences)
    count = math.ceil(total / ROW_WORDS)
    width = WIDTH if count > 1 else min(WIDTH, max(3.8, 1.0 + 0.42 * total))
    words = [short(token) for sentence in sentences for token in sentence.tokens]
    each = min(total, ROW_WORDS)
    turn = turned(words, (width - 0.7) / each)
    below = COLUMN * max(map(text_width, words)) * math.sin(math.radians(turn["rotation"]))
    size = (width, 0.5 + count * (1.45 + below))
    figure: Any = Figure(figsize=size, layout="constrained")
    rows = figure.subplots(count, 1, sharey=True, squeeze=False)[:, 0]
    for number, axes in enumerate(rows):
        start = number * ROW_WORDS
        _draw_row(axes, sentences, start, start + ROW_WORDS)
        shown = words[start : start + ROW_WORDS]
        axes.set_xticks(range(start, start + len(shown)), shown, **turn)
        axes.tick_params(axis="x", labelsize=SMALL, length=2)
        axes.set_xlim(start - 0.7, start + each - 0.3)
        axes.set_ylabel("surprisal, bits")
        axes.grid(axis="y", color="0.9", lw=0.6)
        axes.set_axisbelow(True)
    rows[0].set_ylim(bottom=0)
    found = [axes.get_legend_handles_labels() for axes in rows]
    labelled = {label: handle for both in found for handle, label in zip(*both, strict=True)}
    order = [label for label in (*LABELS.values(), UNKNOWN) if label in labelled]
    handles = [labelled[label] for label in order]
    figure.legend(handles, order, loc="outside upper left", ncols=len(order))
    return figure


def _draw_row(axes: Any, sentences: Sequence[Surprisal], start: int, end: int) -> None:
    """Words `start` to `end` of a text, with a dotted line between sentences."""
    place, total = 0, sum(len(sentence.tokens) for sentence in sentences)
    for sentence in sentences:
        where = np.arange(place, place + len(sentence.tokens))
        inside = (where >= start) & (where < end)
        place += len(sentence.tokens)
        if not inside.any():
            continue
        for unknown in where[inside & ~sentence.known]:
            axes.axvspan(unknown - 0.5, unknown + 0.5, color="0.9", lw=0, zorder=0, label=UNKNOWN)
        for name, style, colour, fill in DIRECTIONS:
            bits = getattr(sentence, name)[inside]
            look = {"color": colour, "markerfacecolor": fill, "markersize": 3.5, "linewidth": 1.0}
            axes.plot(where[inside], bits, style, label=LABELS[name], **look)
        if start < place < min(end, total):
            axes.axvline(place - 0.5, color=FAINT, linewidth=0.7, linestyle=":")
