"""How far apart the uses of words in two corpora are, and what is typical of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist, cosine, pdist
from tiny import complaint, tiny_elmo

from elmokit.analysis.drift.measure import (
    half_distance,
    inner_distance,
    measure_drift,
    measure_word,
    pairwise_distance,
    prototype_distance,
    sample_both,
    typical_uses,
)
from elmokit.analysis.sampling import Corpus
from elmokit.analysis.uses import Use
from elmokit.store import LayerStore


def vectors(count: int, seed: int, shift: float = 0.0) -> np.ndarray:
    """Two layers of vectors around a point."""
    return np.random.default_rng(seed).normal(shift, 1.0, (2, count, 5))


# ---------------------------------------------------------------------- distances
def test_distances_are_those_of_all_pairs_one_by_one() -> None:
    a, b = vectors(7, 0), vectors(4, 1, shift=0.5)
    for layer in range(2):
        every = cdist(a[layer], b[layer], "cosine")
        assert pairwise_distance(a, b)[layer] == pytest.approx(every.mean())
        assert inner_distance(a)[layer] == pytest.approx(pdist(a[layer], "cosine").mean())
        means = a[layer].mean(axis=0), b[layer].mean(axis=0)
        assert prototype_distance(a, b)[layer] == pytest.approx(cosine(*means))


def test_change_is_near_0_if_both_corpora_are_alike_and_large_if_not() -> None:
    uses = ([Use(("w",), 0, 1, "w")] * 200,) * 2
    same = measure_word("w", uses, [vectors(200, 0, 1), vectors(200, 1, 1)])
    other = measure_word("w", uses, [vectors(200, 0, 1), vectors(200, 1, -1)])
    assert np.abs(same.change).max() < 0.01
    assert other.change.min() > 0.5
    assert other.prt.min() > 1.5
    # What chance alone gives is as much as what two samples of the same kind give, or a bit more.
    assert (same.prt < 2 * same.halves[0]).all()
    assert (same.halves[0] < 0.05).all()


def test_halves_are_two_parts_of_the_same_uses() -> None:
    two = vectors(2, 3)
    expected = [cosine(*two[layer]) for layer in range(2)]
    assert half_distance(two, np.random.default_rng(0)) == pytest.approx(expected)
    assert np.isnan(half_distance(vectors(1, 0), np.random.default_rng(0))).all()


def test_the_most_typical_use_is_far_from_the_other_corpus() -> None:
    own = np.array([[1.0, 0.1], [1.0, 1.0], [0.5, 1.0]])
    other = np.array([[0.0, 1.0], [0.1, 1.0]])
    assert typical_uses(own, other) == [0, 1, 2]


# ---------------------------------------------------------------------- words
@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    return LayerStore(tiny_elmo(), folder=tmp_path_factory.mktemp("layers"))


def test_the_mean_of_all_tokens_is_subtracted_from_the_vectors(store: LayerStore) -> None:
    texts = ["the river bank", "a bank here", "my bank is closed", "no bank today"]
    uses = [Use(tuple(t.split()), t.split().index("bank"), t.split().index("bank") + 1, "bank")
            for t in texts]  # fmt: skip
    [change] = measure_drift(store, {"bank": (uses[:2], uses[2:])}).words
    layers = [store.elmo.embed_tokens(text.split()).layers for text in texts]
    mean = np.concatenate(layers, axis=1).mean(axis=1)
    for layer in range(3):
        rows = [
            value[layer, use.start] - mean[layer] for value, use in zip(layers, uses, strict=True)
        ]
        expected = cdist(rows[:2], rows[2:], "cosine").mean()
        if layer:  # layer 0 has the same vector for all
            assert change.apd[layer] == pytest.approx(expected, abs=5e-3)
    assert change.apd[0] == pytest.approx(0, abs=1e-6)
    assert change.change.shape == (4,)


def test_words_are_ranked_and_rare_ones_left_out(store: LayerStore, tmp_path: Path) -> None:
    for name, near in (("a.txt", "river water"), ("b.txt", "money loan")):
        lines = [f"{near} bank {i} .\nthe cup {i} .\n" for i in range(6)]
        (tmp_path / name).write_text("".join(lines) + "one rare word\n" * (name == "a.txt"))
    first, second = (Corpus(tmp_path / name, tokenizer="whitespace") for name in ("a.txt", "b.txt"))
    uses, left_out = sample_both(first, second, ["cup", "BANK", "rare", "cup"])
    assert {word: list(map(len, sides)) for word, sides in uses.items()} == {
        "cup": [6, 6],
        "bank": [6, 6],
    }
    assert left_out == {"rare": [1, 0]}
    result = measure_drift(store, uses, layer=1)
    assert (result.layer, result.measure) == ("layer 1", "change")
    assert [word.word for word in result.words] == ["bank", "cup"]
    written = result.to_dict(examples=2)
    assert [len(side) for side in written["words"][0]["examples"]] == [2, 2]
    assert "0 to 2" in complaint(lambda: measure_drift(store, uses, layer=3))
    assert "unicorn (0 and 0)" in complaint(lambda: sample_both(first, second, ["unicorn"]))
    assert measure_drift(store.elmo, uses, layer=1).words[0].word == "bank"
