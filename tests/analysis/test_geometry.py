"""Cosines, purity, silhouette, components, clusters and correlations, against other libraries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from tiny import complaint

from elmokit.analysis.geometry import (
    best_threshold,
    cosine_matrix,
    pearson,
    principal_components,
    purity,
    ranks,
    silhouette,
    spearman,
    spherical_kmeans,
    unit,
)


def clouds(seed: int = 0, spread: float = 0.8) -> tuple[np.ndarray, list[str]]:
    """Two layers of 30 vectors in three groups of different sizes."""
    rng = np.random.default_rng(seed)
    labels = ["a"] * 15 + ["b"] * 10 + ["c"] * 5
    middle = {label: rng.normal(size=(2, 1, 8)) for label in "abc"}
    vectors = np.concatenate([middle[label] for label in labels], axis=1)
    return (vectors + spread * rng.normal(size=vectors.shape)).astype(np.float32), labels


# ---------------------------------------------------------------------- labels
def test_cosines_are_those_of_scikit_learn() -> None:
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    vectors, _ = clouds()
    for layer, cosines in zip(vectors, cosine_matrix(vectors), strict=True):
        np.testing.assert_allclose(cosines, pairwise.cosine_similarity(layer), atol=1e-5)
    assert not unit(np.zeros((1, 3), np.float32)).any()  # and no warning


@pytest.mark.parametrize("spread", [0.1, 0.8, 3.0])
def test_the_silhouette_is_that_of_scikit_learn(spread: float) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    vectors, labels = clouds(spread=spread)
    result = silhouette(cosine_matrix(vectors), labels)
    expected = [metrics.silhouette_score(layer, labels, metric="cosine") for layer in vectors]
    np.testing.assert_allclose(result, expected, atol=2e-3 if spread == 0.1 else 1e-5)


def test_a_label_that_is_alone_has_silhouette_0_as_in_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    vectors, labels = clouds()
    labels = [*labels[:-1], "alone"]
    result = silhouette(cosine_matrix(vectors), labels)
    expected = [metrics.silhouette_score(layer, labels, metric="cosine") for layer in vectors]
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_the_silhouette_of_a_case_made_by_hand() -> None:
    cosines = np.array([[[1, 0.9, 0.2], [0.9, 1, 0.4], [0.2, 0.4, 1]]], np.float32)
    # distances: own 0.1, other 0.8; own 0.1, other 0.6; and one that is alone
    expected = ((0.8 - 0.1) / 0.8 + (0.6 - 0.1) / 0.6 + 0) / 3
    assert silhouette(cosines, ["a", "a", "b"]) == pytest.approx([expected])
    assert complaint(lambda: silhouette(cosines, ["a", "a", "a"])) == (
        "a silhouette needs at least two labels"
    )


@pytest.mark.parametrize("spread", [0.1, 0.8, 3.0])
def test_purity_is_what_leaving_one_out_finds_with_scikit_learns_nearest_neighbour(
    spread: float,
) -> None:
    neighbors = pytest.importorskip("sklearn.neighbors")
    vectors, labels = clouds(spread=spread)
    for layer, share in zip(vectors, purity(cosine_matrix(vectors), labels), strict=True):
        nearest = neighbors.NearestNeighbors(n_neighbors=1, metric="cosine").fit(layer)
        (others,) = nearest.kneighbors(return_distance=False).T  # a point is not its own neighbour
        right = np.mean([labels[i] == labels[other] for i, other in enumerate(others)])
        assert share == pytest.approx(right, abs=0.04 if spread == 0.1 else 1e-6)


def test_scores_are_those_of_guessing_if_all_uses_have_one_vector() -> None:
    one = np.random.default_rng(0).normal(size=(1, 1, 64)).astype(np.float32)
    vectors = np.repeat(one, 28, axis=1)
    labels = ["river"] * 14 + ["money"] * 14
    assert purity(cosine_matrix(vectors), labels) == pytest.approx([13 / 27])
    assert silhouette(cosine_matrix(vectors), labels) == pytest.approx([0])
    labels = ["river"] * 20 + ["money"] * 8
    guess = (20 * 19 + 8 * 7) / (28 * 27)
    assert purity(cosine_matrix(vectors), labels) == pytest.approx([guess])


def test_principal_components_are_those_of_scikit_learn() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    vectors, _ = clouds()
    points, shares = principal_components(vectors[0])
    reference = decomposition.PCA(2, svd_solver="full").fit(vectors[0])
    np.testing.assert_allclose(shares, reference.explained_variance_ratio_, rtol=1e-4)
    expected = reference.transform(vectors[0])
    signs = np.sign((points * expected).sum(axis=0))  # a component may have either sign
    np.testing.assert_allclose(points * signs, expected, atol=1e-4)


def test_the_principal_components_keep_the_distances_of_flat_points() -> None:
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((6, 2))
    turned = (flat @ np.linalg.qr(rng.standard_normal((5, 5)))[0][:2] + 3).astype(np.float32)
    points, shares = principal_components(turned)

    def distances(x: np.ndarray) -> np.ndarray:
        return np.linalg.norm(x[:, None] - x[None], axis=-1)

    np.testing.assert_allclose(distances(points), distances(flat), atol=1e-4)
    assert shares.sum() == pytest.approx(1, abs=1e-5)


# ---------------------------------------------------------------------- clusters
def blobs(centers: int, seed: int, spread: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around some directions, and which one each belongs to."""
    points, labels = make_blobs(
        n_samples=150, n_features=8, centers=centers, cluster_std=spread, random_state=seed
    )
    return unit(points.astype(np.float32)), labels


@pytest.mark.parametrize("seed", range(4))
def test_kmeans_is_as_good_as_that_of_scikit_learn(seed: int) -> None:
    vectors, _ = blobs(4, seed, spread=4.0)
    labels, centers = spherical_kmeans(vectors, 4, seed=1)
    theirs = KMeans(4, n_init=20, random_state=0).fit(vectors)
    their_centers = unit(theirs.cluster_centers_.astype(np.float32))
    own = float((vectors * centers[labels]).sum())
    other = float((vectors @ their_centers.T).max(axis=1).sum())
    assert own >= other - 0.01 * abs(other)
    assert np.allclose(np.linalg.norm(centers, axis=1), 1, atol=1e-5)
    assert (labels == (vectors @ centers.T).argmax(axis=1)).mean() > 0.99


def test_clear_clusters_are_found_as_they_are() -> None:
    vectors, expected = blobs(3, seed=5)
    labels, _ = spherical_kmeans(vectors, 3, seed=1)
    assert adjusted_rand_score(expected, labels) == 1


def test_there_are_no_empty_clusters() -> None:
    same = np.tile(unit(np.ones((1, 4), np.float32)), (6, 1))
    labels, _ = spherical_kmeans(same, 3, seed=1)
    assert set(labels.tolist()) == {0, 1, 2}


def test_the_same_seed_gives_the_same_clusters() -> None:
    vectors, _ = blobs(5, seed=6, spread=5.0)
    first, second = (spherical_kmeans(vectors, 5, seed=7)[0] for _ in range(2))
    assert (first == second).all()


# ---------------------------------------------------------------------- two columns
@pytest.mark.parametrize("seed", range(5))
def test_correlations_are_those_of_scipy_with_many_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, 40).astype(float)
    y = x + rng.integers(-3, 4, 40)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-9)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-9)
    assert ranks(x).tolist() == stats.rankdata(x).tolist()


def test_what_does_not_vary_has_no_correlation() -> None:
    assert pearson([1, 1, 1], [1, 2, 3]) is None
    assert spearman([1, 2, 3], [5, 5, 5]) is None
    assert spearman([1, 2, 3], [1, 10, 11]) == 1


@pytest.mark.parametrize("seed", range(5))
def test_no_threshold_is_better_than_the_best_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 12, 30) / 10
    gold = (scores + rng.normal(0, 0.3, 30) > 0.6).tolist()
    share = np.mean((scores >= best_threshold(scores, gold)) == gold)
    tried = [np.mean((scores >= t) == np.array(gold)) for t in np.arange(-1, 3, 0.01)]
    assert share == pytest.approx(max(tried))


def test_a_threshold_may_call_all_yes_or_all_no() -> None:
    assert best_threshold([0.1, 0.5], [True, True]) <= 0.1
    assert best_threshold([0.1, 0.5], [False, False]) > 0.5
