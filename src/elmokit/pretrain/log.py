"""What a training run tells: a JSONL log, a progress bar, TensorBoard if there is one, curves."""

from __future__ import annotations

import json
import math
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tqdm import tqdm

from elmokit.errors import require
from elmokit.io.atomic import write_file
from elmokit.model.bilm import BiLM


class RunLog:
    """Writes `log.jsonl` (a line a report) and shows a bar over the run's tokens.

    A run that goes on drops the lines of the steps that it does again.
    """

    def __init__(
        self, folder: Path, *, writes: bool = True, tensorboard: bool = False, quiet: bool = False
    ) -> None:
        """Only one of several processes writes."""
        self.path = folder / "log.jsonl"
        self.writes, self.tensorboard, self.quiet = writes, tensorboard, quiet
        if tensorboard:
            require("tensorboard", extra="tensorboard", purpose="A log for TensorBoard")
        self.tokens = 0
        self._stream: IO[str] | None = None
        self._bar: Any = None
        self._board: Any = None

    def begin(self, step: int, tokens: int, total: int) -> None:
        """Start after `step`, with `tokens` of `total` done."""
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
        """A step was done."""
        self.tokens += tokens
        self._bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        self._bar.update(tokens)

    def write(self, **values: Any) -> None:
        """Add a line to the log; it has a step."""
        if self._stream is None:
            return
        self._stream.write(json.dumps(values) + "\n")
        self._stream.flush()
        if self._board is not None:
            for name, number in scalars(values).items():
                self._board.add_scalar(name, number, values["step"])

    def say(self, text: str) -> None:
        """A sentence for the user, above the bar."""
        if not self.quiet:
            tqdm.write(f"elmokit: {text}", file=sys.stderr)


def scalars(values: dict[str, Any]) -> dict[str, float]:
    """The numbers of a line under the names that they have in TensorBoard.

    >>> scalars({"step": 20, "loss": 5.5, "heldout": {"forward": 90.0}})
    {'loss': 5.5, 'heldout/forward': 90.0}
    """
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= {f"{name}/{part}": number for part, number in value.items()}
        elif name != "step":
            found[name] = value
    return found


def what_is_trained(
    model: BiLM, softmax: str, *, tokens: int, steps: int, processes: int = 1
) -> str:
    """A sentence for the beginning of a run."""
    inside = 0 if model.softmax is None else sum(p.numel() for p in model.softmax.parameters())
    others = sum(p.numel() for p in model.parameters()) - inside
    together = f" by {processes} processes" if processes > 1 else ""
    return (
        f"{tokens:,} tokens an epoch, {model.config.vocabulary_size:,} words to predict by the "
        f"{softmax} softmax, {others:,} parameters and {inside:,} of the softmax, {steps:,} steps"
        f"{together}"
    )


def fewer_words(words: int, wanted: int, min_count: int) -> str:
    """A sentence for a text that has too few words for the vocabulary that was asked for."""
    return (
        f"only {words:,} words will be predicted, not {wanted:,}: the text has no more that stand "
        f"in it {min_count} times or oftener"
    )


def how_it_ended(
    folder: Path, *, step: int, total: int, stopped_by: int, best: float, before: float | None
) -> str:
    """A sentence for the end of a run, by a signal or not, with its held-out perplexities."""
    if stopped_by:
        name = signal.Signals(stopped_by).name
        return f"stopped by {name} after step {step:,}; the same command goes on from there"
    if step < total:
        return f"the time is up after step {step:,}; the same command goes on"
    figures = "" if math.isinf(best) else f", held-out perplexity {best:.2f}"
    if before is not None:
        figures += f" where it was {before:.2f} before ({best / before - 1:+.1%})"
    return f"{folder} is trained: {step:,} steps{figures}"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a last line that was cut off does not count."""
    if not path.is_file():
        return []
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return [line for line in lines if isinstance(line, dict) and "step" in line]


def draw_curves(log: Path, picture: Path) -> bool:
    """Loss and held-out perplexity over the steps as a PNG, if matplotlib is there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    lines = read_log(log)
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    heldout = [(line["step"], line["heldout"]) for line in lines if "heldout" in line]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel("step")
    axes.set_ylabel("perplexity")
    axes.set_yscale("log")
    if losses:
        steps, values = zip(*losses, strict=True)
        axes.plot(steps, [math.exp(min(v, 50)) for v in values], label="training", lw=0.8)
    for way in ("forward", "backward"):
        if heldout:
            steps, values = zip(*heldout, strict=True)
            axes.plot(steps, [v[way] for v in values], "o-", ms=3, label=f"held out, {way}")
    if losses or heldout:
        axes.legend()
    figure.savefig(picture, dpi=120)
    return True
