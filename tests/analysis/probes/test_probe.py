"""Linear classifiers on each layer, compared with guesses and static vectors."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tagged import WORDS, made_text
from tiny import tiny_elmo

import elmokit
from elmokit.analysis.plots.draw import draw_probe
from elmokit.analysis.probes.probe import (
    Block,
    ProbeResult,
    measure_scale,
    minibatches,
    probe_layers,
    read_blocks,
)
from elmokit.analysis.probes.tokens import (
    Score,
    TaggedText,
    most_frequent,
    read_tagged_text,
    score_guesses,
    word_majorities,
)
from elmokit.store import LayerStore
from elmokit.vectors.static.table import StaticVectors


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    return LayerStore(tiny_elmo(), folder=tmp_path_factory.mktemp("layers"))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    return LayerStore(elmokit.load(), folder=tmp_path_factory.mktemp("english"))


# ---------------------------------------------------------------------- guessing
def test_an_unseen_word_gets_the_label_that_most_words_seen_once_have() -> None:
    text = TaggedText([("a", "a", "b", "c", "d", "a")], [("X", "X", "Y", "Y", "Z", "Z")])
    majorities, unseen = word_majorities(text)
    assert majorities == {"a": "X", "b": "Y", "c": "Y", "d": "Z"}
    assert unseen == "Y"
    assert most_frequent(Counter("XZZYY")) == "Y"


def test_guesses_are_scored_on_all_words_and_on_those_that_are_new() -> None:
    train = TaggedText([("a", "a", "b", "c")], [("X", "X", "Y", "Y")])
    dev = TaggedText([("a", "b", "new", "other")], [("X", "X", "Y", "X")])
    majority, by_word = score_guesses(train, dev)
    assert (majority.accuracy, majority.unseen) == (0.75, 0.5)  # X, the first of two
    assert (by_word.accuracy, by_word.unseen) == (0.5, 0.5)  # a: X right, b: Y wrong, new: Y right


# ---------------------------------------------------------------------- vectors
def test_vectors_are_standardized_by_the_training_tokens(store: LayerStore) -> None:
    text = made_text(20, 0)
    blocks = list(read_blocks(store, None, list(WORDS), text))
    scale = measure_scale(blocks)
    layers = np.concatenate(
        [store.elmo.embed_tokens(list(sentence)).layers for sentence in text.sentences], axis=1
    )
    layers = np.concatenate([layers, layers.mean(axis=0, keepdims=True)])
    assert scale[0][0].numpy()[:, 0] == pytest.approx(layers.mean(axis=1), abs=2e-3)
    assert scale[0][1].numpy()[:, 0] == pytest.approx(layers.std(axis=1), abs=2e-3)
    after = torch.cat([block.standardized(scale).layers for block in blocks], dim=1)
    assert after.mean(dim=1).abs().max() < 1e-4
    assert (after.std(dim=1, unbiased=False) - 1).abs().max() < 1e-3


def test_an_epoch_has_every_token_once_in_another_order(
    store: LayerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.analysis.probes.probe.BLOCK_BYTES", 4 * 4 * 24 * 50)
    text = made_text(40, 1)
    names = [str(i) for i in range(240)]  # each token has a label of its own
    text.labels[:] = [tuple(names[6 * row : 6 * row + 6]) for row in range(40)]
    rng = np.random.default_rng(0)

    def epoch() -> list[Block]:
        read = partial(read_blocks, store, None, names, text)
        return list(minibatches(read, len(text.sentences), 16, rng))

    first, second = (torch.cat([batch.labels for batch in epoch()]).tolist() for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(240))
    assert first != second
    assert any(first[i + 1] != first[i] + 1 for i in range(5))
    batch = epoch()[0]
    for i, label in enumerate(batch.labels.tolist()):
        own = store.elmo.embed_tokens(list(text.sentences[label // 6])).layers[:, label % 6]
        assert batch.layers[:-1, i].numpy() == pytest.approx(own, abs=2e-3)


# ---------------------------------------------------------------------- learning
def test_each_layer_gets_about_what_a_logistic_regression_gets(shipped: LayerStore) -> None:
    examples = Path(__file__).parents[3] / "examples"
    train, dev = (read_tagged_text(examples / f"names.{part}.conll") for part in ("train", "dev"))
    result = probe_layers(shipped, train, dev)

    def vectors(text: TaggedText) -> np.ndarray:
        layers = np.concatenate(
            [shipped.elmo.embed_tokens(list(sentence)).layers for sentence in text.sentences],
            axis=1,
        )
        return np.concatenate([layers, layers.mean(axis=0, keepdims=True)])

    x, test = vectors(train), vectors(dev)
    mean, spread = x.mean(axis=1, keepdims=True), x.std(axis=1, keepdims=True)
    for layer, score in enumerate(result.layers[:-1]):
        model = LogisticRegression(max_iter=1000)
        model.fit(((x - mean) / spread)[layer], train.tags())
        reference = model.score(((test - mean) / spread)[layer], dev.tags())
        assert score.accuracy == pytest.approx(reference, abs=0.025), score.name
    names = "layer 0,layer 1,layer 2,average,mix".split(",")
    assert [score.name for score in result.layers] == names
    assert result.layers[1].accuracy > result.guesses[1].accuracy + 0.1


@pytest.mark.parametrize("layer", [0, 2])
def test_the_mix_learns_which_layer_knows_the_label(store: LayerStore, layer: int) -> None:
    """Labels are read off one column of a layer: its share must grow."""
    texts = []
    for seed, count in ((1, 120), (2, 40)):
        text = made_text(count, seed)
        values = [store.elmo.embed_tokens(list(s)).layers[layer, :, 3] for s in text.sentences]
        middle = float(np.median(np.concatenate(values)))
        labels = [tuple("H" if value > middle else "L" for value in row) for row in values]
        texts.append(TaggedText(text.sentences, labels))
    result = probe_layers(store, *texts, epochs=15, lr=0.02)
    assert sum(result.mix) == pytest.approx(1)
    assert int(np.argmax(result.mix)) == layer


def test_static_vectors_have_a_classifier_of_their_own(store: LayerStore) -> None:
    train, dev = made_text(100, 1), made_text(50, 2)
    kinds = list(WORDS)
    words = [word for kind in kinds for word in WORDS[kind]]
    rows = [i for i, kind in enumerate(kinds) for _ in WORDS[kind]]
    telling = StaticVectors(words, np.eye(4, dtype=np.float32)[rows])
    result = probe_layers(store, train, dev, static=telling, epochs=20, lr=0.02)
    assert result.static is not None
    assert result.static.accuracy == pytest.approx(result.guesses[1].accuracy, abs=0.02)
    silent = StaticVectors(words, np.ones((len(words), 2), np.float32))
    result = probe_layers(store, train, dev, static=silent, epochs=5, lr=0.02)
    assert result.static is not None
    assert result.static.accuracy < 0.5


def test_the_same_seed_gives_the_same_result(store: LayerStore) -> None:
    train, dev = made_text(30, 1), made_text(10, 2)
    first, second, other = (probe_layers(store, train, dev, epochs=2, seed=s) for s in (1, 1, 2))
    assert first == second
    assert first.epochs != other.epochs or first.mix != other.mix


def test_the_best_epoch_counts(store: LayerStore) -> None:
    result = probe_layers(store, made_text(30, 1), made_text(10, 2), epochs=4)
    best = np.max(result.epochs, axis=0)
    assert [score.accuracy for score in result.layers] == pytest.approx(best.tolist())


def test_a_label_that_the_training_text_does_not_have_is_never_right(store: LayerStore) -> None:
    train, dev = made_text(20, 1), TaggedText([("the", "river")], [("NEW", "NEW")])
    result = probe_layers(store, train, dev, epochs=1)
    assert {score.accuracy for score in result.layers} == {0.0}


# ---------------------------------------------------------------------- reading
def test_pos_tags_are_read_from_conllu_and_any_column_from_conll(tmp_path: Path) -> None:
    conllu = tmp_path / "a.conllu"
    row = "{}\t{}\t_\t{}\t{}\t_\t0\troot\t_\t_\n"
    conllu.write_text(row.format(1, "Go", "VERB", "VB") + row.format(2, "on", "ADV", "RB"))
    assert read_tagged_text(conllu).tags() == ["VERB", "ADV"]
    assert read_tagged_text(conllu, column="XPOS").tags() == ["VB", "RB"]
    conll = tmp_path / "a.conll"
    conll.write_text("EU NNP I-ORG\nrejects VBZ O\n")
    assert read_tagged_text(conll).tags() == ["I-ORG", "O"]  # as they are, not in IOB2
    assert read_tagged_text(conll, column="2").tags() == ["NNP", "VBZ"]


# ---------------------------------------------------------------------- the figure
def probe_result(layers: list[Score], guesses: list[Score], static: Score | None) -> ProbeResult:
    return ProbeResult([], guesses, layers, static, [], [], 9, 9, 9)


def test_the_figure_has_a_point_per_layer_and_a_line_per_baseline() -> None:
    names = ["layer 0", "layer 1", "layer 2", "average", "mix"]
    scores = [Score(name, 0.9 + i / 100, 0.7 + i / 50) for i, name in enumerate(names)]
    guesses = [Score("majority label", 0.17, 0.6), Score("word's majority", 0.86, 0.5)]
    figure = draw_probe(probe_result(scores, guesses, Score("static vectors", 0.8, 0.4)))
    left, right = figure.axes
    layers, several, *lines = left.lines
    assert layers.get_xydata().tolist() == [[0, 90], [1, 91], [2, 92]]
    assert several.get_xydata()[:, 1].tolist() == [93, 94]
    assert [line.get_ydata()[0] for line in lines] == [86, 80]  # the majority is far below
    assert "majority label: 17.0" in left.texts[-1].get_text()
    assert [line.get_ydata()[0] for line in right.lines[2:]] == [60, 50, 40]
    assert {text.get_text() for text in figure.legends[0].texts} == {
        "one layer",
        "several layers",
        "majority label",
        "word's majority",
        "static vectors",
    }
    scores, guesses = ([replace(s, unseen=None) for s in group] for group in (scores, guesses))
    assert len(draw_probe(probe_result(scores, guesses, None)).axes) == 1
