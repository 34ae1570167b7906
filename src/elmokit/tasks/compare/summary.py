"""The results of a comparison, results.json: means and spreads over the seeds, and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from elmokit.errors import plural
from elmokit.tasks.compare.conditions import WITH, WITHOUT, Rows, Run, Tables
from elmokit.tasks.report import MIN_EXAMPLES

TITLES = {"layers": "Layers", "placement": "Placement", "elmo": "ELMo"}
Result = dict[str, Any]  # a part of results.json


def describe_run(run: Run, report: Result, command: str) -> Result:
    """Return a single run as results.json has it."""
    kept = ("train_examples", "dev_examples", "weights", "epochs", "best_epoch", "seconds")
    return {
        "name": run.name,
        "condition": run.condition.name,
        "seed": run.seed,
        "percent": run.percent,
        "with_elmo": run.condition.with_elmo,
        "folder": f"runs/{run.name}",
        "command": command,
        **{name: report[name] for name in kept},
        "scores": report["dev"],
        "mixes": report["mixes"],
        "settings": report["settings"],
    }


def summarize(tables: Tables, curve: Rows, percents: list[float], runs: list[Result]) -> Result:
    """Return means and spreads of all tables, of the curve, and of the layer weights."""
    return {
        "tables": {name: table_of(rows, runs) for name, rows in tables.items()},
        "sample_efficiency": [curve_point(curve, percent, runs) for percent in percents],
        "weights": weights_of(tables, curve, runs),
    }


def table_of(rows: Rows, runs: list[Result]) -> list[Result]:
    """Return a line for each row, with its gain over the first."""
    lines: list[Result] = []
    for label, condition in rows.items():
        own = _runs_of(runs, condition.name, 100)
        line = {"label": label, "condition": condition.name, **statistics_of(own)}
        lines.append({**line, **gain(lines[0] if lines else line, line)})
    return lines


def statistics_of(runs: list[Result]) -> Result:
    """Return mean and spread of each score over runs that differ in the seed."""
    names = list(runs[0]["scores"]) if runs else []
    scores = {name: spread([run["scores"][name] for run in runs]) for name in names}
    return {"n": len(runs), "seeds": [run["seed"] for run in runs], "scores": scores}


def spread(values: Sequence[float]) -> Result:
    """Return the mean, the standard deviation (of a sample: n - 1), and the values."""
    deviation = stdev(values) if len(values) > 1 else None
    return {"mean": fmean(values), "spread": deviation, "values": list(values)}


def gain(base: Result, line: Result) -> Result:
    """Return how much better the first score is than the base's, and the share of fewer errors."""
    if base is line or not base["n"] or not line["n"]:
        return {"gain": None, "fewer_errors": None}
    name = next(iter(line["scores"]))
    before, now = (each["scores"][name]["mean"] for each in (base, line))
    fewer_errors = (now - before) / (1 - before) if before < 1 else None
    return {"gain": now - before, "fewer_errors": fewer_errors}


def curve_point(curve: Rows, percent: float, runs: list[Result]) -> Result:
    """Return the scores with and without ELMo on a percentage of the training data."""
    groups = {label: _runs_of(runs, condition.name, percent) for label, condition in curve.items()}
    examples = [run["train_examples"] for group in groups.values() for run in group]
    return {
        "percent": percent,
        "examples": examples[0] if examples else None,
        "rows": {label: statistics_of(group) for label, group in groups.items()},
    }


def weights_of(tables: Tables, curve: Rows, runs: list[Result]) -> list[Result]:
    """Return the layer weights of each condition with ELMo."""
    conditions = {c.name: c for rows in [*tables.values(), curve] for c in rows.values()}
    lines = []
    for name, condition in conditions.items():
        own = _runs_of(runs, name, 100)
        for placement in own[0]["mixes"] if condition.with_elmo and own else ():
            mixes = [run["mixes"][placement] for run in own]
            layers = zip(*(mix["weights"] for mix in mixes), strict=True)
            lines.append(
                {
                    "condition": name,
                    "placement": condition.settings.placement,
                    "layers": condition.settings.layers,
                    "l2": condition.settings.l2,
                    "mix": placement,
                    "n": len(own),
                    "weights": [spread(values) for values in layers],
                    "scale": spread([mix["scale"] for mix in mixes]),
                }
            )
    return lines


def _runs_of(runs: list[Result], condition: str, percent: float) -> list[Result]:
    return [run for run in runs if (run["condition"], run["percent"]) == (condition, percent)]


# ---------------------------------------------------------------------- tables
def as_markdown(results: Result) -> str:
    """Return all tables of a comparison as Markdown."""
    seeds = ", ".join(map(str, results["seeds"]))
    parts = [
        f"# {results['task']}: ELMo compared\n",
        f"Dev scores in percent, mean ± standard deviation over n runs (seeds {seeds}), each at "
        f"its best epoch by {results['metric']}. ELMo: {results['elmo']}; static vectors: "
        f"{results['vectors'] or 'none'}. λ is the l2 penalty that pulls a mix to the average.\n",
    ]
    if not results["complete"]:
        parts.append(f"Not complete: {len(results['runs'])} of {results['planned']} runs.\n")
    if results["dev_examples"] < MIN_EXAMPLES:
        few = plural(results["dev_examples"], "dev example")
        parts.append(f"Measured on only {few}: differences of a few points mean nothing.\n")
    for name, lines in results["tables"].items():
        parts += [f"## {TITLES[name]}\n", rows_table(lines)]
    if results["sample_efficiency"]:
        parts += ["## Sample efficiency\n", curve_table(results["sample_efficiency"])]
    if results["weights"]:
        parts += ["## Weights of the layers\n", weights_table(results["weights"])]
    return "\n".join(parts)


def rows_table(lines: list[Result]) -> str:
    """Format a row for each condition, a column for each score."""
    names = next((list(line["scores"]) for line in lines if line["n"]), [])
    cells = [
        [
            line["label"],
            str(line["n"]),
            *(percentage(line["scores"].get(name)) for name in names),
            "" if line["gain"] is None else f"{100 * line['gain']:+.2f}",
            "" if line["fewer_errors"] is None else f"{100 * line['fewer_errors']:.0f} %",
        ]
        for line in lines
    ]
    return table(["", "n", *names, "gain", "fewer errors"], cells)


def curve_table(points: list[Result]) -> str:
    """Format a row for each size of the training data, with the task's first score."""
    cells = []
    for point in points:
        rows = [point["rows"][label] for label in (WITHOUT, WITH)]
        first = [next(iter(row["scores"].values()), None) for row in rows]
        size = "" if point["examples"] is None else f"{point['examples']:,}"
        runs = str(min(row["n"] for row in rows))
        cells.append([f"{point['percent']:g} %", size, runs, *map(percentage, first)])
    return table(["training data", "examples", "n", WITHOUT, WITH], cells)


def weights_table(lines: list[Result]) -> str:
    """Format a row for each mix: the weight of each layer, and the scale."""
    layers = max(len(line["weights"]) for line in lines)
    cells = [
        [
            line["condition"],
            line["mix"],
            str(line["n"]),
            *(percentage(value, 1, ".3f") for value in [*line["weights"], line["scale"]]),
        ]
        for line in lines
    ]
    return table(["", "mix", "n", *(f"layer {n}" for n in range(layers)), "scale"], cells)


def percentage(value: Result | None, factor: float = 100, form: str = ".2f") -> str:
    """Format a mean, multiplied by a factor, with its spread."""
    numbers = [value["mean"], value["spread"]] if value else []
    return " ± ".join(f"{factor * x:{form}}" for x in numbers if x is not None)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table that is aligned as plain text; the first column has words."""
    widths = [max(3, *map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return f"| {' | '.join(padded)} |\n"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "".join(map(line, [head, rule, *rows]))
