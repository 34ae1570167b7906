"""Which shape makes the best model of a budget? Sizes are trained on several budgets of tokens.

    python benchmarks/shapes.py --text text --folder shapes [--million-tokens 0.15 0.45 1.2]

Every run follows configs/english.yaml, with a shape, a learning rate and a batch size of its own,
and its learning rate decays fully at the end. Its text is a sample of the recipe's: every 18th
block of 100 lines of each source, as often as the recipe reads the source. Each size first tries
three learning rates and half the batch with the smallest budget, then takes the best for the
others. All have the same text and vocabulary and are compared by their loss on other blocks of the
same sources. In the end the speed of each size is measured, twice in turns, with all threads.

The curve E + A / N^a + B / D^b, of N weights of the LSTMs of one direction and D tokens, is fitted
to the logarithms of the losses. With the speed of each size it predicts the perplexity after a
number of hours; that is worth little if these are many times the budgets. The same command resumes
a study that was stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from parsers import described_parser
from ptb import run_elmokit
from scipy.optimize import least_squares
from speed import machine

from elmokit.figures import COLORS, FAINT, MARKERS, WIDTH, new_figure, styled, write_figure
from elmokit.formats import native
from elmokit.io.lines import read_lines
from elmokit.pretrain.corpus import prepare

HERE = Path(__file__).parent
RECIPE = HERE.parent / "configs" / "english.yaml"
SIZES = (256, 64), (512, 128), (768, 192), (1024, 256)  # cells and projection of a layer
RATES = 0.001, 0.002, 0.004
HOURS = 1, 3, 6, 12, 24
UNROLL = 20
SPEED_STEPS = 40  # of a batch of 128
SPEED_LINES = 50  # of held-out text, as a run ends with predicting it
BLOCK_LINES = 100
BLOCKS_APART = 18  # Of so many blocks of a source, the first is read.
HELDOUT_APART = 100 * BLOCKS_APART


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", required=True, help="the folder with the texts of the recipe")
    parser.add_argument("--folder", required=True, help="where the models are trained")
    parser.add_argument("--million-tokens", nargs="+", type=float, default=[0.15, 0.45, 1.2])
    parser.add_argument("--threads", type=int, help="of the runs whose loss counts")
    parser.add_argument("--no-speed", action="store_true", help="train only, and write no result")
    parser.add_argument("--trained", action="store_true", help="take the runs that are complete")
    parser.add_argument("--out", default=str(HERE / "results" / "shapes.json"))
    arguments = parser.parse_args()
    folder, budgets = Path(arguments.folder), sorted(arguments.million_tokens)
    folder.mkdir(parents=True, exist_ok=True)
    arguments.corpus, arguments.valid = sample(Path(arguments.text), folder)
    prepare(arguments.corpus, folder / "corpus", valid=arguments.valid)
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        batch = yaml.safe_load(RECIPE.read_text())["batch_size"]
        trials = [train(arguments, size, budgets[0], rate, batch) for rate in RATES]
        rate = min(trials, key=loss)["learning_rate"]
        trials.append(train(arguments, size, budgets[0], rate, batch // 2))
        batch = min(trials, key=loss)["batch"]
        rows += trials
        rows += [train(arguments, size, budget, rate, batch) for budget in budgets[1:]]
    rows = [row for row in rows if row["perplexity"]]
    best = [
        min((row for row in rows if (row["cells"], row["tokens"]) == key), key=loss)
        for key in dict.fromkeys((row["cells"], row["tokens"]) for row in rows)
    ]
    if arguments.no_speed:
        return
    curve = fit(best)
    speeds = measure_speeds(arguments, {row["cells"]: row for row in best})
    result = {
        "machine": machine(),
        "rows": rows,
        "curve": curve,
        "tokens_per_s": speeds,
        "hours": [choose(curve, best, speeds, hours) for hours in HOURS],
    }
    out = Path(arguments.out)
    out.write_text(json.dumps(result, indent=1) + "\n")
    write_figure(draw(result, best), str(out.with_suffix(".png")))
    print(json.dumps({"curve": curve, "tokens_per_s": speeds}, indent=1))


def sample(text: Path, folder: Path) -> tuple[list[str], str]:
    """Write blocks of each source of the recipe; return the training files and the held-out one."""
    train_files, heldout_file = [], folder / "heldout.txt"
    if heldout_file.exists():
        return sorted(map(str, (folder / "text").iterdir())), str(heldout_file)
    (folder / "text").mkdir(exist_ok=True)
    heldout: list[str] = []
    for source in yaml.safe_load(RECIPE.read_text())["corpus"]:
        ((pattern, weight),) = source.items()
        path = text / Path(pattern).name
        chosen: list[str] = []
        lines = (piece.text for piece in read_lines(path))
        for index in itertools.count():
            block = list(itertools.islice(lines, BLOCK_LINES))
            if not block:
                break
            number, rest = divmod(index, BLOCKS_APART)
            if rest == 0:
                chosen += block * (int((number + 1) * weight) - int(number * weight))
            if index % HELDOUT_APART == BLOCKS_APART // 2:
                heldout += block
        out = folder / "text" / path.name.removesuffix(".xz")
        out.write_text("".join(f"{line}\n" for line in chosen))
        train_files.append(str(out))
    heldout_file.write_text("".join(f"{line}\n" for line in heldout))
    return sorted(train_files), str(heldout_file)


def train(
    arguments: argparse.Namespace, size: tuple[int, int], million: float, rate: float, batch: int
) -> dict[str, Any]:
    """Train one model, or resume it, and return what came out."""
    cells, projection = size
    out = Path(arguments.folder) / f"{cells}-{million:g}M-{rate:g}-{batch}"
    steps = round(million * 1e6 / batch / UNROLL)
    if not arguments.trained:
        pretrain(arguments, "corpus", out, size, rate, batch, steps, arguments.threads)
    elif not (out / "model.safetensors").exists():
        return {"perplexity": None, "learning_rate": rate, "batch": batch}
    checkpoint = native.read(out)
    return {
        "cells": cells,
        "projection": projection,
        "lstm_weights": 2 * (4 * cells * (2 * projection + 1) + cells * projection),
        "mb_as_float16": round(sum(t.size for t in checkpoint.tensors.values()) * 2 / 1e6, 1),
        "tokens": round(million * 1e6),
        "learning_rate": rate,
        "batch": batch,
        "perplexity": checkpoint.metadata["training"]["heldout_perplexity"],
    }


def measure_speeds(
    arguments: argparse.Namespace, best: dict[int, dict[str, Any]]
) -> dict[int, float]:
    """Return the tokens per second of each size at its best rate and batch, with all threads."""
    speeds: dict[int, list[float]] = {}
    folder = Path(arguments.folder)
    short = folder / "short.txt"
    lines = Path(arguments.valid).read_text().splitlines(keepends=True)
    short.write_text("".join(lines[:SPEED_LINES]))
    prepare(arguments.corpus, folder / "corpus-speed", valid=str(short))
    arguments.valid = str(short)
    for _ in range(2):
        for size in SIZES:
            row = best[size[0]]
            rate, batch = row["learning_rate"], row["batch"]
            with tempfile.TemporaryDirectory(dir=folder) as name:
                out = Path(name) / "run"
                steps = SPEED_STEPS * 128 // batch
                pretrain(arguments, "corpus-speed", out, size, rate, batch, steps, None)
                log = [json.loads(line) for line in (out / "log.jsonl").open()]
            rates = [entry["tokens_per_second"] for entry in log if "tokens_per_second" in entry]
            speeds.setdefault(size[0], []).append(rates[-1])
    return {cells: round(float(np.median(rates))) for cells, rates in speeds.items()}


def pretrain(
    arguments: argparse.Namespace,
    corpus: str,
    out: Path,
    size: tuple[int, int],
    rate: float,
    batch: int,
    steps: int,
    threads: int | None,
) -> None:
    """Train a model with the recipe, on the text that all runs share, or resume it."""
    recipe = yaml.safe_load(RECIPE.read_text())
    folder = Path(arguments.folder)
    if not out.exists():
        making = folder / "making"
        shutil.rmtree(making, ignore_errors=True)
        shutil.copytree(folder / corpus, making / "training" / "corpus", copy_function=os.link)
        (making / "elmokit-run.json").write_text(json.dumps({"command": "pretrain"}))
        making.rename(out)
    run_elmokit(
        "pretrain",
        config=str(write_recipe(recipe, folder)),
        corpus=arguments.corpus,
        valid=arguments.valid,
        out=str(out),
        model={**recipe["model"], "lstm_dim": size[0], "projection_dim": size[1]},
        lr=rate,
        batch_size=batch,
        max_steps=steps,
        schedule="trapezoid",
        decay_steps=max(1, steps // 4),
        warmup=steps // 10,
        threads=threads,
        eval_every=1_000_000,
    )


def write_recipe(recipe: dict[str, Any], folder: Path) -> Path:
    """Write the recipe without its own text, which the options replace."""
    path = folder / "recipe.yaml"
    kept = {k: v for k, v in recipe.items() if k not in ("corpus", "valid_fraction")}
    path.write_text(yaml.safe_dump(kept))
    return path


def loss(row: dict[str, Any]) -> float:
    """Return the held-out loss of a run, in nats per token; that of no run is infinite."""
    return math.log(row["perplexity"]["average"]) if row["perplexity"] else math.inf


def fit(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Fit the curve to the losses: E, A, a, B, b, and the largest error in nats."""
    weights = np.array([row["lstm_weights"] / 1e6 for row in rows])
    tokens = np.array([row["tokens"] / 1e6 for row in rows])
    losses = np.array([loss(row) for row in rows])

    def errors(values: np.ndarray) -> np.ndarray:
        floor, a_scale, a, b_scale, b = np.exp(values)
        return np.asarray(
            np.log(floor + a_scale / weights**a + b_scale / tokens**b) - np.log(losses)
        )

    starts = [np.log([floor, 0.3, 0.3, 2.0, b]) for floor in (2.0, 3.0) for b in (0.1, 0.3)]
    fits = [least_squares(errors, start, loss="huber", f_scale=0.01) for start in starts]
    best = min(fits, key=lambda result: result.cost)
    floor, a_scale, a, b_scale, b = np.exp(best.x)
    worst = float(np.abs(np.exp(errors(best.x)) * losses - losses).max())
    return {"E": floor, "A": a_scale, "a": a, "B": b_scale, "b": b, "largest_error": worst}


def predict(curve: dict[str, float], weights: float, tokens: float) -> float:
    """Return the loss that the curve gives for a model and a number of tokens."""
    of_size = curve["A"] / (weights / 1e6) ** curve["a"]
    of_tokens = curve["B"] / (tokens / 1e6) ** curve["b"]
    return curve["E"] + float(of_size + of_tokens)


def choose(
    curve: dict[str, float], rows: Sequence[dict[str, Any]], speeds: dict[int, float], hours: int
) -> dict[str, Any]:
    """Predict the perplexity of each size after so many hours on this machine."""
    weights = {row["cells"]: row["lstm_weights"] for row in rows}
    predicted = {}
    for cells, speed in speeds.items():
        tokens = hours * 3600 * speed
        predicted[str(cells)] = {
            "million_tokens": round(tokens / 1e6, 1),
            "perplexity": round(math.exp(predict(curve, weights[cells], tokens)), 1),
        }
    return {"hours": hours, "sizes": predicted}


@styled()
def draw(result: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Any:
    """Draw the perplexity of each size over the tokens, with the fitted curve."""
    figure = new_figure(WIDTH, 3.2)
    axes = figure.subplots()
    budgets = [row["tokens"] for row in rows]
    grid = np.geomspace(min(budgets), max(budgets), 60)
    for (cells, projection), color, marker in zip(SIZES, COLORS, MARKERS, strict=False):
        own = [row for row in rows if row["cells"] == cells]
        if not own:
            continue
        lines = [math.exp(predict(result["curve"], own[0]["lstm_weights"], d)) for d in grid]
        axes.plot(grid / 1e6, lines, color=color, linewidth=1)
        axes.plot(
            [row["tokens"] / 1e6 for row in own],
            [row["perplexity"]["average"] for row in own],
            marker,
            color=color,
            label=f"2 x {cells} / {projection}",
        )
    axes.set(xscale="log", yscale="log", xlabel="million tokens", ylabel="held-out perplexity")
    axes.minorticks_off()
    axes.set_xticks(sorted({tokens / 1e6 for tokens in budgets}))
    axes.set_yticks([200, 250, 300, 400, 500, 600, 700])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(True, which="both", color=FAINT, alpha=0.3, linewidth=0.4)
    axes.legend()
    return figure


if __name__ == "__main__":
    main()
