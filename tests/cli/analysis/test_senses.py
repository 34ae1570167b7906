"""`elmokit senses build`, `tag`, `score`, `induce`: from files to tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tiny import complaint, tiny_elmo

from elmokit.analysis.senses.inventory import load_inventory
from elmokit.cli.analysis import senses
from elmokit.cli.main import main
from elmokit.cli.options import ModelOptions, RecordedModelOptions, ResultOptions, WriteOptions

EXAMPLES = Path(__file__).parents[3] / "examples" / "senses.tsv"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept vectors go to a folder of the tests' own."""
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path_factory.getbasetemp() / "sense-layers"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_elmo().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def split(tmp_path: Path) -> tuple[str, str]:
    """The examples in two halves: one to build from, one to score."""
    head, *lines = EXAMPLES.read_text(encoding="utf-8").splitlines(keepends=True)
    for name, part in (("train.tsv", lines[::2]), ("test.tsv", lines[1::2])):
        (tmp_path / name).write_text("".join([head, *part]), encoding="utf-8")
    return str(tmp_path / "train.tsv"), str(tmp_path / "test.tsv")


def rows_of(printed: str) -> dict[str, list[float]]:
    """The rows of a table by their names."""
    rows = (re.fullmatch(r"(\S.*?) {2,}([-\d. ]+)", line) for line in printed.splitlines())
    return {row[1]: [float(cell) for cell in row[2].split()] for row in rows if row}


# ---------------------------------------------------------------------- build and score
def test_senses_are_built_and_scored(
    split: tuple[str, str], model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = split
    out, result = str(tmp_path / "senses"), tmp_path / "result.json"
    writing = ResultOptions(quiet=True, json=str(result), overwrite=True)
    senses.build(train, out, options=ModelOptions(model=model), writing=writing)
    printed = capsys.readouterr().out
    assert "20 senses of 10 words" in printed
    assert set(rows_of(printed)) == {
        "layer 0", "layer 1", "layer 2", "average", "mix", "mix + frequency", "most frequent sense",
    }  # fmt: skip
    built = json.loads(result.read_text())
    assert built["settings"]["data"] == train
    assert built["senses"] == 20
    assert built["instances"] == 100

    senses.score(out, test, writing=writing)
    rows = rows_of(capsys.readouterr().out)
    assert len(rows) == 7
    scores = json.loads(result.read_text())["scores"]
    for name, figures in rows.items():
        assert figures[2] == pytest.approx(100 * scores[name]["all"]["f1"], abs=0.01)
        assert scores[name]["all"]["instances"] == scores[name]["all"]["answered"] == 100
    # What it was built from is found again, except in layer 0, which does not see the sentence.
    senses.score(out, train, writing=ResultOptions(quiet=True))
    again = rows_of(capsys.readouterr().out)
    assert again["average"][2] > 68 > again["layer 0"][2]


def test_the_shipped_model_knows_more_than_a_guess(
    split: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = split
    senses.build(train, str(tmp_path / "senses"), writing=ResultOptions(quiet=True))
    capsys.readouterr()
    senses.score(str(tmp_path / "senses"), test, writing=ResultOptions(quiet=True))
    rows = rows_of(capsys.readouterr().out)
    assert rows["layer 2"][2] > 62
    assert rows["mix"][2] > 60
    assert rows["layer 0"][2] < 65


XML = """<corpus><text id="d0"><sentence id="d0.s0">
<instance id="d0.s0.t0" lemma="bank" pos="NOUN">Banks</instance>
<wf lemma="be" pos="VERB">are</wf>
<instance id="d0.s0.t1" lemma="rare" pos="ADJ">rare</instance>
</sentence></text></corpus>
"""


def test_unknown_words_get_the_first_sense_or_no_answer(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "train.xml": XML.replace("rare", "few"),
        "train.key": "d0.s0.t0 bank%1:14:00::\nd0.s0.t1 few%3:00:00::\n",
        "test.xml": XML,
        "test.key": "d0.s0.t0 bank%1:14:00::\nd0.s0.t1 rare%3:00:00::\n",
        "index.sense": "rare%3:00:00:: 1 1 9\nbank%1:17:00:: 2 1 9\n",
    }.items():
        (tmp_path / name).write_text(text)
    out, data = str(tmp_path / "senses"), str(tmp_path / "test.xml")
    senses.build(
        str(tmp_path / "train.xml"),
        out,
        keys=str(tmp_path / "train.key"),
        options=ModelOptions(model=model),
        writing=ResultOptions(quiet=True),
    )
    assert "2 senses of 2 words" in capsys.readouterr().out
    senses.score(out, data, keys=str(tmp_path / "test.key"), writing=ResultOptions(quiet=True))
    rows = rows_of(capsys.readouterr().out)
    assert rows["mix"] == [100, 50, 66.67, 100, 0]
    index = str(tmp_path / "index.sense")
    senses.score(
        out, data, keys=str(tmp_path / "test.key"), index=index, writing=ResultOptions(quiet=True)
    )
    rows = rows_of(capsys.readouterr().out)
    assert rows["mix"] == rows["most frequent sense"] == [100, 100, 100, 100, 100]
    assert rows["first sense"] == [50, 50, 50, 0, 100]


def test_another_model_is_refused(split: tuple[str, str], model: str, tmp_path: Path) -> None:
    out = str(tmp_path / "senses")
    senses.build(
        split[0], out, options=ModelOptions(model=model), writing=ResultOptions(quiet=True)
    )
    tiny_elmo(seed=3).save_pretrained(tmp_path / "other")
    other = RecordedModelOptions(model=str(tmp_path / "other"))
    said = complaint(
        lambda: senses.score(out, split[1], options=other, writing=ResultOptions(quiet=True))
    )
    assert "built with another model" in said
    assert "--overwrite" in complaint(
        lambda: senses.build(
            split[0], out, options=ModelOptions(model=model), writing=ResultOptions(quiet=True)
        )
    )
    (tmp_path / "text.txt").write_text("The bank .")
    said = complaint(lambda: senses.tag(out, str(tmp_path / "text.txt"), options=other))
    assert "built with another model" in said


# ---------------------------------------------------------------------- tag
def test_a_text_is_tagged_word_by_word(
    split: tuple[str, str], model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, text = str(tmp_path / "senses"), tmp_path / "text.txt"
    senses.build(
        split[0], out, options=ModelOptions(model=model), writing=ResultOptions(quiet=True)
    )
    capsys.readouterr()
    text.write_text("The Banks were muddy.\n\nShe plays in the cell.\n")
    senses.tag(out, str(text), writing=WriteOptions(quiet=True))
    head, *lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert head == ["sentence", "position", "word", "lemma", "sense", "score"]
    assert [line[:4] for line in lines] == [
        ["1", "1", "Banks", "bank"], ["3", "1", "plays", "play"], ["3", "4", "cell", "cell"],
    ]  # fmt: skip
    inventory = load_inventory(out)
    for line in lines:
        assert line[4] in {inventory.senses[row] for row in inventory.rows(line[3])}
        assert 0.5 <= float(line[5]) <= 1  # of two senses

    path = tmp_path / "tagged.jsonl"
    senses.tag(
        out,
        str(text),
        format="jsonl",
        out=str(path),
        method="layer 1",
        writing=WriteOptions(quiet=True),
    )
    result = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["tokens"] for line in result] == [
        ["The", "Banks", "were", "muddy", "."], [], ["She", "plays", "in", "the", "cell", "."],
    ]  # fmt: skip
    assert [tag["lemma"] for line in result for tag in line["senses"]] == ["bank", "play", "cell"]
    tokens = result[0]["tokens"]
    vector = tiny_elmo().embed_tokens(tokens).layers[1, 1]
    rows = inventory.rows("bank")
    averages = inventory.vectors[rows, 1]
    lengths = np.linalg.norm(averages, axis=1) * np.linalg.norm(vector)
    cosines = averages @ vector / lengths
    assert result[0]["senses"][0]["score"] == pytest.approx(cosines.max(), abs=5e-3)
    assert result[0]["senses"][0]["sense"] == inventory.senses[rows[cosines.argmax()]]


def test_tag_complains_before_the_model_is_loaded(
    split: tuple[str, str], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "senses")
    senses.build(
        split[0], out, options=ModelOptions(model=model), writing=ResultOptions(quiet=True)
    )
    monkeypatch.setattr(ModelOptions, "load", lambda *_: pytest.fail("it is loaded"))
    missing = str(tmp_path / "missing.txt")
    assert "there is no file" in complaint(
        lambda: senses.tag(out, missing, writing=WriteOptions(quiet=True))
    )
    (tmp_path / "empty.txt").write_text("")
    empty = str(tmp_path / "empty.txt")
    assert "has no sentences" in complaint(
        lambda: senses.tag(out, empty, writing=WriteOptions(quiet=True))
    )
    assert "method must be one of layer 0" in complaint(
        lambda: senses.tag(out, empty, method="best", writing=WriteOptions(quiet=True))
    )
    assert "there are no senses in" in complaint(lambda: senses.tag(str(tmp_path), empty))
    assert "has no words with senses" in complaint(lambda: senses.build(empty, f"{out}2"))
    assert "no folder" in complaint(lambda: senses.build(split[0], f"{missing}/senses"))
    assert "no folder" in complaint(
        lambda: senses.score(out, split[0], writing=ResultOptions(json=f"{missing}/a.json"))
    )
    assert "--index" in complaint(lambda: senses.score("none", split[0]))
    assert "uses of 'zebra': too few" in complaint(
        lambda: senses.induce("zebra", split[0], writing=ResultOptions(quiet=True))
    )
    assert "clusters must be" in complaint(lambda: senses.induce("a", empty, clusters=1))


# ---------------------------------------------------------------------- induce
def test_the_clusters_of_bank_are_its_senses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line.split("\t") for line in EXAMPLES.read_text(encoding="utf-8").splitlines()[1:]]
    corpus, uses = tmp_path / "corpus.txt", tmp_path / "uses.tsv"
    corpus.write_text("\n".join(line[0] for line in lines))
    gold = {line[0]: line[2] for line in lines if "bank" in line[0].split()}  # not "banks"
    result = tmp_path / "result.json"
    senses.induce(
        "Bank",
        str(corpus),
        clusters=2,
        options=ModelOptions(tokenizer="whitespace"),
        out=str(uses),
        writing=ResultOptions(json=str(result), quiet=True),
    )
    printed = capsys.readouterr().out
    results = json.loads(result.read_text())
    assert results["uses"] == results["uses_total"] == len(gold) == 14
    assert printed.startswith("14 uses of 'Bank'")
    assert results["clusters"][0]["examples"][0] in printed
    tagged = [line.split("\t") for line in uses.read_text().splitlines()[1:]]
    same = [(gold[line[0]] == "river") == (line[2] == "cluster 1") for line in tagged]
    assert max(np.mean(same), 1 - np.mean(same)) >= 0.7


def test_chinese_words_are_found_and_shown(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["他 在 银行 存 钱", "银行 今天 关门", "她 去 银行 借 钱", "河 边 没有 银行"]
    (tmp_path / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    code = main([
        "senses", "induce", "银行", str(tmp_path / "corpus.txt"), "--clusters", "2",
        "--tokenizer", "whitespace", "--model", model, "--quiet",
    ])  # fmt: skip
    assert code == 0
    assert "[银行]" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["build", "tag", "score", "induce"])
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["senses", command, "--help"]) == 0
    assert "--model" in capsys.readouterr().out


def test_one_is_not_many(tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.tsv").write_text("the bank .\t1\tshore\n")
    (tmp_path / "one.txt").write_text("the bank .\n")
    options = ModelOptions(model=model)
    senses.build(str(tmp_path / "one.tsv"), str(tmp_path / "one"), options=options)
    assert "one: 1 sense of 1 word\n" in capsys.readouterr().out
    said = complaint(lambda: senses.induce("bank", str(tmp_path / "one.txt"), options=options))
    assert "has 1 use of 'bank': too few" in said
