"""Reading texts with labels, pairs and texts to be rewritten, and what is said of bad lines."""

from __future__ import annotations

import csv
import doctest
import gzip
import io
import json
import lzma
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import complaint, make_reading

from elmokit.data import labeled as data
from elmokit.data.labeled import (
    BadLines,
    Reading,
    read_labeled,
    read_pairs,
    read_parallel,
    read_summaries,
)
from elmokit.errors import ElmokitError
from elmokit.text.tokenize import tokenize


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def labeled(path: Path, **options: Any) -> list[tuple[str | None, str]]:
    """Label and text of all examples of a file."""
    examples = read_labeled(path, make_reading(options), **options)
    return [(example.label, " ".join(example.texts[0])) for example in examples]


def pairs(path: Path, **options: Any) -> list[tuple[str | None, ...]]:
    examples = read_pairs(path, make_reading(options), **options)
    return [(example.label, *map(" ".join, example.texts)) for example in examples]


REVIEWS = [
    ("good", "a fine film"),
    ("poor", "dull from the start to the end"),
    ("good", "it was great"),
    ("poor", "I left after an hour"),
]


def lines(rows: Sequence[Sequence[str]], separator: str) -> str:
    return "".join(separator.join(row) + "\n" for row in rows)


# ---- formats


def test_a_line_of_text_begins_with_its_label(tmp_path: Path) -> None:
    assert labeled(write(tmp_path, "a.txt", lines(REVIEWS, " "))) == REVIEWS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", lines([("label", "text"), *REVIEWS], "\t")),
        ("a.tsv", lines([("Text", "Label"), *((t, label) for label, t in REVIEWS)], "\t")),
        ("a.tsv", lines([("id", "sentence", "topic"), *(("7", t, x) for x, t in REVIEWS)], "\t")),
        ("a.csv", lines([("class", "review"), *REVIEWS], ",")),
        ("a.jsonl", "".join(json.dumps({"text": t, "label": x}) + "\n" for x, t in REVIEWS)),
        ("a.jsonl", "\n".join(json.dumps({"review": t.split(), "class": x}) for x, t in REVIEWS)),
        ("a.tsv", lines(REVIEWS, "\t")),
        ("a.tsv", lines([(t, label) for label, t in REVIEWS], "\t")),
        ("a.csv", lines(REVIEWS, ",")),
    ],
)  # fmt: skip
def test_columns_are_found_by_their_names_or_by_what_they_have(
    tmp_path: Path, name: str, content: str
) -> None:
    assert labeled(write(tmp_path, name, content)) == REVIEWS
    assert [label for label, _ in labeled(tmp_path / name, labeled=False)] == [None] * 4
    assert [text for _, text in labeled(tmp_path / name, labeled=False)] == [
        text for _, text in REVIEWS
    ]


@pytest.mark.parametrize(
    ("text_column", "label_column"), [("words", "kind"), (3, 2), ("3", "2"), (-1, "kind"), (3, -2)]
)
def test_columns_are_given_by_name_or_by_number(
    tmp_path: Path, text_column: str | int, label_column: str | int
) -> None:
    rows = [("2", label, text) for label, text in REVIEWS]
    named = write(tmp_path, "a.tsv", lines([("x", "kind", "words"), *rows], "\t"))
    options = {"text_column": text_column, "label_column": label_column}
    result = labeled(named, **options)
    if "words" in (text_column, label_column) or "kind" in (text_column, label_column):
        assert result == REVIEWS
    else:  # by numbers alone nothing tells that the first line has names
        assert result == [("kind", "words"), *REVIEWS]
        assert labeled(write(tmp_path, "b.tsv", lines(rows, "\t")), **options) == REVIEWS
        assert labeled(write(tmp_path, "b.txt", lines(rows, "\t")), **options) == REVIEWS


def test_a_column_that_is_given_is_not_taken_for_another(tmp_path: Path) -> None:
    rows = [("target", "what"), *((text, label) for label, text in REVIEWS)]
    assert labeled(write(tmp_path, "a.tsv", lines(rows, "\t")), text_column="target") == REVIEWS


def test_a_label_that_looks_like_the_number_of_a_column_is_none(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "fine\t1\nbad\t2\n")
    result = [("1", "fine"), ("2", "bad")]
    assert labeled(path, text_column="1", label_column="2") == result
    assert labeled(write(tmp_path, "b.tsv", "1\tfine\n2\tbad\n"), text_column="2") == result


def test_the_label_is_not_guessed_where_it_is_not_clear(tmp_path: Path) -> None:
    numbered = [(str(i), text) for i, (_, text) in enumerate(REVIEWS)]
    path = write(tmp_path, "a.tsv", lines(numbered, "\t"))
    message = complaint(lambda: labeled(path))
    assert "label" in message
    assert "label_column" in message
    assert "1 (0), 2 (a fine film)" in message
    four = write(tmp_path, "b.tsv", lines([("a", "b", *row) for row in REVIEWS], "\t"))
    assert "text_column" in complaint(lambda: labeled(four))
    assert labeled(four, text_column=4, label_column=3) == REVIEWS


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", lines([("label", "text"), *REVIEWS], "\t"))
    assert "no column 'words': it has 1 (label), 2 (text)" in complaint(
        lambda: labeled(path, text_column="words")
    )
    assert "no column 3" in complaint(lambda: labeled(path, text_column=3))
    assert "no column 0" in complaint(lambda: labeled(path, text_column=0))
    objects = write(tmp_path, "a.jsonl", '{"a": "x", "label": "y"}\n')
    assert "no field 'words': it has a, label" in complaint(
        lambda: labeled(objects, text_column="words")
    )
    assert "text_column; there is a, label" in complaint(lambda: labeled(objects))


def test_numbers_and_truth_in_json_are_labels(tmp_path: Path) -> None:
    rows = [{"text": "x", "label": label} for label in ("a b", 3, True, 0.5)]
    path = write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert [label for label, _ in labeled(path)] == ["a b", "3", "true", "0.5"]


def test_labels_may_have_spaces_where_columns_part_them_from_the_text(tmp_path: Path) -> None:
    rows = [("so so", "it was fine"), ("so so", "well well well"), ("very good", "yes yes yes")]
    assert labeled(write(tmp_path, "a.tsv", lines(rows, "\t"))) == rows
    path = write(tmp_path, "a.txt", lines(rows, "\t"))
    message = complaint(lambda: labeled(path))
    assert "a.txt, line 1: " in message
    assert "labels with spaces need a .tsv" in message


def test_a_quoted_cell_of_csv_may_have_lines_and_commas(tmp_path: Path) -> None:
    rows = [["text", "label"], ['one,\n\n"two"', "a"], ["x", "b"], ["three\nfour", "a"], ["", "b"]]
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    path = write(tmp_path, "a.csv", buffer.getvalue())
    bad = BadLines(skip=True)
    result = list(read_labeled(path, Reading(str.split, bad)))
    assert [(e.label, e.texts[0]) for e in result] == [
        ("a", ("one,", '"two"')),
        ("b", ("x",)),
        ("a", ("three", "four")),
    ]
    assert [e.where.rpartition(" ")[2] for e in result] == ["2", "5", "6"]
    assert bad.first == f"{path}, line 8: the text is empty"


def test_a_quote_that_is_never_closed_skips_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'label,text\na,"one\nb,two\na,"three, four"\nb,five\n')
    bad = BadLines(skip=True)
    assert labeled(path, bad=bad) == [("b", "two"), ("a", "three, four"), ("b", "five")]
    assert bad.count == 1
    assert "a.csv, line 2: the line is not CSV" in bad.first


TEXTS = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1).filter(str.strip)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["a", "b c"]), TEXTS), min_size=1))
def test_what_was_written_is_read_in_every_format(
    tmp_path: Path, rows: list[tuple[str, str]]
) -> None:
    expected = [(label, " ".join(text.split())) for label, text in rows]
    buffer = io.StringIO()
    csv.writer(buffer).writerows([("label", "text"), *rows])
    objects = "".join(json.dumps({"text": text, "label": label}) + "\n" for label, text in rows)
    for name, content in {
        "a.csv": buffer.getvalue(),
        "a.tsv": lines([("label", "text"), *rows], "\t"),
        "a.jsonl": objects,
    }.items():
        assert labeled(write(tmp_path, name, content)) == expected, name


# ---- without labels


def test_what_has_no_labels_can_be_read_to_predict_them(tmp_path: Path) -> None:
    texts = ["good a line of text", "another\twith a tab", "x"]
    expected = [(None, "good a line of text"), (None, "another with a tab"), (None, "x")]
    plain = write(tmp_path, "a.txt", "\n".join(texts))
    assert labeled(plain, labeled=False) == expected
    for name, content in {
        "a.tsv": "text\none two\nthree",
        "b.tsv": "id\ttext\n1\tone two\n2\tthree\n",
        "c.tsv": "one two\nthree\n",
        "a.jsonl": '{"text": "one two"}\n{"text": "three", "label": null}\n',
    }.items():
        result = labeled(write(tmp_path, name, content), labeled=False)
        assert result == [(None, "one two"), (None, "three")], name


def test_columns_given_for_training_do_not_prevent_predicting(tmp_path: Path) -> None:
    options = {"text_column": "words", "label_column": "kind", "labeled": False}
    plain = write(tmp_path, "a.txt", "one two\nthree\n")
    assert labeled(plain, **options) == [(None, "one two"), (None, "three")]
    table = write(tmp_path, "a.tsv", "id\twords\n1\tone two\n2\tthree\n")
    assert labeled(table, **options) == [(None, "one two"), (None, "three")]
    ragged = write(tmp_path, "c.tsv", "words\tkind\none two\tx\nthree\n")
    assert labeled(ragged, **options) == [(None, "one two"), (None, "three")]
    columns = write(tmp_path, "b.txt", "id\twords\n1\tone two\n")
    assert labeled(columns, **options) == [(None, "one two")]
    numbers = {"text_column": 1, "label_column": 2, "labeled": False}
    assert labeled(write(tmp_path, "b.tsv", "one\nthree\n"), **numbers) == [
        (None, "one"),
        (None, "three"),
    ]


# ---- bad lines


GOOD = {
    "a.txt": ("", "good x"),
    "a.tsv": ("label\ttext\n", "good\tx"),
    "a.csv": ("label,text\n", "good,x"),
    "a.jsonl": ("", '{"text": "x", "label": "good"}'),
}


@pytest.mark.parametrize(
    ("name", "line", "sentence"),
    [
        ("a.txt", "good", "no text after its label 'good'"),
        ("a.txt", "", "the line is empty"),
        ("a.txt", b"poor \xff", "not UTF-8"),
        ("a.tsv", "b", "1 column, but the text is in column 2"),
        ("a.tsv", "a\tb\tc", "3 columns, but the first one has 2"),
        ("a.tsv", "a\t ", "the text is empty"),
        ("a.tsv", "\tb", "the label is missing"),
        ("a.tsv", " ", "the line is empty"),
        ("a.tsv", b"good\t\xc3", "not UTF-8"),
        ("a.csv", 'a,"b"c', "not CSV"),
        ("a.csv", 'a,"b', "not CSV"),
        ("a.csv", "b", "1 column, but the text is in column 2"),
        ("a.csv", "", "the line is empty"),
        ("a.csv", b"good,\xc3", "not UTF-8"),
        ("a.jsonl", '{"text": "a"', "not JSON"),
        ("a.jsonl", '["a"]', "not a JSON object"),
        ("a.jsonl", '{"text": "a"}', "the label is missing"),
        ("a.jsonl", '{"label": "a"}', "the text is empty"),
        ("a.jsonl", '{"text": {}, "label": "b"}', "field 'text'"),
        ("a.jsonl", '{"text": [1], "label": "b"}', "field 'text'"),
        ("a.jsonl", '{"text": "\\ud800", "label": "b"}', "field 'text'"),
        ("a.jsonl", '{"text": "a", "label": ["b"]}', "is a list"),
        ("a.jsonl", "[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_named_or_skipped_without_its_neighbours(
    tmp_path: Path, name: str, line: str | bytes, sentence: str
) -> None:
    header, good = GOOD[name]
    raw = line.encode() if isinstance(line, str) else line
    content = b"".join([header.encode(), good.encode(), b"\n", raw, b"\n", good.encode()])
    path = write(tmp_path, name, content)
    message = complaint(lambda: labeled(path))
    assert message.startswith(f"{path}, line {3 if header else 2}: ")
    assert sentence in message
    bad = BadLines(skip=True)
    assert labeled(path, bad=bad) == [("good", "x")] * 2
    assert (bad.count, bad.first) == (1, message)


def test_bad_lines_are_counted_and_the_first_one_is_remembered() -> None:
    with pytest.raises(ElmokitError, match=r"^a.tsv, line 7: it is wrong$"):
        BadLines()("a.tsv, line 7", "it is wrong")
    bad = BadLines(skip=True)
    assert bad.summary() == ""
    for line in range(1, 1001):
        bad(f"a.tsv, line {line}", "it is wrong")
    assert bad.count == 1000
    assert bad.summary() == "skipped 1000 lines, the first: a.tsv, line 1: it is wrong"
    bad.undecided = 3
    assert bad.summary().endswith("; skipped 3 pairs without an agreed label")


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(data).attempted > 0
    assert doctest.testmod(data).failed == 0


def test_a_file_without_rows_is_an_error(tmp_path: Path) -> None:
    for name in ("a.tsv", "a.csv", "a.jsonl"):
        path = write(tmp_path, name, "\n \n")
        assert "has no rows" in complaint(partial(labeled, path))
    assert "there is no file" in complaint(lambda: labeled(tmp_path / "none.tsv"))


# ---- bytes


@pytest.mark.parametrize("extension", ["", ".gz", ".xz", ".zst"])
def test_files_may_be_compressed_with_windows_ends_and_a_byte_order_mark(
    tmp_path: Path, extension: str
) -> None:
    content = b"\xef\xbb\xbf" + lines([("text", "label"), ("é à", "x"), ("b", "y")], "\t").encode()
    content = content.replace(b"\n", b"\r\n") + b"\r\n\r\n"
    if extension == ".zst":
        content = pytest.importorskip("zstandard").ZstdCompressor().compress(content)
    elif extension:
        content = gzip.compress(content) if extension == ".gz" else lzma.compress(content)
    path = write(tmp_path, "a.tsv" + extension, content)
    assert labeled(path) == [("x", "é à"), ("y", "b")]


def test_a_line_too_long_for_memory_is_bad(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"a x\n" + b"b " * (5 << 20) + b"\nc y\n")
    bad = BadLines(skip=True)
    assert labeled(path, bad=bad) == [("a", "x"), ("c", "y")]
    assert bad.first == f"{path}, line 2: the line is longer than 8 MB"


# ---- pairs

PAIRS = [
    ("no", "a dog barks", "the dog is quiet"),
    ("yes", "a dog barks loudly", "a dog makes noise"),
    ("no", "it rains", "the sky is clear now"),
    ("yes", "it is raining", "it rains"),
]


@pytest.mark.parametrize(
    ("header", "order"),
    [
        ("pair_ID sentence_A sentence_B relatedness_score entailment_judgment", "-12-0"),
        ("gold_label sentence1_parse sentence2_parse sentence1 sentence2 label1", "0--12-"),
        ("id qid1 qid2 question1 question2 is_duplicate", "---120"),
        ("index premise hypothesis label", "-120"),
        ("Quality,#1 ID,#2 ID,#1 String,#2 String", "0--12"),
        ("index question sentence label", "-120"),
        ("", "012"),
        ("", "120"),
        ("", "102"),
    ],
)
def test_pairs_are_found_in_the_tables_of_many_data_sets(
    tmp_path: Path, header: str, order: str
) -> None:
    head = [header.split("," if "," in header else None)] if header else []
    rows = [["?" if i == "-" else pair[int(i)] for i in order] for pair in PAIRS]
    for name in ("a.tsv", "a.txt"):
        path = write(tmp_path, name, "".join("\t".join(row) + "\n" for row in [*head, *rows]))
        assert pairs(path) == PAIRS
    unlabeled = [(None, *texts) for _, *texts in PAIRS]
    assert pairs(path, labeled=False) == unlabeled


def test_pairs_of_json_without_an_agreed_label_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        {"gold_label": label, "sentence1": first, "sentence2": second}
        for label, first, second in [("-", "x", "y"), *PAIRS, ("-", "x", "y")]
    ]
    path = write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)))
    bad = BadLines()
    assert pairs(path, bad=bad) == PAIRS
    assert (bad.count, bad.undecided) == (0, 2)
    assert len(pairs(path, labeled=False)) == 6


def test_columns_of_pairs_are_given(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", lines([("x", *pair) for pair in PAIRS], "\t"))
    assert pairs(path, text_column=3, second_column=4, label_column=2) == PAIRS
    message = complaint(lambda: pairs(path))
    assert "the first text" in message
    assert "text_column" in message


def test_pairs_without_labels_have_two_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", lines([pair[1:] for pair in PAIRS], "\t"))
    assert pairs(path, labeled=False) == [(None, *texts) for _, *texts in PAIRS]


@pytest.mark.parametrize(("row", "which"), [("a\t\tb", "first"), ("a\tb\t ", "second")])
def test_an_empty_half_of_a_pair_is_named(tmp_path: Path, row: str, which: str) -> None:
    path = write(tmp_path, "a.tsv", f"label\tsentence1\tsentence2\n{row}\n")
    assert complaint(lambda: pairs(path)) == f"{path}, line 2: the {which} text is empty"


# ---- texts to be rewritten


def rewritten(*paths: Path | None, **options: Any) -> list[tuple[str, str | None]]:
    read: Any = read_parallel if len(paths) == 2 else read_summaries
    examples = list(read(*paths, make_reading(options), **options))
    assert all((e.target is None) == (e.reference is None) for e in examples)
    assert all(" ".join(e.target).split() == e.reference.split() for e in examples if e.target)
    return [(" ".join(e.texts[0]), e.reference) for e in examples]


def test_lines_of_two_files_belong_together(tmp_path: Path) -> None:
    source = write(tmp_path, "a.en", "a dog\na cat\n\n")
    target = write(tmp_path, "a.de", "ein  Hund\neine Katze")
    assert rewritten(source, target) == [("a dog", "ein  Hund"), ("a cat", "eine Katze")]
    assert rewritten(source, None) == [("a dog", None), ("a cat", None)]


def test_files_of_different_length_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path, "a.en", "one\ntwo\nthree\n")
    target = write(tmp_path, "a.de", "eins\nzwei\n")
    for skip in (False, True):
        message = complaint(partial(rewritten, source, target, bad=BadLines(skip)))
        assert f"{source} has 3 lines" in message
        assert f"{target} has 2" in message


def test_a_bad_line_of_either_file_skips_its_pair(tmp_path: Path) -> None:
    source = write(tmp_path, "a.en", b"1\n\xff2\n3\n\n5\n6\n")
    target = write(tmp_path, "a.de", b"a\nb\n\xffc\nd\n \nf\n")
    messages: list[str] = []

    class Bad(BadLines):
        def __call__(self, where: str, sentence: str) -> None:
            messages.append(f"{where}: {sentence}")

    assert rewritten(source, target, bad=Bad(skip=True)) == [("1", "a"), ("6", "f")]
    assert messages == [
        f"{source}, line 2: the line is not UTF-8",
        f"{target}, line 3: the line is not UTF-8",
        f"{source}, line 4: the text is empty",
        f"{source}, line 5: the target is empty",
    ]


def test_summaries_are_fields_of_json(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "a b c", "summary": "a"}\n')
    assert rewritten(path) == [("a b c", "a")]
    assert rewritten(path, labeled=False) == [("a b c", None)]
    deep = write(tmp_path, "b.jsonl", '{"translation": {"en": "a dog", "de": "ein Hund"}}\n')
    columns = {"text_column": "translation.en", "label_column": "translation.de"}
    assert rewritten(deep, **columns) == [("a dog", "ein Hund")]
    table = write(tmp_path, "a.tsv", "a b c\ta\n")
    assert rewritten(table) == [("a b c", "a")]
    assert rewritten(write(tmp_path, "a.txt", "a b\nc\n"), labeled=False) == [
        ("a b", None),
        ("c", None),
    ]


# ---- real data


def raw_lines(path: Path) -> list[str]:
    if not path.exists():
        pytest.skip(f"there is no {path}")
    return lzma.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


@pytest.mark.parametrize("name", ["sst5.dev.txt", "sst2.dev.txt", "trec.train.txt"])
def test_real_lines_of_label_and_text(shared: Path, name: str) -> None:
    path = shared / "data" / "classify" / f"{name}.xz"
    raw = raw_lines(path)
    result = list(read_labeled(path, Reading(str.split, BadLines())))
    assert [f"{e.label} {' '.join(e.texts[0])}" for e in result] == [
        " ".join(x.split()) for x in raw
    ]


def test_the_labels_of_real_chinese_reviews_are_guessed(shared: Path) -> None:
    path = shared / "data" / "classify" / "zh.chnsenticorp.dev.tsv.xz"
    raw = raw_lines(path)
    result = list(read_labeled(path, Reading(list, BadLines())))
    assert Counter(e.label for e in result) == Counter(line.rsplit("\t", 1)[1] for line in raw)
    assert ["".join(e.texts[0]) for e in result] == [line.split("\t")[0] for line in raw]


def test_real_pairs_of_sick(shared: Path) -> None:
    path = shared / "data" / "pair" / "sick.dev.tsv.xz"
    raw = [line.split("\t") for line in raw_lines(path)[1:]]
    assert pairs(path) == [(cells[4], cells[1].strip(), cells[2].strip()) for cells in raw]


def test_real_parallel_lines_and_real_headlines(shared: Path) -> None:
    folder = shared / "data" / "seq2seq"
    english, german = folder / "multi30k.val.en.xz", folder / "multi30k.val.de.xz"
    assert rewritten(english, german) == [
        (" ".join(source.split()), target.strip())
        for source, target in zip(raw_lines(english), raw_lines(german), strict=True)
    ]
    headlines = folder / "headlines.dev.jsonl.xz"
    raw = [json.loads(line) for line in raw_lines(headlines)]
    result = list(read_summaries(headlines, Reading(tokenize, BadLines())))
    assert [e.reference for e in result] == [row["summary"].strip() for row in raw]
    assert ["".join(e.texts[0]) for e in result] == ["".join(r["text"].split()) for r in raw]
