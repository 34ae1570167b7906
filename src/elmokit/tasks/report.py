"""What a training run of a task tells at its end: tables, a JSON report, a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit.tasks.fit import Progress
    from elmokit.tasks.folder import TrainedTask
    from elmokit.tasks.splits import Data


def make_report(
    trained: TrainedTask, data: Data, progress: Progress, same: dict[str, Any]
) -> dict[str, Any]:
    """Everything worth knowing of a run; scores and mixes are those of the best epoch."""
    best = progress.history[progress.best_epoch - 1] if progress.best_epoch else {}
    return {
        "task": trained.task.name,
        "complete": progress.ended(trained.settings),
        "elmo": trained.elmo_name,
        "elmo_fingerprint": trained.elmo_fingerprint,
        "vectors": None if trained.vectors is None else trained.vectors.source,
        "train_examples": len(data.train),
        "dev_examples": len(data.dev),
        "weights": sum(p.numel() for p in trained.model.parameters() if p.requires_grad),
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "seconds": round(progress.seconds, 1),
        "dev": best.get("dev", {}),
        "mixes": best.get("mixes", {}),
        "settings": trained.settings.to_dict(),
        "same": same,
        "history": progress.history,
    }


def scores_table(scores: dict[str, float]) -> str:
    """One line for each score, in per cent."""
    width = max(map(len, scores), default=0)
    return "\n".join(f"{name:<{width}}  {100 * value:6.2f}" for name, value in scores.items())


def mixes_table(mixes: dict[str, dict[str, Any]]) -> str:
    """The share of each layer in each mix, with its scale."""
    if not mixes:
        return ""
    layers = len(next(iter(mixes.values()))["weights"])
    head = "".join(f"  layer {number}" for number in range(layers))
    lines = [f"{'mix':<8}{head}    scale"]
    for name, mix in mixes.items():
        weights = "".join(f"  {weight:7.3f}" for weight in mix["weights"])
        lines.append(f"{name:<8}{weights}  {mix['scale']:7.3f}")
    return "\n".join(lines) + "\n"


def draw_curves(report: dict[str, Any], picture: Path) -> bool:
    """Loss, dev score and layer weights over the epochs as a PNG, if matplotlib is there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    history = report["history"]
    if not history:
        return False
    epochs = [line["epoch"] for line in history]
    name = next(iter(history[0]["dev"]))
    panels = 3 if report["mixes"] else 2
    figure = Figure(figsize=(4.2 * panels, 3.4), layout="constrained")
    loss, score, *rest = figure.subplots(1, panels)
    loss.plot(epochs, [line["loss"] for line in history], "o-", ms=3)
    loss.set(xlabel="epoch", ylabel="training loss")
    score.plot(epochs, [100 * line["dev"][name] for line in history], "o-", ms=3, color="C1")
    score.axvline(report["best_epoch"], lw=0.8, ls=":", color="0.5")
    score.set(xlabel="epoch", ylabel=f"dev {name}")
    for axes in rest:
        for place, style in zip(report["mixes"], ("-", "--"), strict=False):
            weights = [line["mixes"][place]["weights"] for line in history]
            for layer, values in enumerate(zip(*weights, strict=True)):
                axes.plot(epochs, values, style, color=f"C{layer}", label=f"{place}, layer {layer}")
        axes.set(xlabel="epoch", ylabel="share in the mix", ylim=(0, 1))
        axes.legend(fontsize="small")
    figure.savefig(picture, dpi=120)
    return True
