"""Pictures by their parts: panels, points, labels, legends; and the commands that draw them."""

from __future__ import annotations

import doctest
import json
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import ROOT
from tiny import complaint

from elmokit import BiLM, BiLMConfig, Embedder
from elmokit import figures as style
from elmokit.analysis.plots import inputs as plot_input
from elmokit.analysis.plots import maps
from elmokit.analysis.plots.draw import draw_pair, draw_surprisal, draw_uses, draw_weights, look_of
from elmokit.analysis.plots.maps import (
    Mixes,
    WordMap,
    compare_tokens,
    layer_index,
    map_clusters,
    map_uses,
    map_word,
    short_names,
)
from elmokit.analysis.senses.induce import induce_senses
from elmokit.analysis.uses import Use, read_uses
from elmokit.cli.main import main
from elmokit.figures import missing_characters, write_figure
from elmokit.store import LayerStore
from elmokit.text.vocabulary import Vocabulary

pytest.importorskip("matplotlib")

Run = Callable[..., tuple[int, str, str]]
SENSES = ROOT / "examples" / "senses.tsv"
WORDS = ["<S>", "</S>", "<UNK>", "the", "river", "bank", "boat", "sat", "on", "he", "."]
SENTENCE = "he sat on the river bank ."


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    """A small model with random weights and a softmax."""
    torch.manual_seed(3)
    config = BiLMConfig(
        filters=((1, 8), (3, 16)),
        character_dim=6,
        lstm_dim=24,
        projection_dim=12,
        vocabulary_size=len(WORDS),
    )
    model = BiLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return Embedder(model, vocabulary=Vocabulary(WORDS))


@pytest.fixture(scope="module")
def model(elmo: Embedder, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("plots") / "model"
    elmo.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def store(elmo: Embedder, tmp_path: Path) -> LayerStore:
    return LayerStore(elmo, folder=tmp_path / "layers")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`elmokit plot …`: exit code, stdout, stderr; whatever matplotlib warns of is an error."""
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))

    def plot(*arguments: object) -> tuple[int, str, str]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code = main(["plot", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return plot


def titles(figure: Any) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def texts(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


# ---------------------------------------------------------------------- a word's uses
def test_a_map_has_the_numbers_of_scikit_learn(elmo: Embedder, store: LayerStore) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    decomposition = pytest.importorskip("sklearn.decomposition")
    uses = list(read_uses(SENSES))
    found = map_uses(store, uses)
    assert [(each.word, len(each.uses)) for each in found] == [
        ("bank", 28),
        ("play", 28),
        ("cell", 28),
    ]
    embedded = elmo.embed([list(use.tokens) for use in uses])
    mean = np.concatenate([sentence.layers[2] for sentence in embedded]).mean(axis=0)
    rows = [n for n, use in enumerate(uses) if use.lemma == "play"]
    vectors = np.stack([embedded[n].layers[2, uses[n].start] - mean for n in rows])
    senses = [uses[n].sense for n in rows]
    play = found[1]
    assert [use.sense for use in play.uses] == senses
    expected = metrics.silhouette_score(vectors, senses, metric="cosine")
    assert play.silhouette[2] == pytest.approx(expected, abs=2e-3)
    cosines = metrics.pairwise.cosine_similarity(vectors) - 2 * np.eye(28)
    right = np.mean([senses[i] == senses[j] for i, j in enumerate(cosines.argmax(axis=1))])
    assert play.purity[2] == pytest.approx(right, abs=1 / 28 + 1e-6)
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    reference = decomposition.PCA(2).fit_transform(directions)
    np.testing.assert_allclose(np.abs(play.points[2]), np.abs(reference), atol=0.002)
    assert play.is_one_point.tolist() == [True, False, False, False]
    assert play.purity[0] == pytest.approx(13 / 27)
    assert play.silhouette[0] == 0
    assert not play.points[0].any()


def test_a_panel_for_each_layer_has_all_uses_by_their_senses(store: LayerStore) -> None:
    found = map_uses(store, list(read_uses(SENSES)))
    figure = draw_uses(found)
    assert len(figure.subfigs) == 3
    assert figure.get_size_inches()[0] == pytest.approx(6.3)
    for part, each in zip(figure.subfigs, found, strict=True):
        assert part.get_suptitle() == f"{each.word}: 28 uses"
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
                rows = [n for n, use in enumerate(each.uses) if use.sense == sense]
                assert len(group.get_offsets()) == 14
                np.testing.assert_allclose(group.get_offsets(), each.points[layer][rows])
            said = " ".join(texts(axes.texts)).replace("\n", " ")
            assert said == ("one point: this layer knows the spelling only" if not layer else "")
            share = f"1st component, {each.shares[layer, 0]:.0%}"
            assert axes.get_xlabel() == (share if layer else "")


def test_groups_are_told_apart_without_colours() -> None:
    looks = [look_of(number) for number in range(88)]
    assert len({(look["marker"], look["edgecolor"]) for look in looks}) == 88
    for one, other in pairwise(looks):
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


def test_uses_without_senses_have_one_look_and_no_legend() -> None:
    each = word_map(2, [""] * 5)
    assert each.purity is None
    figure = draw_uses([each])
    assert titles(figure) == ["layer 0", "layer 1", "layer 2", "average"]
    assert figure.subfigs[0].legends == []
    assert [len(axes.collections) for axes in figure.axes] == [1] * 4
    assert complaint(lambda: word_map(2, ["a", "b"])) == (
        "a map needs at least 3 uses of a word, and 'bank' has 2"
    )


def test_the_command_draws_prints_and_writes_the_same_numbers(
    run: Run, model: str, tmp_path: Path
) -> None:
    picture, numbers = tmp_path / "bank.png", tmp_path / "bank.json"
    options = ["--word", "bank", "--model", model, "--json", numbers, "--quiet"]
    code, out, err = run("uses", SENSES, picture, *options)
    assert (code, err) == (0, "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    result = json.loads(numbers.read_text())
    assert result["command"] == "plot uses"
    assert result["settings"]["word"] == "bank"
    bank = result["words"]["bank"]
    assert len(bank["uses"]) == 28
    assert bank["uses"][0] == {
        "sense": "river",
        "sentence": "We left the canoe on the [bank] and walked up to the village .",
    }
    assert np.shape(bank["layers"]["average"]["points"]) == (28, 2)
    head, *rows = (line.split() for line in out.splitlines())
    assert head == ["layer", "0", "layer", "1", "layer", "2", "average"]
    for row, name in zip(rows, ("purity", "silhouette"), strict=True):
        values = [f"{layer[name]:.2f}" for layer in bank["layers"].values()]
        assert row == ["bank:", name, *values]


def test_the_same_figure_gives_the_same_file(run: Run, model: str, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg", "a.png", "b.png"):
        code, _, _ = run("uses", SENSES, tmp_path / name, "--model", model, "--word", "cell,play")
        assert code == 0
    for kind in ("svg", "png"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_a_plain_text_is_searched_for_the_word_and_its_uses_are_clustered(
    run: Run, model: str, tmp_path: Path
) -> None:
    text, numbers = tmp_path / "text.txt", tmp_path / "numbers.json"
    text.write_text("The river Bank.\nNo word here.\nHe sat on the bank of a bank.\nA bank .\n")
    options = ["--model", model, "--word", "bank", "--json", numbers, "--quiet"]
    code, out, err = run("uses", text, tmp_path / "a.svg", *options, "--clusters", 2)
    assert (code, err) == (0, "")
    purity, silhouette = (line.split() for line in out.splitlines()[1:])
    assert purity == ["bank:", "purity", "-", "-", "-", "-"]  # nobody has named the senses
    assert float(silhouette[-1]) != 0
    found = json.loads(numbers.read_text())["words"]["bank"]["uses"]
    assert {use["sense"].partition(":")[0] for use in found} == {"cluster 1", "cluster 2"}
    assert {use["sentence"] for use in found} == {
        "The river [Bank] .",
        "He sat on the [bank] of a bank .",
        "He sat on the bank of a [bank] .",
        "A [bank] .",
    }
    run("uses", text, tmp_path / "a.svg", *options, "--limit", 3, "--clusters", 1)
    found = json.loads(numbers.read_text())["words"]["bank"]["uses"]
    assert [use["sense"].partition(":")[0] for use in found] == ["cluster 1"] * 3


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
    assert titles(figure)[1] == f"layer 1\nsilhouette {each.silhouette[1]:.2f}"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no.tsv", "a.png"], "there is no file no.tsv"),
        ([SENSES, "a.pdf"], "a figure is a .png or .svg file, and a.pdf is named as neither"),
        ([SENSES, "no/a.png"], "there is no folder"),
        ([SENSES, "a.png", "--json", "no/a.json"], "there is no folder"),
        ([SENSES, "a.png", "--word", "bnak"], f"{SENSES} has no use of 'bnak', and a map needs"),
        ([SENSES, "a.png", "--word", "bank,,play"], "--word names one word, or several with"),
        ([SENSES, "a.png", "--clusters", "0"], "clusters must be at least 1, not 0"),
        ([SENSES, "a.png", "--limit", "2"], "limit must be at least 3, not 2"),
        (["empty.tsv", "a.png"], "empty.tsv has no uses of words"),
        (["one.tsv", "a.png"], "one.tsv has only one use of 'bank', and a map needs at least 3"),
        (["bad.tsv", "a.png"], "bad.tsv, line 2: 'x' is no position"),
        (["many.tsv", "a.png"], "many.tsv has 13 words, and a figure has room for 12: name some"),
        (["text.txt", "a.png"], "text.txt is no .tsv of uses: name the word to look for with"),
        (["text.txt", "a.png", "--word", "boat"], "text.txt has only 2 uses of 'boat', and"),
    ],
)
def test_wrong_uses_are_one_sentence_before_the_model_is_loaded(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[object],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "the bank\t1\ta\n"
    (tmp_path / "empty.tsv").write_text("\n")
    (tmp_path / "one.tsv").write_text(line)
    (tmp_path / "bad.tsv").write_text(f"{line}the bank\tx\ta\n")
    many = "".join(3 * f"the w{number}\t1\ta\n" for number in range(13))
    (tmp_path / "many.tsv").write_text(many)
    (tmp_path / "text.txt").write_text("A boat and a boat .\n")
    monkeypatch.setattr("elmokit.cli.plot.open_store", None)
    code, out, err = run("uses", *arguments, "--quiet")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"elmokit: error: {sentence}")


def test_without_matplotlib_the_extra_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run("pair", "a", "b", tmp_path / "a.png")
    assert code == 2
    assert "pip install 'elmokit[plots]'" in err


# ---------------------------------------------------------------------- task models
@pytest.fixture(scope="module")
def trained(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three taggers: with mixes at both places, with one layer, and without ELMo."""
    from elmokit.tasks import train

    folder = tmp_path_factory.mktemp("models")
    data = folder / "train.conll"
    data.write_text("Anna B-PER\nsat O\n\nBo B-PER\nran O\n\n" * 2)
    small: dict[str, Any] = {"train": str(data), "dev": str(data), "hidden": 4, "epochs": 1}
    small |= {"quiet": True, "cache": str(folder / "cache"), "word_dim": 4, "char_dim": 0}
    train("tagger", **small, elmo=model, placement="both", out=str(folder / "both"))
    train("tagger", **small, elmo=model, layers="top", out=str(folder / "top"))
    train("tagger", **small, elmo=None, out=str(folder / "without"))
    return folder


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
        Mixes("ner", "tagger", {"input": [0.5, 0.3, 0.2]}, {"input": 1.1}),
        Mixes("qa", "question", {"input": [0.1, 0.9], "output": [0.6, 0.4]}, {}),
    ]
    figure = draw_weights(models)
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


def test_the_command_takes_several_models_and_leaves_out_those_without_a_mix(
    run: Run, trained: Path, tmp_path: Path
) -> None:
    folders = [trained / name for name in ("both", "top", "without")]
    picture, numbers = tmp_path / "weights.png", tmp_path / "weights.json"
    code, out, err = run("weights", *folders, picture, "--json", numbers)
    assert code == 0
    assert err.splitlines() == [
        f"elmokit: {folder} has learned no mix of layers: left out" for folder in folders[1:]
    ]
    mixes = json.loads(numbers.read_text())["mixes"]["both"]
    head, *rows = (line.split() for line in out.splitlines())
    assert head[-1] == "scale"
    for row, place in zip(rows, ("input", "output"), strict=True):
        values = [*mixes["weights"][place], mixes["scales"][place]]
        assert row == ["both:", place, *(f"{value:.2f}" for value in values)]
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, _, err = run("weights", *folders[1:], picture)
    assert code == 2
    assert "none of the models has learned a mix of layers" in err
    assert run("weights", tmp_path, picture)[2] == (
        f"elmokit: error: there is no task model in {tmp_path}\n"
    )


def test_folders_of_the_same_name_are_told_apart() -> None:
    assert short_names(["a/b/ner", "a/c/ner", "a/c/qa"]) == ["b/ner", "c/ner", "c/qa"]
    assert short_names(["a/b/ner", "a/b/qa/"]) == ["ner", "qa"]
    assert short_names(["ner", "ner"]) == ["ner", "ner"]
    assert doctest.testmod(maps).failed == 0


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


def test_the_heat_map_has_a_cell_with_a_number_for_each_two_tokens(store: LayerStore) -> None:
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


def test_the_pair_command_prints_the_nearest_token_of_every_layer(
    run: Run, model: str, elmo: Embedder, tmp_path: Path
) -> None:
    picture, numbers = tmp_path / "pair.svg", tmp_path / "pair.json"
    sentences = ["He sat on the bank.", "The bank, the boat."]
    options = ["--model", model, "--layer", "average", "--json", numbers]
    code, out, err = run("pair", *sentences, picture, *options)
    assert (code, err) == (0, "")
    assert picture.stat().st_size > 1000
    result = json.loads(numbers.read_text())
    assert result["second"] == ["The", "bank", ",", "the", "boat", "."]
    assert list(result["cosines"]) == ["layer 0", "layer 1", "layer 2", "average"]
    one, other = (elmo.embed_tokens(text).layers[2] for text in sentences)
    row = out.splitlines()[1 + result["first"].index("sat")].split()
    cosines = other @ one[1] / np.linalg.norm(other, axis=1) / np.linalg.norm(one[1])
    assert row[0] == "sat"
    assert row[5] == result["second"][int(cosines.argmax())]  # word and cosine of each layer
    assert float(row[6]) == pytest.approx(cosines.max(), abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([" ", "b"], "a sentence is empty"),
        (["a", "b", "--layer", "3"], "layer must be 0 to 2, top or average, not '3'"),
        (["a", "b", "--layer", "-1"], "layer must be 0 to 2, top or average, not '-1'"),
        (["a " * 61, "b"], "a sentence has 61 tokens, and the figure has room for 60"),
    ],
)
def test_wrong_pairs_are_one_sentence(
    run: Run, model: str, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    first, second, *options = arguments
    picture = tmp_path / "pair.png"
    code, out, err = run("pair", first, second, picture, "--model", model, *options)
    assert (code, out, err) == (2, "", f"elmokit: error: {sentence}\n")
    assert not picture.exists()


def test_a_layer_is_named_by_its_number_or_by_a_word() -> None:
    assert [layer_index(name, 1) for name in ("0", "1", "top", "average")] == [0, 1, 1, 2]


# ---------------------------------------------------------------------- fonts
def test_characters_that_no_font_has_are_named_once(
    run: Run, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "fonts", lambda: [style.LATIN])
    picture = tmp_path / "pair.png"
    code, _, err = run("pair", "中 文 naïve Привет", "文 中", picture, "--model", model)
    assert code == 0
    assert err == (
        f"elmokit: no font here has 中 文: boxes stand for them in {picture}; install one that has "
        "them, such as Noto Sans CJK (on Debian and Ubuntu: apt install fonts-noto-cjk)\n"
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    many = "一 二 三 四 五 六 七 八 九"
    err = run("pair", many, "a", picture, "--model", model)[2]
    assert "一 七 三 九 二 五 八 六 …: boxes" in err


def test_chinese_is_drawn_where_a_font_has_it(store: LayerStore, tmp_path: Path) -> None:
    if len(style.fonts()) == 1:
        pytest.skip("no font with Chinese characters is installed")
    figure = draw_pair(compare_tokens(store, ["银行", "河岸", "。"], ["bank"]), 1)
    assert missing_characters(figure) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of each glyph that is missing
        with style.styled():
            figure.savefig(tmp_path / "pair.png")


def test_fonts_installed_since_matplotlib_made_its_list_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from matplotlib import font_manager

    class Entry:
        name, fname = "DejaVu Sans", "/fonts/DejaVu.ttf"

    class Manager:
        def __init__(self) -> None:
            self.ttflist = [Entry()]

        def addfont(self, path: str) -> None:
            if path.endswith("broken.ttf"):
                raise RuntimeError("no font")
            entry = Entry()
            entry.name, entry.fname = "Noto Sans CJK JP", path
            self.ttflist.append(entry)

    paths = ["/fonts/DejaVu.ttf", "/fonts/broken.ttf", "/fonts/new.ttc"]
    monkeypatch.setattr(font_manager, "fontManager", manager := Manager())
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: paths)
    style.fonts.cache_clear()
    try:
        assert style.fonts() == ["DejaVu Sans", "Noto Sans CJK JP"]
        assert [entry.fname for entry in manager.ttflist] == [paths[0], paths[2]]
    finally:
        style.fonts.cache_clear()


def test_a_figure_that_cannot_be_written_is_a_sentence(store: LayerStore, tmp_path: Path) -> None:
    figure = draw_pair(compare_tokens(store, ["a"], ["b"]), 0)
    (tmp_path / "folder.png").mkdir()
    said = complaint(lambda: write_figure(figure, str(tmp_path / "folder.png")))
    assert said.startswith(f"cannot write {tmp_path / 'folder.png'}: ")


# ---------------------------------------------------------------------- surprisal
def test_surprisal_is_drawn_for_each_word_in_both_directions(elmo: Embedder) -> None:
    sentences = [elmo.surprisal(SENTENCE.split()), elmo.surprisal("the strange boat".split())]
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
        "by the words before",
        "by the words after",
        "not in the vocabulary",
    ]
    assert lines[0].get_marker() != lines[1].get_marker()
    assert lines[0].get_linestyle() != lines[1].get_linestyle()


def test_a_long_text_has_several_rows(elmo: Embedder) -> None:
    sentences = [elmo.surprisal(SENTENCE.split()) for _ in range(11)]
    figure = draw_surprisal(sentences)  # 77 words, 34 a row
    assert [len(axes.get_xticklabels()) for axes in figure.axes] == [34, 34, 9]
    drawn = np.concatenate([line.get_xydata() for axes in figure.axes for line in axes.lines
                            if line.get_marker() == "o"])  # fmt: skip
    np.testing.assert_array_equal(drawn[:, 0], np.arange(77))
    np.testing.assert_allclose(drawn[:, 1], np.tile(sentences[0].forward, 11))
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert texts(figure.axes[2].get_xticklabels())[-1] == "."


def test_the_surprisal_command_takes_a_text_or_a_file(
    run: Run, model: str, elmo: Embedder, tmp_path: Path
) -> None:
    text = "He sat on the river bank. The boat sat."
    file, picture, numbers = (tmp_path / name for name in ("a.txt", "a.png", "a.json"))
    file.write_text("He sat on the\nriver bank. The boat sat.\n")
    results = []
    for given in (text, file):
        options = ["--model", model, "--json", numbers, "--quiet"]
        code, out, err = run("surprisal", given, picture, *options)
        assert (code, err) == (0, "")
        results.append((out, json.loads(numbers.read_text())["sentences"]))
    assert results[0] == results[1]
    out, (first, second) = results[0]
    assert first["tokens"] == ["He", "sat", "on", "the", "river", "bank", "."]
    expected = elmo.surprisal(second["tokens"])
    assert second["backward"] == pytest.approx(expected.backward.tolist())
    assert second["known"] == [False, True, True, True]
    last = out.splitlines()[-1].split()
    values = (expected.forward[-1], expected.backward[-1], expected.average[-1])
    assert last == [".", *(f"{value:.2f}" for value in values)]
    assert out.splitlines()[1].split()[0] == "He"
    assert out.splitlines()[1].endswith("as <UNK>")


def test_a_text_without_end_is_cut(
    run: Run, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot_input, "MOST_TEXT", 10)
    (tmp_path / "a.txt").write_text("The boat sat. " * 5)
    code, out, err = run("surprisal", tmp_path / "a.txt", tmp_path / "a.png", "--model", model,
                         "--quiet")  # fmt: skip
    assert (code, err) == (0, "elmokit: only the first 10 words are drawn\n")
    assert len(out.splitlines()) == 11
    assert plot_input.first_words([["a"] * 10]) == ([["a"] * 10], False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no-such-file.txt", "there is no file no-such-file.txt"),
        ("no/such/file", "there is no file no/such/file"),
        ("  ", "the text has no words"),
        ("model without a softmax", "has no softmax and so cannot predict words"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(
    run: Run, elmo: Embedder, tmp_path: Path, text: str, sentence: str
) -> None:
    config = BiLMConfig(filters=((1, 8),), character_dim=6, lstm_dim=24, projection_dim=12)
    Embedder(BiLM(config).eval()).save(tmp_path / "model")
    options = ["--model", tmp_path / "model", "--quiet"]
    code, out, err = run("surprisal", text, tmp_path / "a.png", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
