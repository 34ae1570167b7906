"""How to train: dataclasses whose fields are the options of `elmokit pretrain` and `adapt`.

Nothing here imports torch, because the command line reads the fields to print its help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from elmokit.errors import ElmokitError
from elmokit.progress import check_threads
from elmokit.training.settings import check_settings, find_change

MIN_RATE = 0.01  # Fraction of the learning rate at the end of a cosine or a decay.
DECAY_SHARE = 0.2  # Fraction of a run in which the learning rate of a trapezoid falls.
LEARNING_RATES = {"adagrad": 0.2, "adamw": 0.001}

GROUPS = "Text Model Optimizer Schedule Softmax Saving Machine".split()
TEXT, MODEL, OPTIMIZER, SCHEDULE, SOFTMAX, SAVING, MACHINE = (
    Parameter(group=Group(name, sort_key=key)) for key, name in enumerate(GROUPS, start=1)
)
FLAG = Parameter(negative="")

Tokenizer = Literal["elmokit", "whitespace", "chinese"]
Precision = Literal["float32", "bf16"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PretrainSettings:
    """Everything that a training run depends on, besides its text and its model."""

    valid: Annotated[tuple[str, ...] | None, TEXT] = None
    """Held-out text: files, globs or folders (default: a fraction of the corpus)."""
    valid_fraction: Annotated[float, TEXT] = 0.01
    """Fraction of the corpus to hold out, in blocks spread over it, if --valid is not given."""
    tokenizer: Annotated[Tokenizer | None, TEXT] = "elmokit"
    """Tokenizer of running text; whitespace for tokenized text with one sentence per line."""
    jieba_dict: Annotated[str | None, TEXT] = None
    """Dictionary file for the tokenizer chinese, a word per line; the model keeps its words."""
    batch_size: Annotated[int, OPTIMIZER] = 128
    """Number of text streams that are read in parallel, over all processes."""
    unroll: Annotated[int, OPTIMIZER] = 20
    """Length of truncated backpropagation in tokens."""
    optimizer: Annotated[Literal["adagrad", "adamw"], OPTIMIZER] = "adagrad"
    """Optimizer: adagrad as in the original ELMo, or adamw."""
    lr: Annotated[float | None, OPTIMIZER] = None
    """Learning rate (default: 0.2 for adagrad, 0.001 for adamw)."""
    weight_decay: Annotated[float, OPTIMIZER] = 0.0
    """Weight decay of adamw."""
    clip: Annotated[float, OPTIMIZER] = 10.0
    """Maximum norm of the gradient."""
    seed: Annotated[int, OPTIMIZER] = 1
    """Seed of the initial weights, the order of the text, dropout and samples."""
    epochs: Annotated[int, SCHEDULE] = 10
    """Number of times to read the text."""
    max_steps: Annotated[int | None, SCHEDULE] = None
    """Maximum number of steps of the whole run."""
    max_minutes: Annotated[float | None, SCHEDULE] = None
    """Stop after this time; the same command resumes the run."""
    schedule: Annotated[Literal["auto", "constant", "cosine", "trapezoid"], SCHEDULE] = "auto"
    """Course of the learning rate (auto: constant for adagrad, cosine for adamw)."""
    warmup: Annotated[int, SCHEDULE] = 0
    """Number of steps in which the learning rate rises from 0."""
    decay_steps: Annotated[int | None, SCHEDULE] = None
    """Number of steps of the linear decay that ends a trapezoid (default: a fifth of the run)."""
    decay_from: Annotated[int | None, SCHEDULE] = None
    """Step at which the decay begins; the run ends with it, whatever --max-steps says."""
    softmax: Annotated[Literal["auto", "full", "sampled"], SOFTMAX] = "auto"
    """Softmax of training: auto depends on the vocabulary size. Evaluation is always full."""
    samples: Annotated[int, SOFTMAX] = 8192
    """Number of words that a sampled softmax draws in each step."""
    min_count: Annotated[int, SOFTMAX] = 3
    """Minimum frequency of a word in the vocabulary of the softmax."""
    vocab_size: Annotated[int | None, SOFTMAX] = None
    """Maximum number of words in the vocabulary of the softmax (default: no limit)."""
    eval_every: Annotated[int, SAVING] = 1000
    """Number of steps between evaluations; each epoch ends with one too."""
    save_every: Annotated[int, SAVING] = 500
    """Number of steps between checkpoints."""
    tensorboard: Annotated[bool, SAVING, FLAG] = False
    """Also write a log for TensorBoard into the folder (needs the extra tensorboard)."""
    quiet: Annotated[bool, SAVING, FLAG] = False
    """Print neither progress nor messages."""
    device: Annotated[str, MACHINE] = "cpu"
    """Device to compute on, such as cpu or cuda."""
    precision: Annotated[Precision, MACHINE] = "float32"
    """Precision of matrix products, bf16 if the hardware has it; weights are float32."""
    accumulate: Annotated[int, MACHINE] = 1
    """Number of parts in which a batch is read, to save memory; the result is the same."""
    threads: Annotated[int | None, MACHINE] = None
    """Number of threads to compute with (default: all cores)."""
    workers: Annotated[int | None, MACHINE] = None
    """Number of processes that tokenize the text (default: all cores)."""

    def __post_init__(self) -> None:
        positive = ("lr", "clip", "max_minutes")
        check_settings(self, _MINIMUM, positive=positive, fractions=("dropout",))
        check_threads(self.threads)
        for name in ("decay_steps", "decay_from") if self.course != "trapezoid" else ():
            if getattr(self, name) is not None:
                raise ElmokitError(f"{name} needs the schedule 'trapezoid', not {self.schedule!r}")

    @property
    def learning_rate(self) -> float:
        """Learning rate after the warm-up."""
        return LEARNING_RATES[self.optimizer] if self.lr is None else self.lr

    @property
    def course(self) -> Literal["constant", "cosine", "trapezoid"]:
        """Schedule that `auto` stands for."""
        if self.schedule != "auto":
            return self.schedule
        if self.decay_steps is not None or self.decay_from is not None:
            return "trapezoid"
        return "cosine" if self.optimizer == "adamw" else "constant"

    def total_steps(self, steps_per_epoch: int) -> int:
        """Return the number of steps of the whole run."""
        if self.decay_from is not None:
            default = math.ceil(self.decay_from * DECAY_SHARE / (1 - DECAY_SHARE))
            return self.decay_from + (self.decay_steps or max(1, default))
        steps = self.epochs * steps_per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def decay_start(self, total: int) -> int:
        """Return the step of `total` at which the learning rate of a trapezoid begins to fall."""
        if self.decay_from is not None:
            return self.decay_from
        return max(0, total - (self.decay_steps or math.ceil(total * DECAY_SHARE)))

    def rate(self, step: int, total: int) -> float:
        """Return the learning rate of a step of `total`: warm-up, then as the schedule says."""
        rate = self.learning_rate * min(1.0, (step + 1) / max(self.warmup, 1))
        if self.course == "cosine" and step >= self.warmup:
            part = (step - self.warmup) / max(1, total - self.warmup)
            cosine = 0.5 * (1 + math.cos(math.pi * part))
            rate *= MIN_RATE + (1 - MIN_RATE) * cosine
        if self.course == "trapezoid" and step >= (start := self.decay_start(total)):
            rate *= 1 - (1 - MIN_RATE) * (step - start + 1) / (total - start)
        return rate

    def is_constant_until(self, step: int, steps_per_epoch: int) -> bool:
        """Return whether the rate of all steps before `step` does not depend on the run's end."""
        start = self.decay_start(self.total_steps(steps_per_epoch))
        return self.course == "constant" or (self.course == "trapezoid" and step <= start)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that the weights depend on, as JSON takes them."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in NOT_SAVED}

    def find_change(self, old: dict[str, Any], step: int, steps_per_epoch: int) -> str | None:
        """Describe why a run with the settings `old` cannot be resumed; return None if it can.

        As long as the rate is constant, a run may become longer or shorter, or begin to decay.
        """
        before = replace(self, **{name: old[name] for name in LENGTH})
        may_change = {"accumulate"}
        if before.is_constant_until(step, steps_per_epoch):
            may_change |= LENGTH
        if change := find_change(old, self, ignore=NOT_SAVED | may_change):
            return change
        if may_change >= LENGTH and not self.is_constant_until(step, steps_per_epoch):
            if self.course == "cosine":
                return f"schedule was {old['schedule']!r} and is now 'cosine'"
            start = self.decay_start(self.total_steps(steps_per_epoch))
            return (
                f"its learning rate would fall from step {start:,}, but the run is at step "
                f"{step:,}: set decay_from to {step} or more"
            )
        return None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AdaptSettings(PretrainSettings):
    """The same for a model that is adapted, with gentler defaults."""

    valid_fraction: Annotated[float, TEXT] = 0.05
    tokenizer: Annotated[Tokenizer | None, TEXT] = None
    """Tokenizer of running text; whitespace for tokenized text (default: the model's own)."""
    dropout: Annotated[float | None, MODEL] = None
    """Dropout of the input of each LSTM layer and of the output (default: the model's own)."""
    batch_size: Annotated[int, OPTIMIZER] = 32
    optimizer: Annotated[Literal["adagrad", "adamw"], OPTIMIZER] = "adamw"
    clip: Annotated[float, OPTIMIZER] = 5.0
    epochs: Annotated[int, SCHEDULE] = 1
    warmup: Annotated[int, SCHEDULE] = 50
    new_softmax: Annotated[bool, SOFTMAX, FLAG] = False
    """Predict the words of this corpus by a new softmax. A model without softmax always does."""
    softmax_steps: Annotated[int | None, SOFTMAX] = None
    """Number of steps in which only a new softmax learns (default: a fifth of all steps)."""


_MINIMUM = {
    **dict.fromkeys(("epochs", "batch_size", "unroll", "samples", "min_count"), 1),
    **dict.fromkeys(("max_steps", "accumulate", "eval_every", "save_every", "decay_steps"), 1),
    "workers": 1,
    **dict.fromkeys(("warmup", "weight_decay", "seed", "softmax_steps", "decay_from"), 0),
    "vocab_size": 4,
}
# Settings that say when a run ends, which do not matter while its learning rate is constant.
LENGTH = {"schedule", "epochs", "max_steps", "decay_steps", "decay_from"}
# Settings that do not determine the weights, or that the corpus and the model's config record.
NOT_SAVED = set(
    """valid valid_fraction tokenizer jieba_dict dropout new_softmax softmax_steps max_minutes
    eval_every save_every tensorboard quiet device threads workers""".split()
)
