"""`elmokit similarity`: correlations and thresholds, files of pairs, cosines of layers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cosine as scipy_distance
from tiny import complaint, tiny_elmo

from elmokit.analysis.geometry import accuracy, best_threshold, pearson, ranks, spearman
from elmokit.analysis.similarity.agreement import measure_pairs
from elmokit.analysis.similarity.cosines import mean_vector, pair_cosines, static_cosines, texts_of
from elmokit.analysis.similarity.rated_pairs import (
    Pair,
    kind_of_pairs,
    read_scws,
    read_sentence_pairs,
    read_wic,
)
from elmokit.analysis.uses import Use
from elmokit.cli.main import main
from elmokit.cli.similarity import similarity
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


# ---------------------------------------------------------------------- numbers
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
    found = accuracy(scores, gold, best_threshold(scores, gold))
    tried = [np.mean((scores >= t) == np.array(gold)) for t in np.arange(-1, 3, 0.01)]
    assert found == pytest.approx(max(tried))


def test_a_threshold_may_call_all_yes_or_all_no() -> None:
    assert best_threshold([0.1, 0.5], [True, True]) <= 0.1
    assert best_threshold([0.1, 0.5], [False, False]) > 0.5


# ---------------------------------------------------------------------- files
def test_scws_has_its_words_between_marks(tmp_path: Path) -> None:
    file = tmp_path / "ratings.txt"
    file.write_text(SCWS)
    assert kind_of_pairs(file) == "scws"
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
    assert kind_of_pairs(file) == "wic"
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
    assert kind_of_pairs(sick) == "sentences"
    by_name = read_sentence_pairs(sick, str.split)
    by_number = read_sentence_pairs(
        plain, str.split, first_column="3", second_column="4", score_column="2"
    )
    assert [pair.gold for pair in by_name] == [3.6, 1]
    assert [pair.gold for pair in by_number] == [2.5, 1]
    assert [(p.first, p.second) for p in by_name] == [(p.first, p.second) for p in by_number]


# ---------------------------------------------------------------------- cosines
def pair(first: str, second: str, gold: float, place: int | None = None) -> Pair:
    def use(text: str) -> Use:
        tokens = tuple(text.split())
        return Use(tokens, place or 0, len(tokens) if place is None else place + 1, "")

    return Pair(use(first), use(second), gold)


PAIRS = [
    pair("the river bank", "a boat on the river", 4.0),
    pair("the bank is closed", "no money today", 2.0),
    pair("dogs bark", "the roof leaks here", 1.0),
]


def test_cosines_of_words_are_those_of_their_own_vectors(store: LayerStore) -> None:
    pairs = [pair("the river bank", "a bank there", 1, place=1), pair("x y", "z w v", 0, place=1)]
    mean = mean_vector(store, texts_of(pairs))
    found = pair_cosines(store, pairs, mean=mean)
    texts = ["the river bank", "a bank there", "x y", "z w v"]
    layers = [store.elmo.embed_tokens(text.split()).layers for text in texts]
    everything = np.concatenate(layers, axis=1).mean(axis=1)
    for layer in range(3):
        raw = 1 - scipy_distance(layers[2][layer, 1], layers[3][layer, 1])
        off = 1 - scipy_distance(*(layers[n][layer, 1] - everything[layer] for n in (2, 3)))
        assert found[0, :, layer, 1] == pytest.approx([raw, off], abs=5e-3)
    whole = [value.mean(axis=0)[1] for value in layers[2:]]
    assert found[0, 0, 3, 1] == pytest.approx(1 - scipy_distance(*whole), abs=5e-3)


@pytest.mark.parametrize("pooling", ["mean", "max", "ends"])
def test_the_mean_of_all_tokens_is_off_before_they_are_pooled(
    store: LayerStore, pooling: str
) -> None:
    mean = mean_vector(store, texts_of(PAIRS))
    found = pair_cosines(store, PAIRS, mean=mean, poolings=["min", pooling])
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
    assert found[1, 1, 1, 0] == pytest.approx(1 - scipy_distance(*sides), abs=5e-3)


def test_static_vectors_leave_unknown_words_out() -> None:
    vectors = StaticVectors(["river", "bank", "boat"], np.array([[1, 0], [0, 1], [1, 1]], "f4"))
    pairs = [pair("river zzz", "boat", 1), pair("zzz", "river", 0)]
    found = static_cosines(vectors, pairs, whole=True)
    assert found[0].tolist() == pytest.approx([np.sqrt(0.5), 0])
    mean = np.array([3, 1]) / 3  # river, boat, river
    off = 1 - scipy_distance(np.array([1, 0]) - mean, np.array([1, 1]) - mean)
    assert found[1, 0] == pytest.approx(off, abs=1e-6)


def test_ratings_are_correlated_with_the_cosines_of_each_layer(store: LayerStore) -> None:
    result = measure_pairs(store, PAIRS, kind="sentences", poolings=["mean", "max"])
    mean = mean_vector(store, texts_of(PAIRS))
    cosines = pair_cosines(store, PAIRS, mean=mean, poolings=["mean", "max"])
    gold = [p.gold for p in PAIRS]
    for number, row in enumerate(result["rows"]):
        pooling, layer = divmod(number, 4)
        assert row["pooling"] == ("mean", "max")[pooling]
        for way, name in enumerate(("raw", "mean_off")):
            x = cosines[pooling, way, layer]
            assert row[name]["Pearson"] == pytest.approx(stats.pearsonr(x, gold)[0], abs=1e-6)
            assert row[name]["Spearman"] == pytest.approx(stats.spearmanr(x, gold)[0], abs=1e-6)


def test_a_threshold_is_learned_from_the_training_pairs_only(store: LayerStore) -> None:
    near, far = ("the river bank", "the river bank"), ("the river bank", "dogs bark at me")
    train = [pair(*near, 1.0, place=1), pair(*far, 0.0, place=1)] * 2
    test = [pair(*near, 0.0, place=1), pair(*far, 1.0, place=1)]  # the other way round
    row = measure_pairs(store, test, kind="wic", training=train)["rows"][2]
    assert (row["name"], row["raw"]["accuracy"]) == ("layer 1", 0.0)
    own = measure_pairs(store, test, kind="wic")["rows"]
    assert own[2]["raw"]["accuracy"] == 0.5
    assert own[0]["name"] == "majority answer"


# ---------------------------------------------------------------------- the command
@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    tiny_elmo().save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_says_when_a_threshold_is_the_file_s_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("dev.data.txt").write_text(WIC)
    Path("dev.gold.txt").write_text("F\nT\n")
    common = ["similarity", "dev.data.txt", "--model", "model", "--quiet", "--json", "out.json"]
    assert main(common) == 0
    assert "best ones for dev.data.txt itself" in capsys.readouterr().out
    assert json.loads(Path("out.json").read_text())["threshold_from"] == "the file itself"
    assert main([*common, "--train", "dev.data.txt"]) == 0
    assert "itself" not in capsys.readouterr().out
    assert json.loads(Path("out.json").read_text())["threshold_from"] == "dev.data.txt"


def test_the_command_prints_every_layer_and_the_static_vectors(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ratings.txt").write_text(SCWS)
    Path("v.txt").write_text("bank 1 0\nshore 1 0.5\nmoney 0.5 1\ndog -1 0\nroof 1 1\n")
    options = ["--model", "model", "--vectors", "v.txt", "--json", "out.json", "--quiet"]
    assert main(["similarity", "ratings.txt", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["layer 0", "layer 1", "layer 2", "average", "static, word", "static, text"]
    assert [line[:12].strip() for line in lines[1:7]] == names
    assert lines[-1].startswith("3 pairs")
    written = json.loads(Path("out.json").read_text())
    assert written["kind"] == "scws"
    assert written["rows"][4]["raw"]["Spearman"] == 1.0  # 0.89, 0.45, -0.71 as rated
    assert "100.00" in lines[5]


def test_chinese_sentences_are_split_as_the_option_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jieba")
    Path("zh.tsv").write_text("他坐在河边。\t他在河岸上坐着。\t4\n银行关门了。\t狗在叫。\t1\n")
    assert main(["similarity", "zh.tsv", "--model", "model", "--tokenizer", "chinese"]) == 0
    assert "2 pairs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "no rows"),
        ("one\n", {}, "not clear which column"),
        ("a b\tc d\tmuch\ne\tf\t1\n", {}, "line 1: 'much' is no number"),
        ("a b\tc d\t1\n\tf\t1\n", {}, "line 2: a sentence is empty"),
        ("a b\tc d\t1\n", {}, "there must be two"),
        ("a\tb\t1\nc\td\t2\n", {"pooling": "sum"}, "pooling must be"),
        ("a\tb\t1\nc\td\t2\n", {"score_column": "9"}, "no column '9'"),
        ("a\tb\t1\nc\td\t2\n", {"train": "x"}, "for WiC"),
        (SCWS.replace("<b> dog </b>", "dog"), {}, "line 3: no word of the context"),
        (SCWS + "4\tdog\n", {}, "line 4: the line has 2 columns"),
        (WIC, {}, "needs its answers"),
        (WIC, {"gold": "one.txt"}, "line 2: the gold file has no line"),
        (WIC, {"gold": "many.txt"}, "its gold file more"),
        (WIC, {"gold": "odd.txt"}, "line 2: the answer must be T or F"),
        (WIC.replace("4-1", "9-1"), {"gold": "two.txt"}, "line 1: the sentence has 6 tokens"),
    ],
)
def test_trouble_is_told_in_a_sentence_before_the_model_loads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: dict[str, str], message: str
) -> None:
    monkeypatch.delattr("elmokit.cli.similarity.open_store")
    for name, lines in {"one": "T", "two": "T\nF", "many": "T\nF\nT", "odd": "T\nmaybe"}.items():
        Path(f"{name}.txt").write_text(lines + "\n")
    Path("file.txt").write_text(text)
    assert message in complaint(lambda: similarity("file.txt", **options))


def test_a_file_that_is_missing_or_binary_is_told_of(folder: Path) -> None:
    Path("binary.tsv").write_bytes(b"\x00\x01")
    assert "there is no file" in complaint(lambda: similarity("none.tsv"))
    assert "binary" in complaint(lambda: similarity("binary.tsv"))
    Path("latin.txt").write_bytes(SCWS.replace("slept", "sl\xe9pt").encode("latin-1"))
    assert "not UTF-8" in complaint(lambda: similarity("latin.txt"))
    assert len(read_scws("latin.txt", str.split, errors="replace")) == 3
