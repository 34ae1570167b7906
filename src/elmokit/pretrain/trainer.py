"""The training loop: steps, evaluations and checkpoints of one model on one corpus."""

from __future__ import annotations

import math
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint
from elmokit.language import Perplexity
from elmokit.model.bilm import BiLM, BiLMState, tensors_of
from elmokit.pretrain.checkpoint import publish, read_state, state_tensors
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.distributed import ProcessGroup
from elmokit.pretrain.evaluation import perplexity
from elmokit.pretrain.log import (
    RunLog,
    describe_run,
    describe_source,
    draw_training_curves,
)
from elmokit.pretrain.objective import Batcher, targets_of_vocabulary
from elmokit.pretrain.settings import PretrainSettings
from elmokit.pretrain.step import gradient
from elmokit.pretrain.windows import Windows
from elmokit.progress import counted
from elmokit.text.indexers import make_indexer
from elmokit.text.vocabulary import Vocabulary
from elmokit.training import checkpoint as checkpoints
from elmokit.training.optim import clip_gradients, make_optimizer
from elmokit.training.stopping import Stop

MAX_DROPPED = 25  # Dropped steps in a row that end a run.
LOG_EVERY = 20
ADAM_BETAS = (0.9, 0.99)


@dataclass(frozen=True)
class Origin:
    """The model that a run adapts."""

    fingerprint: str
    metadata: dict[str, Any]
    """What the metadata of the adapted model says about it."""
    frozen_steps: int = 0
    """Number of steps at the beginning in which only the softmax learns."""


@dataclass(frozen=True)
class Start:
    """A model before the first step."""

    model: BiLM
    vocabulary: Vocabulary
    """Words that the softmax predicts."""
    origin: Origin | None = None
    """None for a new model."""


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
        return f"{self.folder} is trained: {counted(self.step, 'step')}{figures}"


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

        Args:
            folder: Folder of the model, the log and the checkpoints.
            corpus: The encoded text.
            start: The model before the first step.
            settings: How to train, without None or "auto".
            group: The processes that train together.
        """
        self.folder, self.corpus, self.settings, self.group = folder, corpus, settings, group
        self.model, self.config = start.model.to(group.device), start.model.config
        self.vocabulary, self.origin = start.vocabulary, start.origin
        self.frozen_steps = start.origin.frozen_steps if start.origin else 0
        self.optimizer = make_optimizer(
            [{"params": list(self.model.parameters())}],
            name=settings.optimizer,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            betas=ADAM_BETAS,
        )
        self.windows = Windows(
            corpus.train,
            rows=settings.batch_size,
            unroll=settings.unroll,
            seed=settings.seed,
            weights=corpus.weights,
        )
        self.batcher = Batcher(
            corpus.types,
            targets_of_vocabulary(corpus.types, self.vocabulary.ids, self.vocabulary.unknown),
            make_indexer(self.config, self.vocabulary),
            group.device,
        )
        self.total = settings.total_steps(self.windows.steps)
        self.step = 0
        self.best = math.inf
        self.before: float | None = None  # Held-out perplexity before the biLM was trained.
        self.dropped = self.dropped_in_a_row = 0
        self.seconds = 0.0
        self.losses: list[float] = []  # Since the last line of the log.
        self.state = self._zero_state()
        self.log = RunLog(
            folder,
            writes=group.is_main,
            tensorboard=settings.tensorboard,
            quiet=settings.quiet or not group.is_main,
        )

    # ---- train

    def train(self, stop: Stop) -> TrainingResult:
        """Train from the current step to the end, the end of the time, or a signal."""
        self._check_same_step()
        started, before = time.perf_counter(), self.seconds
        self.log.begin(self.step, self.tokens_until(self.step), self.tokens_until(self.total))
        if self.step == 0:
            self.log.say(
                describe_run(
                    self.model,
                    self.settings.softmax,
                    tokens=self.windows.pairs,
                    steps=self.total,
                    processes=self.group.world_size,
                )
            )
            for source in self.corpus.sources:
                self.log.say(describe_source(source))
        if self.settings.course == "trapezoid":
            start = self.settings.decay_start(self.total)
            self.log.say(f"the learning rate falls from step {start:,} to step {self.total:,}")
        with self.log:
            if self.step == 0 and self.origin and not self.frozen_steps:
                self.evaluate()
            while self.step < self.total:
                loss, norm = self.one_step()
                self.losses.append(loss)
                self.seconds = before + time.perf_counter() - started
                if self.step % LOG_EVERY == 0:
                    self._log_losses(norm, time.perf_counter() - started)
                if self._pause(stop, self.seconds - before):
                    break
        if self.group.is_main:
            draw_training_curves(self.log.path, self.folder / "curves.png")
        result = self.result(stop.signal)
        self.log.say(result.describe())
        return result

    def _check_same_step(self) -> None:
        highest, lowest = self.group.max(self.step, -self.step)
        if highest != -lowest:
            raise ElmokitError(
                f"the processes find different checkpoints in {self.folder}: "
                "use a folder that all of them share"
            )

    def _pause(self, stop: Stop, seconds: float) -> bool:
        """Evaluate and save if this step calls for it; return whether the run has to stop."""
        settings = self.settings
        is_end = self.step % self.windows.steps == 0 or self.step == self.total
        is_late = settings.max_minutes is not None and seconds > 60 * settings.max_minutes
        is_late, is_stopped = self._agree(is_late, stop)
        is_due = self.step % settings.eval_every == 0 or self.step == self.frozen_steps
        if is_end or is_late or (is_due and not is_stopped):
            self.evaluate()
        elif is_stopped and math.isinf(self.best):
            # There was no evaluation yet: leave a model that loads.
            self.group.run_on_main(lambda: self.publish(None))
        if is_end or is_late or is_stopped or self.step % settings.save_every == 0:
            self.save()
        return is_late or is_stopped

    def result(self, stopped_by: int) -> TrainingResult:
        """Return where the run stands."""
        return TrainingResult(
            folder=self.folder,
            step=self.step,
            total_steps=self.total,
            perplexity=None if math.isinf(self.best) else self.best,
            perplexity_before=self.before,
            stopped_by=stopped_by,
        )

    def one_step(self) -> tuple[float, float]:
        """Train on one window; return its mean loss per prediction and the gradient's norm."""
        position = self.step % self.windows.steps
        if position == 0:
            self.state = self._zero_state()
        self.optimizer.zero_grad()
        mean, after = gradient(
            self.model,
            self.windows,
            self.batcher,
            self.settings,
            self.group,
            self.step,
            self.state,
            frozen=self.step < self.frozen_steps,
        )
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
                f"is in {self.folder / 'training'}"
            )

    def _zero_state(self) -> BiLMState:
        rows = self.settings.batch_size // self.group.world_size
        return BiLMState.zeros(self.config, rows, self.group.device)

    def _agree(self, is_late: bool, stop: Stop) -> tuple[bool, bool]:
        """Let all processes stop at the same step and for the same reason."""
        late, signal = self.group.max(is_late, stop.signal)
        if signal:
            stop.signal = signal
        return bool(late), bool(signal)

    def tokens_until(self, step: int) -> int:
        """Return the number of tokens read before a step, counting one direction."""
        epochs, position = divmod(step, self.windows.steps)
        tokens = position * self.settings.unroll * self.windows.rows
        return epochs * self.windows.pairs + min(tokens, self.windows.pairs)

    # ---- evaluate

    def evaluate(self) -> None:
        """Measure the held-out perplexity; publish the model if it is the best so far."""
        measured: Perplexity | None = None
        if len(self.corpus.heldout):
            measured = perplexity(self.model, self.corpus.heldout, self.batcher, group=self.group)
            self.log.write(step=self.step, heldout=measured.to_dict())
            self.log.say(
                f"step {self.step:,}: held-out perplexity {measured.average:.2f} "
                f"(forward {measured.forward:.2f}, backward {measured.backward:.2f})"
            )
            if self.origin and self.step <= self.frozen_steps:
                self.before = measured.average
            if not measured.average < self.best:
                self.log.say(f"no better than {self.best:.2f}: the earlier model is kept")
                return
            self.best = measured.average
        self.group.run_on_main(lambda: self.publish(measured))

    # ---- save

    def save(self) -> None:
        """Write a checkpoint to resume from."""
        state = self.group.gather_rows(self.state)
        self.group.run_on_main(
            lambda: checkpoints.save(
                self.folder / "training",
                self.step,
                self.metadata(),
                model=self.model,
                optimizer=self.optimizer,
                extra=state_tensors(state),
            )
        )

    def resume(self, path: Path) -> None:
        """Resume from a checkpoint; raise if the settings or the model have changed."""
        with checkpoints.reading(path) as metadata:
            change = self.find_change(metadata)
            if change is not None:
                raise ElmokitError(
                    f"the run in {self.folder} cannot be resumed: {change}; "
                    "use the same settings or another folder"
                )
            tensors = checkpoints.restore(path, model=self.model, optimizer=self.optimizer)
            state = read_state(tensors, self.config.num_layers, self.group.device)
            self.state = self.group.own_rows(state)
            self.step = metadata["step"]
            self.best = math.inf if metadata["best"] is None else metadata["best"]
            self.before = metadata["before"]
            self.dropped, self.dropped_in_a_row = metadata["dropped"], metadata["dropped_in_a_row"]
            self.seconds, self.losses = float(metadata["seconds"]), list(metadata["losses"])
        self.log.say(f"resuming after step {self.step:,} of {self.total:,}")

    def find_change(self, metadata: dict[str, Any]) -> str | None:
        """Describe what differs from the run of a checkpoint; return None if nothing does."""
        old, new = metadata["settings"], self.saved_settings()
        if old.get("start") != new["start"]:
            return "the model to adapt is another one"
        if old.get("frozen_steps", 0) != new["frozen_steps"]:
            return (
                f"softmax_steps was {old.get('frozen_steps', 0)} and is now {new['frozen_steps']}"
            )
        for name, value in self.config.to_dict().items():
            before = metadata["model"].get(name)
            if before != value:
                return f"the model's {name} was {before!r} and is now {value!r}"
        return self.settings.find_change(
            old, step=metadata["step"], steps_per_epoch=self.windows.steps
        )

    def saved_settings(self) -> dict[str, Any]:
        """Return the settings that the weights depend on, for metadata."""
        start = self.origin.fingerprint if self.origin else None
        return {**self.settings.to_dict(), "frozen_steps": self.frozen_steps, "start": start}

    def metadata(self) -> dict[str, Any]:
        """Return where the run stands, for a checkpoint."""
        return {
            "step": self.step,
            "best": None if math.isinf(self.best) else self.best,
            "before": self.before,
            "dropped": self.dropped,
            "dropped_in_a_row": self.dropped_in_a_row,
            "seconds": round(self.seconds, 1),
            "losses": self.losses,
            "settings": self.saved_settings(),
            "model": self.config.to_dict(),
        }

    def publish(self, measured: Perplexity | None) -> None:
        """Make the current weights the model that `elmokit.load(folder)` returns."""
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
        origin = {"adapted_from": self.origin.metadata} if self.origin else {}
        model = Checkpoint(
            self.config,
            tensors_of(self.model),
            self.vocabulary.words,
            {**origin, "training": training},
        )
        publish(model, self.folder)

    def _log_losses(self, norm: float, seconds: float) -> None:
        finite = [loss for loss in self.losses if math.isfinite(loss)] or [math.inf]
        self.log.write(
            step=self.step,
            loss=round(sum(finite) / len(finite), 5),
            norm=round(norm, 4),
            lr=self.optimizer.param_groups[0]["lr"],
            tokens=self.tokens_until(self.step),
            tokens_per_second=round(self.log.tokens / seconds, 1),
        )
        self.losses.clear()
