"""How to train: one validated dataclass, compared when a run goes on."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from elmokit.errors import ElmokitError

LOWEST_RATE = 0.01  # of the learning rate, at the end of a cosine


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run's weights depend on, besides the corpus and the model's shape."""

    epochs: int
    max_steps: int | None
    batch_size: int
    unroll: int
    accumulate: int
    optimizer: Literal["adagrad", "adamw"]
    lr: float
    schedule: Literal["constant", "cosine"]
    warmup: int
    weight_decay: float
    clip: float
    softmax: Literal["full", "sampled"]
    samples: int
    min_count: int
    vocab_size: int | None
    seed: int
    frozen_steps: int = 0
    """Steps at the beginning in which only the softmax learns."""
    start: str | None = None
    """The fingerprint of the model whose weights it starts from."""
    precision: Literal["float32", "bf16"] = "float32"
    """Of matrix products."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "unroll", "samples", "min_count"):
            if getattr(self, name) < 1:
                raise ElmokitError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ElmokitError(f"max_steps must be at least 1, not {self.max_steps}")
        if self.vocab_size is not None and self.vocab_size < 4:
            raise ElmokitError(f"vocab_size must be at least 4, not {self.vocab_size}")
        for name in ("lr", "clip"):
            if not getattr(self, name) > 0:
                raise ElmokitError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("warmup", "weight_decay", "seed", "frozen_steps"):
            if getattr(self, name) < 0:
                raise ElmokitError(f"{name} must not be below 0, but is {getattr(self, name)}")

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON takes them."""
        return asdict(self)

    def total_steps(self, steps_per_epoch: int) -> int:
        """Steps of the whole run."""
        steps = self.epochs * steps_per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def rate(self, step: int, total: int) -> float:
        """The learning rate of a step of `total`: warm-up, then constant or a cosine."""
        rate = self.lr * min(1.0, (step + 1) / max(self.warmup, 1))
        if self.schedule == "cosine" and step >= self.warmup:
            part = (step - self.warmup) / max(1, total - self.warmup)
            cosine = 0.5 * (1 + math.cos(math.pi * part))
            rate *= LOWEST_RATE + (1 - LOWEST_RATE) * cosine
        return rate

    def may_go_on_from(self, old: dict[str, Any]) -> str | None:
        """Why a run with these settings cannot go on from one with `old`; None if it can.

        A run at a constant rate may become longer or shorter, and any may be read in other parts;
        what is learned until then is the same. An older run did without settings that are new.
        """
        free = {"accumulate"} | ({"epochs", "max_steps"} if self.schedule == "constant" else set())
        for field in fields(self):
            before, now = old.get(field.name, field.default), getattr(self, field.name)
            if field.name not in free and before != now:
                return f"{field.name} was {before!r} and is now {now!r}"
        return None
