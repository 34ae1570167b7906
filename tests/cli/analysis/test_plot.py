"""`elmokit plot`: files and sentences in, figures, tables and JSON out."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT
from tagged import train_taggers
from tiny import softmax_elmo

from elmokit import BiLM, BiLMConfig, Embedder
from elmokit.analysis.plots import maps
from elmokit.cli.main import main
from elmokit.cli.options import ModelOptions

pytest.importorskip("matplotlib")

Run = Callable[..., tuple[int, str, str]]
SENSES = ROOT / "examples" / "senses.tsv"


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    """A small model with random weights and a softmax."""
    return softmax_elmo()


@pytest.fixture(scope="module")
def model(elmo: Embedder, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("plots") / "model"
    elmo.save_pretrained(folder)
    return str(folder)


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


# ---------------------------------------------------------------------- uses
def test_the_command_draws_prints_and_writes_the_same_numbers(
    run: Run, model: str, tmp_path: Path
) -> None:
    picture, numbers = tmp_path / "bank.png", tmp_path / "bank.json"
    options = ["--words", "bank", "--model", model, "--json", numbers, "--quiet"]
    code, out, err = run("uses", SENSES, picture, *options)
    assert code == 0
    assert "are not in the vocabulary" in err  # of this small model
    assert picture.read_bytes().startswith(b"\x89PNG")
    result = json.loads(numbers.read_text())
    assert result["command"] == "plot uses"
    assert result["settings"]["words"] == "bank"
    bank = result["words"]["bank"]
    assert len(bank["uses"]) == 20
    assert bank["uses"][0] == {
        "sense": "river",
        "sentence": "We left the canoe on the [bank] and walked up to the village .",
    }
    assert np.shape(bank["layers"]["average"]["points"]) == (20, 2)
    head, *rows = (line.split() for line in out.splitlines()[:-3])
    assert head == ["layer", "0", "layer", "1", "layer", "2", "average"]
    for row, name in zip(rows, ("purity", "silhouette"), strict=True):
        values = [f"{layer[name]:.2f}" for layer in bank["layers"].values()]
        assert row == ["bank:", name, *values]


def test_the_same_figure_gives_the_same_file(run: Run, model: str, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg", "a.png", "b.png"):
        code, _, _ = run("uses", SENSES, tmp_path / name, "--model", model, "--words", "cell,play")
        assert code == 0
    for kind in ("svg", "png"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_a_plain_text_is_searched_for_the_word_and_its_uses_are_clustered(
    run: Run, model: str, tmp_path: Path
) -> None:
    text, numbers = tmp_path / "text.txt", tmp_path / "numbers.json"
    text.write_text("The river Bank.\nNo word here.\nHe sat on the bank of a bank.\nA bank .\n")
    options = ["--model", model, "--words", "bank", "--json", numbers, "--quiet"]
    options.append("--overwrite")
    code, out, err = run("uses", text, tmp_path / "a.svg", *options, "--clusters", 2)
    assert (code, err) == (0, "")
    purity, silhouette = (line.split() for line in out.splitlines()[1:3])
    assert purity == ["bank:", "purity", "-", "-", "-", "-"]  # nobody has named the senses
    assert float(silhouette[-1]) != 0
    result = json.loads(numbers.read_text())["words"]["bank"]["uses"]
    assert {use["sense"].partition(":")[0] for use in result} == {"cluster 1", "cluster 2"}
    assert {use["sentence"] for use in result} == {
        "The river [Bank] .",
        "He sat on the [bank] of a bank .",
        "He sat on the bank of a [bank] .",
        "A [bank] .",
    }
    run("uses", text, tmp_path / "a.svg", *options, "--max-uses", 3, "--clusters", 1)
    result = json.loads(numbers.read_text())["words"]["bank"]["uses"]
    assert [use["sense"].partition(":")[0] for use in result] == ["cluster 1"] * 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no.tsv", "a.png"], "there is no file no.tsv"),
        ([SENSES, "a.pdf"], "a figure is a .png or .svg file, but a.pdf has another extension"),
        ([SENSES, "no/a.png"], "there is no folder"),
        ([SENSES, "a.png", "--json", "no/a.json"], "there is no folder"),
        ([SENSES, "a.png", "--words", "bnak"], f"{SENSES} has no use of 'bnak', and a map needs"),
        ([SENSES, "a.png", "--words", "bank,,play"], "--words takes comma-separated words"),
        ([SENSES, "a.png", "--clusters", "0"], "clusters must be at least 1, not 0"),
        ([SENSES, "a.png", "--max-uses", "2"], "--max-uses must be at least 3, not 2"),
        (["empty.tsv", "a.png"], "empty.tsv has no uses of words"),
        (["one.tsv", "a.png"], "one.tsv has only one use of 'bank', and a map needs at least 3"),
        (["bad.tsv", "a.png"], "bad.tsv, line 2: 'x' is not a position"),
        (["many.tsv", "a.png"], "many.tsv has 13 words, and a figure has room for 12: name some"),
        (["text.txt", "a.png"], "text.txt is not a .tsv of uses: name the word to find with"),
        (["text.txt", "a.png", "--words", "boat"], "text.txt has only 2 uses of 'boat', and"),
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
    many = "".join(3 * f"the w{i}\t1\ta\n" for i in range(13))
    (tmp_path / "many.tsv").write_text(many)
    (tmp_path / "text.txt").write_text("A boat and a boat .\n")
    monkeypatch.delattr(ModelOptions, "load")
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


# ---------------------------------------------------------------------- weights
@pytest.fixture(scope="module")
def trained(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three taggers: with mixes at both places, with one layer, and without ELMo."""
    return train_taggers(model, tmp_path_factory.mktemp("models"))


def test_the_command_takes_several_models_and_leaves_out_those_without_a_mix(
    run: Run, trained: Path, tmp_path: Path
) -> None:
    folders = [trained / name for name in ("both", "top", "without")]
    picture, numbers = tmp_path / "weights.png", tmp_path / "weights.json"
    code, out, err = run("weights", *folders, picture, "--json", numbers)
    assert code == 0
    assert err.splitlines() == [
        f"elmokit: {folder} has not learned a mix of layers, so it is left out"
        for folder in folders[1:]
    ]
    mixes = json.loads(numbers.read_text())["mixes"]["both"]
    head, *rows = (line.split() for line in out.splitlines()[:-2])
    assert head[-1] == "scale"
    for row, position in zip(rows, ("input", "output"), strict=True):
        values = [*mixes["weights"][position], mixes["scales"][position]]
        assert row == ["both:", position, *(f"{value:.2f}" for value in values)]
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, _, err = run("weights", *folders[1:], picture, "--overwrite")
    assert code == 2
    assert "none of the models has learned a mix of layers" in err
    assert run("weights", tmp_path, tmp_path / "other.png")[2] == (
        f"elmokit: error: there is no task model in {tmp_path}: it has no config.json of a task "
        "model that this version can read\n"
    )


# ---------------------------------------------------------------------- pair
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
    one, other = (embedded.layers[2] for embedded in elmo.embed(sentences))
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


# ---------------------------------------------------------------------- surprisal
def test_the_surprisal_command_takes_a_text_or_a_file(
    run: Run, model: str, elmo: Embedder, tmp_path: Path
) -> None:
    text = "He sat on the river bank. The boat sat."
    file, picture, numbers = (tmp_path / name for name in ("a.txt", "a.png", "a.json"))
    file.write_text("He sat on the\nriver bank. The boat sat.\n")
    results = []
    for given in (text, file):
        options = ["--model", model, "--json", numbers, "--quiet", "--overwrite"]
        code, out, err = run("surprisal", given, picture, *options)
        assert (code, err) == (0, "")
        results.append((out, json.loads(numbers.read_text())["sentences"]))
    assert results[0] == results[1]
    out, (first, second) = results[0]
    assert first["tokens"] == ["He", "sat", "on", "the", "river", "bank", "."]
    expected = elmo.surprisal([second["tokens"]])[0]
    assert second["backward"] == pytest.approx(expected.backward.tolist())
    assert second["known"] == [False, True, True, True]
    last = out.splitlines()[-3].split()
    values = (expected.forward[-1], expected.backward[-1], expected.average[-1])
    assert last == [".", *(f"{value:.2f}" for value in values)]
    assert out.splitlines()[1].split()[0] == "He"
    assert out.splitlines()[1].endswith("as <UNK>")


def test_a_text_without_end_is_cut(
    run: Run, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "MAX_TEXT", 10)
    (tmp_path / "a.txt").write_text("The boat sat. " * 5)
    code, out, err = run("surprisal", tmp_path / "a.txt", tmp_path / "a.png", "--model", model,
                         "--quiet")  # fmt: skip
    assert (code, err) == (0, "elmokit: only the first 10 words are drawn\n")
    assert len(out.splitlines()) == 13


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
    Embedder(BiLM(config).eval()).save_pretrained(tmp_path / "model")
    options = ["--model", tmp_path / "model", "--quiet"]
    code, out, err = run("surprisal", text, tmp_path / "a.png", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
