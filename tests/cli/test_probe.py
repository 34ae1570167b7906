"""`elmokit probe`: linear classifiers a layer, beside guessing and static vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tiny import complaint, tiny_elmo

import elmokit
from elmokit.analysis.probes.figure import draw_probe
from elmokit.analysis.probes.linear import Vectors, measured, minibatches, run_probes
from elmokit.analysis.probes.tokens import (
    TaggedText,
    guessed_scores,
    label_numbers,
    majority_label,
    read_tagged_text,
    word_majorities,
)
from elmokit.cli.main import main
from elmokit.cli.probe import probe
from elmokit.store import LayerStore
from elmokit.vectors.static.table import StaticVectors

NOUNS = "river bank boat tree house road".split()
VERBS = "runs sees takes leaves finds".split()
WORDS = {"DET": ["the", "a"], "NOUN": NOUNS, "VERB": VERBS, "ADV": ["here", "now", "often"]}


def made_text(count: int, seed: int, *, unseen: bool = False) -> TaggedText:
    """Sentences whose labels follow from the words; some labels are noise that none can learn."""
    rng = np.random.default_rng(seed)
    text = TaggedText()
    for _ in range(count):
        labels = ["DET", "NOUN", "VERB", "DET", "NOUN", "ADV"]
        words = [str(rng.choice(WORDS[label])) for label in labels]
        if unseen:
            words[1] += "s"
        noise = [str(rng.choice(list(WORDS))) if rng.random() < 0.1 else label for label in labels]
        text.sentences.append(tuple(words))
        text.labels.append(tuple(noise))
    return text


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    return LayerStore(tiny_elmo(), folder=tmp_path_factory.mktemp("layers"))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    return LayerStore(elmokit.load(), folder=tmp_path_factory.mktemp("shipped"))


def write_conll(text: TaggedText, path: Path) -> Path:
    sentences = zip(text.sentences, text.labels, strict=True)
    parts = ("".join(f"{w}\t{t}\n" for w, t in zip(*s, strict=True)) for s in sentences)
    path.write_text("\n".join(parts))
    return path


# ---------------------------------------------------------------------- guessing
def test_an_unseen_word_gets_the_label_that_most_words_seen_once_have() -> None:
    text = TaggedText([("a", "a", "b", "c", "d", "a")], [("X", "X", "Y", "Y", "Z", "Z")])
    majorities, unseen = word_majorities(text)
    assert majorities == {"a": "X", "b": "Y", "c": "Y", "d": "Z"}
    assert unseen == "Y"
    assert majority_label(TaggedText([("a", "b", "c")], [("X", "Z", "Z")])) == "Z"


def test_guesses_are_scored_on_all_words_and_on_those_that_are_new() -> None:
    train = TaggedText([("a", "a", "b", "c")], [("X", "X", "Y", "Y")])
    dev = TaggedText([("a", "b", "new", "other")], [("X", "X", "Y", "X")])
    majority, by_word = guessed_scores(train, dev)
    assert (majority.accuracy, majority.unseen) == (0.75, 0.5)  # X, the first of two
    assert (by_word.accuracy, by_word.unseen) == (0.5, 0.5)  # a: X right, b: Y wrong, new: Y right


# ---------------------------------------------------------------------- vectors
def test_vectors_are_standardised_by_the_training_tokens(store: LayerStore) -> None:
    text = made_text(20, 0)
    vectors = Vectors(store)
    blocks = list(vectors.blocks(text.sentences, label_numbers(text, list(WORDS))))
    scale = measured(blocks)
    layers = np.concatenate(
        [store.elmo.embed_tokens(list(sentence)).layers for sentence in text.sentences], axis=1
    )
    layers = np.concatenate([layers, layers.mean(axis=0, keepdims=True)])
    assert scale.layers[0].numpy()[:, 0] == pytest.approx(layers.mean(axis=1), abs=2e-3)
    assert scale.layers[1].numpy()[:, 0] == pytest.approx(layers.std(axis=1), abs=2e-3)
    after = torch.cat([scale.applied(block).layers for block in blocks], dim=1)
    assert after.mean(dim=1).abs().max() < 1e-4
    assert (after.std(dim=1, unbiased=False) - 1).abs().max() < 1e-3


def test_an_epoch_has_every_token_once_in_another_order(
    store: LayerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.analysis.probes.linear.BLOCK_BYTES", 4 * 4 * 24 * 50)
    text = made_text(40, 1)
    numbers = [np.arange(6) + 6 * row for row in range(40)]  # each token has a label of its own
    rng = np.random.default_rng(0)
    first, second = (
        [
            int(x)
            for b in minibatches(Vectors(store), text.sentences, numbers, 16, rng)
            for x in b.labels
        ]
        for _ in range(2)
    )
    assert sorted(first) == sorted(second) == list(range(240))
    assert first != second
    assert any(first[i + 1] != first[i] + 1 for i in range(5))
    for batch in minibatches(Vectors(store), text.sentences, numbers, 16, rng):
        for place, label in enumerate(batch.labels.tolist()):
            own = store.elmo.embed_tokens(list(text.sentences[label // 6])).layers[:, label % 6]
            assert batch.layers[:-1, place].numpy() == pytest.approx(own, abs=2e-3)
        break


# ---------------------------------------------------------------------- learning
def test_each_layer_gets_about_what_a_logistic_regression_gets(shipped: LayerStore) -> None:
    examples = Path(__file__).parents[2] / "examples"
    train, dev = (read_tagged_text(examples / f"names.{part}.conll") for part in ("train", "dev"))
    result = run_probes(shipped, train, dev)

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
    result = run_probes(store, *texts, epochs=15, lr=0.02)
    assert sum(result.mix) == pytest.approx(1)
    assert int(np.argmax(result.mix)) == layer


def test_static_vectors_have_a_classifier_of_their_own(store: LayerStore) -> None:
    train, dev = made_text(100, 1), made_text(50, 2)
    kinds = list(WORDS)
    words = [word for kind in kinds for word in WORDS[kind]]
    telling = np.eye(4, dtype=np.float32)[
        [number for number, kind in enumerate(kinds) for _ in WORDS[kind]]
    ]
    result = run_probes(store, train, dev, static=StaticVectors(words, telling), epochs=20, lr=0.02)
    assert result.static is not None
    assert result.static.accuracy == pytest.approx(result.guesses[1].accuracy, abs=0.02)
    silent = StaticVectors(words, np.ones((len(words), 2), np.float32))
    result = run_probes(store, train, dev, static=silent, epochs=5, lr=0.02)
    assert result.static is not None
    assert result.static.accuracy < 0.5


def test_the_same_seed_gives_the_same_result(store: LayerStore) -> None:
    train, dev = made_text(30, 1), made_text(10, 2)
    first, second, other = (run_probes(store, train, dev, epochs=2, seed=s) for s in (1, 1, 2))
    assert first == second
    assert first.epochs != other.epochs or first.mix != other.mix


def test_the_best_epoch_counts(store: LayerStore) -> None:
    result = run_probes(store, made_text(30, 1), made_text(10, 2), epochs=4)
    best = np.max(result.epochs, axis=0)
    assert [score.accuracy for score in result.layers] == pytest.approx(best.tolist())


def test_a_label_that_the_training_text_does_not_have_is_never_right(store: LayerStore) -> None:
    train, dev = made_text(20, 1), TaggedText([("the", "river")], [("NEW", "NEW")])
    result = run_probes(store, train, dev, epochs=1)
    assert {score.accuracy for score in result.layers} == {0.0}


# ---------------------------------------------------------------------- the command
@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    tiny_elmo().save_pretrained(tmp_path / "model")
    train = write_conll(made_text(30, 1), tmp_path / "train.conll")
    return train, write_conll(made_text(10, 2, unseen=True), tmp_path / "dev.conll")


def test_the_command_prints_a_table_and_writes_json_and_a_figure(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files[0].parent
    vectors = folder / "vectors.txt"
    vectors.write_text("the 1 0\na 1 0\nriver 0 1\n")
    options = ["--model", str(folder / "model"), "--epochs", "2", "--quiet"]
    options += ["--vectors", str(vectors), "--json", str(folder / "out.json")]
    code = main(["probe", *map(str, files), *options, "--figure", str(folder / "out.svg")])
    out = capsys.readouterr().out
    assert code == 0
    rows = [line[:15].strip() for line in out.splitlines()[1:9]]
    assert rows == [
        "majority label",
        "word's majority",
        "static vectors",
        "layer 0",
        "layer 1",
        "layer 2",
        "average",
        "mix",
    ]
    written = json.loads((folder / "out.json").read_text())
    assert written["settings"]["epochs"] == 2
    assert written["unseen_tokens"] == 10
    assert len(written["layers"]) == 5
    assert "unseen words" in out
    assert f"{100 * written['layers'][0]['accuracy']:.2f}" in out
    assert (folder / "out.svg").read_text().startswith("<?xml")


def score(name: str, accuracy: float, unseen: float | None) -> dict[str, Any]:
    return {"name": name, "accuracy": accuracy, "unseen": unseen}


def test_the_figure_has_a_point_a_layer_and_a_line_a_baseline() -> None:
    names = ["layer 0", "layer 1", "layer 2", "average", "mix"]
    result = {
        "layers": [score(n, 0.9 + i / 100, 0.7 + i / 50) for i, n in enumerate(names)],
        "guesses": [score("majority label", 0.17, 0.6), score("word's majority", 0.86, 0.5)],
        "static": score("static vectors", 0.8, 0.4),
    }
    figure = draw_probe(result)
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
    for each in result["layers"] + result["guesses"]:
        each["unseen"] = None
    assert len(draw_probe(result | {"static": None}).axes) == 1


def test_pos_tags_are_read_from_conllu_and_any_column_from_conll(tmp_path: Path) -> None:
    conllu = tmp_path / "a.conllu"
    row = "{}\t{}\t_\t{}\t{}\t_\t0\troot\t_\t_\n"
    conllu.write_text(row.format(1, "Go", "VERB", "VB") + row.format(2, "on", "ADV", "RB"))
    assert read_tagged_text(conllu).tags() == ["VERB", "ADV"]
    assert read_tagged_text(conllu, column="XPOS").tags() == ["VB", "RB"]
    conll = tmp_path / "a.conll"
    conll.write_text("EU NNP I-ORG\nrejects VBZ O\n")
    assert read_tagged_text(conll).tags() == ["I-ORG", "O"]  # as they stand, not in IOB2
    assert read_tagged_text(conll, column="2").tags() == ["NNP", "VBZ"]


def test_trouble_is_told_in_a_sentence_before_the_model_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("elmokit.cli.probe.open_store", never)
    good = tmp_path / "good.conll"
    good.write_text("a X\nb Y\n")
    one = tmp_path / "one.conll"
    one.write_text("a X\nb X\n")
    empty, binary = tmp_path / "empty.conll", tmp_path / "binary.conll"
    empty.write_text("")
    binary.write_bytes(b"\x00\x01\x02")
    good_, wrong = str(good), tmp_path / "wrong.conll"
    wrong.write_text("a X\nb\n")
    assert "no file" in complaint(lambda: probe(str(tmp_path / "none.conll"), good_))
    assert "no sentences" in complaint(lambda: probe(str(empty), good_))
    assert "binary" in complaint(lambda: probe(good_, str(binary)))
    assert "wrong.conll, line 2" in complaint(lambda: probe(str(wrong), good_))
    assert "nothing to learn" in complaint(lambda: probe(str(one), good_))
    assert "no column 7" in complaint(lambda: probe(good_, good_, column="7"))
    assert ".png or .svg" in complaint(lambda: probe(good_, good_, figure="a.pdf"))
    assert "no folder" in complaint(lambda: probe(good_, good_, json=str(tmp_path / "x" / "y")))
    assert "no file" in complaint(lambda: probe(good_, good_, vectors=str(tmp_path / "v.txt")))
