"""A training run: what it needs, where it stands, and how it goes on, evaluates and saves."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint
from elmokit.language import Perplexity
from elmokit.model.bilm import BiLM, BiLMState, tensors_of
from elmokit.pretrain import checkpoint as checkpoints
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.distributed import Ranks
from elmokit.pretrain.evaluate import perplexity
from elmokit.pretrain.log import RunLog, draw_curves, how_it_ended, what_is_trained
from elmokit.pretrain.objective import Batcher, targets_of_vocabulary
from elmokit.pretrain.settings import Settings
from elmokit.pretrain.step import gradient
from elmokit.pretrain.windows import Windows
from elmokit.text.indexers import make_indexer
from elmokit.text.vocabulary import Vocabulary
from elmokit.training.stopping import Stop

TOO_MANY = 25  # dropped steps in a row that end a run
LOG_EVERY = 20


class Run:
    """Trains one model on one corpus."""

    def __init__(
        self,
        folder: Path,
        corpus: Corpus,
        model: BiLM,
        vocabulary: Vocabulary,
        settings: Settings,
        ranks: Ranks,
        *,
        origin: dict[str, Any] | None = None,
        tensorboard: bool = False,
        quiet: bool = False,
    ) -> None:
        """Set up: optimizer, windows, and the position at the start.

        Args:
            folder: where the model, the log and the checkpoints go.
            corpus: the encoded text.
            model: with the weights to begin with.
            vocabulary: the words that its softmax predicts.
            settings: how to train.
            ranks: the processes that train together.
            origin: metadata about the model before, which the published one keeps.
            tensorboard: write a log for TensorBoard too.
            quiet: no progress and no sentences.
        """
        self.folder, self.corpus, self.settings, self.ranks = folder, corpus, settings, ranks
        self.model, self.config, self.vocabulary = model.to(ranks.device), model.config, vocabulary
        self.origin, self.quiet = origin or {}, quiet or not ranks.first
        self.optimizer = make_optimizer(self.model, settings)
        self.windows = Windows(
            corpus.train, rows=settings.batch_size, unroll=settings.unroll, seed=settings.seed
        )
        self.batcher = Batcher(
            corpus.types,
            targets_of_vocabulary(corpus.types, vocabulary.ids, vocabulary.unknown),
            make_indexer(self.config, vocabulary),
            ranks.device,
        )
        self.total = settings.total_steps(self.windows.steps)
        self.step = 0
        self.best = math.inf
        self.before: float | None = None  # held-out perplexity before the biLM was trained
        self.dropped = self.dropped_in_a_row = 0
        self.seconds = 0.0
        self.losses: list[float] = []  # since the log's last line
        self.state = self._fresh_state()
        self.log = RunLog(folder, writes=ranks.first, tensorboard=tensorboard, quiet=self.quiet)

    # ---- train

    def train(
        self, stop: Stop, *, eval_every: int, save_every: int, max_minutes: float | None
    ) -> None:
        """Go on from where the run stands: to its end, the end of its time, or a signal."""
        highest, lowest = self.ranks.highest(self.step, -self.step)
        if highest != -lowest:
            raise ElmokitError(
                f"the processes find different checkpoints in {self.folder}: "
                "give a folder that all of them share"
            )
        started, before = time.perf_counter(), self.seconds
        self.log.begin(self.step, self.tokens_until(self.step), self.tokens_until(self.total))
        if self.step == 0:
            self.log.say(
                what_is_trained(
                    self.model,
                    self.settings.softmax,
                    tokens=self.windows.pairs,
                    steps=self.total,
                    processes=self.ranks.world,
                )
            )
        with self.log:
            if self.step == 0 and self.origin and not self.settings.frozen_steps:
                self.evaluate()
            while self.step < self.total:
                loss, norm = self.one_step()
                self.losses.append(loss)
                self.seconds = before + time.perf_counter() - started
                if self.step % LOG_EVERY == 0:
                    self._log_losses(norm, time.perf_counter() - started)
                ended = self.step % self.windows.steps == 0 or self.step == self.total
                late = max_minutes is not None and self.seconds - before > 60 * max_minutes
                late, stopped = self._agree(late, stop)
                due = self.step % eval_every == 0 or self.step == self.settings.frozen_steps
                if ended or late or (due and not stopped):
                    self.evaluate()
                if ended or late or stopped or self.step % save_every == 0:
                    self.save()
                if late or stopped:
                    break
        if self.ranks.first:
            draw_curves(self.log.path, self.folder / "curves.png")
        self.log.say(
            how_it_ended(
                self.folder,
                step=self.step,
                total=self.total,
                stopped_by=stop.signal,
                best=self.best,
                before=self.before,
            )
        )

    def one_step(self) -> tuple[float, float]:
        """One window forward and back; its mean loss of a prediction, and the gradient's norm."""
        place = self.step % self.windows.steps
        if place == 0:
            self.state = self._fresh_state()
        self.optimizer.zero_grad()
        mean, after = gradient(
            self.model,
            self.windows,
            self.batcher,
            self.settings,
            self.ranks,
            self.step,
            self.state,
        )
        norm = clip_gradients(self.model, self.settings.clip)
        if math.isfinite(mean) and bool(norm.isfinite()):
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.rate(self.step, self.total)
            self.optimizer.step()
            self.state = after
            self.dropped_in_a_row = 0
        else:
            self._drop_step()
        self.step += 1
        self.log.advance(self.windows.pairs_at(place), mean)
        return mean, float(norm)

    def _drop_step(self) -> None:
        """A loss or gradient that is not finite reaches neither the weights nor the next step."""
        self.state = self._fresh_state()
        self.dropped += 1
        self.dropped_in_a_row += 1
        if self.dropped_in_a_row == 1:
            self.log.say(f"step {self.step}: the loss or its gradient is not finite; left out")
        self.log.write(step=self.step, dropped=self.dropped)
        if self.dropped_in_a_row >= TOO_MANY:
            raise ElmokitError(
                f"the loss was not finite for {TOO_MANY} steps in a row, until step {self.step}: "
                f"try a lower lr than {self.settings.lr}; the last good checkpoint is in "
                f"{self.folder / 'training'}"
            )

    def _fresh_state(self) -> BiLMState:
        rows = self.settings.batch_size // self.ranks.world
        return BiLMState.zeros(self.config, rows, self.ranks.device)

    def _agree(self, late: bool, stop: Stop) -> tuple[bool, bool]:
        """All processes stop at the same step and for the same reason."""
        is_late, number = self.ranks.highest(late, stop.signal)
        if number:
            stop.signal = number
        return bool(is_late), bool(number)

    def tokens_until(self, step: int) -> int:
        """Tokens read, one direction counted, before a step."""
        epochs, place = divmod(step, self.windows.steps)
        stretch = place * self.settings.unroll * self.windows.rows
        return epochs * self.windows.pairs + min(stretch, self.windows.pairs)

    # ---- evaluate

    def evaluate(self) -> None:
        """Measure the held-out text; publish the model if it is better than before."""
        found: Perplexity | None = None
        if len(self.corpus.heldout):
            found = perplexity(self.model, self.corpus.heldout, self.batcher, ranks=self.ranks)
            self.log.write(step=self.step, heldout=found.to_dict())
            self.log.say(
                f"step {self.step:,}: held-out perplexity {found.average:.2f} "
                f"(forward {found.forward:.2f}, backward {found.backward:.2f})"
            )
            if self.origin and self.step <= self.settings.frozen_steps:
                self.before = found.average
            if not found.average < self.best:
                self.log.say(f"no better than {self.best:.2f}: the model from then is kept")
                return
            self.best = found.average
        self.ranks.first_does(lambda: self.publish(found))

    # ---- save

    def save(self) -> None:
        """Write a checkpoint, from which the same command goes on."""
        state = self.ranks.gather(self.state)
        self.ranks.first_does(
            lambda: checkpoints.save(
                self.folder / "training",
                self.step,
                self.metadata(),
                model=self.model,
                optimizer=self.optimizer,
                state=state,
            )
        )

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint; other settings or another model are refused."""
        metadata = checkpoints.facts_of(path)
        change = self.settings.may_go_on_from(metadata["settings"])
        for name, value in self.config.to_dict().items():
            if metadata["model"].get(name) != value:
                change = (
                    f"the model's {name} was {metadata['model'].get(name)!r} and is now {value!r}"
                )
        if change is not None:
            raise ElmokitError(
                f"{self.folder} has a run that cannot go on: {change}; "
                "give what it was, or another folder"
            )
        tensors = checkpoints.restore(path, model=self.model, optimizer=self.optimizer)
        state = checkpoints.state_of(tensors, self.config.num_layers, self.ranks.device)
        self.state = self.ranks.share(state)
        self.step = metadata["step"]
        self.best = math.inf if metadata["best"] is None else metadata["best"]
        self.before = metadata["before"]
        self.dropped, self.dropped_in_a_row = metadata["dropped"], metadata["dropped_in_a_row"]
        self.seconds, self.losses = metadata["seconds"], metadata.get("losses", [])
        self.log.say(f"going on after step {self.step:,} of {self.total:,}")

    def metadata(self) -> dict[str, Any]:
        """Where the run stands, for a checkpoint."""
        return {
            "step": self.step,
            "best": None if math.isinf(self.best) else self.best,
            "before": self.before,
            "dropped": self.dropped,
            "dropped_in_a_row": self.dropped_in_a_row,
            "seconds": round(self.seconds, 1),
            "losses": self.losses,
            "settings": self.settings.to_dict(),
            "model": self.config.to_dict(),
        }

    def publish(self, found: Perplexity | None) -> None:
        """Make the model of this moment the one that `elmokit.load(OUT)` gives."""
        manifest = self.corpus.manifest
        training = {
            "corpus": [entry["name"] for entry in manifest["corpus"]],
            "tokenizer": manifest["tokenizer"],
            "train_tokens": manifest["train_tokens"],
            "tokens_read": self.tokens_until(self.step),
            "step": self.step,
            "hours": round(self.seconds / 3600, 3),
            "heldout_perplexity": None if found is None else found.to_dict(),
            "heldout_perplexity_before": self.before,
            "settings": self.settings.to_dict(),
        }
        made = Checkpoint(
            self.config,
            tensors_of(self.model),
            self.vocabulary.words,
            {**self.origin, "training": training},
        )
        checkpoints.publish(made, self.folder)

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


def clip_gradients(model: nn.Module, clip: float) -> Tensor:
    """Scale the gradient down to the norm `clip` if it is longer; gives its norm before."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm: Tensor = torch.stack([g.norm() for g in grads]).norm()
    if norm > clip:  # most steps need no scaling, and it reads and writes every weight
        torch._foreach_mul_(grads, clip / (norm + 1e-6))
    return norm


def make_optimizer(model: BiLM, settings: Settings) -> torch.optim.Optimizer:
    """Adagrad with the original's settings, or AdamW."""
    parameters: list[Tensor] = list(model.parameters())
    fused = all(parameter.device.type == "cpu" for parameter in parameters) or None  # one pass
    if settings.optimizer == "adagrad":
        return torch.optim.Adagrad(
            parameters, lr=settings.lr, initial_accumulator_value=1.0, fused=fused
        )
    return torch.optim.AdamW(
        parameters,
        lr=settings.lr,
        betas=(0.9, 0.99),
        weight_decay=settings.weight_decay,
        fused=fused,
    )
