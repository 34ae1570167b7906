"""What a training run reports: messages, a JSONL log, a progress bar, TensorBoard, curves."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tqdm import tqdm

from elmokit.errors import require
from elmokit.figures import FAINT
from elmokit.io.atomic import write_file
from elmokit.model.bilm import BiLM
from elmokit.progress import counted
from elmokit.training.curves import Curve, Panel, draw_curves
from elmokit.training.optim import count_parameters


class RunLog:
    """Writes `log.jsonl`, a line per report, and shows a progress bar over the tokens of the run.

    A run that is resumed drops the lines of the steps that it repeats.
    """

    def __init__(
        self, folder: Path, *, writes: bool = True, tensorboard: bool = False, quiet: bool = False
    ) -> None:
        """Open nothing yet.

        Args:
            folder: Folder of the log.
            writes: False in all but one of several processes.
            tensorboard: Also write a log for TensorBoard.
            quiet: Print neither progress nor messages.
        """
        self.path = folder / "log.jsonl"
        self.writes, self.tensorboard, self.quiet = writes, tensorboard, quiet
        if tensorboard:
            require("tensorboard", extra="tensorboard", purpose="A log for TensorBoard")
        self.tokens = 0
        self._stream: IO[str] | None = None
        self._bar: Any = None
        self._board: Any = None

    def begin(self, step: int, tokens: int, total: int) -> None:
        """Open the log after `step`, with `tokens` of `total` done."""
        if self.writes:
            kept = [line for line in read_log(self.path) if line["step"] <= step]
            write_file(self.path, (json.dumps(line) + "\n" for line in kept))
            self._stream = self.path.open("a", encoding="utf-8")
            if self.tensorboard:
                from torch.utils.tensorboard import SummaryWriter

                board = str(self.path.parent / "tensorboard")
                self._board = SummaryWriter(board, purge_step=step + 1)
        self._bar = tqdm(
            total=total,
            initial=tokens,
            unit=" tokens",
            unit_scale=True,
            desc="training",
            disable=self.quiet,
            smoothing=0.05,
        )

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
        if self._stream is not None:
            self._stream.close()
        if self._board is not None:
            self._board.close()

    def advance(self, tokens: int, loss: float) -> None:
        """Count the tokens of a step."""
        self.tokens += tokens
        self._bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        self._bar.update(tokens)

    def write(self, **values: Any) -> None:
        """Add a line to the log; `values` must include `step`."""
        if self._stream is None:
            return
        self._stream.write(json.dumps(values) + "\n")
        self._stream.flush()
        if self._board is not None:
            for name, value in scalars(values).items():
                self._board.add_scalar(name, value, values["step"])

    def say(self, text: str) -> None:
        """Print a message above the progress bar."""
        if not self.quiet:
            tqdm.write(f"elmokit: {text}", file=sys.stderr)


def scalars(values: dict[str, Any]) -> dict[str, float]:
    """Return the values of a line under their names in TensorBoard.

    >>> scalars({"step": 20, "loss": 5.5, "heldout": {"forward": 90.0}})
    {'loss': 5.5, 'heldout/forward': 90.0}
    """
    result: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            result |= {f"{name}/{part}": scalar for part, scalar in value.items()}
        elif name != "step":
            result[name] = value
    return result


def describe_run(model: BiLM, softmax: str, *, tokens: int, steps: int, processes: int = 1) -> str:
    """Return the message for the beginning of a run."""
    in_softmax = 0 if model.softmax is None else count_parameters(model.softmax)
    others = count_parameters(model) - in_softmax
    together = f" by {processes} processes" if processes > 1 else ""
    return (
        f"{tokens:,} tokens per epoch, {softmax} softmax over {model.config.vocabulary_size:,} "
        f"words, {others:,} parameters plus {in_softmax:,} of the softmax, "
        f"{counted(steps, 'step')}{together}"
    )


def describe_source(source: dict[str, Any]) -> str:
    """Return the message about a weighted source of the corpus."""
    times = "once" if source["weight"] == 1 else f"{source['weight']:g} times"
    return f"{source['name']}: {counted(source['train_tokens'], 'token')}, read {times} per epoch"


def describe_small_vocabulary(size: int, requested: int, min_count: int) -> str:
    """Return the message for a text with too few words for the requested vocabulary."""
    return (
        f"the vocabulary has {size:,} words, not {requested:,}: no more words occur at least "
        f"{counted(min_count, 'time')} in the text"
    )


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, without a last line that was cut off."""
    if not path.is_file():
        return []
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return [line for line in lines if isinstance(line, dict) and "step" in line]


def draw_training_curves(log: Path, path: Path) -> bool:
    """Draw loss and held-out perplexity over the steps; return False without matplotlib."""
    lines = read_log(log)
    losses = [(line["step"], math.exp(min(line["loss"], 50))) for line in lines if "loss" in line]
    curves = [_curve(losses, "training", color=FAINT)] if losses else []
    evaluations = [line for line in lines if "heldout" in line]
    for direction, style in (("forward", "o-"), ("backward", "s--")):
        heldout = [(line["step"], line["heldout"][direction]) for line in evaluations]
        if heldout:
            curves.append(_curve(heldout, f"held out, {direction}", style=style))
    return draw_curves([Panel("perplexity", curves, x_label="step", y_scale="log")], path)


def _curve(points: list[tuple[int, float]], label: str, **look: str) -> Curve:
    steps, values = zip(*points, strict=True)
    return Curve(steps, values, label, **look)
