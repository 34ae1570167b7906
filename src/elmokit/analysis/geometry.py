"""Numbers for how well two columns agree: correlations, and a threshold for yes and no."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pearson(x: ArrayLike, y: ArrayLike) -> float | None:
    """Pearson's correlation; None where one of both does not vary.

    >>> pearson([1, 2, 3], [10, 20, 30])
    1.0
    """
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    a, b = a - a.mean(), b - b.mean()
    return round(float(a @ b / np.sqrt((a @ a) * (b @ b))), 12)


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of theirs.

    >>> ranks([3.0, 1.0, 3.0]).tolist()
    [2.5, 1.0, 2.5]
    """
    _, group, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)  # the rank of the last of each group
    return (last - (counts - 1) / 2)[group]


def spearman(x: ArrayLike, y: ArrayLike) -> float | None:
    """Spearman's rank correlation, ties by their mean rank; None where one does not vary."""
    return pearson(ranks(x), ranks(y))


def best_threshold(scores: ArrayLike, gold: Sequence[bool]) -> float:
    """The threshold t for which `score >= t` is most often what gold says.

    It lies halfway between two scores, or beyond the last of them; of thresholds that are equally
    good it is the middle one.

    >>> best_threshold([0.1, 0.2, 0.6, 0.8], [False, False, True, True])
    0.4
    """
    values = np.asarray(scores, np.float64)
    truth = np.asarray(gold, bool)
    order = np.unique(values)  # rising
    edges = np.concatenate([[order[0] - 1], (order[:-1] + order[1:]) / 2, [order[-1] + 1]])
    place = np.searchsorted(order, values)
    yes = np.bincount(place, truth, len(order))
    no = np.bincount(place, ~truth, len(order))
    # At edge k all scores from the k-th on are called yes, those before it no.
    right = np.concatenate([[0], np.cumsum(no)]) + truth.sum() - np.concatenate([[0], yes.cumsum()])
    best = np.flatnonzero(right == right.max())
    return float(edges[best[(len(best) - 1) // 2]])


def accuracy(scores: ArrayLike, gold: Sequence[bool], threshold: float) -> float:
    """How often `score >= threshold` is what gold says."""
    return float(((np.asarray(scores) >= threshold) == np.asarray(gold, bool)).mean())
