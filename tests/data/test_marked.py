"""Reading sentences with marked entities, and pronouns with two names."""

from __future__ import annotations

import doctest
import lzma
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import complaint, make_reading

from elmokit.data import marked
from elmokit.data.examples import Pronoun, Related
from elmokit.data.labeled import BadLines
from elmokit.data.marked import read_gap, read_relations, tokens_and_spans
from elmokit.text.tokenize import tokenize


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8", newline="")
    return path


def relations(path: Path, **options: Any) -> list[Related]:
    return list(read_relations(path, make_reading({"tokenize": tokenize, **options})))


def entities(example: Related) -> tuple[str, str]:
    tokens = example.texts[0]
    first, second = (" ".join(tokens[slice(*s)]) for s in (example.first, example.second))
    return first, second


# ---- relations

STORM = """\
1\t"The <e1>storm</e1> of last night broke <e2>old trees</e2>."
Cause-Effect(e1,e2)
Comment: A comment, with a tab\there.

2\t"In the <e2>jar</e2> were (as ever) some <e1>coins</e1>"
Content-Container(e1,e2)
Comment:

7\t"A <e1>reader</e1>'s <e2>letter</e2>."
Other
"""


def test_entities_and_relations_are_read(tmp_path: Path) -> None:
    result = relations(write(tmp_path, "a.txt", STORM))
    assert [e.identifier for e in result] == ["1", "2", "7"]
    assert [entities(e) for e in result] == [
        ("storm", "old trees"),
        ("coins", "jar"),
        ("reader", "letter"),
    ]
    assert [e.label for e in result] == ["Cause-Effect(e1,e2)", "Content-Container(e1,e2)", "Other"]
    assert result[0].texts == (
        tuple("The storm of last night broke old trees .".split()),
    )  # without the quotes
    assert result[2].texts == (("A", "reader", "'s", "letter", "."),)
    assert [e.where.rpartition(" ")[2] for e in result] == ["1", "5", "9"]


def test_windows_ends_change_nothing(tmp_path: Path) -> None:
    unix = relations(write(tmp_path, "a.txt", STORM))
    assert relations(write(tmp_path, "a.txt", STORM.replace("\n", "\r\n"))) == unix


def test_sentences_without_relations_stand_line_by_line(tmp_path: Path) -> None:
    lines = [line for line in STORM.splitlines() if "\t" in line and line[0].isdigit()]
    for end in ("\n", "\n\n"):
        path = write(tmp_path, "a.txt", end.join(lines))
        result = relations(path, labeled=False)
        assert [entities(e)[0] for e in result] == ["storm", "coins", "reader"]
        assert {e.label for e in result} == {None}
    assert "line 1: there is no relation below" in complaint(lambda: relations(path))
    commented = write(tmp_path, "c.txt", lines[0] + "\nComment: none\n")
    assert "line 1: there is no relation below" in complaint(lambda: relations(commented))
    with_labels = relations(write(tmp_path, "b.txt", STORM), labeled=False)
    assert [e.label for e in with_labels] == [None] * 3


@pytest.mark.parametrize(
    ("sentence", "first", "tokens"),
    [
        ("a <e1>baby</e1>-seat <e2>b</e2>", "baby", "a baby -seat b"),
        ("a<e1>b</e1>c <e2>d</e2>", "b", "a b c d"),
        ("x <e1>do</e1>n't <e2>y</e2>", "do", "x do n't y"),
        ("x <e1> two words </e1> <e2>y</e2>", "two words", "x two words y"),
        ("x <e1>A</e1><e2>B</e2>", "A", "x A B"),
        ("<e1>all <e2>of</e2> it</e1>", "all of it", "all of it"),
        ("it cost <e1>$5</e1> <e2>y</e2>", "$ 5", "it cost $ 5 y"),
        ("a < b <e1>c</e1> <b> <e2>d</e2>", "c", "a < b c <b> d"),
    ],
)
def test_markers_neither_join_nor_part_more_than_they_must(
    tmp_path: Path, sentence: str, first: str, tokens: str
) -> None:
    [example] = relations(write(tmp_path, "a.txt", f'1\t"{sentence}"\nOther\n'))
    assert entities(example)[0] == first
    assert " ".join(example.texts[0]) == tokens


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('5\t"no entity"', "no entity between <e1> and </e1>"),
        ('5\t"<e1>a</e1> <e2>b"', "no entity between <e2> and </e2>"),
        ('5\t"<e1>a</e1> <e2> </e2> b"', "nothing between <e2>"),
        ('5\t"</e1>a<e1> <e2>b</e2>"', "nothing between <e1>"),
        ('5\t"<e1>a</e1> <e1>a</e1> <e2>b</e2>"', "<e1> twice"),
        ('"<e1>a</e1> <e2>b</e2>"', "a number, a tab and a sentence"),
        ('five\t"<e1>a</e1> <e2>b</e2>"', "a number, a tab and a sentence"),
    ],
)
def test_a_bad_sentence_is_named_or_skipped(tmp_path: Path, line: str, sentence: str) -> None:
    good = '1\t"<e1>a</e1> <e2>b</e2>"\nOther\nComment:\n\n'
    path = write(tmp_path, "a.txt", good + line + "\nOther\nComment: 7\n\n" + good)
    message = complaint(lambda: relations(path))
    assert message.startswith(f"{path}, line 5: ")
    assert sentence in message
    bad = BadLines(skip=True)
    assert len(relations(path, bad=bad)) == 2
    assert bad.first == message


@settings(max_examples=300)
@given(
    st.text("ab '.-n't é漢😀\u3000\n", min_size=1, max_size=30).filter(str.strip),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=3),
)
def test_marked_characters_are_whole_tokens(text: str, pairs: list[tuple[int, int]]) -> None:
    spans = [(min(pair), min(max(pair), len(text))) for pair in pairs]
    spans = [(start, end) for start, end in spans if text[start:end].strip()]
    tokens, result = tokens_and_spans(text, spans, tokenize)
    assert "".join(tokens) == "".join(text.split())
    for (start, end), (first, after) in zip(spans, result, strict=True):
        assert "".join(tokens[first:after]) == "".join(text[start:end].split())
        assert "".join(tokens[:first]) == "".join(text[:start].split())
    if not spans:
        assert list(tokens) == tokenize(text)


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(marked).attempted > 0
    assert doctest.testmod(marked).failed == 0


# ---- pronouns

HEADER = "ID Text Pronoun Pronoun-offset A A-offset A-coref B B-offset B-coref URL".split()
TEXT = "Éva met Jo Day-Lee. She said Jo'd told her (Éva) so."


def gap(text: str, pronoun: str, a: str, b: str, label: str) -> list[str]:
    """A row in which every name stands at its last place in the text."""
    a_coref, b_coref = str(label == "A").upper(), str(label == "B").upper()
    places = [str(text.rindex(name)) for name in (pronoun, a, b)]
    return ["t-1", text, pronoun, places[0], a, places[1], a_coref, b, places[2], b_coref, "http"]


def write_gap(folder: Path, *rows: list[str], header: list[str] = HEADER) -> Path:
    return write(folder, "gap.tsv", "".join("\t".join(row) + "\n" for row in [header, *rows]))


def pronouns(path: Path, **options: Any) -> list[Pronoun]:
    return list(read_gap(path, make_reading({"tokenize": tokenize, **options})))


def test_pronouns_and_names_are_found_by_their_positions(tmp_path: Path) -> None:
    rows = [
        gap(TEXT, "her", "Éva", "Jo Day", "A"),
        gap(TEXT, "She", "Éva", "Jo", "B"),
        gap(TEXT, "her", "Day-Lee", "Éva", "NEITHER"),
    ]
    path = write_gap(tmp_path, *rows)
    result = pronouns(path)
    assert [e.label for e in result] == ["A", "B", "NEITHER"]
    assert [e.texts[0][e.pronoun] for e in result] == ["her", "She", "her"]
    names = [[" ".join(e.texts[0][slice(*span)]) for span in (e.first, e.second)] for e in result]
    assert names == [["Éva", "Jo Day"], ["Éva", "Jo"], ["Day-Lee", "Éva"]]
    assert result[0].texts[0][:6] == ("Éva", "met", "Jo", "Day", "-Lee", ".")  # cut behind a name
    assert result[2].texts[0][:5] == ("Éva", "met", "Jo", "Day-Lee", ".")
    assert (result[0].identifier, result[0].where) == ("t-1", f"{path}, line 2")
    assert [e.label for e in pronouns(path, labeled=False)] == [None] * 3


def test_pronouns_without_answers_need_no_columns_for_them(tmp_path: Path) -> None:
    row = gap(TEXT, "her", "Éva", "Jo", "A")
    path = write_gap(tmp_path, row[:6] + row[7:9], header=HEADER[:6] + HEADER[7:9])
    assert [e.label for e in pronouns(path, labeled=False)] == [None]
    assert "no column 'a_coref'" in complaint(lambda: pronouns(path))
    assert "no column" in complaint(lambda: pronouns(write(tmp_path, "b.tsv", "")))


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("A-offset", "1", "'Éva' is not at character 1 of the text: there is 'va '"),
        ("A-offset", "x", "the offset of 'Éva' is not a number: 'x'"),
        ("A-offset", "-52", "the offset of 'Éva' is not a number"),
        ("Pronoun-offset", "9999", "'her' is not at character 9999"),
        ("B", "", "the column 'b' is empty"),
        ("B-coref", "TRUE", "cannot refer to both names"),
        ("B-coref", "maybe", "must be TRUE or FALSE, not 'MAYBE'"),
        ("URL", "a\tb", "12 columns, but the first one 11"),
    ],
)
def test_a_bad_row_is_named_or_skipped(
    tmp_path: Path, column: str, value: str, sentence: str
) -> None:
    good = gap(TEXT, "her", "Éva", "Jo", "A")
    wrong = list(good)
    wrong[HEADER.index(column)] = value
    path = write_gap(tmp_path, good, wrong, good)
    message = complaint(lambda: pronouns(path))
    assert message.startswith(f"{path}, line 3: ")
    assert sentence in message
    bad = BadLines(skip=True)
    assert len(pronouns(path, bad=bad)) == 2
    assert bad.first == message


# ---- real data


def raw_text(path: Path) -> str:
    if not path.exists():
        pytest.skip(f"there is no {path}")
    return lzma.decompress(path.read_bytes()).decode().replace("\r\n", "\n")


def test_real_relations(shared: Path) -> None:
    path = shared / "data" / "relation" / "semeval2010.train.txt.xz"
    text = raw_text(path)
    result = relations(path)
    sentences = re.findall(r"^\d+\t(.*)$", text, re.MULTILINE)
    assert len(result) == len(sentences) == 8000
    labels = re.findall(r"^(Other|[A-Z][a-z]+-[A-Z][a-z]+\(e[12],e[12]\))$", text, re.MULTILINE)
    assert Counter(e.label for e in result) == Counter(labels)
    written = [re.findall("<e[12]>(.*?)</e[12]>", sentence) for sentence in sentences]
    for example, names in zip(result, written, strict=True):
        joined = tuple(name.replace(" ", "") for name in entities(example))
        assert joined == tuple("".join(name.split()) for name in names)


def test_real_pronouns(shared: Path) -> None:
    path = shared / "data" / "coref" / "gap.development.tsv.xz"
    rows = [line.split("\t") for line in raw_text(path).rstrip("\n").split("\n")[1:]]
    result = pronouns(path)
    assert [e.texts[0][e.pronoun] for e in result] == [row[2] for row in rows]
    for column, spans in {4: [e.first for e in result], 7: [e.second for e in result]}.items():
        names = [e.texts[0][slice(*s)] for e, s in zip(result, spans, strict=True)]
        assert ["".join(name) for name in names] == ["".join(row[column].split()) for row in rows]
    right = [{"A": row[6], "B": row[9]} for row in rows]
    assert [e.label for e in result] == [
        next((name for name, value in r.items() if value == "TRUE"), "NEITHER") for r in right
    ]
