"""Vectors and scores as numbers: cosines, clusters, principal components, correlations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.errors import ElmokitError
from elmokit.layers import unit as unit

Array = NDArray[np.float32]

TIE = 1e-4  # Cosines and scores closer than this count as equal.
ROUNDING = 1e-3  # Relative rounding error of a vector that was stored as float16.
RESTARTS = 10
MAX_ROUNDS = 100


# ---------------------------------------------------------------------- cosines
def cosine(first: Array, second: Array) -> Array:
    """Return the cosines of vectors in the last axis; 0 where one is a zero vector."""
    return (unit(first) * unit(second)).sum(axis=-1)  # type: ignore[no-any-return]


def cosine_matrix(vectors: Array) -> Array:
    """Return the cosines between all vectors (layers, n, dim): (layers, n, n)."""
    directions = unit(vectors)
    return directions @ directions.swapaxes(-1, -2)


def subtract_mean(vectors: Array) -> Array:
    """Subtract the mean from vectors (layers, n, dim); return 0 where only rounding is left."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    rest = vectors - vectors.mean(axis=1, keepdims=True)
    is_real = np.linalg.norm(rest, axis=-1, keepdims=True) > ROUNDING * length
    return np.where(is_real, rest, 0)


# ---------------------------------------------------------------------- labels
def purity(cosines: Array, labels: Sequence[str]) -> Array:
    """Return how often the nearest other vector has the same label, for each layer: (layers,)."""
    same = np.equal.outer(np.array(labels), np.array(labels))  # (n, n)
    others = np.where(np.eye(len(same), dtype=bool), -np.inf, cosines)  # (layers, n, n)
    nearest = others >= others.max(axis=2, keepdims=True) - TIE  # several, if equally near
    shares = (nearest & same).sum(axis=2) / nearest.sum(axis=2)  # (layers, n)
    return shares.mean(axis=1)  # type: ignore[no-any-return]


def silhouette(cosines: Array, labels: Sequence[str]) -> Array:
    """Return the mean silhouette of the labels by cosine distance, for each layer: (layers,)."""
    names, indices = np.unique(np.array(labels), return_inverse=True)
    if len(names) < 2:
        raise ElmokitError("a silhouette needs at least two labels")
    member = np.eye(len(names), dtype=np.float32)[indices]  # (n, labels)
    # Without those that are only rounding, a layer with one vector for all has silhouette 0.
    distances = np.where(cosines > 1 - TIE, 0, 1 - cosines)  # (layers, n, n)
    sums = distances @ member  # (layers, n, labels)
    count, own = member.sum(axis=0), member.astype(bool)
    others = count[indices] - 1  # (n,): other vectors of the same label
    inside = sums[:, own] / np.maximum(others, 1)  # (layers, n)
    outside = np.where(own, np.inf, sums / count).min(axis=2)  # (layers, n)
    largest = np.maximum(np.maximum(inside, outside), 1e-12)
    return np.where(others == 0, 0, (outside - inside) / largest).mean(axis=1)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- components and clusters
def principal_components(vectors: Array) -> tuple[Array, Array]:
    """Project vectors (n, dim) on two components: points (n, 2), shares of the variance (2,)."""
    left, scale, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    total = max(float((scale**2).sum()), 1e-12)
    shares: Array = (scale[:2] ** 2 / total).astype(np.float32)
    return left[:, :2] * scale[:2], shares


def spherical_kmeans(vectors: Array, clusters: int, seed: int) -> tuple[NDArray[np.intp], Array]:
    """Cluster unit vectors (n, dim) by cosine: clusters (n,) and unit centers (clusters, dim)."""
    rng = np.random.default_rng(seed)
    runs = (_run_kmeans(vectors, clusters, rng) for _ in range(RESTARTS))
    labels, centers, _ = max(runs, key=lambda run: run[2])
    return labels, centers


def _run_kmeans(
    vectors: Array, clusters: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], Array, float]:
    """Run k-means once; also return the sum of the cosines to the centers."""
    centers = _first_centers(vectors, clusters, rng)
    labels = np.full(len(vectors), -1)
    for _ in range(MAX_ROUNDS):
        cosines = vectors @ centers.T  # (n, clusters)
        before, labels = labels, cosines.argmax(axis=1)
        _fill_empty(labels, cosines)
        if (labels == before).all():
            break
        member = np.eye(clusters, dtype=np.float32)[labels]  # (n, clusters)
        centers = unit(member.T @ vectors)
    return labels, centers, float((vectors * centers[labels]).sum())


def _fill_empty(labels: NDArray[np.intp], cosines: Array) -> None:
    """Move to each empty cluster the vector that is farthest from its own center."""
    for cluster in range(cosines.shape[1]):
        sizes = np.bincount(labels, minlength=cosines.shape[1])
        if sizes[cluster] == 0:
            own = cosines[np.arange(len(labels)), labels]
            labels[np.where(sizes[labels] > 1, own, np.inf).argmin()] = cluster


def _first_centers(vectors: Array, clusters: int, rng: np.random.Generator) -> Array:
    """Draw vectors that lie apart, each by its distance to those drawn before (k-means++)."""
    chosen = [int(rng.integers(len(vectors)))]
    while len(chosen) < clusters:
        distance = (1 - vectors @ vectors[chosen].T).min(axis=1).clip(min=0).astype(np.float64)
        shares = distance / distance.sum() if distance.any() else None
        chosen.append(int(rng.choice(len(vectors), p=shares)))
    return vectors[chosen]


# ---------------------------------------------------------------------- agreement of two columns
def pearson(x: ArrayLike, y: ArrayLike) -> float | None:
    """Return Pearson's correlation, or None if one of the columns does not vary.

    >>> pearson([1, 2, 3], [10, 20, 30])
    1.0
    """
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return round(float(np.corrcoef(a, b)[0, 1]), 12)


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Return ranks from 1; equal values share the mean of their ranks.

    >>> ranks([3.0, 1.0, 3.0]).tolist()
    [2.5, 1.0, 2.5]
    """
    _, group, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)  # the rank of the last value of each group
    return (last - (counts - 1) / 2)[group]


def spearman(x: ArrayLike, y: ArrayLike) -> float | None:
    """Return Spearman's rank correlation, or None if one of the columns does not vary."""
    return pearson(ranks(x), ranks(y))


def best_threshold(scores: ArrayLike, gold: ArrayLike) -> float:
    """Return the threshold t for which `score >= t` agrees with `gold` most often.

    It lies halfway between two scores, or beyond the last one; of several it is the middle one.

    >>> best_threshold([0.1, 0.2, 0.6, 0.8], [False, False, True, True])
    0.4
    """
    truth = np.asarray(gold, bool)
    levels, level = np.unique(np.asarray(scores, np.float64), return_inverse=True)  # rising
    edges = np.concatenate([[levels[0] - 1], (levels[:-1] + levels[1:]) / 2, [levels[-1] + 1]])
    yes = np.bincount(level, truth, len(levels))
    no = np.bincount(level, ~truth, len(levels))
    # At edge k all scores from level k on are called yes, those below it no.
    right = np.concatenate([[0], np.cumsum(no)]) + truth.sum() - np.concatenate([[0], yes.cumsum()])
    best = np.flatnonzero(right == right.max())
    return float(edges[best[(len(best) - 1) // 2]])
