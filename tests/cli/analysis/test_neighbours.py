"""`elmokit neighbours` as a user runs it: a corpus in, the nearest uses of a marked word out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny_elmo

from elmokit.analysis.neighbours import approximate
from elmokit.analysis.neighbours.index import open_index
from elmokit.analysis.neighbours.indexing import index_uses
from elmokit.cli.main import main
from elmokit.embed import Embedder

TEXT = """\
the river bank was steep .
she owes the bank money .
The Bank lends money to a bank .
he swam to the bank .

she owes the bank money .
her money lies in the river .
他 坐 在 河边 的 长椅 上 。
"""
QUERY = "we fished from the river *bank* ."
Run = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_elmo().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def elmo(model: Path) -> Embedder:
    import elmokit

    return elmokit.load(model)


@pytest.fixture
def run(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run `elmokit neighbours …` in a folder with the text; returns stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ELMOKIT_DEBUG", raising=False)
    Path("text.txt").write_text(TEXT, encoding="utf-8")

    def command(*arguments: object, code: int = 0) -> tuple[str, str]:
        words = [str(argument) for argument in arguments]
        if words[0] == "index":
            words += ["--tokenizer", "whitespace"]
            words += [] if "--model" in words else ["--model", str(model)]
        capsys.readouterr()
        got = main(["neighbours", *words, "--quiet"])
        out, err = capsys.readouterr()
        assert got == code, err
        return out, err

    return command


@pytest.fixture
def find(run: Run) -> Callable[..., list[dict[str, Any]]]:
    """Index the text if that is not done, and find; gives the queries of the JSON file."""

    def command(*arguments: object) -> list[dict[str, Any]]:
        if not Path("index").exists():
            run("index", "text.txt", "index")
        run("find", "index", *arguments, "--json", "found.json", "--overwrite")
        return json.loads(Path("found.json").read_text(encoding="utf-8"))["queries"]

    return command


Find = Callable[..., list[dict[str, Any]]]


def expected(elmo: Embedder, query: str, layer: int = 2) -> list[tuple[float, str]]:
    """All uses of the text by their cosine with the query's word, the best of each sentence."""
    lines = [line.split() for line in TEXT.splitlines() if line]
    layers = [elmo.embed([tokens])[0].layers[layer] for tokens in lines]
    mean = np.concatenate(layers).mean(axis=0)
    tokens = query.replace("*", "").split()
    position = next(n for n, token in enumerate(query.split()) if "*" in token)
    query_vector = elmo.embed([tokens])[0].layers[layer][position] - mean
    result: dict[str, tuple[float, str]] = {}
    for sentence, vectors in zip(lines, layers, strict=True):
        for i, vector in enumerate(vectors - mean):
            score = float(
                query_vector @ vector / np.linalg.norm(query_vector) / np.linalg.norm(vector)
            )
            marked = " ".join([*sentence[:i], f"[{sentence[i]}]", *sentence[i + 1 :]])
            key = " ".join(sentence)
            result[key] = max(result.get(key, (-2.0, "")), (score, marked))
    return sorted(result.values(), reverse=True)


def shown(answer: dict[str, Any]) -> list[str]:
    return [each["sentence"] for each in answer["neighbours"]]


def words_of(answer: dict[str, Any]) -> set[str]:
    return {each["word"].lower() for each in answer["neighbours"]}


# ---- what is found


def test_the_nearest_uses_are_those_of_a_plain_computation(find: Find, elmo: Embedder) -> None:
    (answer,) = find(QUERY, "--k", 4)
    correct = expected(elmo, QUERY)[:4]
    assert answer["query"] == "we fished from the river [bank] ."
    assert shown(answer) == [sentence for _, sentence in correct]
    scores = [each["score"] for each in answer["neighbours"]]
    np.testing.assert_allclose(scores, [score for score, _ in correct], atol=2e-3)


def test_a_chosen_layer_is_searched(run: Run, find: Find, elmo: Embedder) -> None:
    run("index", "text.txt", "index", "--layer", 1)
    (answer,) = find(QUERY, "--k", 3)
    assert shown(answer) == [sentence for _, sentence in expected(elmo, QUERY, 1)[:3]]


def test_every_sentence_is_given_once_and_the_query_s_own_never(find: Find) -> None:
    (answer,) = find("she owes the *bank* money .", "--k", 50)
    plain = [sentence.replace("[", "").replace("]", "") for sentence in shown(answer)]
    assert sorted(plain) == sorted({line for line in TEXT.splitlines() if line} - {plain_query()})


def plain_query() -> str:
    return "she owes the bank money ."


def test_only_the_same_word_or_only_other_words_can_be_found(find: Find) -> None:
    (same,) = find(QUERY, "--only", "same-word", "--k", 50)
    assert words_of(same) == {"bank"}
    assert len(same["neighbours"]) == 4
    (other,) = find(QUERY, "--only", "other-words", "--k", 50)
    assert "bank" not in words_of(other)
    assert len(other["neighbours"]) == 6


def test_the_words_nearest_in_layer_0_are_found_too(find: Find, elmo: Embedder) -> None:
    (answer,) = find(QUERY, "--k", 5)
    lines = [line.split() for line in TEXT.splitlines() if line]
    mean = np.concatenate([elmo.embed([tokens], layers=0)[0].vectors for tokens in lines]).mean(0)
    words = sorted({word for tokens in lines for word in tokens} - {"bank"})
    vectors = {
        word: elmo.embed([[word]], layers=0)[0].vectors[0] - mean for word in [*words, "bank"]
    }
    directions = {word: vector / np.linalg.norm(vector) for word, vector in vectors.items()}
    correct = sorted(words, key=lambda word: -directions[word] @ directions["bank"])[:5]
    assert [word for word, _ in answer["static"]["layer 0"]] == correct


def test_static_vectors_give_their_own_neighbours(find: Find, run: Run) -> None:
    Path("glove.txt").write_text("bank 1 0 0\nshore 3 0.3 0\nloan 0 1 1\nbench 1 1 0\n")
    (answer,) = find(QUERY, "--vectors", "glove.txt", "--k", 2)
    assert answer["static"]["glove.txt"] == [["shore", 0.995], ["bench", 0.7071]]
    out, _ = run("find", "index", "the *zebra* ran .", "--vectors", "glove.txt")
    assert "glove.txt does not have the word 'zebra'" in out


def test_several_queries_can_be_in_a_file(find: Find) -> None:
    queries = [QUERY, "she keeps her *money* here .", "他 走 到 *河边* 。"]
    Path("queries.txt").write_text("\n\n".join(queries), encoding="utf-8")
    together = find("queries.txt", "--k", 3)
    assert together == [find(query, "--k", 3)[0] for query in queries]
    assert find("queries.txt", "--k", 3, "--only", "other-words") == [
        find(query, "--k", 3, "--only", "other-words")[0] for query in queries
    ]


def test_a_table_is_printed_with_the_word_in_brackets(run: Run) -> None:
    out, err = run("index", "text.txt", "index")
    assert not err
    assert [line.split() for line in out.splitlines()[1:4]] == [
        ["sentences", "7"],
        ["uses", "47"],
        ["distinct", "words", str(len(set(TEXT.split())))],
    ]
    out, _ = run("find", "index", "他 走 到 *河边* 。", "--k", 1)
    lines = out.splitlines()
    assert lines[0] == "他 走 到 [河边] 。"
    assert lines[2] == "nearest uses (layer 2, 47 uses, exact search), with cosines:"
    assert lines[3][:7].strip().replace("-", "").replace(".", "").isdigit()
    assert "[" in lines[3]
    assert lines[5] == "nearest words without context:"
    assert lines[6].split() == ["layer", "0", "cosine"]


# ---- the corpus


def test_a_corpus_may_be_several_files_of_several_kinds(run: Run) -> None:
    Path("a.txt").write_text("the river bank .\n")
    Path("b.conll").write_text("the\tD\nbank\tN\n\na\tD\nriver\tN\n")
    Path("c.jsonl").write_text('{"body": "money lies here ."}\n')
    run("index", "a.txt", "b.conll", "two")
    made = open_index("two")
    assert [" ".join(made.sentence(i)) for i in range(made.num_sentences)] == [
        "the river bank .",
        "the bank",
        "a river",
    ]
    run("index", "c.jsonl", "three", "--field", "body")
    assert open_index("three").sentence(0) == ("money", "lies", "here", ".")


def test_words_may_be_chosen(run: Run, find: Find) -> None:
    run("index", "text.txt", "index", "--words", "bank, money")
    (answer,) = find(QUERY, "--k", 50)
    assert words_of(answer) <= {"bank", "money"}
    assert len(answer["neighbours"]) == 5


# ---- the approximate search


def test_graphs_find_the_same_and_exact_does_without_them(run: Run, find: Find) -> None:
    pytest.importorskip("usearch")
    exact = find(QUERY, "--k", 4)
    run("index", "text.txt", "index", "--approximate", "--overwrite")
    out, _ = run("find", "index", QUERY, "--k", 4)
    assert "approximate search" in out
    assert find(QUERY, "--k", 4) == exact
    assert (
        find(QUERY, "--k", 50, "--only", "other-words")[0]["neighbours"] != exact[0]["neighbours"]
    )
    out, _ = run("find", "index", QUERY, "--exact")
    assert "exact search" in out


def test_graphs_are_built_by_themselves_for_large_indexes_only(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("usearch")
    run("index", "text.txt", "small")
    assert not list(Path("small").glob("graph*"))
    monkeypatch.setattr(approximate, "MIN_USES", 47)
    _, said = run("index", "text.txt", "large")
    assert "building graphs of 47 uses" in said
    assert list(Path("large").glob("graph*"))
    _, said = run("index", "text.txt", "without", "--no-approximate")
    assert not said
    assert not list(Path("without").glob("graph*"))
    monkeypatch.setattr(approximate, "available", lambda: False)
    _, said = run("index", "text.txt", "other")
    assert "elmokit[ann]" in said
    out, said = run("find", "large", QUERY)
    assert "the search is exact" in said
    assert "exact search" in out


def test_a_run_that_was_stopped_while_building_graphs_resumes(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("usearch")
    with monkeypatch.context() as patch:
        patch.setattr(approximate, "_build", stop)
        run("index", "text.txt", "index", "--approximate", code=130)
    assert not Path("index").exists()
    run("index", "text.txt", "index", "--approximate", "--resume")
    assert approximate.has_graphs(open_index("index"))


def stop(*_: object) -> None:
    raise KeyboardInterrupt


# ---- what is refused


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["index", "nowhere.txt", "out"], "no text at 'nowhere.txt'"),
        (["index", "empty.txt", "out"], "empty.txt has no sentences"),
        (["index", "binary.txt", "out"], "binary.txt"),
        (["index", "text.txt", "no/such/out"], "there is no folder"),
        (
            ["index", "text.txt", "out", "--layer", "9"],
            "layer must be 0 to 2, top or average, not '9'",
        ),
        (["index", "text.txt", "out", "--layer", "all"], "not 'all'"),
        (["index", "text.txt", "out", "--words", ","], "--words takes comma-separated words"),
        (["index", "text.txt", "out", "--words", "zebra"], "none of the words zebra"),
        (["index", "text.txt", "out", "--json", "no/such.json"], "there is no folder"),
        (["index", "text.txt", "out", "--threads", "0"], "threads must be at least 1"),
        (["index", "text.txt", "out", "--model", "nowhere"], "nowhere"),
        (["find", "nowhere", QUERY], "there is no index at nowhere"),
        (["find", "index", "no word is marked"], "mark exactly one word with asterisks"),
        (["find", "index", "marked.txt"], "marked.txt, line 2: mark exactly one word"),
        (["find", "index", "blank.txt"], "blank.txt has no sentences"),
        (["find", "index", QUERY, "--k", "0"], "k must be at least 1"),
        (["find", "index", QUERY, "--only", "any"], "same-word"),
        (["find", "index", QUERY, "--vectors", "nowhere.vec"], "nowhere.vec"),
        (["find", "index", QUERY, "--model", "other"], "was made with another model"),
    ],
)
def test_errors_are_one_sentence(run: Run, arguments: list[str], sentence: str) -> None:
    if arguments[0] == "find":
        run("index", "text.txt", "index")
    Path("empty.txt").write_text("")
    Path("blank.txt").write_text("\n\n")
    Path("binary.txt").write_bytes(bytes(range(256)))
    Path("marked.txt").write_text(f"{QUERY}\nnot here .\n")
    if "other" in arguments:
        tiny_elmo(seed=1).save_pretrained("other")
    before = sorted(path.name for path in Path().iterdir())
    out, err = run(*arguments, code=2)
    assert not out
    assert sentence in err
    assert err.count("\n") == 1
    after = {path.name for path in Path().iterdir()} - {"cache"}
    assert after <= set(before)


def test_without_the_library_graphs_are_refused_before_the_work(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "usearch", None)
    monkeypatch.delitem(sys.modules, "usearch.index", raising=False)
    _, err = run("index", "text.txt", "out", "--approximate", code=2)
    assert "pip install 'elmokit[ann]'" in err
    assert not Path("out").exists()


def test_an_index_made_in_python_is_searched_with_a_model_that_is_named(
    run: Run, elmo: Embedder, model: Path
) -> None:
    index_uses(elmo, [["the", "river", "bank"], ["a", "bank", "lent"]], "made")
    assert "name one with --model" in run("find", "made", "the *bank* .", code=2)[1]
    assert "a [bank] lent" in run("find", "made", "the *bank* .", "--model", model)[0]
