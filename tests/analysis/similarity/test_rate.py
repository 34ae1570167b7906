"""Pairs that people have compared: how they are read, and how well cosines agree with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cosine as scipy_distance
from tiny import tiny_elmo

from elmokit.analysis.similarity.pairs import (
    Pair,
    detect_kind,
    read_scws,
    read_sentence_pairs,
    read_wic,
)
from elmokit.analysis.similarity.rate import (
    pair_cosines,
    rate_similarity,
    static_cosines,
    texts_of,
)
from elmokit.analysis.uses import Use, mean_vector
from elmokit.store import LayerStore
from elmokit.vectors.static.table import StaticVectors

SCWS = (
    "1\tbank\tn\tshore\tn\tHe sat on the <b> bank </b> , and slept .\t"
    "The <b>shore</b> is near.\t7.5\t7\t8\n"
    "2\tbank\tn\tmoney\tn\tThe <b> bank </b> is closed .\tNo <b> money </b> is left .\t6.0\t6\t6\n"
    "3\tdog\tn\troof\tn\tA <b> dog </b> barks .\tThe <b> roof </b> leaks .\t1.0\t1\t1\n"
)
WIC = (
    "bank\tN\t4-1\tHe sat on the bank .\tThe bank is closed .\n"
    "play\tV\t1-2\tThey play cards .\tChildren often play there .\n"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    return LayerStore(tiny_elmo(), folder=tmp_path_factory.mktemp("layers"))


# ---------------------------------------------------------------------- files
def test_scws_has_its_words_between_marks(tmp_path: Path) -> None:
    file = tmp_path / "ratings.txt"
    file.write_text(SCWS)
    assert detect_kind(file) == "scws"
    first = read_scws(file, str.split)[0]
    assert first.first.tokens == tuple("He sat on the bank , and slept .".split())
    assert (first.first.start, first.first.end) == (4, 5)
    assert first.second.tokens[first.second.start : first.second.end] == ("shore",)
    assert first.gold == 7.5


def test_wic_has_positions_and_its_answers_in_another_file(tmp_path: Path) -> None:
    file = tmp_path / "dev.data.txt"
    file.write_text(WIC)
    gold = tmp_path / "dev.gold.txt"
    gold.write_text("F\nT\n")
    assert detect_kind(file) == "wic"
    pairs = read_wic(file)
    assert pairs == read_wic(file, gold)
    assert [pair.gold for pair in pairs] == [0, 1]
    assert pairs[1].second.tokens[pairs[1].second.start] == "play"


def test_columns_of_sentences_are_found_by_name_or_number(tmp_path: Path) -> None:
    sick, plain = tmp_path / "sick.txt", tmp_path / "plain.tsv"
    sick.write_text(
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        "4\tA b\tC d\t3.6\tNEUTRAL\n5\tE\tF g\t1\tNEUTRAL\n"
    )
    plain.write_text("x\t2.5\tA b\tC d\ny\t1\tE\tF g\n")
    assert detect_kind(sick) == "sentences"
    by_name = read_sentence_pairs(sick, str.split)
    by_number = read_sentence_pairs(plain, str.split, columns=("3", "4", "2"))
    assert [pair.gold for pair in by_name] == [3.6, 1]
    assert [pair.gold for pair in by_number] == [2.5, 1]
    assert [(p.first, p.second) for p in by_name] == [(p.first, p.second) for p in by_number]


# ---------------------------------------------------------------------- cosines
def pair(first: str, second: str, gold: float, position: int | None = None) -> Pair:
    def use(text: str) -> Use:
        tokens = tuple(text.split())
        start, end = (0, len(tokens)) if position is None else (position, position + 1)
        return Use(tokens, start, end, "")

    return Pair(use(first), use(second), gold)


PAIRS = [
    pair("the river bank", "a boat on the river", 4.0),
    pair("the bank is closed", "no money today", 2.0),
    pair("dogs bark", "the roof leaks here", 1.0),
]


def test_cosines_of_words_are_those_of_their_own_vectors(store: LayerStore) -> None:
    pairs = [pair("the river bank", "a bank there", 1, 1), pair("x y", "z w v", 0, 1)]
    mean = mean_vector(store, texts_of(pairs))
    cosines = pair_cosines(store, pairs, mean, ["mean"], quiet=True)
    texts = ["the river bank", "a bank there", "x y", "z w v"]
    layers = [store.elmo.embed_tokens(text.split()).layers for text in texts]
    everything = np.concatenate(layers, axis=1).mean(axis=1)
    for layer in range(3):
        raw = 1 - scipy_distance(layers[2][layer, 1], layers[3][layer, 1])
        centered = 1 - scipy_distance(*(layers[i][layer, 1] - everything[layer] for i in (2, 3)))
        assert cosines[0, :, layer, 1] == pytest.approx([raw, centered], abs=5e-3)
    whole = [value.mean(axis=0)[1] for value in layers[2:]]
    assert cosines[0, 0, 3, 1] == pytest.approx(1 - scipy_distance(*whole), abs=5e-3)


@pytest.mark.parametrize("pooling", ["mean", "max", "ends"])
def test_the_mean_is_subtracted_before_tokens_are_pooled(store: LayerStore, pooling: str) -> None:
    mean = mean_vector(store, texts_of(PAIRS))
    cosines = pair_cosines(store, PAIRS, mean, ["min", pooling], quiet=True)
    sides = []
    for text in texts_of(PAIRS)[:2]:
        tokens = store.elmo.embed_tokens(list(text)).layers[1] - mean[1]
        half = tokens.shape[1] // 2
        sides.append(
            {
                "mean": tokens.mean(axis=0),
                "max": tokens.max(axis=0),
                "ends": np.concatenate([tokens[-1, :half], tokens[0, half:]]),
            }[pooling]
        )
    assert cosines[1, 1, 1, 0] == pytest.approx(1 - scipy_distance(*sides), abs=5e-3)


def test_static_vectors_leave_unknown_words_out() -> None:
    vectors = StaticVectors(["river", "bank", "boat"], np.array([[1, 0], [0, 1], [1, 1]], "f4"))
    pairs = [pair("river zzz", "boat", 1), pair("zzz", "river", 0)]
    cosines = static_cosines(vectors, pairs, pairs, whole=True)
    assert cosines[0].tolist() == pytest.approx([np.sqrt(0.5), 0])
    mean = np.array([3, 1]) / 3  # river, boat, river
    centered = 1 - scipy_distance(np.array([1, 0]) - mean, np.array([1, 1]) - mean)
    assert cosines[1, 0] == pytest.approx(centered, abs=1e-6)


def test_ratings_are_correlated_with_the_cosines_of_each_layer(store: LayerStore) -> None:
    result = rate_similarity(store, PAIRS, kind="sentences", poolings=["mean", "max"])
    mean = mean_vector(store, texts_of(PAIRS))
    cosines = pair_cosines(store, PAIRS, mean, ["mean", "max"], quiet=True)
    gold = [p.gold for p in PAIRS]
    for i, row in enumerate(result.rows):
        pooling, layer = divmod(i, 4)
        assert row.pooling == ("mean", "max")[pooling]
        for measures, x in zip((row.raw, row.centered), cosines[pooling, :, layer], strict=True):
            assert measures["Pearson"] == pytest.approx(stats.pearsonr(x, gold)[0], abs=1e-6)
            assert measures["Spearman"] == pytest.approx(stats.spearmanr(x, gold)[0], abs=1e-6)


def test_a_threshold_is_learned_from_the_training_pairs_only(store: LayerStore) -> None:
    near, far = ("the river bank", "the river bank"), ("the river bank", "dogs bark at me")
    train = [pair(*near, 1.0, 1), pair(*far, 0.0, 1)] * 2
    test = [pair(*near, 0.0, 1), pair(*far, 1.0, 1)]  # the opposite answers
    row = rate_similarity(store, test, kind="wic", training=train).rows[2]
    assert (row.name, row.raw["accuracy"]) == ("layer 1", 0.0)
    own = rate_similarity(store, test, kind="wic").rows
    assert own[2].raw["accuracy"] == 0.5
    assert own[0].name == "majority answer"
