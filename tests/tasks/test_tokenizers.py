"""Task models split text as their biLM's training did, with ELMo and without it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tiny import complaint, tiny_elmo

from elmokit.cli.main import main
from elmokit.data.labeled import BadLines
from elmokit.io.jsonfile import read_json
from elmokit.tasks import load_task, predict, score, train
from elmokit.tasks.compare import compare
from elmokit.tasks.run import make_plan
from elmokit.tasks.task import find_task

pytest.importorskip("jieba")
TEXT = "石墨烯芯片很快。"
JIEBA, OURS = ("石墨", "烯", "芯片", "很快", "。"), tuple(TEXT)
OWN = ("石墨烯", "芯片", "很快", "。")
SMALL: dict[str, Any] = {"hidden": 4, "word_dim": 4, "epochs": 1, "quiet": True}


def save_model(folder: Path, tokenizer: str) -> str:
    """A biLM whose text was split by that tokenizer."""
    elmo = tiny_elmo()
    elmo.metadata = {"training": {"tokenizer": tokenizer}}
    elmo.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def bilm(tmp_path: Path) -> str:
    """A Chinese biLM with a dictionary of its own."""
    return save_model(tmp_path / "bilm", "chinese\n石墨烯")


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Labeled texts."""
    path = tmp_path / "data.tsv"
    rows = "".join(f"{TEXT}\t{label}\n" for label in ("good", "poor") * 5)
    path.write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    return str(path)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def file_of(folder: Path, task: str) -> str:
    """One file of examples of each task, with `TEXT` as its text."""
    if task == "classifier":
        return write(folder / "a.tsv", f"text\tlabel\n{TEXT}\tgood\n{TEXT}\tpoor\n")
    if task == "pair":
        rows = "".join(f"{TEXT}\t{TEXT}\t{label}\n" for label in ("yes", "no"))
        return write(folder / "a.tsv", f"sentence1\tsentence2\tlabel\n{rows}")
    if task == "relation":
        text = TEXT.replace("芯片", "<e2>芯片</e2>").replace("石墨烯", "<e1>石墨烯</e1>")
        return write(folder / "a.txt", f'1\t"{text}"\nA(e1,e2)\n\n2\t"{text}"\nA(e2,e1)\n')
    if task == "question":
        question = {"id": "1", "question": TEXT, "answers": [{"text": "芯片", "answer_start": 3}]}
        paragraph = {"context": TEXT, "qas": [question, {**question, "id": "2"}]}
        values = {"data": [{"title": "", "paragraphs": [paragraph]}]}
        return write(folder / "a.json", json.dumps(values))
    if task == "coreference":
        head = "ID Text Pronoun Pronoun-offset A A-offset A-coref B B-offset B-coref URL".split()
        row = ["1", TEXT, "很快", "5", "石墨烯", "0", "TRUE", "芯片", "3", "FALSE", "x"]
        other = [*row[:6], "FALSE", *row[7:9], "TRUE", "x"]
        lines = "".join("\t".join(cells) + "\n" for cells in (head, row, other))
        return write(folder / "a.tsv", lines)
    source = write(folder / "a.zh", f"{TEXT}\n" * 2)
    if task == "summarize":
        line = json.dumps({"text": TEXT, "summary": TEXT}) + "\n"
        return write(folder / "a.jsonl", line * 2)
    return f"{source},{write(folder / 'a.en', 'It is fast.' + chr(10) + TEXT + chr(10))}"


@pytest.mark.parametrize(
    "task",
    ["classifier", "pair", "relation", "question", "coreference", "translate", "summarize"],
)
def test_every_task_splits_text_as_its_bilm_does(tmp_path: Path, bilm: str, task: Any) -> None:
    path = file_of(tmp_path, task)
    given = {"train": path, "dev": path, "elmo": bilm}
    plan = make_plan(task, given)
    examples = [*plan.data.train, *plan.data.dev]
    texts = {text for example in examples for text in example.texts}
    assert texts == {OWN}
    targets = {getattr(example, "target", None) for example in examples}
    if task == "translate":  # The target is of another language.
        assert targets == {("It", "is", "fast", "."), OURS}
        again = make_plan(task, {**given, "target_elmo": bilm})
        assert OWN in {example.target for example in [*again.data.train, *again.data.dev]}
    if task == "summarize":
        assert targets == {OWN}
    named = make_plan(task, {**given, "tokenizer": "chinese"})
    assert JIEBA in named.data.train[0].texts


def test_a_tagger_splits_plain_text_as_its_bilm_does(tmp_path: Path, bilm: str) -> None:
    path = write(tmp_path / "a.conll", "石墨烯 N\n芯片 N\n\n很快 A\n。 O\n")
    plan = make_plan("tagger", {"train": path, "elmo": bilm, "dev": path, "scheme": "plain"})
    text = write(tmp_path / "b.txt", TEXT + "\n")
    [example] = find_task("tagger").read(text, plan.settings, BadLines(skip=False), False)
    assert example.texts == (OWN,)


def test_the_tokenizer_is_kept_with_the_task_model(tmp_path: Path, bilm: str, data: str) -> None:
    out = tmp_path / "out"
    train("classifier", train=data, elmo=bilm, out=str(out), **SMALL)
    assert read_json(out / "config.json")["settings"]["tokenizer"] == "chinese\n石墨烯"
    # The words come from the folder of the task, whatever becomes of those of the biLM.
    Path(bilm, "jieba.txt").write_text("芯片很快\n", encoding="utf-8")
    predicted = predict(str(out), write(tmp_path / "new.txt", TEXT + "\n"))
    assert predicted.examples[0].texts == (OWN,)
    assert score(str(out), data).examples == 10
    assert load_task(out).settings.tokenize(TEXT) == list(OWN)


def test_a_dictionary_can_be_given_instead(tmp_path: Path, bilm: str, data: str) -> None:
    words = write(tmp_path / "words.txt", "芯片很快\n")
    given = {"train": data, "elmo": bilm, "jieba_dict": words}
    plan = make_plan("classifier", given)
    assert plan.data.train[0].texts == (("石墨", "烯", "芯片很快", "。"),)
    said = complaint(lambda: make_plan("classifier", {**given, "elmo": None}))
    assert "needs the tokenizer 'chinese', not 'elmokit'" in said


def test_a_dictionary_is_for_the_side_that_is_chinese(tmp_path: Path) -> None:
    english, chinese = (save_model(tmp_path / name, name) for name in ("elmokit", "chinese"))
    source, target = (write(tmp_path / name, text) for name, text in (("a", "It\n"), ("b", TEXT)))
    options: dict[str, Any] = {"elmo": english, "target_elmo": chinese}
    options |= dict.fromkeys(("train", "dev"), f"{source},{target}")
    words = write(tmp_path / "words.txt", "石墨烯\n")
    plan = make_plan("translate", {**options, "jieba_dict": words})
    assert plan.settings.tokenizer == "elmokit"
    assert plan.data.train[0].target == OWN


def test_both_sides_of_a_comparison_have_the_same_tokens(
    tmp_path: Path, bilm: str, data: str
) -> None:
    given: dict[str, Any] = {"train": data, "elmo": bilm, "vary": ["elmo"], "seeds": [1]}
    result = compare("classifier", **given, out=str(tmp_path / "out"), **SMALL)
    assert result.results is not None
    for run in result.results["runs"]:
        folder = tmp_path / "out" / run["folder"]
        assert load_task(folder).settings.tokenize(TEXT) == list(OWN)
        words = shlex.split(run["command"])
        assert "--tokenizer" not in words
        words[words.index("--out") + 1] = alone = str(tmp_path / f"alone-{run['name']}")
        assert main([*words[1:], "--quiet"]) == 0  # with --no-elmo too
        settings = read_json(Path(alone, "config.json"))["settings"]
        assert settings["tokenizer"] == "chinese\n石墨烯"


def test_a_changed_dictionary_is_noticed_when_a_run_resumes(
    tmp_path: Path, bilm: str, data: str
) -> None:
    options: dict[str, Any] = {"train": data, "elmo": bilm, "out": str(tmp_path / "out"), **SMALL}
    train("classifier", **options)
    Path(bilm, "jieba.txt").write_text("石墨烯芯片\n", encoding="utf-8")
    said = complaint(lambda: train("classifier", **{**options, "epochs": 2}))
    assert r"tokenizer was 'chinese\n石墨烯' and is now 'chinese\n石墨烯芯片'" in said
