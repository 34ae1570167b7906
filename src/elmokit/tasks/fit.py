"""The training loop of all tasks: batches by length, early stopping on the dev score, best kept.

The order and the dropout of a step are derived from the seed and the index of the step, so a run
that was stopped and resumed ends with the same weights as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from elmokit.errors import ElmokitError
from elmokit.progress import logger
from elmokit.tasks.folder import TrainedTask, longest_text, mean_loss
from elmokit.tasks.settings import MAY_CHANGE, TrainSettings
from elmokit.tasks.splits import Data
from elmokit.training import checkpoint, optim
from elmokit.training.settings import find_change
from elmokit.training.stopping import Stop

SORTED_BATCHES = 50  # batches whose examples are sorted by length together
LR_FACTOR, LR_PATIENCE = 0.5, 2  # of the learning rate, after epochs without a better dev score
MAX_DROPPED = 25  # steps in a row without a finite loss that end a run
Fingerprints = dict[str, str | None]  # of the data, the biLM and the static vectors


@dataclass
class Progress:
    """The position of a run: everything that the next step depends on, besides the weights."""

    epoch: int = 0  # epochs that are done
    step: int = 0  # steps of the current epoch that are done
    best: float | None = None  # the best dev score
    best_loss: float | None = None  # its dev loss, which decides between equal scores
    best_epoch: int = 0
    factor: float = 1.0  # of the learning rate
    dropped: int = 0  # steps in a row without a finite loss
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)  # of the steps of the current epoch
    history: list[dict[str, Any]] = field(default_factory=list)  # loss, scores, mixes by epoch

    def ended(self, settings: TrainSettings) -> bool:
        late = self.epoch - self.best_epoch >= settings.patience
        return self.epoch >= settings.epochs or (self.epoch > 0 and late)

    def end_epoch(
        self, scores: dict[str, float], dev_loss: float = math.nan, **values: Any
    ) -> bool:
        """Record the end of an epoch; return whether it is the best by dev score, then dev loss."""
        self.epoch, self.step = self.epoch + 1, 0
        loss = round(sum(self.losses) / max(1, len(self.losses)), 5)
        self.losses = []
        lost = round(dev_loss, 6) if math.isfinite(dev_loss) else None
        line = {"epoch": self.epoch, "loss": loss, "dev": scores, "dev_loss": lost, **values}
        self.history.append(line)
        score = next(iter(scores.values()))
        is_lower = lost is not None and (self.best_loss is None or lost < self.best_loss)
        # Patience does not start before a score above 0.
        if not self.best or score > self.best or (score == self.best and is_lower):
            self.best, self.best_loss, self.best_epoch = score, lost, self.epoch
            return True
        if (self.epoch - self.best_epoch) % LR_PATIENCE == 0:
            self.factor *= LR_FACTOR
        return False


def fit(
    trained: TrainedTask,
    data: Data,
    folder: Path,
    stop: Stop,
    keep: Callable[[Progress], None],
    fingerprints: Fingerprints,
    quiet: bool,
) -> Progress:
    """Train until the dev score stops improving, or resume from the checkpoint in `folder`.

    The model ends with the weights of the last step; `keep` is called after each best epoch.
    """
    model, settings = trained.model, trained.settings
    trainer = Trainer(model, settings, make_optimizer(model, settings), Progress())
    if saved := checkpoint.checkpoints(folder):
        trainer.resume(saved[-1], fingerprints)
    progress = trainer.progress
    started, before = time.perf_counter(), progress.seconds
    while not progress.ended(settings) and not stop.signal:
        trainer.run_epoch(data.train, stop, quiet=quiet)
        progress.seconds = before + time.perf_counter() - started
        if not stop.signal:
            scores = trained.score(data.dev, quiet=quiet)
            dev_loss = mean_loss(model, data.dev, settings.batch_size)
            is_best = progress.end_epoch(scores, dev_loss, mixes=model.inputs.mixes())
            named = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
            named += " (best)" if is_best and progress.best else ""
            epoch, loss = f"{progress.epoch}/{settings.epochs}", progress.history[-1]["loss"]
            logger.info(f"epoch {epoch}: loss {loss:.4f}, dev {named}")
            if is_best:
                keep(progress)
        metadata = {"progress": asdict(progress), "settings": asdict(settings)}
        metadata["fingerprints"] = fingerprints
        step = progress.epoch * 1_000_000 + progress.step
        checkpoint.save(folder, step, metadata, model=model, optimizer=trainer.optimizer)
    checkpoint.remove_old(folder)
    return progress


@dataclass
class Trainer:
    """A model that is being trained."""

    model: Any
    settings: TrainSettings
    optimizer: torch.optim.Optimizer
    progress: Progress

    def resume(self, path: Path, fingerprints: Fingerprints) -> None:
        """Continue from a checkpoint; raise if it is of a run with other settings or data."""
        with checkpoint.reading(path) as metadata:
            if change := describe_change(metadata, self.settings, fingerprints, MAY_CHANGE):
                raise ElmokitError(
                    f"the run in {path.parents[1]} cannot resume: {change}; "
                    "use the old value or another folder"
                )
            checkpoint.restore(path, model=self.model, optimizer=self.optimizer)
            self.progress = Progress(**metadata["progress"])
            logger.info(f"resuming after epoch {self.progress.epoch}")

    def run_epoch(self, examples: Sequence[Any], stop: Stop, *, quiet: bool) -> None:
        self.model.train()
        seed, epoch, first = self.settings.seed, self.progress.epoch, self.progress.step
        batches = epoch_batches(examples, self.settings, epoch)
        bar = tqdm(total=len(batches), initial=first, unit=" batches", disable=quiet, leave=False)
        with bar:
            bar.set_description(f"epoch {epoch + 1}")
            for step, indices in enumerate(batches[first:], start=first):
                seeds = np.random.SeedSequence([seed, epoch, step])
                torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))
                loss = self.learn([examples[i] for i in indices])
                self.progress.step = step + 1
                bar.update()
                bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
                if stop.signal:
                    return

    def learn(self, batch: list[Any]) -> float:
        """Learn from a batch, or skip it if its loss or gradient is not finite; return the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial"] * self.progress.factor
        self.optimizer.zero_grad()
        loss = self.model.loss(batch)
        (loss + self.model.inputs.penalty()).backward()
        norm = optim.clip_gradients(self.model, self.settings.clip)
        value = float(loss.detach())
        if math.isfinite(value) and bool(norm.isfinite()):
            self.optimizer.step()
            self.progress.losses.append(round(value, 6))
            self.progress.dropped = 0
            return value
        self.progress.dropped += 1
        if self.progress.dropped >= MAX_DROPPED:
            raise ElmokitError(
                f"the loss was not finite for {MAX_DROPPED} steps in a row, in epoch "
                f"{self.progress.epoch + 1}: try a lower lr than {self.settings.lr}"
            )
        return value


def epoch_batches(examples: Sequence[Any], settings: TrainSettings, epoch: int) -> list[list[int]]:
    """Return the indices of the examples of each batch: shuffled, then sorted by length in runs."""
    random = np.random.default_rng([settings.seed, epoch])
    order = random.permutation(len(examples)).tolist()
    size = settings.batch_size
    batches: list[list[int]] = []
    for start in range(0, len(order), size * SORTED_BATCHES):
        run = order[start : start + size * SORTED_BATCHES]
        run.sort(key=lambda i: longest_text(examples[i]))
        batches += [run[first : first + size] for first in range(0, len(run), size)]
    return [batches[i] for i in random.permutation(len(batches))]


def make_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """Return AdamW; a biLM that is trained too has its own learning rate."""
    rates = settings.lr, settings.elmo_lr
    groups: list[dict[str, Any]] = [{"params": [], "initial": rate} for rate in rates]
    for name, parameter in model.named_parameters():
        groups[name.startswith("inputs.elmo.bilm.")]["params"].append(parameter)
    return optim.make_optimizer(groups, lr=settings.lr, weight_decay=settings.weight_decay)


def describe_change(
    saved: dict[str, Any], settings: TrainSettings, now: Fingerprints, ignore: Sequence[str] = ()
) -> str | None:
    """Describe how a saved run differs from what is requested now; None if it does not."""
    if change := find_change(saved["settings"], settings, ignore=ignore):
        return change
    changed = [name for name, value in now.items() if saved["fingerprints"].get(name) != value]
    return f"the {changed[0]} changed" if changed else None
