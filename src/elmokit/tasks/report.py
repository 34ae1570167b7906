"""What a training run of a task reports at its end: tables, JSON, curves."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from elmokit.errors import plural
from elmokit.figures import COLORS
from elmokit.tasks.fit import Progress
from elmokit.tasks.folder import TrainedTask
from elmokit.tasks.metrics import wilson
from elmokit.tasks.splits import Data
from elmokit.training import curves
from elmokit.training.curves import Curve, Panel
from elmokit.training.optim import count_parameters

MIN_EXAMPLES = 30  # for a score that tells something
STYLES = ("-", "--")  # of the mixes at the input and at the output


def make_report(
    trained: TrainedTask, data: Data, progress: Progress, fingerprints: dict[str, Any]
) -> dict[str, Any]:
    """Return all results of a run; scores and mixes are those of the best epoch."""
    best = progress.history[progress.best_epoch - 1] if progress.best_epoch else {}
    return {
        "task": trained.task.name,
        "complete": progress.ended(trained.settings),
        "elmo": trained.elmo_name,
        "elmo_fingerprint": trained.elmo_fingerprint,
        "vectors": None if trained.vectors is None else trained.vectors.source,
        "train_examples": len(data.train),
        "dev_examples": len(data.dev),
        "weights": count_parameters(trained.model),
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "seconds": round(progress.seconds, 1),
        "dev": best.get("dev", {}),
        "note": few_examples(best.get("dev", {}), len(data.dev)),
        "mixes": best.get("mixes", {}),
        "settings": asdict(trained.settings),
        "fingerprints": fingerprints,
        "history": progress.history,
    }


def few_examples(scores: dict[str, float], count: int) -> str:
    """Return a sentence about scores that were measured on few examples; "" if they were not."""
    if not scores or count >= MIN_EXAMPLES:
        return ""
    name, value = next(iter(scores.items()))
    low, high = wilson(value, count)
    return (
        f"{name} {100 * value:.2f} was measured on only {plural(count, 'example')}: its 95% "
        f"confidence interval is about {100 * low:.0f} to {100 * high:.0f}"
    )


def scores_table(scores: dict[str, float]) -> str:
    """Format each score on a line, in percent."""
    width = max(map(len, scores), default=0)
    return "\n".join(f"{name:<{width}}  {100 * value:6.2f}" for name, value in scores.items())


def mixes_table(mixes: dict[str, dict[str, Any]]) -> str:
    """Format the weight of each layer in each mix, and the scale of the mix."""
    if not mixes:
        return ""
    num_layers = len(next(iter(mixes.values()))["weights"])
    head = "".join(f"  layer {layer}" for layer in range(num_layers))
    lines = [f"{'mix':<8}{head}    scale"]
    for name, mix in mixes.items():
        weights = "".join(f"  {weight:7.3f}" for weight in mix["weights"])
        lines.append(f"{name:<8}{weights}  {mix['scale']:7.3f}")
    return "\n".join(lines) + "\n"


def draw_curves(report: dict[str, Any], path: Path) -> bool:
    """Draw loss, dev score and layer weights over the epochs, if matplotlib is installed."""
    history = report["history"]
    if not history:
        return False
    epochs = [line["epoch"] for line in history]
    name = next(iter(history[0]["dev"]))
    panels = [
        Panel("training loss", [Curve(epochs, [line["loss"] for line in history], style="o-")]),
        Panel(
            f"dev {name}, percent",
            [Curve(epochs, [100 * line["dev"][name] for line in history], style="o-")],
            best=report["best_epoch"] or None,
        ),
    ]
    if report["mixes"]:
        mixes = [
            Curve(epochs, values, f"{placement}, layer {layer}", style, COLORS[layer % len(COLORS)])
            for placement, style in zip(report["mixes"], STYLES, strict=False)
            for layer, values in enumerate(
                zip(*(line["mixes"][placement]["weights"] for line in history), strict=True)
            )
        ]
        panels.append(Panel("weight in the mix", mixes, y_limits=(0, 1)))
    return curves.draw_curves(panels, path)
