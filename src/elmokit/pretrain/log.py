"""What a training run reports: messages, a JSONL log, a progress bar, TensorBoard, curves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tqdm.auto import tqdm

from elmokit.errors import require
from elmokit.figures import FAINT
from elmokit.io.atomic import write_file
from elmokit.progress import logger
from elmokit.training.curves import Curve, Panel, draw_curves


class RunLog:
    """Writes `log.jsonl`, a line per report, and shows a progress bar over the tokens."""

    def __init__(self, folder: Path, *, writes: bool, tensorboard: bool, quiet: bool) -> None:
        """Open nothing yet; only one of several processes `writes`."""
        self.path = folder / "log.jsonl"
        self.writes, self.tensorboard, self.quiet = writes, tensorboard, quiet
        if tensorboard:
            require("tensorboard", extra="tensorboard", purpose="A log for TensorBoard")
        self.tokens = 0
        self._stream: IO[str] | None = None
        self._bar: Any = None
        self._board: Any = None

    @contextmanager
    def opened(self, step: int, tokens: int, total: int) -> Iterator[None]:
        """Keep the log open, from `step` on, with `tokens` of `total` done."""
        with ExitStack() as stack:
            if self.writes:
                lines = read_log(self.path) if step else []  # Step 0 is evaluated again.
                kept = [line for line in lines if line["step"] <= step]  # Others are repeated.
                write_file(self.path, (json.dumps(line) + "\n" for line in kept))
                self._stream = stack.enter_context(self.path.open("a", encoding="utf-8"))
            if self.writes and self.tensorboard:
                from torch.utils.tensorboard import SummaryWriter

                folder = str(self.path.parent / "tensorboard")
                self._board = stack.enter_context(SummaryWriter(folder, purge_step=step + 1))
            look: Any = {"unit": " tokens", "unit_scale": True, "desc": "training"}
            bar = tqdm(total=total, initial=tokens, disable=self.quiet, smoothing=0.05, **look)
            self._bar = stack.enter_context(bar)
            yield

    def advance(self, tokens: int, loss: float) -> None:
        self.tokens += tokens
        self._bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        self._bar.update(tokens)

    def show_evaluation(self, total: int) -> Callable[[int], None]:
        """Return a function that shows how much of the held-out text was read, of `total`."""
        tokens = 0

        def advance(more: int) -> None:
            nonlocal tokens
            tokens += more
            self._bar.set_postfix_str(f"held-out text {tokens / total:.0%}")

        return advance

    def write(self, **values: Any) -> None:
        """Add a line to the log; `values` must include `step`."""
        if self._stream is None:
            return
        self._stream.write(json.dumps(values) + "\n")
        self._stream.flush()
        for name, value in values.items() if self._board is not None else ():
            parts = value.items() if isinstance(value, dict) else ()
            scalars = {f"{name}/{part}": scalar for part, scalar in parts} or {name: value}
            for tag, scalar in scalars.items() if name != "step" else ():
                self._board.add_scalar(tag, scalar, values["step"])

    def say(self, text: str) -> None:
        if not self.quiet:
            logger.info(text)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, without a last line that was cut off."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return [line for line in lines if isinstance(line, dict) and "step" in line]


def draw_training_curves(log: Path, path: Path) -> bool:
    """Draw loss and held-out perplexity over the steps; return False without matplotlib."""
    lines, curves = read_log(log), []
    if losses := {line["step"]: line["loss"] for line in lines if "loss" in line}:
        training = [math.exp(min(loss, 50)) for loss in losses.values()]
        curves.append(Curve([*losses], training, "training", color=FAINT))
    heldout = {line["step"]: line["heldout"] for line in lines if "heldout" in line}
    for direction, style in (("forward", "o-"), ("backward", "s--")) if heldout else ():
        values = [measured[direction] for measured in heldout.values()]
        curves.append(Curve([*heldout], values, f"held out, {direction}", style))
    return draw_curves([Panel("perplexity", curves, x_label="step", y_scale="log")], path)
