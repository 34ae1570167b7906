"""Clusters of a word's uses: how they are found, what is typical of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2_contingency
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score, silhouette_score
from tiny import complaint, tiny_elmo

from elmokit.analysis.senses.induce import (
    cluster_uses,
    find_uses,
    induce_senses,
    likelihood_ratio,
    nearby,
    position,
    sample_uses,
    spherical_kmeans,
    typical_words,
)
from elmokit.analysis.uses import Use, read_uses, unit
from elmokit.store import LayerStore


def blobs(centres: int, seed: int, spread: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around some directions, and which one each belongs to."""
    points, labels = make_blobs(
        n_samples=150, n_features=8, centers=centres, cluster_std=spread, random_state=seed
    )
    return unit(points.astype(np.float32)), labels


@pytest.mark.parametrize("seed", range(4))
def test_kmeans_is_as_good_as_that_of_scikit_learn(seed: int) -> None:
    vectors, _ = blobs(4, seed, spread=4.0)
    labels, centres = spherical_kmeans(vectors, 4, seed=1)
    theirs = KMeans(4, n_init=20, random_state=0).fit(vectors)
    their_centres = unit(theirs.cluster_centers_.astype(np.float32))
    own = float((vectors * centres[labels]).sum())
    other = float((vectors @ their_centres.T).max(axis=1).sum())
    assert own >= other - 0.01 * abs(other)
    assert np.allclose(np.linalg.norm(centres, axis=1), 1, atol=1e-5)
    assert (labels == (vectors @ centres.T).argmax(axis=1)).mean() > 0.99


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


@pytest.mark.parametrize("centres", [2, 3, 5])
def test_the_number_of_clusters_is_chosen_by_their_silhouette(centres: int) -> None:
    vectors, _ = blobs(centres, seed=centres, spread=0.7)
    labels, _, tried = cluster_uses(vectors[None], 0, None, seed=1)
    assert len(set(labels.tolist())) == centres
    assert tried[centres] >= max(tried.values()) - 0.05
    assert all(tried[fewer] < max(tried.values()) - 0.05 for fewer in range(2, centres))
    expected = silhouette_score(vectors, labels, metric="cosine")
    assert tried[centres] == pytest.approx(expected, abs=1e-4)
    assert list(tried) == [2, 3, 4, 5, 6, 7, 8]


# ---------------------------------------------------------------------- uses
def test_uses_are_found_in_any_case_and_more_than_once() -> None:
    sentences = [["Bank", "to", "bank"], ["banks"], ["the", "New", "York", "bank"]]
    found = list(find_uses(sentences, ["BANK"]))
    assert [(use.marked(), use.lemma) for use in found] == [
        ("[Bank] to bank", "bank"),
        ("Bank to [bank]", "bank"),
        ("the New York [bank]", "bank"),
    ]
    assert [use.marked() for use in find_uses(sentences, ["new", "york"])] == [
        "the [New York] bank"
    ]


def test_a_sample_of_uses_is_fair_bounded_and_in_order() -> None:
    uses = [Use((str(number),), 0, 1, "x") for number in range(30)]
    seen = np.zeros(30)
    for seed in range(500):
        kept, there = sample_uses(iter(uses), 10, seed)
        numbers = [int(use.tokens[0]) for use in kept]
        assert there == 30
        assert len(numbers) == 10
        assert numbers == sorted(numbers)
        seen[numbers] += 1
    assert seen.min() > 115
    assert seen.max() < 220
    assert sample_uses(iter(uses), 100, 1) == (uses, 30)
    assert sample_uses(iter([]), 100, 1) == ([], 0)


# ---------------------------------------------------------------------- typical words
def test_the_likelihood_ratio_is_that_of_scipy() -> None:
    for here, inside, there, outside in [(5, 20, 1, 60), (3, 3, 0, 10), (7, 30, 14, 60)]:
        counts = [[here, inside - here], [there, outside - there]]
        kind = {"correction": False, "lambda_": "log-likelihood"}
        if min(map(sum, zip(*counts, strict=True))) > 0:
            expected = chi2_contingency(counts, **kind).statistic
            assert likelihood_ratio(here, inside, there, outside) == pytest.approx(expected)


def test_of_a_long_sentence_the_words_nearby_are_shown() -> None:
    use = Use(tuple("a b c bank d e f".split()), 3, 4, "bank")
    assert nearby(use, 2).marked() == "… b c [bank] d e …"
    assert nearby(use, 3) == use


def test_typical_words_stand_near_more_uses_inside_than_outside() -> None:
    inside = [Use(tuple(text.split()), 1, 2, "bank") for text in (
        "the bank by the river .", "a bank of the River .", "this bank has mud .",
        "one bank has mud and a river .",
    )]  # fmt: skip
    outside = [Use(tuple(text.split()), 1, 2, "bank") for text in (
        "the bank lent money .", "a bank has money .", "one bank lost the money .",
        "no bank .", "every bank .", "old bank of the kind .", "no other bank .", "what a bank !",
    )]  # fmt: skip
    assert typical_words(inside, outside)[:2] == ["river", "mud"]
    assert typical_words(outside, inside)[0] == "money"
    # The word itself, one in too many sentences, no word, one that stands once, and never.
    for word in ("bank", "the", ".", "this", "money"):
        assert word not in typical_words(inside, outside)


# ---------------------------------------------------------------------- all together
@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    return LayerStore(tiny_elmo(), folder=tmp_path_factory.mktemp("layers"))


def two_kinds() -> list[Use]:
    """Uses in two sentences, each several times with another last word."""
    texts = ("he sat on the river bank with all of us", "she sold the shares to a bank and left")
    ends = ("today", "again", "alone", "now", "then")
    uses = [find_uses([(*text.split(), end)], ["bank"]) for end in ends for text in texts]
    return [use for found in uses for use in found]


def test_uses_in_like_sentences_come_together(store: LayerStore) -> None:
    induced = induce_senses(store, two_kinds(), layer="1", clusters=2)
    assert [cluster.name for cluster in induced.clusters] == ["cluster 1", "cluster 2"]
    for cluster in induced.clusters:
        assert len({use.tokens[0] for use in cluster.uses}) == 1
        assert len(cluster.uses) == 5
    assert set(induced.silhouettes) == {"layer 0", "layer 1", "layer 2", "average"}
    # Layer 0 does not see the sentence: there nothing lies apart.
    assert induced.silhouettes["layer 1"] > 0.1
    assert induced.silhouettes["layer 0"] == 0


def test_a_capital_letter_makes_no_cluster(store: LayerStore) -> None:
    large = [replace(use, tokens=tuple(t.replace("b", "B") for t in use.tokens[: use.end])
             + use.tokens[use.end :]) for use in two_kinds()[::3]]  # fmt: skip
    induced = induce_senses(store, [*two_kinds(), *large], layer="average", clusters=2)
    assert induced.silhouettes["layer 0"] == 0
    for cluster in induced.clusters:
        assert len({use.tokens[0] for use in cluster.uses}) == 1
        assert {use.tokens[use.start] for use in cluster.uses} == {"bank", "Bank"}


def test_the_uses_nearest_to_the_middle_come_first(store: LayerStore) -> None:
    uses = two_kinds()
    induced = induce_senses(store, uses, layer="top", clusters=2)
    assert induced.layer == "layer 2"
    layers = {use: store.elmo.embed_tokens(list(use.tokens)).layers for use in uses}
    mean = np.mean([layers[use][2, use.start] for use in uses], axis=0)
    for cluster in induced.clusters:
        vectors = unit(np.stack([layers[use][2, use.start] - mean for use in cluster.uses]))
        near = vectors @ vectors.mean(axis=0)
        assert (np.diff(near) <= 1e-3).all()


def test_the_clusters_are_a_table_of_uses(store: LayerStore, tmp_path: object) -> None:
    induced = induce_senses(store, two_kinds(), clusters=3)
    path = f"{tmp_path}/uses.tsv"
    with open(path, "w") as file:  # noqa: PTH123
        file.writelines(induced.lines())
    found = list(read_uses(path))
    expected = {use: cluster.name for cluster in induced.clusters for use in cluster.uses}
    assert {Use(u.tokens, u.start, u.end, u.lemma): u.sense for u in found} == expected
    assert (position(3, 4), position(3, 6)) == ("3", "3-5")


def test_one_cluster_has_all_uses(store: LayerStore) -> None:
    (cluster,) = induce_senses(store, two_kinds(), clusters=1).clusters
    assert set(cluster.uses) == set(two_kinds())
    assert cluster.typical == []


def test_what_cannot_be_clustered_is_told(store: LayerStore) -> None:
    assert "too few" in complaint(lambda: induce_senses(store, two_kinds()[:2]))
    assert "too few" in complaint(lambda: induce_senses(store, two_kinds(), clusters=11))
    assert complaint(lambda: induce_senses(store, two_kinds(), layer="3")) == (
        "layer must be 0 to 2, top or average, not '3'"
    )
