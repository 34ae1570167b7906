"""Static word vectors: all formats give the same rows, bad files are reported, the cache helps."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import struct
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from tiny import complaint

from elmokit.errors import ElmokitError
from elmokit.vectors.static import reader as static_rows
from elmokit.vectors.static import table as static
from elmokit.vectors.static.table import StaticVectors, load, read_static_vectors, save

WORDS = ["the", "Bank", "银行", "naïve", "don't", "2008", "…", "a\u00a0b", "x\u0085y", "z\u2028z"]
FORMATS = "glove word2vec crlf fasttext binary unbroken".split()
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests leave the user's cache alone."""
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vectors"


def table(rows: int = len(WORDS), columns: int = 7) -> np.ndarray:
    """Numbers that six digits hold exactly, so that text and binary files have the same."""
    result = np.random.default_rng(5).integers(-(10**6), 10**6, (rows, columns)) / 10**5
    result[0, :3] = [0.0, 1e-5, -2e4]
    return result.astype(np.float32)


def written(kind: str, words: list[bytes], vectors: np.ndarray) -> bytes:
    """A file as the programs of this name write it."""
    header = b"%d %d\n" % vectors.shape
    if kind in ("binary", "unbroken"):
        end = b"\n" if kind == "binary" else b""
        pairs = zip(words, vectors, strict=True)
        return header + b"".join(w + b" " + v.astype("<f4").tobytes() + end for w, v in pairs)
    end = {"glove": b"\n", "crlf": b"\r\n"}.get(kind, b" \n")
    rows = [" ".join(f"{number:.7g}" for number in row).encode() for row in vectors]
    lines = b"".join(w + b" " + row + end for w, row in zip(words, rows, strict=True))
    return lines if kind in ("glove", "crlf") else header + lines


def make(folder: Path, kind: str = "glove", name: str = "vectors", **changes: Any) -> Path:
    words = changes.get("words", [word.encode() for word in WORDS])
    vectors = changes.get("vectors", table(len(words)))
    path = folder / name
    path.write_bytes(written(kind, words, vectors))
    return path


# ---------------------------------------------------------------------- formats
@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_its_words_and_numbers(kind: str, packed: str, tmp_path: Path) -> None:
    path = tmp_path / f"vectors.any{packed}"
    path.write_bytes(PACKERS[packed](written(kind, [w.encode() for w in WORDS], table())))
    result = read_static_vectors(path)
    assert result.words == WORDS
    assert result.vectors.dtype == np.float32
    np.testing.assert_array_equal(result.vectors, table())
    assert (result.dim, len(result), result.source) == (7, len(WORDS), str(path))


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
@pytest.mark.parametrize("kind", FORMATS)
def test_where_blocks_end_does_not_matter(
    kind: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.io.lines.BLOCK_BYTES", 64)  # the header is in the first
    monkeypatch.setattr(static_rows, "BLOCK_BYTES", block)
    result = read_static_vectors(make(tmp_path, kind))
    assert result.words == WORDS
    np.testing.assert_array_equal(result.vectors, table())


def test_a_word_with_spaces_has_its_numbers_at_the_right(tmp_path: Path) -> None:
    words = [b"the", b". . .", b"at name@domain.com", b"windows 3.1", b"iphone 6", b"the end"]
    for kind in ("glove", "word2vec"):
        result = read_static_vectors(make(tmp_path, kind, words=words))
        assert result.words == [word.decode() for word in words]
        np.testing.assert_array_equal(result.vectors, table(len(words)))


def test_a_file_without_a_header_may_begin_with_a_number_as_word(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("7 0.5 2\n8 1 1\n")
    assert read_static_vectors(tmp_path / "v").words == ["7", "8"]
    (tmp_path / "v").write_text("\ufeff\n7 0.5 2\n\n8 1 1\n\n")  # empty lines do not count
    assert read_static_vectors(tmp_path / "v").vectors.tolist() == [[0.5, 2], [1, 1]]


def test_words_that_are_not_utf8_or_repeated_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = [b"a", b"caf\xe9", b"a", b"", b"caf\xe8", b"b"]
    for kind in ("glove", "binary"):
        caplog.clear()
        path = make(tmp_path, kind, words=words)
        for _ in range(2):  # the second time from the cache
            result = read_static_vectors(path, cache=tmp_path / "kept")
            assert result.words == ["a", "caf\ufffd", "b"]
            np.testing.assert_array_equal(result.vectors, table(len(words))[[0, 1, 5]])
        messages = caplog.messages
        assert len(messages) == 6
        assert messages[:3] == messages[3:]
        assert f"{path} has 2 words that are not UTF-8 (invalid bytes read as U+FFFD)" in messages
        assert f"{path} has 2 words that are repeated (the first one counts)" in messages


@pytest.mark.parametrize("kind", FORMATS)
def test_the_limit_counts_distinct_words_from_the_beginning(kind: str, tmp_path: Path) -> None:
    path = make(tmp_path, kind, words=[b"a", b"a", b"b", b"c", b"d"])
    result = read_static_vectors(path, limit=3)
    assert result.words == ["a", "b", "c"]
    np.testing.assert_array_equal(result.vectors, table(5)[[0, 2, 3]])
    assert read_static_vectors(path, limit=None).words == ["a", "b", "c", "d"]
    assert "limit must be at least 1" in complaint(lambda: read_static_vectors(path, limit=0))


def test_numbers_are_those_that_python_reads(tmp_path: Path) -> None:
    source = random.Random(2)
    shown = [f"{source.uniform(-9, 9) * 10 ** source.randint(-9, 3):.{n}g}" for n in range(1, 18)]
    shown += "1e-05 -.5 5. +3 1E3 0 -0.0 3.4028234e38 1e-46 0.1".split()
    (tmp_path / "v").write_text(f"word {' '.join(shown)}\n")
    expected = np.array([float(number) for number in shown]).astype(np.float32)
    np.testing.assert_array_equal(read_static_vectors(tmp_path / "v").vectors[0], expected)


# ---------------------------------------------------------------------- bad files
BAD: dict[str, tuple[bytes, str]] = {
    "no numbers": (b"one two\nthree four\n", "line 1 of FILE: 'two' is not a number"),
    "prose": (b"# a heading\n\nSome text.\n", "line 1 of FILE: 'a' is not a number"),
    "words alone": (b"the\nof\n", "line 1 of FILE is not a word and its numbers"),
    "too few": (b"a 1 2 3\nb 1 2\n", "line 2 of FILE has 2 numbers instead of 3"),
    "too few, one": (b"a 1\nb\n", "line 2 of FILE has 0 numbers instead of 1"),
    "too many": (b"a 1 2\nb 0.1234 0.25 0.5\n", "line 2 of FILE has more than 2 numbers"),
    "headed, too few": (b"2 3\na 1 2 3\nb 1 2\n", "line 3 of FILE has 2 numbers instead of 3"),
    "not a number": (b"a 1 2\n\nb 1 x2\n", "line 3 of FILE: 'x2' is not a number"),
    "comma": (b"a 1 2\nb 0,5 1\n", "line 2 of FILE: '0,5' is not a number"),
    "underscore": (b"a 1 2\nb 1_0 1\n", "line 2 of FILE: '1_0' is not a number"),
    "tab": (b"a 1 2\nb 1\t1 1\n", r"line 2 of FILE: '1\t1' is not a number"),
    "balanced": (b"a 1 2 3\nb 1\t1 1 1\nc 1  3\n", r"line 2 of FILE: '1\t1' is not a number"),
    "two blanks": (b"a 1 2 3\nb 1  3\n", "line 2 of FILE: '' is not a number"),
    "nan": (b"a 1 2\nb 1 nan\n", "line 2 of FILE: the vector of 'b' has a number that is not fin"),
    "infinity": (b"a 1 2\nb -inf 1\n", "line 2 of FILE: the vector of 'b' has a number that is no"),
    "overflow": (b"a 1 2\nb 1e39 1\n", "line 2 of FILE: the vector of 'b' has a number that is no"),
    "long line": (b"a" * 5_000_000, "line 1 of FILE is too long for a word and its vector"),
    "empty": (b"", "FILE has no word vectors in it"),
    "blank": (b"\n\n \n", "FILE has no word vectors in it"),
    "header alone": (b"0 3\n", "line 1 of FILE says that there are no words"),
    "no columns": (b"3 0\n", "line 1 of FILE gives 0 columns"),
    "wide": (b"3 99999999\n" + b"\0" * 9, "line 1 of FILE gives 99999999 columns"),
    "gigantic": (b"999999999999 300\na 1\n", "but a file of 21 bytes is too short for that"),
    "fewer words": (b"3 1\na 1.5555\nb 2.5\n", "FILE has 2 words instead of the 3 of its line 1"),
    "more words": (b"1 1\na 1.5\nb 2.5\n", "FILE has more words than the 1 of its line 1"),
    "fastText .bin": (
        struct.pack("<ii", 793712314, 12) + b"\0" * 90,
        "FILE is a fastText model with subwords: use its .vec file",
    ),
    "zip": (b"PK\x03\x04\x14\0\0\0", "FILE is a zip archive: unpack it"),
    "pickle": (b"\x80\x04\x95\x10\0\0\0", "FILE is a Python pickle, which is unsafe to read"),
    "bzip2": (b"BZh91AY&SY\x01\x02", "FILE is compressed with bzip2: unpack it first"),
    "UTF-16": ("a 1 2\n".encode("utf-16"), "FILE is UTF-16 text: convert it to UTF-8"),
    "binary": (b"\x01\x02\0\0\0\x05abc", "FILE is a binary file of an unknown kind"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_reported_with_its_line(name: str, tmp_path: Path, own_cache: Path) -> None:
    content, sentence = BAD[name]
    path = tmp_path / "vectors"
    path.write_bytes(content)
    for cache in (None, own_cache):
        problem = complaint(partial(read_static_vectors, path, cache=cache))
        assert sentence.replace("FILE", str(path)) in problem
    assert list(own_cache.iterdir()) == []  # nothing of it is kept


def test_a_bad_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v").write_text("a 1 2\nb 1\n")
    times: list[int] = []
    read_rows = static_rows.read_rows

    def counted(*args: Any, **settings: Any) -> Any:
        times.append(1)
        return read_rows(*args, **settings)

    monkeypatch.setattr(static, "read_rows", counted)
    assert "line 2" in complaint(
        lambda: read_static_vectors(tmp_path / "v", cache=tmp_path / "kept")
    )
    assert len(times) == 1


def test_a_bad_binary_file_is_reported_with_its_word(tmp_path: Path) -> None:
    whole = written("binary", [b"a", b"b", b"c"], table(3))
    wrong = table(3)
    wrong[1, 2] = np.nan
    cases = {
        whole[:-3]: "is truncated: it has 2 words instead of the 3 of its line 1",
        whole + b"d ": "has more words than the 3 of its line 1",
        whole.replace(b"3 7", b"9 7", 1): "but a file of 97 bytes is too short for that",
        written("binary", [b"a", b"b", b"c"], wrong): "word 2 of FILE, 'b', has a number that is",
        written(
            "binary", [b"a", b"b\nc", b"c"], table(3)
        ): r"word 2 of FILE, 'b\nc', has a newline",
        b"9 7\n" + b"\x01" * 6000: "word 1 of FILE has no end",
    }
    path = tmp_path / "vectors"
    for content, sentence in cases.items():
        path.write_bytes(content)
        assert sentence.replace("FILE", str(path)) in complaint(lambda: read_static_vectors(path))


def test_no_file_a_folder_and_a_wrong_name_are_reported(tmp_path: Path) -> None:
    assert "there is no file" in complaint(lambda: read_static_vectors(tmp_path / "none"))
    assert "is a directory" in complaint(lambda: read_static_vectors(tmp_path))
    (tmp_path / "plain.gz").write_bytes(b"a 1 2\n")
    assert "is not a .gz file" in complaint(lambda: read_static_vectors(tmp_path / "plain.gz"))
    (tmp_path / "cut.xz").write_bytes(lzma.compress(b"a 1 2\n" * 99)[:-20])
    assert "is truncated" in complaint(lambda: read_static_vectors(tmp_path / "cut.xz"))


@pytest.mark.parametrize("start", [b"a ", b"9999999 9999\na ", b"9999999 9999\na \0 "])
def test_a_small_file_cannot_ask_for_much_memory(start: bytes, tmp_path: Path) -> None:
    path = tmp_path / "vectors.gz"
    path.write_bytes(gzip.compress(start + b"1 " * 15_000_000))  # 30 MB without a newline
    tracemalloc.start()
    try:
        assert complaint(lambda: read_static_vectors(path))
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_mutated_file_is_refused_in_a_sentence_or_read_in_full(kind: str, tmp_path: Path) -> None:
    source = random.Random(FORMATS.index(kind))
    original = written(kind, [word.encode() for word in WORDS], table())
    path = tmp_path / "vectors"
    refused = 0
    for _ in range(150):
        path.write_bytes(mutated(original, source))
        problem = complaint(lambda: check(read_static_vectors(path)))
        assert problem == "" or str(path) in problem
        refused += bool(problem)
    assert 15 < refused < 145


def mutated(content: bytes, source: random.Random) -> bytes:
    """The content with a few bytes changed, cut out, doubled or put elsewhere."""
    data = bytearray(content)
    for _ in range(source.randint(1, 3)):
        start = source.randrange(len(data))
        end = min(len(data), start + source.choice([1, 1, 1, 4, 30]))
        pieces = [b"", data[start:end] * 2, source.randbytes(end - start), b" ", b"\n", b"\0"]
        data[start:end] = source.choice(pieces)
        data = data or bytearray(b"\n")
    return bytes(data)


def check(result: StaticVectors) -> None:
    assert len(set(result.words)) == len(result.words) == len(result.vectors) > 0
    assert np.isfinite(result.vectors).all()
    assert all("\n" not in word for word in result.words)


# ---------------------------------------------------------------------- looking words up
def vectors_of(*words: str) -> StaticVectors:
    return StaticVectors(list(words), np.arange(len(words) * 2, dtype=np.float32).reshape(-1, 2))


def test_a_word_is_found_as_it_is_or_in_lower_case() -> None:
    result = vectors_of("us", "US", "paris", "銀行", "ｕｓ")
    assert [result.row(word) for word in ("us", "US", "Us", "PARIS", "銀行")] == [0, 1, 0, 2, 3]
    assert result.row("ｕｓ") == 4
    assert result.row("Berlin") is None
    assert result.row("") is None
    rows = result.rows(["Paris", "nowhere", "US"])
    assert rows.dtype == np.int64
    assert rows.tolist() == [2, -1, 1]
    assert result.rows([]).shape == (0,)


def test_full_width_letters_and_curly_quotes_find_plain_words() -> None:
    result = vectors_of("n't", "abc", "123", "fine", "“")
    forms = ("n’t", "ＡＢＣ", "１２３", "ﬁne", "“", "”")
    assert [result.row(form) for form in forms] == [0, 1, 2, 3, 4, None]


def test_digits_stand_for_others_only_where_the_file_writes_them_so() -> None:
    hashes = vectors_of("#", "####", "##th", "1", "##")
    forms = ("1999", "20th", "20TH", "1", "２００８", "123")
    assert [hashes.row(form) for form in forms] == [1, 2, 2, 3, 1, None]
    zeros = vectors_of("0000", "00", "a")
    assert [zeros.row(form) for form in ("1999", "42", "7")] == [0, 1, None]
    assert vectors_of("0000", "2000", "a").row("1999") is None  # it tells numbers apart


def test_of_equal_words_the_first_counts() -> None:
    assert vectors_of("a", "b", "a").row("a") == 0


def test_the_fingerprint_changes_with_words_and_numbers_alone(tmp_path: Path) -> None:
    path = make(tmp_path)
    result = read_static_vectors(path)
    kept = read_static_vectors(make(tmp_path, "binary", "other"), cache=tmp_path / "kept")
    assert kept.fingerprint() == result.fingerprint()
    changed = np.array(result.vectors)
    changed[-1, -1] += 1
    others = [
        StaticVectors(result.words, changed),
        StaticVectors(["other", *result.words[1:]], result.vectors),
        StaticVectors(result.words[::-1], result.vectors),
        StaticVectors(result.words[:-1], result.vectors[:-1]),
    ]
    assert len({each.fingerprint() for each in [result, *others]}) == 5


def test_words_and_vectors_must_fit() -> None:
    assert "3 words but vectors of the shape [2, 4]" in complaint(
        lambda: StaticVectors(["a", "b", "c"], np.zeros((2, 4), np.float32))
    )


# ---------------------------------------------------------------------- the cache
def refuse_to_read(*_: object, **__: object) -> None:
    raise AssertionError("the file is read again")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_is_read_once_and_then_mapped(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path, kind)
    for _ in range(2):
        result = read_static_vectors(path, cache=tmp_path / "kept")
        assert isinstance(result.vectors, np.memmap)
        assert result.words == WORDS
        assert result.source == str(path)
        np.testing.assert_array_equal(result.vectors, table())
        monkeypatch.setattr(static, "read_rows", refuse_to_read)
    with pytest.raises(AssertionError, match="read again"):  # another limit has another entry
        read_static_vectors(path, limit=2, cache=tmp_path / "kept")


def test_only_large_files_go_to_the_users_cache(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path)
    assert not isinstance(read_static_vectors(path).vectors, np.memmap)
    assert not own_cache.exists()
    monkeypatch.setattr(static, "LARGE_BYTES", 100)
    assert isinstance(read_static_vectors(path, quiet=True).vectors, np.memmap)
    assert [entry.name.startswith("vectors-") for entry in own_cache.iterdir()] == [True]
    monkeypatch.delenv("ELMOKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    read_static_vectors(path, quiet=True)
    assert len(list((tmp_path / "xdg" / "elmokit" / "vectors").iterdir())) == 1


def test_a_changed_file_is_read_again_and_takes_the_place_of_the_old(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    path = make(tmp_path)
    read_static_vectors(path, cache=kept)
    make(tmp_path, vectors=table()[::-1])
    os.utime(path, ns=(1, 1))
    np.testing.assert_array_equal(read_static_vectors(path, cache=kept).vectors, table()[::-1])
    make(tmp_path, words=[b"one", b"two"])
    os.utime(path, ns=(1, 1))  # the time is the same, the size is not
    assert read_static_vectors(path, cache=kept).words == ["one", "two"]
    assert len(list(kept.iterdir())) == 1


@pytest.mark.parametrize("file", ["metadata.json", "words.txt", "vectors.npy"])
def test_a_damaged_cache_is_written_again(file: str, tmp_path: Path) -> None:
    path, kept = make(tmp_path), tmp_path / "kept"
    read_static_vectors(path, cache=kept)
    (entry,) = kept.iterdir()
    whole = (entry / file).read_bytes()
    for damaged in (b"", whole[:-9], b"{}", b"\x93NUMPY" + whole[6:40]):
        (entry / file).write_bytes(damaged)
        result = read_static_vectors(path, cache=kept)
        assert result.words == WORDS
        np.testing.assert_array_equal(result.vectors, table())
        assert (entry / file).read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path)
    (tmp_path / "file").write_text("in the way")
    assert read_static_vectors(path, cache=tmp_path / "file").words == WORDS
    assert read_static_vectors(path, cache=tmp_path / "file" / "below").words == WORDS

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("elmokit.vectors.static.cache.write_npy_header", full)
    assert read_static_vectors(path, cache=tmp_path / "kept").words == WORDS
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, kept = make(tmp_path), tmp_path / "kept"
    read_static_vectors(path, cache=kept)
    kept.chmod(0o555)
    try:
        monkeypatch.setattr(static, "read_rows", refuse_to_read)
        assert read_static_vectors(path, cache=kept).words == WORDS
        monkeypatch.undo()
        assert read_static_vectors(path, cache=kept, limit=2).words == WORDS[:2]
    finally:
        kept.chmod(0o755)


def test_another_process_may_have_been_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = make(tmp_path), tmp_path / "kept"
    rows = static_rows.read_rows

    def slow(*args: Any, **settings: Any) -> Any:
        monkeypatch.setattr(static, "read_rows", rows)
        read_static_vectors(path, cache=kept)  # the other one begins later and ends earlier
        return rows(*args, **settings)

    monkeypatch.setattr(static, "read_rows", slow)
    np.testing.assert_array_equal(read_static_vectors(path, cache=kept).vectors, table())
    assert len(list(kept.iterdir())) == 1


# ---------------------------------------------------------------------- in a task model's folder
def test_saved_vectors_are_the_same_after_loading(tmp_path: Path) -> None:
    vectors = StaticVectors([*WORDS, "##", "r\r"], table(len(WORDS) + 2), "there/glove.txt")
    save(vectors, tmp_path / "exact", dtype="float32")
    result = load(tmp_path / "exact")
    assert result.words == vectors.words
    np.testing.assert_array_equal(result.vectors, vectors.vectors)
    assert result.fingerprint() == vectors.fingerprint()
    assert result.source == "glove.txt"
    assert sorted(f.name for f in (tmp_path / "exact").iterdir()) == [
        "vectors.safetensors",
        "words.txt",
    ]
    save(vectors, tmp_path / "half")
    result = load(tmp_path / "half")
    assert result.vectors.dtype == np.float32
    np.testing.assert_array_equal(result.vectors, vectors.vectors.astype(np.float16))
    row = vectors.row("99")
    assert row is not None
    part = StaticVectors([vectors.words[row]], vectors.vectors[[row]], digit=vectors.digit)
    save(part, tmp_path / "half")  # what is ours may be replaced
    assert load(tmp_path / "half").row("42") == 0


def test_what_cannot_be_saved_is_reported_and_nothing_is_left(tmp_path: Path) -> None:
    large = StaticVectors(["a"], np.full((1, 2), 1e5, np.float32))
    assert "float16 cannot hold" in complaint(lambda: save(large, tmp_path / "new"))
    for word in ("two\nlines", "half a \ud800 character"):
        vectors = StaticVectors([word], np.zeros((1, 2), np.float32))
        problem = complaint(partial(save, vectors, tmp_path / "new"))
        assert "cannot be a line of words.txt" in problem
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    good = vectors_of("a")
    assert "is not replaced" in complaint(lambda: save(good, tmp_path / "mine"))
    bad_type: Any = "int8"
    assert "float32 or float16" in complaint(lambda: save(good, tmp_path / "new", dtype=bad_type))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_damaged_folder_is_reported_or_loads_in_full(tmp_path: Path) -> None:
    assert "there is no file" in complaint(lambda: load(tmp_path / "none"))
    save(vectors_of("a", "b", "c"), tmp_path / "v")
    source, refused = random.Random(1), 0
    for name in ("words.txt", "vectors.safetensors"):
        whole = (tmp_path / "v" / name).read_bytes()
        for _ in range(100):
            (tmp_path / "v" / name).write_bytes(mutated(whole, source))
            problem = complaint(lambda: check_loaded(tmp_path / "v"))
            assert problem == "" or str(tmp_path / "v") in problem
            refused += bool(problem)
        (tmp_path / "v" / name).write_bytes(whole)
    assert refused > 50


def check_loaded(folder: Path) -> None:
    result = load(folder)
    assert len(result.words) == len(result.vectors)
    assert result.vectors.ndim == 2
    assert np.isfinite(result.vectors).all()


# ---------------------------------------------------------------------- real files, other readers
def test_a_published_file_reads_as_a_plain_loop_reads_it(shared: Path, own_cache: Path) -> None:
    path = shared / "data" / "vectors" / "glove.50d.100k.txt.xz"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    result = read_static_vectors(path, quiet=True)
    assert (len(result), result.dim) == (100_000, 50)
    assert isinstance(result.vectors, np.memmap)
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for i, line in enumerate(file):
            word, *numbers = line.rstrip("\n").split(" ")
            assert result.words[i] == word
            if i % 97 == 0:
                expected = np.array([float(n) for n in numbers]).astype(np.float32)
                np.testing.assert_array_equal(result.vectors[i], expected)
    assert result.row("The") == result.row("the") == 0
    unit = result.vectors / np.linalg.norm(result.vectors, axis=1, keepdims=True)
    nearest = np.argsort(unit @ unit[result.index["frog"]])[-8:]
    assert {"frog", "toad"} <= {result.words[row] for row in nearest}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["glove", "word2vec", "fasttext", "binary", "unbroken"])
def test_gensim_reads_the_same(kind: str, tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    path = make(tmp_path, kind, words=[word.encode() for word in WORDS[:7]])
    theirs = models.KeyedVectors.load_word2vec_format(
        path, binary=kind in ("binary", "unbroken"), no_header=kind == "glove"
    )
    ours = read_static_vectors(path)
    assert theirs.index_to_key == ours.words
    np.testing.assert_array_equal(theirs.vectors, ours.vectors)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("binary", [False, True])
def test_what_gensim_writes_is_read(binary: bool, tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    theirs = models.KeyedVectors(7)
    theirs.add_vectors(WORDS[:7], table(7))
    theirs.save_word2vec_format(str(tmp_path / "vectors"), binary=binary)
    ours = read_static_vectors(tmp_path / "vectors")
    assert sorted(ours.words) == sorted(WORDS[:7])
    for word in WORDS[:7]:
        np.testing.assert_array_equal(ours.vectors[ours.index[word]], theirs[word])


def test_the_metadata_of_the_cache_says_which_file_it_is_of(tmp_path: Path) -> None:
    path, kept = make(tmp_path), tmp_path / "kept"
    read_static_vectors(path, cache=kept)
    (entry,) = kept.iterdir()
    metadata = json.loads((entry / "metadata.json").read_text())
    assert (metadata["path"], metadata["bytes"]) == (str(path), path.stat().st_size)
    with pytest.raises(ElmokitError, match="there is no file"):
        read_static_vectors(tmp_path / "gone", cache=kept)
