"""The training loop: steps, evaluations and checkpoints of one model on one corpus.

The rows of the global batch are dealt to the processes like cards, and each process reads its own
in one or several parts. Losses and gradients are sums over all of them, and random numbers depend
only on the seed, the step and the row: so a step is the same for any number of processes and parts.
"""

from __future__ import annotations

import math
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmokit.errors import ElmokitError, plural
from elmokit.formats import native
from elmokit.formats.checkpoint import JIEBA, Checkpoint
from elmokit.io.atomic import atomic_file
from elmokit.language import Perplexity
from elmokit.model.bilm import BiLM, BiLMState, tensors_of
from elmokit.model.softmax import Sample
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.distributed import ProcessGroup
from elmokit.pretrain.evaluation import perplexity
from elmokit.pretrain.log import RunLog, draw_training_curves
from elmokit.pretrain.objective import Batcher, Dropout, softmax_of, window_loss
from elmokit.pretrain.settings import PretrainSettings
from elmokit.pretrain.windows import Windows
from elmokit.text.indexers import make_indexer
from elmokit.text.vocabulary import Vocabulary
from elmokit.training import checkpoint as checkpoints
from elmokit.training.folder import TRAINING
from elmokit.training.optim import clip_gradients, count_parameters, make_optimizer
from elmokit.training.stopping import Stop

MAX_DROPPED = 25  # Dropped steps in a row that end a run.
LOG_EVERY = 20
SOFTMAX_SHARE = 0.2  # Fraction of all steps in which a new softmax learns alone.
ADAM_BETAS = (0.9, 0.99)
PRODUCT_DTYPES = {"float32": None, "bf16": torch.bfloat16}  # Precision of matrix products.
# Attributes of a trainer that a checkpoint has, and their types.
SAVED: dict[str, Any] = {
    **{"step": int, "best": float | None, "before": float | None, "dropped": int},
    **{"dropped_in_a_row": int, "seconds": float, "losses": list},
}


@dataclass(frozen=True)
class Start:
    """A model before the first step."""

    model: BiLM
    vocabulary: Vocabulary
    """Words that the softmax predicts."""
    origin: dict[str, Any] | None = None
    """Name, fingerprint and metadata of the model that is adapted; None for a new model."""
    frozen_steps: int | None = 0
    """Number of steps at the beginning in which only the softmax learns; None for a fifth."""


@dataclass(frozen=True)
class TrainingResult:
    """How a training run went, or a part of it that was stopped."""

    folder: Path
    step: int
    """Number of steps done."""
    total_steps: int
    """Number of steps of the whole run."""
    perplexity: float | None
    """Best held-out perplexity; None if there was no evaluation on held-out text."""
    perplexity_before: float | None
    """Held-out perplexity of an adapted model before its biLM was trained."""
    stopped_by: int = 0
    """Number of the signal that stopped the run; 0 if none did."""

    def describe(self) -> str:
        """Return a sentence about the end of the run, or of a part of it that was stopped."""
        if self.stopped_by:
            name = signal.Signals(self.stopped_by).name
            return f"stopped by {name} after step {self.step:,}; the same command resumes the run"
        if self.step < self.total_steps:
            return f"the time is up after step {self.step:,}; the same command resumes the run"
        best, before = self.perplexity, self.perplexity_before
        figures = "" if best is None else f", held-out perplexity {best:.2f}"
        if best is not None and before is not None:
            figures += f", before it was {before:.2f} ({best / before - 1:+.1%})"
        return f"{self.folder} is trained: {plural(self.step, 'step')}{figures}"


class Trainer:
    """Trains one model on one corpus."""

    def __init__(
        self,
        folder: Path,
        corpus: Corpus,
        start: Start,
        settings: PretrainSettings,
        group: ProcessGroup,
    ) -> None:
        """Set up the optimizer, the windows, and the position before the first step.

        The settings have neither None nor "auto" for the learning rate, schedule and softmax.
        """
        self.folder, self.corpus, self.settings, self.group = folder, corpus, settings, group
        self.model, self.config = start.model.to(group.device), start.model.config
        self.vocabulary, self.origin = start.vocabulary, start.origin
        self.optimizer = make_optimizer(
            [{"params": list(self.model.parameters())}],
            name=settings.optimizer,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            betas=ADAM_BETAS,
        )
        rows, unroll, seed = settings.batch_size, settings.unroll, settings.seed
        weights = [(source["train_sentences"], source["weight"]) for source in corpus.sources]
        self.windows = Windows(corpus.train, rows=rows, unroll=unroll, seed=seed, weights=weights)
        indexer = make_indexer(self.config, self.vocabulary)
        targets = corpus.types.ids_in(self.vocabulary)
        self.batcher = Batcher(corpus.types, targets, indexer, group.device)
        self.total, frozen = settings.total_steps(self.windows.steps), start.frozen_steps
        self.frozen_steps = int(SOFTMAX_SHARE * self.total) if frozen is None else frozen
        self.step = self.dropped = self.dropped_in_a_row = 0
        self.best: float | None = None  # Held-out perplexity.
        self.before: float | None = None  # The same before the biLM was trained.
        self.seconds = 0.0
        self.losses: list[float] = []  # Since the last line of the log.
        self.state = self._zero_state()
        quiet, board = settings.quiet or not group.is_main, settings.tensorboard
        self.log = RunLog(folder, writes=group.is_main, tensorboard=board, quiet=quiet)

    # ---- train
    def train(self, stop: Stop) -> TrainingResult:
        """Train from the current step to the end, the end of the time, or a signal."""
        highest, lowest = self.group.max(self.step, -self.step)
        if highest != -lowest:
            raise ElmokitError(
                f"the processes find different checkpoints in {self.folder}: "
                "use a folder that all of them share"
            )
        started, before = time.perf_counter(), self.seconds
        tokens = self.tokens_until(self.step), self.tokens_until(self.total)
        with self.log.opened(self.step, *tokens):
            self._describe()
            if self.step == 0 and self.origin and not self.frozen_steps:
                self.evaluate()
            while self.step < self.total:
                loss, norm = self.one_step()
                self.losses.append(loss)
                self.seconds = before + time.perf_counter() - started
                if self.step % LOG_EVERY == 0:
                    finite = [loss for loss in self.losses if math.isfinite(loss)] or [math.inf]
                    self.log.write(
                        step=self.step,
                        loss=round(sum(finite) / len(finite), 5),
                        norm=round(norm, 4),
                        lr=self.optimizer.param_groups[0]["lr"],
                        tokens=self.tokens_until(self.step),
                        tokens_per_second=round(self.log.tokens / (self.seconds - before), 1),
                    )
                    self.losses.clear()
                if self._pause(stop, self.seconds - before):
                    break
        if self.group.is_main:
            checkpoints.remove_old(self.folder / TRAINING)
            draw_training_curves(self.log.path, self.folder / "curves.png")
        done = (self.step, self.total, self.best, self.before)
        result = TrainingResult(self.folder, *done, stop.signal)
        self.log.say(result.describe())
        return result

    def _describe(self) -> None:
        if self.step == 0:
            softmax, world = count_parameters(softmax_of(self.model)), self.group.world_size
            together = f" by {world} processes" if world > 1 else ""
            self.log.say(
                f"{self.windows.pairs:,} tokens per epoch, {self.settings.softmax} softmax over "
                f"{self.config.vocabulary_size:,} words, "
                f"{count_parameters(self.model) - softmax:,} parameters plus {softmax:,} of the "
                f"softmax, {plural(self.total, 'step')}{together}"
            )
            for source in self.corpus.sources:
                times = "once" if source["weight"] == 1 else f"{source['weight']:g} times"
                tokens = plural(source["train_tokens"], "token")
                self.log.say(f"{source['name']}: {tokens}, read {times} per epoch")
        if self.settings.course == "trapezoid":
            start = self.settings.decay_start(self.total)
            self.log.say(f"the learning rate falls from step {start:,} to step {self.total:,}")

    def _pause(self, stop: Stop, seconds: float) -> bool:
        """Evaluate and save if this step calls for it; return whether the run has to stop."""
        settings = self.settings
        is_end = self.step % self.windows.steps == 0 or self.step == self.total
        is_late = settings.max_minutes is not None and seconds > 60 * settings.max_minutes
        # All processes stop at the same step and for the same reason.
        late, signum = self.group.max(is_late, stop.signal)
        stop.signal = signum or stop.signal
        is_due = self.step % settings.eval_every == 0 or self.step == self.frozen_steps
        if is_end or late or (is_due and not signum):
            self.evaluate()
        elif signum and self.best is None:
            # There was no evaluation yet: leave a model that loads.
            self.group.run_on_main(lambda: self.publish(None))
        if is_end or late or signum or self.step % settings.save_every == 0:
            self.save()
        return bool(late or signum)

    def one_step(self) -> tuple[float, float]:
        """Train on one window; return its mean loss per prediction and the gradient's norm."""
        position = self.step % self.windows.steps
        if position == 0:
            self.state = self._zero_state()
        self.optimizer.zero_grad()
        mean, after = self.gradient()
        norm = clip_gradients(self.model, self.settings.clip)
        if math.isfinite(mean) and bool(norm.isfinite()):
            for parameters in self.optimizer.param_groups:
                parameters["lr"] = self.settings.rate(self.step, self.total)
            self.optimizer.step()
            self.state = after
            self.dropped_in_a_row = 0
        else:
            self._drop_step()
        self.step += 1
        self.log.advance(self.windows.pairs_at(position), mean)
        return mean, float(norm)

    def _drop_step(self) -> None:
        """Keep a loss or gradient that is not finite from the weights and from the next step."""
        self.state = self._zero_state()
        self.dropped += 1
        self.dropped_in_a_row += 1
        if self.dropped_in_a_row == 1:
            self.log.say(f"step {self.step}: skipped, because the loss or gradient is not finite")
        self.log.write(step=self.step, dropped=self.dropped)
        if self.dropped_in_a_row >= MAX_DROPPED:
            raise ElmokitError(
                f"the loss was not finite for {MAX_DROPPED} steps in a row, until step "
                f"{self.step}: try a lower lr than {self.settings.lr}; the last good checkpoint "
                f"is in {self.folder / TRAINING}"
            )

    def _zero_state(self) -> BiLMState:
        rows = self.settings.batch_size // self.group.world_size
        return BiLMState.zeros(self.config, rows, self.group.device)

    def tokens_until(self, step: int) -> int:
        """Return the number of tokens read before a step, counting one direction."""
        epochs, position = divmod(step, self.windows.steps)
        tokens = position * self.settings.unroll * self.windows.rows
        return epochs * self.windows.pairs + min(tokens, self.windows.pairs)

    # ---- the gradient of a step
    def gradient(self) -> tuple[float, BiLMState]:
        """Accumulate the gradient; return the mean loss over all processes, and the next states."""
        settings, group, step = self.settings, self.group, self.step
        epoch, position = divmod(step, self.windows.steps)
        predictions = 2 * self.windows.pairs_at(position)
        total, after = torch.zeros((), device=group.device), []
        sample = None
        if settings.softmax != "full":  # The words are the same in all processes.
            random = np.random.default_rng([settings.seed, step])
            sample = Sample.draw(self.config.vocabulary_size, settings.samples, random)
        for rows, before in self._parts():
            loss, end = window_loss(
                self.model,
                self.batcher.batch(self.windows.window(epoch, position, rows)),
                before,
                dropout=self._dropout(rows),
                sample=sample,
                frozen=step < self.frozen_steps,
                precision=PRODUCT_DTYPES[settings.precision],
            )
            # As in the original: the mean over predictions, summed over the steps of a window.
            (loss * (settings.unroll / predictions)).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
            after.append(end)
        group.all_reduce_gradients(self.model.parameters())
        return float(group.all_reduce(total)) / predictions, BiLMState.cat(after)

    def _parts(self) -> Iterator[tuple[slice, BiLMState]]:
        """Yield this process's rows of the global batch part by part, with their states."""
        world, parts = self.group.world_size, self.settings.accumulate
        size = self.settings.batch_size // (world * parts)
        for part in range(parts):
            start = self.group.rank + part * size * world
            own = torch.arange(part * size, (part + 1) * size, device=self.group.device)
            yield slice(start, start + size * world, world), self.state.take(own)

    def _dropout(self, rows: slice) -> Dropout | None:
        """Return the dropout of one step, with random numbers of its own."""
        if not self.config.dropout:
            return None
        seed, device = np.random.SeedSequence([self.settings.seed, self.step]), self.group.device
        random: torch.Generator | np.random.BitGenerator = np.random.SFC64(seed)
        if device.type != "cpu":
            random = torch.Generator(device).manual_seed(int(seed.generate_state(1)[0]))
        return Dropout(self.config.dropout, random, self.settings.batch_size, rows)

    # ---- evaluate
    def evaluate(self) -> None:
        """Measure the held-out perplexity; publish the model if it is the best so far."""
        measured: Perplexity | None = None
        if len(self.corpus.heldout):
            text, group = self.corpus.heldout, self.group
            shown = self.log.show_evaluation(text.predictions)
            measured = perplexity(self.model, text, self.batcher, group=group, on_tokens=shown)
            self.log.write(step=self.step, heldout=measured.to_dict())
            self.log.say(
                f"step {self.step:,}: held-out perplexity {measured.average:.2f} "
                f"(forward {measured.forward:.2f}, backward {measured.backward:.2f})"
            )
            if self.origin and self.step <= self.frozen_steps:
                self.before = measured.average
            if not measured.average < (math.inf if self.best is None else self.best):
                self.log.say(f"no better than {self.best:.2f}: the earlier model is kept")
                return
            self.best = measured.average
        self.group.run_on_main(lambda: self.publish(measured))

    def publish(self, measured: Perplexity | None) -> None:
        """Write the model to `training/best`, and from there to the folder, file by file."""
        manifest = self.corpus.manifest
        training = {
            "corpus": [entry["name"] for entry in manifest["corpus"]],
            **({"sources": self.corpus.sources} if self.corpus.sources else {}),
            "tokenizer": manifest["tokenizer"],
            "train_tokens": manifest["train_tokens"],
            "tokens_read": self.tokens_until(self.step),
            "step": self.step,
            "hours": round(self.seconds / 3600, 3),
            "heldout_perplexity": None if measured is None else measured.to_dict(),
            "heldout_perplexity_before": self.before,
            "settings": self.saved_settings(),
        }
        metadata = {**({"adapted_from": self.origin} if self.origin else {}), "training": training}
        tensors, best = tensors_of(self.model), self.folder / TRAINING / "best"
        model = Checkpoint(self.config, tensors, self.vocabulary.words, metadata)
        native.write(model, best, overwrite=True)
        for name in (native.WEIGHTS, native.VOCABULARY, JIEBA, native.CONFIG):
            if (best / name).is_file():
                with (best / name).open("rb") as source, atomic_file(self.folder / name) as target:
                    shutil.copyfileobj(source, target)

    # ---- save
    def save(self) -> None:
        extra = state_tensors(self.group.gather_rows(self.state))
        metadata = {name: getattr(self, name) for name in SAVED}
        metadata |= {"settings": self.saved_settings(), "model": self.config.to_dict()}
        save = partial(checkpoints.save, model=self.model, optimizer=self.optimizer, extra=extra)
        self.group.run_on_main(lambda: save(self.folder / TRAINING, self.step, metadata))

    def resume(self, path: Path) -> None:
        """Resume from a checkpoint; raise if the settings or the model have changed."""
        with checkpoints.reading(path) as metadata:
            if change := self.find_change(metadata):
                raise ElmokitError(
                    f"the run in {self.folder} cannot be resumed: {change}; "
                    "use the same settings or another folder"
                )
            tensors = checkpoints.restore(path, model=self.model, optimizer=self.optimizer)
            own = (tensors[name][self.group.rows] for name in state_tensors(self.state))
            self.state = self.state.map(lambda _: next(own).contiguous().to(self.group.device))
            for name, kind in SAVED.items():
                if not isinstance(metadata[name], kind):
                    raise TypeError(f"{name} is {metadata[name]!r}")
                setattr(self, name, metadata[name])
        self.log.say(f"resuming after step {self.step:,} of {self.total:,}")

    def find_change(self, metadata: dict[str, Any]) -> str | None:
        """Describe what differs from the run of a checkpoint; return None if nothing does."""
        old, new = metadata["settings"], self.saved_settings()
        if old["start"] != new["start"]:
            return "the model to adapt is another one"
        if old["frozen_steps"] != self.frozen_steps:
            return f"softmax_steps was {old['frozen_steps']} and is now {self.frozen_steps}"
        for name, value in self.config.to_dict().items():
            before = metadata["model"].get(name)
            if before != value:
                return f"the model's {name} was {before!r} and is now {value!r}"
        return self.settings.find_change(old, metadata["step"], self.windows.steps)

    def saved_settings(self) -> dict[str, Any]:
        start = self.origin["fingerprint"] if self.origin else None
        return {**self.settings.to_dict(), "frozen_steps": self.frozen_steps, "start": start}


def state_tensors(state: BiLMState) -> dict[str, Tensor]:
    """Return the LSTM states under their names in a checkpoint, in the order of `BiLMState.map`."""
    return {
        f"state.{direction}.{layer}.{name}": tensor
        for direction, layers in (("forward", state.forward), ("backward", state.backward))
        for layer, pair in enumerate(layers)
        for name, tensor in zip("hc", pair, strict=True)
    }
