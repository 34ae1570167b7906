"""Reading files: what a reader of each kind of file yields, and what it says of bad ones."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from elmokit.errors import ElmokitError, MissingExtra
from elmokit.io import lines as line_module
from elmokit.text import readers
from elmokit.text.readers import Line, chunk_tokens, join_lines, total_bytes, whole_lines

POEM = "Der Mond ist aufgegangen .\nLa lune s' est levée\n月 が 出 た\nقمر\n"
POEM_TOKENS = [
    ["Der", "Mond", "ist", "aufgegangen", "."],
    ["La", "lune", "s'", "est", "levée"],
    ["月", "が", "出", "た"],
    ["قمر"],
]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_sentences(
    path: Path | str, *, max_line_bytes: int = line_module.MAX_LINE_BYTES, **options: Any
) -> Iterator[Line]:
    with mock.patch.object(line_module, "MAX_LINE_BYTES", max_line_bytes):
        return readers.read_sentences(path, **options)


def tokens_of(path: Path | str, **options: Any) -> list[list[str]]:
    """The tokens of all sentences, after a check that they are numbered from 0."""
    lines = list(read_sentences(path, **options))
    assert [line.index for line in lines] == list(range(len(lines)))
    assert not any(line.continues for line in lines)
    return [line.tokens for line in lines]


def compress_zstd(data: bytes) -> bytes:
    return bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(data))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".zst": compress_zstd,
}

# ---- text


def test_a_line_of_text_is_a_sentence(tmp_path: Path) -> None:
    assert tokens_of(write(tmp_path, "poem.txt", POEM)) == POEM_TOKENS


def test_the_tokenizer_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "I don't.\n")
    assert tokens_of(path) == [["I", "do", "n't", "."]]
    assert tokens_of(path, tokenizer="whitespace") == [["I", "don't."]]
    with pytest.raises(ElmokitError, match="tokenizer must be one of"):
        read_sentences(path, tokenizer="other")


def test_empty_lines_keep_their_number(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "one\n\n \t\nfour")
    assert tokens_of(path) == [["one"], [], [], ["four"]]


def test_only_newlines_end_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "a\u2028b\x0bc\x0cd\x85e\x1cf\r\n\rg\rh\r\n")
    assert tokens_of(path) == [["a", "b", "c", "d", "e", "f"], ["g", "h"]]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_last_line_may_have_no_newline(tmp_path: Path, end: str) -> None:
    assert tokens_of(write(tmp_path, "a.txt", "a\nb" + end)) == [["a"], ["b"]]


def test_a_byte_order_mark_is_dropped_at_the_start_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "\ufeffa\n\ufeffb\n")
    assert tokens_of(path, tokenizer="whitespace") == [["a"], ["\ufeffb"]]


def test_lines_may_lie_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "BLOCK_BYTES", 7)
    assert tokens_of(write(tmp_path, "poem.txt", POEM.replace("\n", "\r\n"))) == POEM_TOKENS


@settings(max_examples=200)
@given(
    st.lists(st.text("ab éक漢😀\r", max_size=30), min_size=1, max_size=5),
    st.integers(1, 40),
    st.integers(4, 60),
)
def test_lines_cut_for_memory_are_whole_when_joined(
    lines: list[str], block_bytes: int, max_line_bytes: int
) -> None:
    data = "\n".join(lines).encode() + b"\n"
    blocks = [data[at : at + block_bytes] for at in range(0, len(data), block_bytes)]
    joined = [""]
    raw_lines = line_module._raw_lines(blocks, max_line_bytes)
    for piece in line_module._decode(raw_lines, "x", "strict"):
        assert piece.line == len(joined)
        assert len(piece.text.encode()) <= max_line_bytes
        joined[-1] += piece.text
        if piece.ended:
            joined.append("")
    assert joined == [*(line.removesuffix("\r") for line in lines), ""]


def test_a_long_line_comes_in_pieces_of_the_same_number(tmp_path: Path) -> None:
    words = [f"w{index}" for index in range(1000)]
    path = write(tmp_path, "a.txt", "first\n" + " ".join(words) + "\nlast\n")
    lines = list(read_sentences(path, max_line_bytes=500))
    assert lines[0] == Line(0, ["first"])
    assert lines[-1] == Line(2, ["last"])
    pieces = lines[1:-1]
    assert {piece.index for piece in pieces} == {1}
    assert [piece.continues for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert [token for piece in pieces for token in piece.tokens] == words


def test_a_million_words_on_a_line_are_one_sentence(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"word " * 1_000_000)
    [line] = read_sentences(path, tokenizer="whitespace")
    assert len(line.tokens) == 1_000_000
    assert not line.continues


def peak_megabytes(path: Path, **options: Any) -> float:
    tracemalloc.start()
    try:
        for _ in read_sentences(path, tokenizer="whitespace", **options):
            pass
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("split", [False, True])
def test_a_line_longer_than_the_memory_is_read_in_little_of_it(tmp_path: Path, split: bool) -> None:
    path = write(tmp_path, "a.txt", b"word " * 400_000)  # 24 MB of tokens
    assert peak_megabytes(path, split=split, max_line_bytes=100_000) < 10


@pytest.mark.parametrize("extension", COMPRESS)
def test_what_was_compressed_to_almost_nothing_is_read_in_bounded_memory(
    tmp_path: Path, extension: str
) -> None:
    path = write(tmp_path, "a.txt" + extension, COMPRESS[extension](b" " * 60_000_000 + b"end\n"))
    assert peak_megabytes(path, max_line_bytes=1_000_000) < 40


# ---- running text


def test_sentences_are_found_in_paragraphs(tmp_path: Path) -> None:
    text = "A heading\nIt rains. We stay.\n\nDr. Lee came. 好。走！\n"
    assert tokens_of(write(tmp_path, "a.txt", text), split=True) == [
        ["A", "heading"],
        ["It", "rains", "."],
        ["We", "stay", "."],
        ["Dr.", "Lee", "came", "."],
        ["好", "。"],
        ["走", "！"],
    ]


WRAPPED = """\
CHAPTER I

The old house stood at the end of the lane, where Mr.
Abernathy and the widow of Captain Ambrose Fennimore of St.
Peter's kept bees. Nobody went there
in winter.

"Come in," he said.
"""


def test_the_lines_of_a_hard_wrapped_paragraph_are_joined(tmp_path: Path) -> None:
    sentences = tokens_of(write(tmp_path, "a.txt", WRAPPED), split=True, tokenizer="whitespace")
    assert [" ".join(tokens) for tokens in sentences] == [
        "CHAPTER I",
        "The old house stood at the end of the lane, where Mr. Abernathy and the widow of "
        "Captain Ambrose Fennimore of St. Peter's kept bees.",
        "Nobody went there in winter.",
        '"Come in," he said.',
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["Milk and honey", "Bread"],  # too short to have been broken by the page
        ["a long headline " * 10 + "without a full stop", "Then the text goes on"],
        ["两国领导人今天举行了会谈", "本报北京一月一日电记者报道"],
    ],
)
def test_lines_that_the_page_did_not_break_are_not_joined(tmp_path: Path, lines: list[str]) -> None:
    path = write(tmp_path, "a.txt", "\n".join(lines))
    sentences = tokens_of(path, split=True, tokenizer="whitespace")
    assert sentences == [line.split() for line in lines]


def test_a_paragraph_too_long_for_memory_has_the_same_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = [f"Sentence number {index} is here." for index in range(500)]
    expected = [sentence.split() for sentence in sentences]
    one_line = write(tmp_path, "one.txt", " ".join(sentences))
    assert tokens_of(one_line, split=True, tokenizer="whitespace", max_line_bytes=256) == expected
    monkeypatch.setattr(readers, "MAX_PARAGRAPH_LINES", 3)
    wrapped = write(tmp_path, "wrapped.txt", " ".join(sentences).replace("is here", "is\nhere"))
    assert tokens_of(wrapped, split=True, tokenizer="whitespace") == expected


def test_a_sentence_too_long_for_memory_comes_in_pieces(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "word " * 1000 + "\n\nThe end.\n")
    lines = list(read_sentences(path, split=True, max_line_bytes=300))
    assert [token for line in lines[:-1] for token in line.tokens] == ["word"] * 1000
    assert {line.index for line in lines[:-1]} == {0}
    assert [line.continues for line in lines[-3:]] == [True, False, False]
    assert lines[-1] == Line(1, ["The", "end", "."])


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.sampled_from(["a ", "bb ", " ", "c\t"])).map("".join), min_size=1),
    st.integers(6, 20),
)
@example(["a " * 20, " " * 30, "bb"], 6)
def test_pieces_of_running_text_add_up_to_its_paragraphs(
    tmp_path: Path, paragraphs: list[str], max_line_bytes: int
) -> None:
    path = write(tmp_path, "a.txt", "\n\n".join(["first", *paragraphs]))
    joined: list[list[str]] = [[]]
    for line in read_sentences(path, split=True, max_line_bytes=max_line_bytes):
        assert line.index == len(joined) - 1
        joined[-1] += line.tokens
        if not line.continues:
            joined.append([])
    assert joined == [["first"], *(text.split() for text in paragraphs if text.strip()), []]


# ---- JSON lines


def test_a_field_of_json_is_text_or_tokens(tmp_path: Path) -> None:
    rows = [{"text": "I don't."}, {"text": ["no", "split here"]}, {"text": ""}, {"text": "हाँ।"}]
    content = "\n".join(json.dumps(row) for row in rows)
    assert tokens_of(write(tmp_path, "a.jsonl", content + "\n\n")) == [
        ["I", "do", "n't", "."],
        ["no", "split here"],
        [],
        ["हाँ", "।"],
        [],
    ]


def test_a_field_of_json_may_be_a_path_or_a_name_with_dots(tmp_path: Path) -> None:
    path = write(tmp_path, "a.ndjson", '{"a": {"b": "deep"}}\n{"a.b": "flat"}\n')
    assert tokens_of(path, field="a.b") == [["deep"], ["flat"]]


def test_a_sentence_has_its_text_and_its_own_id(tmp_path: Path) -> None:
    rows = ['{"text": "One.  Two. ", "n": 7}', "", '{"text": ["a", "b c"], "n": "x"}']
    path = write(tmp_path, "a.jsonl", "\n".join(rows))
    lines = read_sentences(path, id_field="n")
    assert [(line.text, line.id) for line in lines] == [
        ("One.  Two. ", "7"),
        ("", None),
        (None, "x"),
    ]
    lines = read_sentences(path, id_field="n", split=True)
    assert [(line.text, line.id) for line in lines] == [("One.", "7"), ("Two.", "7"), (None, "x")]
    for value in ("true", "null", "1.5", "[1]"):
        path = write(tmp_path, "b.jsonl", f'{{"text": "a", "n": {value}}}')
        with pytest.raises(ElmokitError, match=r"line 1 of .* neither a string nor an integer"):
            list(read_sentences(path, id_field="n"))


def test_a_line_in_pieces_has_its_whole_text(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "one two  three\nfour\n")
    lines = list(join_lines(read_sentences(path, max_line_bytes=6)))
    assert [line.text for line in lines] == ["one two  three", "four"]
    assert [line.tokens for line in lines] == [["one", "two", "three"], ["four"]]


def test_documents_of_json_can_be_split(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "One. Two."}\n\n{"text": "Three."}\n')
    assert tokens_of(path, split=True) == [["One", "."], ["Two", "."], ["Three", "."]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"text": "x"', r"line 2 of .*a\.jsonl is not valid JSON: .* at character 13"),
        ("[" * 100_000, r"line 2 of .*a\.jsonl is not"),
        ('{"txt": "x"}', r"line 2 of .*a\.jsonl has no field 'text'"),
        ('["x"]', r"line 2 of .*a\.jsonl has no field 'text'"),
        ('{"text": 5}', r"line 2 of .*a\.jsonl has neither text nor a list of tokens"),
        ('{"text": ["x", null]}', r"line 2 of .*a\.jsonl has neither text nor a list of tokens"),
    ],
)
def test_a_bad_line_of_json_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "good"}\n' + row + "\n")
    lines = read_sentences(path)
    assert next(lines) == Line(0, ["good"])
    with pytest.raises(ElmokitError, match=message):
        next(lines)


def test_a_line_of_json_that_is_too_long_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "' + "x" * 200 + '"}\n')
    with pytest.raises(ElmokitError, match=r"line 1 of .* is too long"):
        list(read_sentences(path, max_line_bytes=100))


# ---- columns

CONLL = "\nEU NNP B-ORG\nrejects VBZ O\n\n \n# # O\n1 CD O\n"
CONLLU = """\
# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_
1\tVamos\tir\tVERB
2\tnos\tnosotros\tPRON
3-4\tal\t_\t_
3\ta\ta\tADP
4\tel\tel\tDET
4.1\tnada\t_\t_
5\tmar\tmar\tNOUN

# only a comment

1\t#\t#\tSYM
2\t10 000\t10 000\tNUM
"""


def test_conll_has_a_word_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", CONLL)
    assert tokens_of(path) == [["EU", "rejects"], ["#", "1"]]
    assert tokens_of(path, column=1) == [["NNP", "VBZ"], ["#", "CD"]]


def test_conll_may_have_tabs_and_words_with_spaces(tmp_path: Path) -> None:
    assert tokens_of(write(tmp_path, "a.conll", "New York\tB\nis\tO\n")) == [["New York", "is"]]


def test_conllu_skips_comments_ranges_and_empty_nodes(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", CONLLU)
    assert tokens_of(path) == [["Vamos", "nos", "a", "el", "mar"], ["#", "10 000"]]
    assert tokens_of(path, column=2)[0] == ["ir", "nosotros", "a", "el", "mar"]


def test_a_row_with_too_few_columns_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", "1\tone\n2 two\n")
    with pytest.raises(ElmokitError, match=r"line 1 of .*a\.conllu has no word in column 3"):
        list(read_sentences(path, column=3))
    path = write(tmp_path, "b.conll", "a X\nb\n")
    with pytest.raises(ElmokitError, match=r"line 2 of .*b\.conll .* column 1 .* 1 column"):
        list(read_sentences(path, column=1))


def test_a_sentence_of_too_many_rows_comes_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_SENTENCE_ROWS", 1)
    path = write(tmp_path, "a.conll", "a\nb\nc\nd\n\ne\n")
    assert list(read_sentences(path)) == [
        Line(0, ["a", "b"], continues=True),
        Line(0, ["c", "d"], continues=True),
        Line(0, []),
        Line(1, ["e"]),
    ]


# ---- kinds, options, compression, standard input


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("a.JSONL", "jsonl"), ("a.b.conllu.gz", "conllu"), ("a.conll.xz", "conll")),
        *((name, "text") for name in ("a", "a.gz", "jsonl", "a.csv.zst", "-")),
    ],
)
def test_the_extension_tells_the_kind(name: str, kind: str) -> None:
    assert readers.kind_of(name) == kind


def test_a_requested_kind_overrides_the_extension(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "EU NNP\nrejects VBZ\n")
    assert tokens_of(path, kind="conll") == [["EU", "rejects"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "csv"}, "jsonl.*'csv'"),
        ({"errors": "ignore"}, "'strict' or 'replace'"),
        ({"column": 1}, "column is for conll"),
        ({"kind": "conll", "column": -1}, "at least 0, not -1"),
        ({"kind": "conllu", "split": True}, "a conllu file is already split"),
    ],
)
def test_wrong_options_raise_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ElmokitError, match=message):
        read_sentences("a.txt", **options)


@pytest.mark.parametrize("extension", COMPRESS)
def test_compressed_files_are_read(tmp_path: Path, extension: str) -> None:
    two_streams = COMPRESS[extension](POEM[:20].encode()) + COMPRESS[extension](POEM[20:].encode())
    assert tokens_of(write(tmp_path, "poem.txt" + extension, two_streams)) == POEM_TOKENS
    assert tokens_of(write(tmp_path, "poem", two_streams)) == POEM_TOKENS


@pytest.mark.parametrize("extension", COMPRESS)
def test_a_bad_compressed_file_is_an_error(tmp_path: Path, extension: str) -> None:
    data = COMPRESS[extension](os.urandom(20_000).hex().encode())
    cut = write(tmp_path, "cut.txt" + extension, data[:-5])
    with pytest.raises(ElmokitError, match=r"cut\.txt\.\w+ is truncated"):
        list(read_sentences(cut))
    corrupt = write(tmp_path, "bad.txt" + extension, data[:-9] + b"\xff" * 9)
    with pytest.raises(ElmokitError, match=r"bad\.txt\.\w+ is (corrupt|truncated)"):
        list(read_sentences(corrupt))
    other = write(tmp_path, "other.txt" + extension, "text\n")
    with pytest.raises(ElmokitError, match=rf"is not a \{extension} file"):
        list(read_sentences(other))


def test_a_damaged_second_stream_is_not_ignored(tmp_path: Path) -> None:
    stream = lzma.compress(b"a\n")
    path = write(tmp_path, "a.xz", stream + stream[:3] + b"??" + stream[5:])
    with pytest.raises(ElmokitError, match=r"a\.xz is corrupt"):
        list(read_sentences(path))


def test_zeros_behind_a_compressed_file_are_padding(tmp_path: Path) -> None:
    data = gzip.compress(b"a\n") + b"\0" * 512
    assert tokens_of(write(tmp_path, "a.gz", data)) == [["a"]]


def test_zstd_without_its_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "a.zst", compress_zstd(b"a\n"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtra, match=r"elmokit\[zstd\]"):
        list(read_sentences(path))


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_dash_is_standard_input(
    monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    stream = io.BytesIO(compress(POEM.encode()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    assert tokens_of("-") == POEM_TOKENS
    assert not stream.closed


# ---- bad files


def test_a_missing_file_and_a_directory_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ElmokitError, match=r"no file .*nowhere\.txt"):
        list(read_sentences(tmp_path / "nowhere.txt"))
    with pytest.raises(ElmokitError, match="is a directory"):
        list(read_sentences(tmp_path))
    with pytest.raises(ElmokitError, match="cannot open"):
        list(read_sentences(str(tmp_path / "a\0b")))


def test_a_file_without_permission_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, "secret.txt", "x")
    monkeypatch.setattr("builtins.open", forbid)  # root, who may run this, is forbidden nothing
    with pytest.raises(ElmokitError, match=r"cannot read .*secret\.txt: its permissions"):
        list(read_sentences(path))


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.txt", b"", {}),
        ("a.txt.gz", b"", {}),
        ("b.txt.gz", gzip.compress(b"", mtime=0), {}),
        ("a.txt", b"\xef\xbb\xbf", {}),
        ("b.txt", b"\n \n\n", {"split": True}),
        ("a.conll", b"\n\n", {}),
        ("a.conllu", b"# comment\n\n", {}),
    ],
)
def test_a_file_without_sentences_is_an_error(
    tmp_path: Path, name: str, content: bytes, options: dict[str, Any]
) -> None:
    with pytest.raises(ElmokitError, match=f"{name} has no sentences"):
        list(read_sentences(write(tmp_path, name, content), **options))


def test_a_binary_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "BLOCK_BYTES", 5000)  # the check goes on into the second block
    late = b"a" * 9000 + b"\n\0\n"
    assert len(tokens_of(write(tmp_path, "late.txt", late))) == 2
    binary = write(tmp_path, "a.txt", b"text\n" * 1600 + b"\0")
    with pytest.raises(ElmokitError, match="a binary file"):
        list(read_sentences(binary))
    compressed = write(tmp_path, "a.txt.gz", gzip.compress(b"PK\x03\x04\0\0"))
    with pytest.raises(ElmokitError, match="a binary file"):
        list(read_sentences(compressed))
    utf16 = write(tmp_path, "b.txt", "text\n".encode("utf-16"))
    with pytest.raises(ElmokitError, match="UTF-16 text: convert"):
        list(read_sentences(utf16))


def test_invalid_utf8_is_an_error_with_its_line_and_byte(tmp_path: Path) -> None:
    path = write(tmp_path, "latin.txt", b"fine\n\xc3\xa9t\xe9 x\n")
    lines = read_sentences(path)
    assert next(lines) == Line(0, ["fine"])
    with pytest.raises(ElmokitError, match=r"line 2 of .*latin\.txt .* byte 4 \(0xe9\)"):
        next(lines)
    long = write(tmp_path, "long.txt", b"word " * 100 + b"\xff\n")
    with pytest.raises(ElmokitError, match=r"line 1 of .*long\.txt .* byte 501 \(0xff\)"):
        list(read_sentences(long, max_line_bytes=50))


def test_invalid_utf8_can_be_replaced_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "latin.txt", b"fine\n\xe9t\xe9\nfine\nd\xe9j\xe0\n")
    sentences = tokens_of(path, errors="replace", tokenizer="whitespace")
    assert sentences == [["fine"], ["\ufffdt\ufffd"], ["fine"], ["d\ufffdj\ufffd"]]
    assert caplog.messages == [f"2 lines of {path} are not UTF-8: invalid bytes are read as U+FFFD"]


# ---- long sentences and progress


def test_lines_in_pieces_are_joined_and_long_ones_are_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("elmokit.text.readers.WINDOW_TOKENS", 3)
    lines = [Line(0, ["a"]), Line(1, ["b", "c"], continues=True), Line(1, ["d", "e"]), Line(2, [])]
    assert list(whole_lines(lines)) == [["a"], ["b", "c", "d", "e"], []]
    assert caplog.messages == ["sentence 1 has 4 tokens: the model reads it in windows of 3"]
    monkeypatch.setattr("elmokit.text.readers.MAX_SENTENCE_TOKENS", 3)
    with pytest.raises(ElmokitError, match="sentence 1 has more than 3 tokens: break its line"):
        list(whole_lines(lines))


def test_chunks_are_consecutive() -> None:
    assert list(chunk_tokens(list("abcde"), 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(chunk_tokens(list("ab"), 2)) == [["a", "b"]]
    assert list(chunk_tokens([], 2)) == []


@pytest.mark.parametrize("extension", ["", *COMPRESS])
def test_progress_counts_the_bytes_of_the_file(
    tmp_path: Path, extension: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_module, "BLOCK_BYTES", 1000)
    text = b"some words here\n" * 1000
    data = COMPRESS[extension](text) if extension else text
    path = write(tmp_path, "a.txt" + extension, data)
    counts: list[int] = []
    for _ in read_sentences(path, on_bytes=counts.append):
        pass
    assert sum(counts) == len(data) == total_bytes(path)
    assert max(counts) <= 1000


def test_the_size_of_a_pipe_is_unknown(tmp_path: Path) -> None:
    assert total_bytes("-") is None
    assert total_bytes(tmp_path) is None
    assert total_bytes(tmp_path / "nowhere") is None


def test_reading_can_stop_before_the_end(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "a\n" * 1000)
    lines = read_sentences(path)
    assert next(lines).tokens == ["a"]
    del lines  # a file left open would be an error by the warning it causes
    path.unlink()


# A part of a file


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.txt", POEM + "\n\nEnde", {}),
        (
            "a.txt",
            "It rained. It stopped.\n\nThen the sun\ncame out. Well.",
            {"split": True},
        ),
        ("a.jsonl", '{"text": "a b"}\n\n{"text": ["c"]}\n{"text": ""}\n', {}),
        ("a.jsonl", '{"text": "It rained. Then. And so."}\n{"text": ["c"]}\n', {"split": True}),
        ("a.conll", "a X\nb Y\n\n\nc Z\n\nd X\n", {}),
        ("a.txt.gz", gzip.compress(b"one\ntwo\nthree\n", mtime=0), {}),
    ],
)
def test_the_end_of_a_file_has_the_sentences_of_the_whole(
    tmp_path: Path, name: str, content: str | bytes, options: dict[str, Any]
) -> None:
    path = write(tmp_path, name, content)
    lines = list(read_sentences(path, **options))
    count = readers.count_sentences(path, **options)
    assert count == len(lines) > 2
    for start in range(count):
        assert list(read_sentences(path, start=start, **options)) == lines[start:]


def test_a_part_begins_with_a_whole_sentence_that_comes_in_pieces(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "one two three\nfour five six seven\neight\n")
    lines = list(read_sentences(path, max_line_bytes=4))
    for start in range(3):
        part = list(read_sentences(path, max_line_bytes=4, start=start))
        assert part == [line for line in lines if start <= line.index]
    with mock.patch.object(line_module, "MAX_LINE_BYTES", 4):
        assert readers.count_sentences(path) == 3


def test_sentences_before_a_part_are_not_tokenized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def tokenize(text: str) -> list[str]:
        read.append(text)
        return [text]

    monkeypatch.setattr("elmokit.text.tokenize.tokenizer", lambda _: tokenize)
    path = write(tmp_path, "a.txt", "one\ntwo\nthree\nfour\n")
    readers.count_sentences(path)
    assert [line.tokens for line in read_sentences(path, start=2)] == [["three"], ["four"]]
    assert read == ["three", "four"]
