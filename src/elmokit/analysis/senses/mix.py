"""How much each layer, and how frequent a sense is, should count: learned from the training text.

    score(sense) = scale · Σ_l share_l · cos_l(use, average of the sense) + b · log(its uses)

Each use is held against the averages of its word's senses as they are without it: of n uses with
mean m, those other than v have the mean (n m - v) / (n - 1). The sense that the use really has
should score highest; cross-entropy over the word's senses learns scale, shares and b.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.reservoir import Reservoir
from elmokit.analysis.uses import SAME, Array, unit, with_average

MOST_CHOICES = 50_000  # enough for a handful of numbers
FIRST_SCALE = 10.0
STEPS = 100


@dataclass(frozen=True)
class Choice:
    """A use of the training text and the senses it may have, the most frequent first."""

    cosines: Array
    """To the average of each sense, in each layer and their average: (L + 2, senses)."""
    counts: NDArray[np.int64]
    """Other uses of each sense."""
    right: NDArray[np.bool_]
    """Which senses it has."""


@dataclass(frozen=True)
class Mix:
    """What was learned."""

    shares: tuple[float, ...]
    """Of layers 0..L; their sum is 1."""
    scale: float
    frequency: float = 0.0
    """b: what counts a sense's log frequency in the training text; 0 leaves it out."""

    def scores(self, cosines: Array, counts: NDArray[np.int64]) -> Array:
        """The score of each sense, from its cosines (L + 2, senses) and how often it was seen."""
        mixed = np.array(self.shares, np.float32) @ cosines[: len(self.shares)]
        frequent = self.frequency * np.log(counts)
        return (self.scale * mixed + frequent).astype(np.float32)


def cosines_to(averages: Array, vector: Array, mean: Array) -> Array:
    """Cosines of a use (L + 1, dim) to senses (senses, L + 1, dim), both without `mean`.

    Shape (L + 2, senses): the last row is of the layers' average.
    """
    senses = unit(with_average((averages - mean).swapaxes(0, 1)))  # (L + 2, senses, dim)
    use = unit(with_average((vector - mean)[:, None]))[:, 0]  # (L + 2, dim)
    return np.einsum("lsd,ld->ls", senses, use)  # type: ignore[no-any-return]


def without_itself(
    sums: Array, counts: NDArray[np.int64], right: Sequence[int], vector: Array, mean: Array
) -> Choice | None:
    """A use against its word's senses as they are without it.

    None where nothing is left to choose: its sense has no other use, or the word no other sense.

    Args:
        sums: of the vectors of each sense's uses, its own among them: (senses, L + 1, dim).
        counts: of the uses of each sense.
        right: the senses that it has.
        vector: its own: (L + 1, dim).
        mean: to be taken off: (L + 1, dim).
    """
    own = np.zeros(len(counts), bool)
    own[list(right)] = True
    left = counts - own
    order = np.argsort(-left, kind="stable")
    order = order[left[order] > 0]
    if len(order) < 2 or not own[order].any():
        return None
    rest = (sums - own[:, None, None] * vector)[order] / left[order, None, None]
    cosines = cosines_to(rest.astype(np.float32), vector, mean)
    return Choice(cosines, left[order], own[order])


def nearest(scores: Array) -> int:
    """The sense that scores highest; among equals the first, which is the most frequent."""
    return int(np.argmax(scores >= scores.max() - SAME))


def sample(choices: Iterable[Choice], most: int = MOST_CHOICES, seed: int = 0) -> list[Choice]:
    """At most so many choices, each as likely to be among them as any other."""
    kept = Reservoir[Choice](most, seed)
    for choice in choices:
        kept.add(choice)
    return kept.items


def learn_mix(choices: Sequence[Choice], layers: int, *, frequency: bool) -> Mix:
    """Shares of layers 0..`layers`, a scale and, if asked for, the worth of a sense's frequency.

    Without anything to learn from, all layers have the same share. A frequent sense is never worth
    less than a rare one.
    """
    import torch

    if not choices:
        return Mix((1 / (layers + 1),) * (layers + 1), FIRST_SCALE)
    cosines, counts, right = (torch.from_numpy(array) for array in _padded(choices, layers))
    shares = torch.zeros(layers + 1, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor(FIRST_SCALE, dtype=torch.float64).log().requires_grad_()
    worth = torch.zeros((), dtype=torch.float64, requires_grad=frequency)
    learned = [shares, scale, worth] if frequency else [shares, scale]
    optimizer = torch.optim.LBFGS(
        learned, max_iter=STEPS, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )
    logs = counts.clamp(min=1).log()

    def loss() -> float:
        optimizer.zero_grad()
        mixed = torch.einsum("l,ucl->uc", shares.softmax(0), cosines)
        scores = (scale.exp() * mixed + worth * logs).masked_fill(counts == 0, -torch.inf)
        of_right = scores.masked_fill(~right, -torch.inf).logsumexp(1)
        value = (scores.logsumexp(1) - of_right).mean()
        value.backward()  # type: ignore[no-untyped-call]
        return float(value.detach())

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    if worth < 0:
        # Where all senses have the same number of uses, the one left out makes its own the rarer.
        return learn_mix(choices, layers, frequency=False)
    return Mix(
        tuple(shares.softmax(0).tolist()), float(scale.detach().exp()), float(worth.detach())
    )


def _padded(
    choices: Sequence[Choice], layers: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Cosines (uses, senses, L + 1), counts and what is right (uses, senses); 0 beyond the end."""
    widest = max(len(choice.counts) for choice in choices)
    cosines = np.zeros((len(choices), widest, layers + 1))
    counts = np.zeros((len(choices), widest))
    right = np.zeros((len(choices), widest), bool)
    for row, choice in enumerate(choices):
        senses = len(choice.counts)
        cosines[row, :senses] = choice.cosines[: layers + 1].T
        counts[row, :senses] = choice.counts
        right[row, :senses] = choice.right
    return cosines, counts, right
