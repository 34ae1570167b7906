"""Clusters of a word's uses: how they are found, what is typical of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import silhouette_score
from tiny import complaint, tiny_elmo

from elmokit.analysis.geometry import unit
from elmokit.analysis.sampling import find_uses
from elmokit.analysis.senses.induce import (
    cluster_uses,
    induce_senses,
    typical_words,
)
from elmokit.analysis.uses import Use, read_uses
from elmokit.store import LayerStore
from elmokit.text.vocabulary import Vocabulary


def blobs(centers: int, seed: int, spread: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around some directions, and which one each belongs to."""
    points, labels = make_blobs(
        n_samples=150, n_features=8, centers=centers, cluster_std=spread, random_state=seed
    )
    return unit(points.astype(np.float32)), labels


@pytest.mark.parametrize("centers", [2, 3, 5])
def test_the_number_of_clusters_is_chosen_by_their_silhouette(centers: int) -> None:
    vectors, _ = blobs(centers, seed=centers, spread=0.7)
    labels, _, tried = cluster_uses(vectors[None], 0, None, seed=1)
    assert len(set(labels.tolist())) == centers
    assert tried[centers] >= max(tried.values()) - 0.05
    assert all(tried[fewer] < max(tried.values()) - 0.05 for fewer in range(2, centers))
    expected = silhouette_score(vectors, labels, metric="cosine")
    assert tried[centers] == pytest.approx(expected, abs=1e-4)
    assert list(tried) == [2, 3, 4, 5, 6, 7, 8]


# ---------------------------------------------------------------------- typical words
def test_function_words_are_not_typical_of_a_cluster() -> None:
    """They are frequent in one cluster too, but frequent in all sentences."""
    rivers = "river river river boat boat boat mud mud reed reed".split()
    inside = [
        ("a", "bank", *("on", "at", "he")[: 1 + i % 3], word) for i, word in enumerate(rivers)
    ]
    outside = [
        ("the", "bank", "lent", "money", "on", "it")[: 4 + 2 * (i % 5 == 0)] for i in range(20)
    ]
    filler = tuple("on at he".split()) * 3  # far from the word, but in the same sentences
    uses = [
        [Use((*s, *16 * ["x"], *filler), 1, 2, "bank") for s in side] for side in (inside, outside)
    ]
    typical = typical_words(uses[0], uses[1])
    assert {"river", "boat"} <= set(typical[:3])
    assert not {"on", "at", "he"} & set(typical[:3])
    assert typical_words(uses[0], []) == []
    words = [f"word {i}" for i in range(8000)]  # In a vocabulary the most frequent come first.
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", "a", "on", "at", "he", *words, "mud"])
    assert typical_words(uses[0], uses[1], vocabulary) == ["boat", "river", "reed", "mud"]


def test_typical_words_are_near_more_uses_inside_than_outside() -> None:
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
    # The word itself, one in too many sentences, not a word, one that occurs once, and never.
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
    return [use for one in uses for use in one]


def test_uses_in_similar_sentences_are_clustered_together(store: LayerStore) -> None:
    induced = induce_senses(store, two_kinds(), layer="1", clusters=2)
    assert [cluster.name for cluster in induced.clusters] == ["cluster 1", "cluster 2"]
    for cluster in induced.clusters:
        assert len({use.tokens[0] for use in cluster.uses}) == 1
        assert len(cluster.uses) == 5
    assert set(induced.silhouettes) == {"layer 0", "layer 1", "layer 2", "average"}
    # Layer 0 does not see the sentence, so there all uses are the same.
    assert induced.silhouettes["layer 1"] > 0.1
    assert induced.silhouettes["layer 0"] == 0


def test_a_capital_letter_does_not_make_a_cluster(store: LayerStore) -> None:
    large = [replace(use, tokens=tuple(t.replace("b", "B") for t in use.tokens[: use.end])
             + use.tokens[use.end :]) for use in two_kinds()[::3]]  # fmt: skip
    induced = induce_senses(store, [*two_kinds(), *large], layer="average", clusters=2)
    assert induced.silhouettes["layer 0"] == 0
    for cluster in induced.clusters:
        assert len({use.tokens[0] for use in cluster.uses}) == 1
        assert {use.tokens[use.start] for use in cluster.uses} == {"bank", "Bank"}


def test_the_uses_nearest_to_the_center_come_first(store: LayerStore) -> None:
    uses = two_kinds()
    induced = induce_senses(store, uses, layer="top", clusters=2)
    assert induced.layer == "layer 2"
    layers = {use: store.elmo.embed_tokens(list(use.tokens)).layers for use in uses}
    mean = np.mean([layers[use][2, use.start] for use in uses], axis=0)
    for cluster in induced.clusters:
        vectors = unit(np.stack([layers[use][2, use.start] - mean for use in cluster.uses]))
        near = vectors @ vectors.mean(axis=0)
        assert (np.diff(near) <= 1e-3).all()


def test_the_clusters_are_a_table_of_uses(store: LayerStore, tmp_path: Path) -> None:
    induced = induce_senses(store, two_kinds(), clusters=3)
    path = tmp_path / "uses.tsv"
    path.write_text("".join(induced.lines()))
    expected = {use: cluster.name for cluster in induced.clusters for use in cluster.uses}
    assert {replace(use, sense=""): use.sense for use in read_uses(path)} == expected


def test_one_cluster_has_all_uses(store: LayerStore) -> None:
    (cluster,) = induce_senses(store, two_kinds(), clusters=1).clusters
    assert set(cluster.uses) == set(two_kinds())
    assert cluster.typical == []


def test_uses_that_cannot_be_clustered_raise(store: LayerStore) -> None:
    assert "too few" in complaint(lambda: induce_senses(store, two_kinds()[:2]))
    assert "too few" in complaint(lambda: induce_senses(store, two_kinds(), clusters=11))
    assert complaint(lambda: induce_senses(store, two_kinds(), layer="3")) == (
        "layer must be 0 to 2, top or average, not '3'"
    )
