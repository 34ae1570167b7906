"""Reading sentences in columns, and the schemes in which tags mark spans."""

from __future__ import annotations

import doctest
import lzma
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import complaint, make_reading

from elmokit.data import schemes
from elmokit.data.columns import read_tagged
from elmokit.data.examples import Tagged
from elmokit.data.labeled import BadLines
from elmokit.data.schemes import PLAIN, SCHEMES, scheme_of, to_iob2
from elmokit.errors import ElmokitError
from elmokit.text.tokenize import tokenize


def from_iob2(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Return IOB2 as tags of another scheme, written apart from `to_iob2` to check it."""
    if scheme in (PLAIN, "iob2"):
        return tuple(tags)
    result = []
    for before, tag, after in zip(("O", *tags), tags, (*tags[1:], "O"), strict=False):
        kind = tag[1:]
        is_first, is_last = tag[0] == "B", after != "I" + kind
        if tag == "O":
            result.append(tag)
        elif scheme == "iob1":
            touches = before != "O" and before[1:] == kind
            result.append(("B" if is_first and touches else "I") + kind)
        else:
            begin, inside, end, single = SCHEMES[scheme]
            letter = (single if is_last else begin) if is_first else (end if is_last else inside)
            result.append(letter + kind)
    return tuple(result)


def file_scheme(path: Path) -> str:
    """Return the scheme of the tags of a file, as they are written there."""
    return scheme_of([example.tags or () for example in read(path, scheme="plain")])


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, **options: Any) -> list[Tagged]:
    return list(read_tagged(path, make_reading(options), **options))


def pairs(path: Path, **options: Any) -> list[list[str]]:
    """Of each sentence its tokens with their tags, as token/tag."""
    return [
        [f"{token}/{tag}" for token, tag in zip(e.texts[0], e.tags or (), strict=True)]
        for e in read(path, **options)
    ]


# ---- columns

NAMES = """\
-DOCSTART- -X- -X- O

Ada NNP I-NP I-PER
Bay NNP I-NP I-PER
sang VBD I-VP O

Oslo NNP I-NP I-LOC
Kiel NNP B-NP B-LOC
"""


@pytest.mark.parametrize("separator", [" ", "\t", "   "])
def test_words_and_tags_are_the_first_and_the_last_column(tmp_path: Path, separator: str) -> None:
    path = write(tmp_path, "a.conll", NAMES.replace(" ", separator))
    assert pairs(path) == [
        ["Ada/B-PER", "Bay/I-PER", "sang/O"],
        ["Oslo/B-LOC", "Kiel/B-LOC"],
    ]
    assert [e.where for e in read(path)] == [f"{path}, line 3", f"{path}, line 7"]


def test_another_column_can_be_requested(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", NAMES)
    assert pairs(path, label_column=2)[1] == ["Oslo/NNP", "Kiel/NNP"]
    assert pairs(path, label_column="-2")[1] == ["Oslo/B-NP", "Kiel/B-NP"]
    assert pairs(path, label_column=1, text_column="2")[1] == ["NNP/Oslo", "NNP/Kiel"]
    for column in (5, -5, 0, "UPOS"):
        assert "has no column" in complaint(partial(pairs, path, label_column=column))
    assert "choose another column" in complaint(lambda: pairs(path, label_column=1))


SENTENCES_UD = """\
# sent_id = 1
# text = du pain
1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_
1\tde\tde\tADP\tE\t_\t3\tcase\t_\t_
2\tle\tle\tDET\tR\tGender=Masc\t3\tdet\t_\t_
3\tpain\tpain\tNOUN\tS\t_\t0\troot\t_\t_
3.1\tx\tx\tX\tX\t_\t_\t_\t_\t_

# text = # trois
1\t#\t#\tSYM\tY\t_\t0\troot\t_\t_
2\tNew York\tNew York\tPROPN\tS\t_\t1\tflat\t_\t_
"""


def test_ranges_and_empty_nodes_of_conllu_are_not_words(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", SENTENCES_UD)
    assert pairs(path) == [["de/ADP", "le/DET", "pain/NOUN"], ["#/SYM", "New York/PROPN"]]
    assert pairs(path, label_column="XPOS")[0] == ["de/E", "le/R", "pain/S"]
    assert pairs(path, label_column="xpos")[0] == ["de/E", "le/R", "pain/S"]
    assert pairs(path, label_column=8, text_column="LEMMA")[1] == ["#/root", "New York/flat"]
    assert pairs(path, label_column="FEATS")[0] == ["de/_", "le/Gender=Masc", "pain/_"]
    assert "it has ID, FORM" in complaint(lambda: pairs(path, label_column="POS"))


def test_a_tag_that_is_missing_in_conllu_is_bad(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", SENTENCES_UD.replace("PROPN", "_"))
    assert complaint(lambda: pairs(path)) == f"{path}, line 11: the tag is empty"


def test_comments_stand_before_a_sentence_and_a_number_sign_is_a_word(tmp_path: Path) -> None:
    text = "#begin document (a); part 1\n# id 7\na X\n# Y\n\n# X\nb Y\n\n"
    text += "#end document\n\n# id 8\nc X\n"
    assert pairs(write(tmp_path, "a.conll", text)) == [["a/X", "#/Y"], ["#/X", "b/Y"], ["c/X"]]
    only = write(tmp_path, "b.conll", "# id 7\n#\na\n")
    assert [e.texts[0] for e in read(only, labeled=False)] == [("#", "a")]


def test_a_word_may_have_white_space_that_parts_no_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", "a\u00a0b X\n\u2028 Y\n")
    assert pairs(path) == [["a\u00a0b/X", "\u2028/Y"]]


# ---- without tags


def test_columns_and_text_without_tags_can_be_read_to_predict_them(tmp_path: Path) -> None:
    for name, content in {
        "a.conll": "It\nrains\n\nYes\n",
        "b.conll": "It PRP X\nrains VBZ\n\nYes\n",
        "a.conllu": "1\tIt\t_\n2\trains\t_\n\n1\tYes\n",
        "a.txt": "It rains\nYes\n",
    }.items():
        result = read(write(tmp_path, name, content), labeled=False)
        assert [e.texts for e in result] == [(("It", "rains"),), (("Yes",),)], name
        assert {e.tags for e in result} == {None}
    text = write(tmp_path, "b.txt", "It rains.\n\n")
    assert read(text, labeled=False, tokenize=tokenize)[0].texts == (("It", "rains", "."),)
    assert read(text, labeled=False, kind="conll")[0].texts == (("It",),)
    assert "choose another column" in complaint(lambda: read(tmp_path / "a.conll"))


def test_a_txt_file_with_tags_is_one_of_columns(tmp_path: Path) -> None:
    assert pairs(write(tmp_path, "a.txt", "a X\nb Y\n")) == [["a/X", "b/Y"]]


# ---- bad sentences


@pytest.mark.parametrize(
    ("name", "row", "sentence"),
    [
        ("a.conll", "word", "1 column, but the first one has 2"),
        ("a.conll", "New York B-LOC", "3 columns, but the first one has 2"),
        ("a.conll", "word\t", "the tag is empty"),
        ("a.conll", "\tO", "the token is empty"),
        ("a.conll", b"\xff O", "not UTF-8"),
        ("a.conllu", "1\tword\t_", "3 columns, but the tag is in column 4"),
        ("a.conllu", "1\t\t_\tNOUN", "the token is empty"),
    ],
)
def test_a_bad_row_skips_its_sentence(
    tmp_path: Path, name: str, row: str | bytes, sentence: str
) -> None:
    good = b"1\ta\ta\tX\n" if name == "a.conllu" else b"a O\n"
    raw = row.encode() if isinstance(row, str) else row
    path = write(tmp_path, name, good + b"\n" + good + raw + b"\n" + good + b"\n" + good)
    message = complaint(lambda: read(path))
    assert message.startswith(f"{path}, line 4: ")
    assert sentence in message
    bad = BadLines(skip=True)
    assert len(read(path, bad=bad)) == 2
    assert bad.first == message


def test_a_sentence_of_one_bad_line_is_not_lost_silently(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", b"a O\n\n\xff O\n\nb O\n")
    assert complaint(lambda: read(path)) == f"{path}, line 3: the line is not UTF-8"


def test_a_misspelt_tag_does_not_make_all_of_them_plain(tmp_path: Path) -> None:
    good = "a O\nb B-LOC\n\n" * 100
    path = write(tmp_path, "a.conll", good + "c BLOC\n\n" + good)
    message = complaint(lambda: read(path))
    assert message == f"{path}, line 301: 'BLOC' is not a tag of IOB2"
    bad = BadLines(skip=True)
    assert len(read(path, bad=bad)) == 200
    assert bad.count == 1


def test_a_scheme_that_is_given_is_insisted_on(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", "a B-X\nb E-X\n")
    assert pairs(path) == [["a/B-X", "b/I-X"]]
    assert pairs(path, scheme="plain") == [["a/B-X", "b/E-X"]]
    assert "line 2: 'E-X' is not a tag of IOB2" in complaint(lambda: pairs(path, scheme="iob2"))


def test_a_file_without_sentences_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", "-DOCSTART- -X- O\n\n")
    assert complaint(lambda: read(path)) == f"{path} has no sentences"


# ---- roles

ROLES = """\
She - B-A0 O
wants want B-V O
to - B-A1 O
sing sing I-A1 B-V
songs - I-A1 B-A1

Yes -

It - B-A0
ends end B-V
"""


def test_each_predicate_is_an_example_with_its_own_tags(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", ROLES)
    result = read(path, predicate_column=2)
    assert [(e.predicate, e.tags) for e in result] == [
        (1, ("B-A0", "B-V", "B-A1", "I-A1", "I-A1")),
        (3, ("O", "O", "O", "B-V", "B-A1")),
        (1, ("B-A0", "B-V")),
    ]
    assert result[0].texts == result[1].texts == (("She", "wants", "to", "sing", "songs"),)
    unlabeled = read(path, predicate_column=2, labeled=False)
    assert [(e.predicate, e.tags) for e in unlabeled] == [(1, None), (3, None), (1, None)]


def test_a_row_must_have_a_tag_for_each_predicate(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", ROLES.replace("sing sing I-A1 B-V", "sing sing I-A1"))
    assert complaint(lambda: read(path, predicate_column=2)) == (
        f"{path}, line 4: tags in the line: 1, predicates in its sentence: 2"
    )
    bad = BadLines(skip=True)
    assert [e.predicate for e in read(path, predicate_column=2, bad=bad)] == [1]


# ---- schemes

SAME_SPANS = {
    # LOC LOC-LOC | PER | LOC | - | PER
    "iob2": "B-LOC B-LOC I-LOC B-PER B-LOC O B-PER",
    "iob1": "I-LOC B-LOC I-LOC I-PER I-LOC O I-PER",
    "iobes": "S-LOC B-LOC E-LOC S-PER S-LOC O S-PER",
    "bilou": "U-LOC B-LOC L-LOC U-PER U-LOC O U-PER",
    "bmes": "S-LOC B-LOC E-LOC S-PER S-LOC O S-PER",
}


@pytest.mark.parametrize("scheme", SAME_SPANS)
def test_schemes_say_the_same_in_other_letters(tmp_path: Path, scheme: str) -> None:
    tags, iob2 = SAME_SPANS[scheme].split(), SAME_SPANS["iob2"].split()
    assert list(to_iob2(tags, scheme)) == iob2
    assert list(from_iob2(iob2, scheme)) == tags
    path = write(tmp_path, "a.conll", "".join(f"w {tag}\n" for tag in tags))
    assert list(read(path)[0].tags or ()) == iob2
    if scheme != "bmes":  # without a middle it looks like IOBES
        assert scheme_of([tags]) == file_scheme(path) == scheme


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("O O O", "iob2"),
        ("I-A O", "iob1"),
        ("I-A I-B B-B", "iob1"),
        ("B-A O I-A", "iob2"),  # with a mistake: neither
        ("B-A M-A E-A", "bmes"),
        ("B M E S S", "bmes"),
        ("B I O O B", "iob2"),
        ("B-A I-A L-A", "bilou"),
        ("DET NOUN O", "plain"),
        ("B-A NOUN", "plain"),
        ("B C D", "plain"),
        ("-LRB- NNP B-", "plain"),
        ("I-New York O", "iob1"),
        ("B-I-A I-I-A", "iob2"),
    ],
)
def test_a_scheme_is_recognized_by_its_tags(tags: str, scheme: str) -> None:
    split = ["I-New York", "O"] if "York" in tags else tags.split()
    assert scheme_of([split]) == scheme


@pytest.mark.parametrize(
    ("scheme", "tags", "iob2"),
    [
        ("iob2", "O I-A I-A I-B", "O B-A I-A B-B"),
        ("iob1", "B-A B-A I-B", "B-A B-A B-B"),
        ("iobes", "I-A I-A O E-A S-A I-A", "B-A I-A O B-A B-A B-A"),
        ("iobes", "B-A E-A E-A", "B-A I-A B-A"),
        ("bilou", "B-A L-B U-A L-A", "B-A B-B B-A B-A"),
    ],
)
def test_a_span_without_a_beginning_begins_where_it_is_seen_first(
    scheme: str, tags: str, iob2: str
) -> None:
    assert " ".join(to_iob2(tags.split(), scheme)) == iob2


Spans = list[tuple[int, str]]  # of each span its length and its type; "" is outside
SPANS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "LOC", "PER", "I-X"])))


def written(spans: Spans) -> list[str]:
    """Spans one after the other in IOB2."""
    tags = []
    for length, kind in spans:
        first, other = (f"B-{kind}", f"I-{kind}") if kind else ("O", "O")
        tags += [first, *[other] * (length - 1)]
    return tags


@settings(max_examples=300)
@given(SPANS, st.sampled_from(list(SAME_SPANS)))
def test_spans_come_back_from_every_scheme(spans: Spans, scheme: str) -> None:
    tags = written(spans)
    there = from_iob2(tags, scheme)
    assert list(to_iob2(there, scheme)) == tags
    assert to_iob2(tags, "iob2") == tuple(tags)
    assert [tag[1:] for tag in there] == [tag[1:] for tag in tags]
    letters = Counter(tag[0] for tag in there)
    singles = sum(length == 1 for length, kind in spans if kind)
    longer = sum(length > 1 for length, kind in spans if kind)
    if scheme in ("iobes", "bmes"):
        assert (letters["S"], letters["B"], letters["E"]) == (singles, longer, longer)
    if scheme == "bilou":
        assert (letters["U"], letters["B"], letters["L"]) == (singles, longer, longer)


@settings(max_examples=300)
@given(st.lists(st.sampled_from("O B-A I-A B-B I-B".split())))
def test_to_iob2_agrees_with_the_rule_of_conlleval(tags: Sequence[str]) -> None:
    """A span begins with B, and with I behind O, another type, or the sentence's start."""
    expected = []
    for i, tag in enumerate(tags):
        before = tags[i - 1] if i else "O"
        begins = tag != "O" and (tag[0] == "B" or before == "O" or before[2:] != tag[2:])
        expected.append("B" + tag[1:] if begins else tag)
    for scheme in ("iob1", "iob2"):
        assert list(to_iob2(tags, scheme)) == expected


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(schemes).attempted > 0
    assert doctest.testmod(schemes).failed == 0


# ---- real data


def blocks(path: Path) -> list[list[list[str]]]:
    """The rows of a file between blank lines, split at white space or tabs."""
    if not path.exists():
        pytest.skip(f"there is no {path}")
    text = lzma.decompress(path.read_bytes()).decode().strip("\n")
    separator = "\t" if ".conllu" in path.name else " "
    return [[row.split(separator) for row in b.split("\n")] for b in text.split("\n\n")]


def test_real_names(shared: Path) -> None:
    path = shared / "data" / "tag" / "conll2003.dev.conll.xz"
    expected = [b for b in blocks(path) if b[0][0] != "-DOCSTART-"]
    result = read(path)
    assert file_scheme(path) == "iob1"
    assert [list(e.texts[0]) for e in result] == [[row[0] for row in b] for b in expected]
    # As many spans as CoNLL-2003 counts in its development data.
    starts = Counter(tag for e in result for tag in e.tags or () if tag[0] == "B")
    assert starts == {"B-LOC": 1837, "B-MISC": 922, "B-ORG": 1341, "B-PER": 1842}
    back = [from_iob2(e.tags or (), "iob1") for e in result]
    assert back == [tuple(row[3] for row in b) for b in expected]


def test_real_parts_of_speech(shared: Path) -> None:
    path = shared / "data" / "tag" / "en_ewt.dev.conllu.xz"
    rows = [[row for row in b if row[0].isdigit()] for b in blocks(path)]
    assert file_scheme(path) == "plain"
    for column, index in {None: 3, "XPOS": 4}.items():
        result = read(path, label_column=column)
        assert [e.tags for e in result] == [tuple(row[index] for row in b) for b in rows]
        assert [e.texts[0] for e in result] == [tuple(row[1] for row in b) for b in rows]


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", "a X\n")
    with pytest.raises(ElmokitError, match="unknown kind of file"):
        read(path, kind="xml")
