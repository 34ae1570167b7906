"""`elmokit drift`: uses out of two corpora, how far apart they are, what is typical of each."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist, cosine, pdist
from tiny import complaint, tiny_elmo

from elmokit.analysis.drift.change import (
    change_of,
    half_distance,
    inner_distance,
    measure_changes,
    pairwise_distance,
    prototype_distance,
    typical_uses,
)
from elmokit.analysis.sampling import LONGEST_SENTENCE, Corpus, frequent_words
from elmokit.analysis.uses import Use
from elmokit.cli.drift import drift, layer_index
from elmokit.cli.main import main
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
    same = change_of("w", uses, [vectors(200, 0, 1), vectors(200, 1, 1)])
    other = change_of("w", uses, [vectors(200, 0, 1), vectors(200, 1, -1)])
    assert np.abs(same.change).max() < 0.01
    assert other.change.min() > 0.5
    assert other.prt.min() > 1.5
    # What chance alone gives is as much as what two samples of the same kind give, or a bit more.
    assert (same.prt < 2 * same.halves[0]).all()
    assert (same.halves[0] < 0.05).all()


def test_halves_are_two_parts_of_the_same_uses() -> None:
    two = vectors(2, 3)
    expected = [cosine(*two[layer]) for layer in range(2)]
    found = half_distance(two, np.random.default_rng(0))
    assert found == pytest.approx(expected)
    assert np.isnan(half_distance(vectors(1, 0), np.random.default_rng(0))).all()


def test_the_most_typical_use_is_far_from_the_other_corpus() -> None:
    own = np.array([[1.0, 0.1], [1.0, 1.0], [0.5, 1.0]])
    other = np.array([[0.0, 1.0], [0.1, 1.0]])
    assert typical_uses(own, other) == [0, 1, 2]


# ---------------------------------------------------------------------- corpora
def corpus(path: Path, lines: list[str], **settings: object) -> Corpus:
    path.write_text("\n".join(lines) + "\n")
    return Corpus(path, tokenizer="whitespace", **settings)  # type: ignore[arg-type]


def test_words_are_counted_whatever_their_case_unless_asked(tmp_path: Path) -> None:
    lines = ["The bank .", "the Bank of the", ""]
    assert corpus(tmp_path / "a", lines).counts() == {"the": 3, "bank": 2, ".": 1, "of": 1}
    assert corpus(tmp_path / "a", lines, case=True).counts()["bank"] == 1


def test_a_sample_has_all_uses_if_they_are_few(tmp_path: Path) -> None:
    found, counts = corpus(tmp_path / "a", ["the bank", "a bank bank"]).sample(["bank"], most=9)
    assert [(use.tokens, use.start) for use in found["bank"]] == [
        (("the", "bank"), 1),
        (("a", "bank", "bank"), 1),
        (("a", "bank", "bank"), 2),
    ]
    assert counts == {"bank": 3}


def test_every_use_is_drawn_equally_often(tmp_path: Path) -> None:
    text = corpus(tmp_path / "a", [f"x{n} w" for n in range(12)])
    drawn: Counter[str] = Counter()
    for seed in range(600):
        found, _ = text.sample(["w"], most=4, seed=seed)
        assert len(found["w"]) == 4
        drawn.update(use.tokens[0] for use in found["w"])
    # 200 times each is expected, with a spread of about 11.5
    assert len(drawn) == 12
    assert min(drawn.values()) > 150
    assert max(drawn.values()) < 250


def test_a_sample_does_not_depend_on_the_other_words(tmp_path: Path) -> None:
    text = corpus(tmp_path / "a", [f"v x{n} w" for n in range(50)])
    assert text.sample(["w"], most=5)[0]["w"] == text.sample(["v", "w"], most=5)[0]["w"]


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    found, counts = corpus(tmp_path / "a", [" ".join(["w"] * 2000)]).sample(["w"], most=5000)
    assert counts["w"] == 2000
    assert max(len(use.tokens) for use in found["w"]) == LONGEST_SENTENCE


def test_frequent_words_are_those_of_both_without_the_first_ones() -> None:
    first = Counter({"the": 50, "bank": 10, "cell": 8, "x-ray": 7, "1998": 20, "only": 30})
    second = Counter({"the": 60, "bank": 6, "cell": 9, "x-ray": 2, "1998": 20})
    # The shares of cell are 8 of 125 and 9 of 97, those of bank 10 of 125 and 6 of 97.
    assert frequent_words(first, second, least=5, most=9) == ["the", "cell", "bank"]
    assert frequent_words(first, second, least=5, most=9, skip=1) == ["cell", "bank"]
    assert frequent_words(first, second, least=2, most=2) == ["the", "cell"]
    assert "x-ray" in frequent_words(first, second, least=2, most=9)
    assert "no word" in complaint(lambda: frequent_words(first, second, least=99, most=9))


# ---------------------------------------------------------------------- words
@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    return LayerStore(tiny_elmo(), folder=tmp_path_factory.mktemp("layers"))


def test_the_vectors_are_those_of_the_uses_with_the_mean_of_all_tokens_off(
    store: LayerStore,
) -> None:
    texts = ["the river bank", "a bank here", "my bank is closed", "no bank today"]
    uses = [Use(tuple(t.split()), t.split().index("bank"), t.split().index("bank") + 1, "bank")
            for t in texts]  # fmt: skip
    [found] = measure_changes(store, {"bank": (uses[:2], uses[2:])})
    layers = [store.elmo.embed_tokens(text.split()).layers for text in texts]
    mean = np.concatenate(layers, axis=1).mean(axis=1)
    for layer in range(3):
        rows = [
            value[layer, use.start] - mean[layer] for value, use in zip(layers, uses, strict=True)
        ]
        expected = cdist(rows[:2], rows[2:], "cosine").mean()
        if layer:  # layer 0 has the same vector for all
            assert found.apd[layer] == pytest.approx(expected, abs=5e-3)
    assert found.apd[0] == pytest.approx(0, abs=1e-6)
    assert found.change.shape == (4,)


def test_layers_have_numbers_and_names() -> None:
    assert [layer_index(name, 2) for name in ("0", "2", "top", "average")] == [0, 2, 2, 3]
    assert "0 to 2" in complaint(lambda: layer_index("3", 2))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    tiny_elmo().save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    river, money = ["river", "water", "boat"], ["money", "loan", "teller"]
    shared = ["tree", "house", "road"]

    def lines(near: list[str]) -> str:
        return "".join(
            f"{rng.choice(near)} {rng.choice(near)} bank {rng.choice(near)} .\n"
            f"{rng.choice(shared)} {rng.choice(shared)} cup {rng.choice(shared)} .\n"
            for _ in range(30)
        )

    Path("a.txt").write_text(lines(river) + "A rare word .\n")
    Path("b.txt").write_text(lines(money))
    return tmp_path


def test_a_word_with_other_neighbours_is_ranked_before_one_with_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--words", "cup,Bank,rare", "--model", "model", "--json", "out.json", "--quiet"]
    assert main(["drift", "a.txt", "b.txt", *options, "--layer", "1"]) == 0
    out = capsys.readouterr().out
    written = json.loads(Path("out.json").read_text())
    assert [word["word"] for word in written["words"]] == ["bank", "cup"]
    bank, cup = (word["layers"]["layer 1"] for word in written["words"])
    assert bank["change"] > 5 * abs(cup["change"])
    assert bank["prt"] > bank["halves_a"]
    assert cup["prt"] < 3 * cup["halves_a"] + 0.01
    assert set(written["words"][0]["layers"]) == {"layer 0", "layer 1", "layer 2", "average"}
    assert written["left_out"] == {"rare": [1, 0]}
    assert "need 5 uses: rare (1, 0)" in out
    river, money = written["words"][0]["examples"]
    assert all("[bank]" in text and ("river" in text or "water" in text or "boat" in text)
               for text in river)  # fmt: skip
    assert all("[bank]" in text for text in money)
    assert f"b.txt: {money[0]}" in out


def test_without_words_the_frequent_ones_of_both_are_taken(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drift("a.txt", "b.txt", skip_words=0, model="model", quiet=True, examples=0, json="out.json")
    written = json.loads(Path("out.json").read_text())
    names = {word["word"] for word in written["words"]}
    assert names == {"bank", "cup", "tree", "house", "road"}
    drift("a.txt", "b.txt", skip_words=0, model="model", quiet=True, most_words=2, json="out.json")
    assert len(json.loads(Path("out.json").read_text())["words"]) == 2


@pytest.mark.parametrize("measure", ["change", "apd", "prt"])
def test_words_are_ranked_by_the_measure_that_is_asked_for(folder: Path, measure: str) -> None:
    drift("a.txt", "b.txt", skip_words=0, model="model", quiet=True, measure=measure, layer="top",
          most=20, json="out.json")  # type: ignore[arg-type]  # fmt: skip
    words = json.loads(Path("out.json").read_text())["words"]
    values = [word["layers"]["layer 2"][measure] for word in words]
    assert values == sorted(values, reverse=True)
    assert all(max(word["uses"]) <= 20 for word in words)


def test_chinese_words_are_found_by_the_chinese_tokenizer(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jieba")
    Path("zh.txt").write_text("我们去银行取钱。\n银行今天关门。\n" * 3)
    options = ["--words", "银行", "--tokenizer", "chinese", "--model", "model", "--quiet"]
    assert main(["drift", "zh.txt", "zh.txt", *options]) == 0
    row = capsys.readouterr().out.splitlines()[2]
    assert row.split()[:4] == ["银行", "6", "6", row.split()[3]]


def test_trouble_is_told_in_a_sentence_before_the_model_loads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("elmokit.cli.drift.open_store")
    Path("empty.txt").write_text("\n\n")
    Path("binary.txt").write_bytes(b"\x00\x01")
    assert "no file" in complaint(lambda: drift("none.txt", "b.txt"))
    assert "no sentences" in complaint(lambda: drift("a.txt", "empty.txt"))
    assert "binary" in complaint(lambda: drift("binary.txt", "b.txt"))
    assert "more than once" in complaint(lambda: drift("-", "b.txt"))
    assert "unicorn (0 and 0)" in complaint(lambda: drift("a.txt", "b.txt", words="unicorn"))
    assert "name words" in complaint(lambda: drift("a.txt", "b.txt", words=" , "))
    assert "at least 2" in complaint(lambda: drift("a.txt", "b.txt", min_count=1))
    assert "most not below" in complaint(lambda: drift("a.txt", "b.txt", most=3))
    assert "most_words" in complaint(lambda: drift("a.txt", "b.txt", most_words=0))
    assert "no folder" in complaint(lambda: drift("a.txt", "b.txt", json="x/y.json"))
