"""Figures by their parts: panels, points, labels, legends; and the numbers they show."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import ROOT
from tagged import train_taggers
from tiny import complaint, softmax_elmo

from elmokit import Embedder
from elmokit.analysis.plots import maps
from elmokit.analysis.plots.draw import (
    draw_pair,
    draw_surprisal,
    draw_uses,
    draw_weights,
    group_style,
)
from elmokit.analysis.plots.maps import (
    WordMap,
    compare_tokens,
    map_clusters,
    map_uses,
    map_word,
    short_names,
)
from elmokit.analysis.senses.induce import induce_senses
from elmokit.analysis.uses import Use, read_uses
from elmokit.store import LayerStore

pytest.importorskip("matplotlib")

SENSES = ROOT / "examples" / "senses.tsv"
SENTENCE = "he sat on the river bank ."


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return softmax_elmo()


@pytest.fixture(scope="module")
def model(elmo: Embedder, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("plots") / "model"
    elmo.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def store(elmo: Embedder, tmp_path: Path) -> LayerStore:
    return LayerStore(elmo, folder=tmp_path / "layers")


def titles(figure: Any) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def texts(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


def spelled_alike(*lemmas: str) -> list[Use]:
    """The uses of these words but for their plurals, so that layer 0 has one vector for each."""
    return [use for use in read_uses(SENSES) if use.lemma in lemmas and use.word == use.lemma]


# ---------------------------------------------------------------------- a word's uses
def test_a_map_has_the_numbers_of_scikit_learn(elmo: Embedder, store: LayerStore) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    decomposition = pytest.importorskip("sklearn.decomposition")
    uses = spelled_alike("bank", "play", "cell")
    maps = map_uses(store, uses)
    counts = Counter(use.lemma for use in uses)
    assert {each.word: len(each.uses) for each in maps} == counts
    embedded = elmo.embed([list(use.tokens) for use in uses])
    mean = np.concatenate([sentence.layers[2] for sentence in embedded]).mean(axis=0)
    rows = [i for i, use in enumerate(uses) if use.lemma == "play"]
    vectors = np.stack([embedded[i].layers[2, uses[i].start] - mean for i in rows])
    senses = [uses[i].sense for i in rows]
    (play,) = (each for each in maps if each.word == "play")
    n = len(senses)
    assert play.purity is not None
    assert play.silhouette is not None
    assert [use.sense for use in play.uses] == senses
    expected = metrics.silhouette_score(vectors, senses, metric="cosine")
    assert play.silhouette[2] == pytest.approx(expected, abs=2e-3)
    cosines = metrics.pairwise.cosine_similarity(vectors) - 2 * np.eye(n)
    right = np.mean([senses[i] == senses[j] for i, j in enumerate(cosines.argmax(axis=1))])
    assert play.purity[2] == pytest.approx(right, abs=1 / n + 1e-6)
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    reference = decomposition.PCA(2).fit_transform(directions)
    np.testing.assert_allclose(np.abs(play.points[2]), np.abs(reference), atol=0.002)
    assert play.is_one_point.tolist() == [True, False, False, False]
    guess = np.mean([(senses.count(sense) - 1) / (n - 1) for sense in senses])
    assert play.purity[0] == pytest.approx(guess)
    assert play.silhouette[0] == 0
    assert not play.points[0].any()


def test_a_panel_for_each_layer_has_all_uses_by_their_senses(store: LayerStore) -> None:
    maps = map_uses(store, spelled_alike("bank", "play", "cell"))
    figure = draw_uses(maps)
    assert len(figure.subfigs) == len(maps) == 3
    assert figure.get_size_inches()[0] == pytest.approx(6.3)
    for part, each in zip(figure.subfigs, maps, strict=True):
        assert each.purity is not None
        assert each.silhouette is not None
        assert part.get_suptitle() == f"{each.word}: {len(each.uses)} uses"
        assert titles(part) == [
            f"{name}\npurity {each.purity[layer]:.2f}\nsilhouette {each.silhouette[layer]:.2f}"
            for layer, name in enumerate(["layer 0", "layer 1", "layer 2", "average"])
        ]
        (legend,) = part.legends
        assert texts(legend.get_texts()) == each.senses
        for layer, axes in enumerate(part.axes):
            groups = axes.collections
            assert [group.get_label() for group in groups] == each.senses
            for group, sense in zip(groups, each.senses, strict=True):
                rows = [i for i, use in enumerate(each.uses) if use.sense == sense]
                assert len(group.get_offsets()) == len(rows) > 0
                np.testing.assert_allclose(group.get_offsets(), each.points[layer][rows])
            note = " ".join(texts(axes.texts)).replace("\n", " ")
            assert note == ("one point: this layer knows the spelling only" if not layer else "")
            share = f"1st component, {each.shares[layer, 0]:.0%}"
            assert axes.get_xlabel() == (share if layer else "")


def test_groups_are_distinct_without_colors() -> None:
    styles = [group_style(i) for i in range(88)]
    assert len({(style["marker"], style["edgecolor"]) for style in styles}) == 88
    for one, other in pairwise(styles):
        assert one["marker"] != other["marker"]
        assert (one["facecolor"] == "white") != (other["facecolor"] == "white")


def word_map(layers: int, senses: list[str]) -> WordMap:
    vectors = np.random.default_rng(0).normal(size=(layers + 2, len(senses), 6))
    uses = [Use(("a", "bank"), 1, 2, "bank", sense) for sense in senses]
    return map_word("bank", uses, vectors.astype(np.float32))


def test_models_with_many_layers_have_several_rows_of_panels() -> None:
    figure = draw_uses([word_map(5, ["a", "b"] * 3)])
    shown = [axes for axes in figure.axes if axes.axison]
    assert len(shown) == 7
    assert len(figure.axes) == 8
    assert titles(figure)[6].startswith("average\n")


def test_uses_without_senses_have_one_style_and_no_legend() -> None:
    each = word_map(2, [""] * 5)
    assert each.purity is None
    figure = draw_uses([each])
    assert titles(figure) == ["layer 0", "layer 1", "layer 2", "average"]
    assert figure.subfigs[0].legends == []
    assert [len(axes.collections) for axes in figure.axes] == [1] * 4
    assert complaint(lambda: word_map(2, ["a", "b"])) == (
        "a map needs at least 3 uses of a word, and 'bank' has 2"
    )


def test_clusters_are_those_of_induce_with_their_typical_words(store: LayerStore) -> None:
    uses = [use for use in read_uses(SENSES) if use.lemma == "cell"]
    each = map_clusters(store, uses, 3)
    expected = induce_senses(store, uses, clusters=3).clusters
    assert [len([use for use in each.uses if use.sense == sense]) for sense in each.senses] == [
        len(cluster.uses) for cluster in expected
    ]
    for sense, cluster in zip(each.senses, expected, strict=True):
        assert sense == f"{cluster.name}: {', '.join(cluster.typical[:3])}".removesuffix(": ")
    figure = draw_uses([each])
    (legend,) = figure.subfigs[0].legends
    assert texts(legend.get_texts()) == each.senses
    assert each.silhouette is not None
    assert titles(figure)[1] == f"layer 1\nsilhouette {each.silhouette[1]:.2f}"


# ---------------------------------------------------------------------- task models
@pytest.fixture(scope="module")
def trained(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three taggers: with mixes at both places, with one layer, and without ELMo."""
    return train_taggers(model, tmp_path_factory.mktemp("models"))


def test_mixes_are_read_from_what_train_wrote(trained: Path) -> None:
    from elmokit.tasks.folder import read_mixes

    mixes = read_mixes(str(trained / "both"))
    report = json.loads((trained / "both" / "report.json").read_text())
    assert mixes is not None
    assert mixes.task == "tagger"
    assert list(mixes.weights) == ["input", "output"]
    for place in mixes.weights:
        assert mixes.weights[place] == report["mixes"][place]["weights"]
        assert mixes.scales[place] == report["mixes"][place]["scale"]
        assert sum(mixes.weights[place]) == pytest.approx(1, abs=1e-3)
    assert read_mixes(str(trained / "top")) is None
    assert read_mixes(str(trained / "without")) is None


def test_each_mix_is_a_row_of_cells_in_the_panel_of_its_place() -> None:
    models = [
        {"input": [0.5, 0.3, 0.2]},
        {"input": [0.1, 0.9], "output": [0.6, 0.4]},
    ]
    figure = draw_weights(["ner (tagger)", "qa (question)"], models)
    assert titles(figure) == ["mix at the input", "mix at the output"]
    first, second = figure.axes
    assert texts(first.get_yticklabels()) == ["ner (tagger)", "qa (question)"]
    assert texts(first.get_xticklabels()) == ["layer 0", "layer 1", "layer 2"]
    assert texts(first.texts) == ["0.50", "0.30", "0.20", "0.10", "0.90"]
    assert texts(second.texts) == ["0.60", "0.40"]
    assert [text.get_position() for text in second.texts] == [(0, 1), (1, 1)]
    assert first.get_ylim()[0] > first.get_ylim()[1]  # the first model is on top
    (cells,) = first.collections
    np.testing.assert_allclose(
        np.ma.filled(cells.get_array(), -1), [[0.5, 0.3, 0.2], [0.1, 0.9, -1]]
    )


def test_folders_of_the_same_name_get_longer_names() -> None:
    assert short_names(["a/b/ner", "a/c/ner", "a/c/qa"]) == ["b/ner", "c/ner", "c/qa"]
    assert short_names(["a/b/ner", "a/b/qa/"]) == ["ner", "qa"]
    assert short_names(["ner", "ner"]) == ["ner", "ner"]


# ---------------------------------------------------------------------- two sentences
ONE, OTHER = "he sat on the river bank .".split(), "the bank $ 5 naïve".split()


def test_the_cosines_of_a_pair_are_those_of_scikit_learn(elmo: Embedder, store: LayerStore) -> None:
    metrics = pytest.importorskip("sklearn.metrics.pairwise")
    pair = compare_tokens(store, ONE, OTHER)
    assert (pair.first, pair.second) == (ONE, OTHER)
    one, other = elmo.embed_tokens(ONE).layers, elmo.embed_tokens(OTHER).layers
    for layer in range(3):
        expected = metrics.cosine_similarity(one[layer], other[layer])
        np.testing.assert_allclose(pair.cosines[layer], expected, atol=2e-3)
    expected = metrics.cosine_similarity(one.mean(axis=0), other.mean(axis=0))
    np.testing.assert_allclose(pair.cosines[3], expected, atol=2e-3)
    assert pair.cosines[0, 3, 0] == pytest.approx(1, abs=1e-5)  # "the" and "the"
    assert complaint(lambda: compare_tokens(store, [], OTHER)) == "a sentence has no tokens"


def test_the_heat_map_has_a_cell_with_a_number_for_each_pair_of_tokens(store: LayerStore) -> None:
    pair = compare_tokens(store, ONE, OTHER)
    figure = draw_pair(pair, 1)
    cells, bar = figure.axes
    assert figure.get_suptitle() == "layer 1"
    assert texts(cells.get_yticklabels()) == ONE
    assert texts(cells.get_xticklabels()) == OTHER
    assert bar.get_ylabel() == "cosine"
    (mesh,) = cells.collections
    np.testing.assert_allclose(mesh.get_array(), pair.cosines[1])
    shown = [text.replace("\N{MINUS SIGN}", "-") for text in texts(cells.texts)]
    assert np.reshape([float(text) for text in shown], (7, 5)) == pytest.approx(
        pair.cosines[1], abs=0.0051
    )
    assert [text.get_position() for text in cells.texts[:6]] == [
        *((column, 0) for column in range(5)),
        (0, 1),
    ]
    assert cells.get_ylim()[0] > cells.get_ylim()[1]  # the first token is on top
    many = compare_tokens(store, ONE, ["word"] * 15)
    assert len(draw_pair(many, 1).axes[0].texts) == 0  # no room for numbers
    long = compare_tokens(store, ["a" * 99], OTHER)
    assert texts(draw_pair(long, 1).axes[0].get_yticklabels()) == ["a" * 19 + "…"]


# ---------------------------------------------------------------------- surprisal
def test_surprisal_is_drawn_for_each_word_in_both_directions(elmo: Embedder) -> None:
    sentences = [
        elmo.surprisal([SENTENCE.split()])[0],
        elmo.surprisal(["the strange boat".split()])[0],
    ]
    figure = draw_surprisal(sentences)
    (axes,) = figure.axes
    assert texts(axes.get_xticklabels()) == [*SENTENCE.split(), "the", "strange", "boat"]
    lines = [line for line in axes.lines if line.get_marker() != "None"]
    for line, (sentence, name) in zip(
        lines, [(s, n) for s in sentences for n in ("forward", "backward")], strict=True
    ):
        np.testing.assert_allclose(line.get_ydata(), getattr(sentence, name))
        start = 0 if sentence is sentences[0] else 7
        np.testing.assert_array_equal(line.get_xdata(), start + np.arange(len(sentence.tokens)))
    (between,) = [line for line in axes.lines if line.get_marker() == "None"]
    assert between.get_xdata()[0] == 6.5
    (shade,) = axes.patches  # the word that the vocabulary does not have
    assert shade.get_x() + shade.get_width() / 2 == pytest.approx(8)
    (legend,) = figure.legends
    assert texts(legend.get_texts()) == [
        "given the words before",
        "given the words after",
        "not in the vocabulary",
    ]
    assert lines[0].get_marker() != lines[1].get_marker()
    assert lines[0].get_linestyle() != lines[1].get_linestyle()


def test_a_long_text_has_several_rows(elmo: Embedder) -> None:
    sentences = [elmo.surprisal([SENTENCE.split()])[0] for _ in range(11)]
    figure = draw_surprisal(sentences)  # 77 words, 34 per row
    assert [len(axes.get_xticklabels()) for axes in figure.axes] == [34, 34, 9]
    drawn = np.concatenate([line.get_xydata() for axes in figure.axes for line in axes.lines
                            if line.get_marker() == "o"])  # fmt: skip
    np.testing.assert_array_equal(drawn[:, 0], np.arange(77))
    np.testing.assert_allclose(drawn[:, 1], np.tile(sentences[0].forward, 11))
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert texts(figure.axes[2].get_xticklabels())[-1] == "."


def test_the_first_words_of_a_text_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MAX_TEXT", 10)
    assert maps.first_words([["a"] * 10]) == ([["a"] * 10], False)
    assert maps.first_words([["a"] * 7] * 2) == ([["a"] * 7, ["a"] * 3], True)
