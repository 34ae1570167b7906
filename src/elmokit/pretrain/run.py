"""A training run: what it needs, where it stands, and how it goes on, evaluates and saves."""

from __future__ import annotations

import math
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmokit.errors import ElmokitError
from elmokit.formats import native
from elmokit.formats.checkpoint import Checkpoint, tensors_of
from elmokit.formats.files import sync
from elmokit.language import Perplexity
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.softmax import Sample
from elmokit.pretrain import checkpoint as checkpoints
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.evaluate import perplexity
from elmokit.pretrain.log import RunLog, draw_curves
from elmokit.pretrain.objective import Batcher, Dropout, targets_of_vocabulary, window_loss
from elmokit.pretrain.ranks import Ranks
from elmokit.pretrain.settings import Settings
from elmokit.pretrain.stopping import Stop
from elmokit.pretrain.windows import Windows
from elmokit.text.batches import make_indexer
from elmokit.text.vocabulary import Vocabulary

TOO_MANY = 25  # dropped steps in a row that end a run
LOG_EVERY = 20
LOWEST_RATE = 0.01  # of the learning rate, at the end of a cosine


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
            origin: facts about the model before, which the published one keeps.
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
        self.state = self._fresh_state()
        self.log = RunLog(folder, writes=ranks.first, tensorboard=tensorboard, quiet=self.quiet)

    # ---- train

    def train(
        self, stop: Stop, *, eval_every: int, save_every: int, max_minutes: float | None
    ) -> None:
        """Go on from where the run stands: to its end, the end of its time, or a signal."""
        started, before = time.perf_counter(), self.seconds
        self.log.begin(self.step, self.tokens_until(self.step), self.tokens_until(self.total))
        if self.step == 0:
            self._say_what_is_trained()
        with self.log:
            if self.step == 0 and self.origin and not self.settings.frozen_steps:
                self.evaluate()
            losses: list[float] = []
            while self.step < self.total:
                loss, norm = self.one_step()
                losses.append(loss)
                self.seconds = before + time.perf_counter() - started
                if self.step % LOG_EVERY == 0:
                    self._log_losses(losses, norm, time.perf_counter() - started)
                    losses.clear()
                ended = self.step % self.windows.steps == 0 or self.step == self.total
                late = max_minutes is not None and self.seconds - before > 60 * max_minutes
                late, stopped = self._agree(late, bool(stop.signal))
                due = self.step % eval_every == 0 or self.step == self.settings.frozen_steps
                if ended or late or (due and not stopped):
                    self.evaluate()
                if ended or late or stopped or self.step % save_every == 0:
                    self.save()
                if late or stopped:
                    break
        self._say_how_it_ended(stop)

    def one_step(self) -> tuple[float, float]:
        """One window forward and back; its mean loss of a prediction, and the gradient's norm."""
        epoch, place = divmod(self.step, self.windows.steps)
        if place == 0:
            self.state = self._fresh_state()
        pairs = 2 * self.windows.pairs_at(place)
        sample, frozen = self._sample(), self.step < self.settings.frozen_steps
        self.optimizer.zero_grad()
        total, after = torch.zeros((), device=self.ranks.device), []
        for rows, state in self._parts():
            batch = self.batcher.batch(self.windows.window(epoch, place, rows))
            loss, end = window_loss(
                self.model, batch, state, dropout=self._dropout(rows), sample=sample, frozen=frozen
            )
            # The scale of the original: the mean of predictions, summed over a window's steps.
            (loss * (self.settings.unroll / pairs)).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
            after.append(end)
        self.ranks.add_gradients(self.model.parameters())
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        mean = float(self.ranks.add(total)) / pairs
        if math.isfinite(mean) and bool(norm.isfinite()):
            self.set_rate()
            self.optimizer.step()
            self.state = BiLMState.cat(after)
            self.dropped_in_a_row = 0
        else:
            self._drop_step()
        self.step += 1
        self.log.advance(pairs // 2, mean)
        return mean, float(norm)

    def set_rate(self) -> None:
        """The learning rate of this step: warm-up, then constant or a cosine."""
        settings = self.settings
        rate = settings.lr * min(1.0, (self.step + 1) / max(settings.warmup, 1))
        if settings.schedule == "cosine" and self.step >= settings.warmup:
            part = (self.step - settings.warmup) / max(1, self.total - settings.warmup)
            cosine = 0.5 * (1 + math.cos(math.pi * part))
            rate *= LOWEST_RATE + (1 - LOWEST_RATE) * cosine
        for group in self.optimizer.param_groups:
            group["lr"] = rate

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

    def _parts(self) -> Iterator[tuple[slice, BiLMState]]:
        """The parts of a step: rows of the global batch, and the states of these rows."""
        world, number = self.ranks.world, self.settings.accumulate
        size = self.settings.batch_size // (world * number)
        for part in range(number):
            start = self.ranks.rank + part * size * world
            rows = slice(start, start + size * world, world)
            mine = torch.arange(part * size, (part + 1) * size, device=self.ranks.device)
            yield rows, self.state.take(mine)

    def _dropout(self, rows: slice) -> Dropout | None:
        """Random numbers for this step's dropout alone."""
        if not self.config.dropout:
            return None
        entropy = np.random.SeedSequence([self.settings.seed, self.step]).generate_state(1)[0]
        random = torch.Generator(self.ranks.device).manual_seed(int(entropy))
        return Dropout(self.config.dropout, random, self.settings.batch_size, rows)

    def _sample(self) -> Sample | None:
        """The words that all processes draw for this step, if the softmax is sampled."""
        if self.settings.softmax == "full":
            return None
        random = np.random.default_rng([self.settings.seed, self.step])
        return Sample.draw(self.config.vocabulary_size, self.settings.samples, random)

    def _fresh_state(self) -> BiLMState:
        rows = self.settings.batch_size // self.ranks.world
        return BiLMState.zeros(self.config, rows, self.ranks.device)

    def _agree(self, late: bool, stopped: bool) -> tuple[bool, bool]:
        """All processes stop at the same step."""
        if self.ranks.world == 1:
            return late, stopped
        flags = self.ranks.add(
            torch.tensor([late, stopped], dtype=torch.float32, device=self.ranks.device)
        )
        return bool(flags[0]), bool(flags[1])

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
            found = perplexity(self.model, self.corpus.heldout, self.batcher)
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
        if self.ranks.first:
            self.publish(found)
        self.ranks.wait()

    # ---- save

    def save(self) -> None:
        """Write a checkpoint, from which the same command goes on."""
        state = self.ranks.gather(self.state)
        if self.ranks.first:
            checkpoints.save(
                self.folder / "training",
                self.step,
                self.facts(),
                model=self.model,
                optimizer=self.optimizer,
                state=state,
            )
        self.ranks.wait()

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint; other settings or another model are refused."""
        facts = checkpoints.facts_of(path)
        change = self.settings.may_go_on_from(facts["settings"])
        for name, value in self.config.to_dict().items():
            if facts["model"].get(name) != value:
                change = f"the model's {name} was {facts['model'].get(name)!r} and is now {value!r}"
        if change is not None:
            raise ElmokitError(
                f"{self.folder} has a run that cannot go on: {change}; "
                "give what it was, or another folder"
            )
        state = checkpoints.restore(path, model=self.model, optimizer=self.optimizer)
        self.state = self.ranks.share(state)
        self.step = facts["step"]
        self.best = math.inf if facts["best"] is None else facts["best"]
        self.before = facts["before"]
        self.dropped, self.dropped_in_a_row = facts["dropped"], facts["dropped_in_a_row"]
        self.seconds = facts["seconds"]
        self.log.say(f"going on after step {self.step:,} of {self.total:,}")

    def facts(self) -> dict[str, Any]:
        """Where the run stands, for a checkpoint."""
        return {
            "step": self.step,
            "best": None if math.isinf(self.best) else self.best,
            "before": self.before,
            "dropped": self.dropped,
            "dropped_in_a_row": self.dropped_in_a_row,
            "seconds": round(self.seconds, 1),
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
        best = self.folder / "training" / "best"
        native.write(made, best, overwrite=True)
        for name in (native.WEIGHTS, native.VOCABULARY, native.CONFIG):
            making = self.folder / f".{name}.part"
            making.unlink(missing_ok=True)
            shutil.copyfile(best / name, making)
            sync(making)
            making.replace(self.folder / name)

    # ---- tell

    def _log_losses(self, losses: list[float], norm: float, seconds: float) -> None:
        finite = [loss for loss in losses if math.isfinite(loss)] or [math.inf]
        self.log.write(
            step=self.step,
            loss=round(sum(finite) / len(finite), 5),
            norm=round(norm, 4),
            lr=self.optimizer.param_groups[0]["lr"],
            tokens=self.tokens_until(self.step),
            tokens_per_second=round(self.log.tokens / seconds, 1),
        )

    def _say_what_is_trained(self) -> None:
        count = sum(p.numel() for p in self.model.parameters())
        inside = (
            sum(p.numel() for p in self.model.softmax.parameters()) if self.model.softmax else 0
        )
        self.log.say(
            f"{self.windows.pairs:,} tokens an epoch, {self.config.vocabulary_size:,} words to "
            f"predict by the {self.settings.softmax} softmax, {count - inside:,} parameters and "
            f"{inside:,} of the softmax, {self.total:,} steps"
        )

    def _say_how_it_ended(self, stop: Stop) -> None:
        if self.ranks.first:
            draw_curves(self.log.path, self.folder / "curves.png")
        if stop.signal:
            name = signal.Signals(stop.signal).name
            self.log.say(
                f"stopped by {name} after step {self.step:,}; the same command goes on from there"
            )
        elif self.step < self.total:
            self.log.say(f"the time is up after step {self.step:,}; the same command goes on")
        else:
            best = "" if math.isinf(self.best) else f", held-out perplexity {self.best:.2f}"
            if self.before is not None:
                change = self.best / self.before - 1
                best += f" where it was {self.before:.2f} before ({change:+.1%})"
            self.log.say(f"{self.folder} is trained: {self.step:,} steps{best}")


def make_optimizer(model: BiLM, settings: Settings) -> torch.optim.Optimizer:
    """Adagrad with the original's settings, or AdamW."""
    parameters: list[Tensor] = list(model.parameters())
    if settings.optimizer == "adagrad":
        return torch.optim.Adagrad(parameters, lr=settings.lr, initial_accumulator_value=1.0)
    return torch.optim.AdamW(
        parameters, lr=settings.lr, betas=(0.9, 0.99), weight_decay=settings.weight_decay
    )
