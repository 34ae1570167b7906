"""One way to train for all tasks: batches by length, early stopping on the dev score, best kept.

After each epoch, and where a signal stops the run, a checkpoint is written; the same command goes
on from it. Order and dropout of a step are derived from the seed and the step's number, so a run
that was stopped ends with the same weights as one that was not.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from elmokit.errors import ElmokitError
from elmokit.tasks.settings import Settings
from elmokit.tasks.task import Task
from elmokit.training import checkpoint as checkpoints
from elmokit.training.stopping import Stop

GATHERED = 50  # batches whose examples are sorted by length together
SLOWER, AFTER = 0.5, 2  # of the learning rate, after so many epochs without a better dev score
TOO_MANY = 25  # steps in a row without a finite loss that end a run


@dataclass
class Progress:
    """Where a run stands; everything that the next step depends on, besides the weights."""

    epoch: int = 0
    """Epochs that are done."""
    step: int = 0
    """Steps of the epoch that are done."""
    best: float | None = None
    """The best dev score."""
    best_epoch: int = 0
    factor: float = 1.0
    """Of the learning rate."""
    dropped: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    """Of the epoch's steps."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """A line for each epoch: its loss, dev scores and mixes."""

    def ended(self, settings: Settings) -> bool:
        """Whether there is nothing left to do."""
        late = self.epoch - self.best_epoch >= settings.patience
        return self.epoch >= settings.epochs or (self.epoch > 0 and late)

    def count(self, scores: dict[str, float], **facts: Any) -> bool:
        """Note the end of an epoch; whether its dev score is the best."""
        self.epoch, self.step = self.epoch + 1, 0
        loss = round(sum(self.losses) / max(1, len(self.losses)), 5)
        self.losses = []
        self.history.append({"epoch": self.epoch, "loss": loss, "dev": scores, **facts})
        value = next(iter(scores.values()))
        if not self.best or value > self.best:  # 0 is no score yet: patience does not begin with it
            self.best, self.best_epoch = value, self.epoch
            return True
        if (self.epoch - self.best_epoch) % AFTER == 0:
            self.factor *= SLOWER
        return False


def fit(
    task: Task,
    model: Any,
    train: Sequence[Any],
    dev: Sequence[Any],
    settings: Settings,
    folder: Path,
    *,
    stop: Stop,
    keep: Callable[[Progress], None],
    same: dict[str, Any],
    quiet: bool = False,
) -> Progress:
    """Train a model until its dev score rises no more, or a signal stops it.

    Args:
        task: the kind of task.
        model: a new one; it has the weights of the last step at the end, not of the best epoch.
        train: examples to learn from.
        dev: examples to measure by after each epoch.
        settings: complete ones.
        folder: of the checkpoints.
        stop: where a signal is noted.
        keep: called when the dev score is the best so far.
        same: facts that must not change when a run goes on: the data, the biLM.
        quiet: no bars and no sentences.
    """
    optimizer = make_optimizer(model, settings)
    progress = resume(folder, model, optimizer, settings, same)
    started, before = time.perf_counter(), progress.seconds
    if progress.epoch or progress.step:
        _say(f"going on after epoch {progress.epoch}", quiet)
    while not progress.ended(settings) and not stop.signal:
        train_epoch(model, optimizer, train, settings, progress, stop, quiet)
        progress.seconds = before + time.perf_counter() - started
        if not stop.signal:
            scores = task.score(dev, predict(model, dev, settings.batch_size, quiet=quiet))
            is_best = progress.count(scores, mixes=model.inputs.mixes())
            _say(_line(progress, settings), quiet)
            if is_best:
                keep(progress)
        facts = {"progress": asdict(progress), "settings": settings.to_dict(), "same": same}
        number = progress.epoch * 1_000_000 + progress.step
        checkpoints.save(folder, number, facts, model=model, optimizer=optimizer)
    return progress


def train_epoch(
    model: Any,
    optimizer: torch.optim.Optimizer,
    examples: Sequence[Any],
    settings: Settings,
    progress: Progress,
    stop: Stop,
    quiet: bool,
) -> None:
    """The steps of an epoch that are left, until a signal comes."""
    model.train()
    batches = epoch_batches(examples, settings, progress.epoch)
    bar = tqdm(
        total=len(batches),
        initial=progress.step,
        desc=f"epoch {progress.epoch + 1}",
        unit=" batches",
        disable=quiet,
        leave=False,
    )
    with bar:
        for numbers in batches[progress.step :]:
            torch.manual_seed(_seed(settings.seed, progress.epoch, progress.step))
            loss = one_step(model, optimizer, [examples[n] for n in numbers], settings, progress)
            progress.step += 1
            bar.update()
            bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
            if stop.signal:
                return


def one_step(
    model: Any,
    optimizer: torch.optim.Optimizer,
    batch: list[Any],
    settings: Settings,
    progress: Progress,
) -> float:
    """Learn from a batch; a loss or gradient that is not finite never reaches the weights."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial"] * progress.factor
    optimizer.zero_grad()
    loss = model.loss(batch)
    (loss + model.inputs.penalty()).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    value = float(loss.detach())
    if math.isfinite(value) and bool(norm.isfinite()):
        optimizer.step()
        progress.losses.append(round(value, 6))
        progress.dropped = 0
        return value
    progress.dropped += 1
    if progress.dropped >= TOO_MANY:
        raise ElmokitError(
            f"the loss was not finite for {TOO_MANY} steps in a row, in epoch "
            f"{progress.epoch + 1}: try a lower lr than {settings.lr}"
        )
    return value


def predict(
    model: Any, examples: Sequence[Any], batch_size: int, *, quiet: bool = True
) -> list[Any]:
    """What a model says of each example, in their order; texts of similar length run together."""
    model.eval()
    order = sorted(range(len(examples)), key=lambda number: _length(examples[number]))
    found: list[Any] = [None] * len(examples)
    bar = tqdm(total=len(examples), desc="predicting", unit=" texts", disable=quiet, leave=False)
    with bar, torch.inference_mode():
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            for number, value in zip(
                numbers, model.predict([examples[n] for n in numbers]), strict=True
            ):
                found[number] = value
            bar.update(len(numbers))
    return found


def epoch_batches(examples: Sequence[Any], settings: Settings, epoch: int) -> list[list[int]]:
    """Numbers of the examples that go together: shuffled, then sorted by length in stretches."""
    random = np.random.default_rng([settings.seed, epoch])
    order = random.permutation(len(examples)).tolist()
    size = settings.batch_size
    batches: list[list[int]] = []
    for start in range(0, len(order), size * GATHERED):
        near = sorted(
            order[start : start + size * GATHERED], key=lambda number: _length(examples[number])
        )
        batches += [near[first : first + size] for first in range(0, len(near), size)]
    return [batches[number] for number in random.permutation(len(batches))]


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """AdamW; a biLM that is trained along has a learning rate of its own."""
    inside = {id(p) for name, p in model.named_parameters() if name.startswith("inputs.elmo.bilm.")}
    parameters = list(model.parameters())
    fused = all(p.device.type == "cpu" for p in parameters) or None  # one pass
    groups = [
        {"params": [p for p in parameters if id(p) not in inside], "initial": settings.lr},
        {"params": [p for p in parameters if id(p) in inside], "initial": settings.elmo_lr},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        fused=fused,
    )


def resume(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: Settings,
    same: dict[str, Any],
) -> Progress:
    """Where the last checkpoint stands, with its weights in place; a beginning if there is none."""
    found = checkpoints.checkpoints(folder)
    if not found:
        return Progress()
    facts = checkpoints.read_metadata(found[-1])
    change = settings.changed_from(facts["settings"])
    for name, value in json.loads(json.dumps(same)).items():
        if facts["same"].get(name) != value:
            change = f"the {name} changed"
    if change is not None:
        raise ElmokitError(
            f"{folder.parent} has a run that cannot go on: {change}; "
            "give what it was, or another folder"
        )
    checkpoints.restore(found[-1], model=model, optimizer=optimizer)
    return Progress(**facts["progress"])


def _length(example: Any) -> int:
    return max(len(text) for text in example.texts)


def _seed(seed: int, epoch: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, epoch, step]).generate_state(1, np.uint64)[0] >> 1)


def _line(progress: Progress, settings: Settings) -> str:
    """An epoch in one line."""
    last = progress.history[-1]
    scores = ", ".join(f"{name} {value:.4f}" for name, value in last["dev"].items())
    mark = " (best)" if progress.best and progress.best_epoch == progress.epoch else ""
    return f"epoch {progress.epoch}/{settings.epochs}: loss {last['loss']:.4f}, dev {scores}{mark}"


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        tqdm.write(f"elmokit: {text}", file=sys.stderr)
