"""Learn from the training text how much each layer, and the frequency of a sense, should count.

    score(sense) = scale · Σ_l share_l · cos_l(use, average of the sense) + b · log(its uses)

Each use is compared with the averages of its word's senses computed without it: of n uses with mean
m, those other than v have the mean (n m - v) / (n - 1). The correct sense should score highest;
cross-entropy over the word's senses learns scale, shares and b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.geometry import TIE, Array, unit
from elmokit.analysis.uses import with_average

MAX_CHOICES = 50_000  # More would not change the few numbers that are learned.
FIRST_SCALE = 10.0
MAX_STEPS = 100


@dataclass(frozen=True)
class Choice:
    """A use of the training text and the senses it may have, the most frequent first."""

    cosines: Array
    """To the average of each sense, in each layer and their average: (L + 2, senses)."""
    counts: NDArray[np.int64]
    """Number of other uses of each sense: (senses,)."""
    correct: NDArray[np.bool_]
    """Which senses it has: (senses,)."""


@dataclass(frozen=True)
class Mix:
    """The learned weights of layers and of sense frequency."""

    shares: tuple[float, ...]
    """Weights of layers 0..L; their sum is 1."""
    scale: float
    """Factor of the weighted cosines."""
    frequency: float = 0.0
    """b, the weight of a sense's log frequency in the training text; 0 ignores it."""

    def scores(self, cosines: Array, counts: NDArray[np.int64]) -> Array:
        """Return the score of each sense, from its cosines (L + 2, senses) and frequency."""
        mixed = np.array(self.shares, np.float32) @ cosines[: len(self.shares)]  # (senses,)
        return (self.scale * mixed + self.frequency * np.log(counts)).astype(np.float32)


def cosines_to(averages: Array, vector: Array, mean: Array) -> Array:
    """Return the cosines of a use (L + 1, dim) to senses (senses, L + 1, dim), minus `mean`.

    Shape (L + 2, senses): the last row is of the layers' average.
    """
    senses = unit(with_average((averages - mean).swapaxes(0, 1)))  # (L + 2, senses, dim)
    use = unit(with_average((vector - mean)[:, None]))[:, 0]  # (L + 2, dim)
    return np.einsum("lsd,ld->ls", senses, use)  # type: ignore[no-any-return]


def leave_out(
    sums: Array, counts: NDArray[np.int64], own: NDArray[np.bool_], vector: Array, mean: Array
) -> Choice | None:
    """Compare a use that has its `own` senses with the senses of its word computed without it.

    `sums` (senses, L + 1, dim) and `counts` (senses,) of the uses of each sense include this one
    with its vector (L + 1, dim); `mean` (L + 1, dim) is subtracted. Return None if there is nothing
    to choose: its sense has no other use, or the word no other sense.
    """
    left = counts - own
    order = np.argsort(-left, kind="stable")
    order = order[left[order] > 0]
    if len(order) < 2 or not own[order].any():
        return None
    rest = (sums - own[:, None, None] * vector)[order] / left[order, None, None]
    cosines = cosines_to(rest.astype(np.float32), vector, mean)
    return Choice(cosines, left[order], own[order])


def nearest(scores: Array) -> int:
    """Return the sense that scores highest; of equals the first, which is the most frequent."""
    return int(np.argmax(scores >= scores.max() - TIE))


def learn_mix(choices: Sequence[Choice], num_layers: int, *, frequency: bool) -> Mix:
    """Learn the shares of layers 0..num_layers, a scale and, with `frequency`, its weight.

    Without choices all layers have the same share. A frequent sense never counts less than a rare
    one.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    if not choices:
        return Mix((1 / (num_layers + 1),) * (num_layers + 1), FIRST_SCALE)
    columns = ((c.cosines[: num_layers + 1].T, c.counts, c.correct) for c in choices)
    # (uses, senses, L + 1), (uses, senses), (uses, senses); padded with 0
    cosines, counts, correct = (
        pad_sequence([torch.from_numpy(array).double() for array in column], batch_first=True)
        for column in zip(*columns, strict=True)
    )
    shares = torch.zeros(num_layers + 1, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor(FIRST_SCALE, dtype=torch.float64).log().requires_grad_()
    weight = torch.zeros((), dtype=torch.float64, requires_grad=frequency)
    learned = [shares, scale, weight] if frequency else [shares, scale]
    optimizer = torch.optim.LBFGS(
        learned, max_iter=MAX_STEPS, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )
    logs = counts.clamp(min=1).log()

    def loss() -> float:
        optimizer.zero_grad()
        mixed = torch.einsum("l,ucl->uc", shares.softmax(0), cosines)  # (uses, senses)
        scores = (scale.exp() * mixed + weight * logs).masked_fill(counts == 0, -torch.inf)
        of_correct = scores.masked_fill(correct == 0, -torch.inf).logsumexp(1)  # (uses,)
        value = (scores.logsumexp(1) - of_correct).mean()
        value.backward()  # type: ignore[no-untyped-call]
        return float(value.detach())

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    if weight < 0:
        # If all senses have equally many uses, leaving one out makes its own sense the rarer one.
        return learn_mix(choices, num_layers, frequency=False)
    return Mix(
        tuple(shares.softmax(0).tolist()), float(scale.detach().exp()), float(weight.detach())
    )
