"""Raw text to an encoded corpus."""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.errors import ElmokitError
from elmokit.pretrain import corpus as module
from elmokit.pretrain import sources
from elmokit.pretrain.corpus import Corpus, Sentences, prepare, split_blocks
from elmokit.pretrain.sources import Paths
from elmokit.text.readers import read_sentences


def decoded(corpus: Corpus, sentences: Sentences) -> list[list[str]]:
    words = corpus.types.words(np.asarray(sentences.tokens))
    bounds = sentences.offsets.tolist()
    return [words[a:b] for a, b in itertools.pairwise(bounds)]


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_sentences_come_back_as_they_were(text: Path, tmp_path: Path) -> None:
    corpus = prepare(text, tmp_path / "c", tokenizer="whitespace", valid_fraction=0)
    assert decoded(corpus, corpus.train) == [line.split() for line in text.read_text().splitlines()]
    assert len(corpus.heldout) == 0


def test_types_are_by_falling_count_and_then_by_code_point(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "b a c a", "ä b a z 中")
    types = prepare(file, tmp_path / "c", tokenizer="whitespace", valid_fraction=0).types
    assert types.words(np.arange(len(types))) == [
        "<S>",
        "</S>",
        "<UNK>",
        "a",
        "b",
        "c",
        "z",
        "ä",
        "中",
    ]
    assert types.counts.tolist() == [0, 0, 0, 3, 2, 1, 1, 1, 1]
    assert [len(types.frequent(min_count=n)) for n in (1, 2, 3, 4)] == [9, 5, 4, 3]
    assert types.frequent(min_count=1, size=6) == ["<S>", "</S>", "<UNK>", "a", "b", "c"]
    assert len(types.frequent(min_count=1, size=1000)) == 9


def test_counts_are_those_of_the_training_part_alone(text: Path, tmp_path: Path) -> None:
    corpus = prepare(text, tmp_path / "c", tokenizer="whitespace", valid_fraction=0.2)
    counted = Counter(word for words in decoded(corpus, corpus.train) for word in words)
    words = corpus.types.words(np.arange(len(corpus.types)))
    assert corpus.types.counts.tolist() == [counted[word] for word in words]


def test_a_fraction_is_held_out_in_blocks_and_nothing_is_lost(text: Path, tmp_path: Path) -> None:
    lines = [line.split() for line in text.read_text().splitlines()]
    corpus = prepare(text, tmp_path / "c", tokenizer="whitespace", valid_fraction=0.1)
    train, heldout = split_blocks(len(lines), 0.1)
    assert [lines[k] for a, b in train for k in range(a, b)] == decoded(corpus, corpus.train)
    assert [lines[k] for a, b in heldout for k in range(a, b)] == decoded(corpus, corpus.heldout)
    assert len(corpus.heldout) == 40
    assert sorted([*train, *heldout]) == [
        p for pair in zip(train, heldout, strict=True) for p in pair
    ]


def test_a_held_out_file_is_encoded_with_the_same_types(text: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "valid.txt", "the unseen cat")
    corpus = prepare(text, tmp_path / "c", valid=other, tokenizer="whitespace")
    assert decoded(corpus, corpus.heldout) == [["the", "unseen", "cat"]]
    assert len(corpus.train) == 400
    words = corpus.types.words(np.arange(len(corpus.types)))
    assert words[-1] == "unseen"  # never seen in training


def test_unknown_words_in_the_text_and_its_boundaries_are_unknown(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "a <unk> b <UNK> <S> </S> a")
    corpus = prepare(file, tmp_path / "c", tokenizer="whitespace", valid_fraction=0)
    assert decoded(corpus, corpus.train) == [["a", "<UNK>", "b", "<UNK>", "<UNK>", "<UNK>", "a"]]
    assert len(corpus.types) == 5


def test_a_text_can_be_taken_as_it_is_written(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "a <unk> b <UNK> <S> </S> a")
    options: dict[str, Any] = {"tokenizer": "whitespace", "valid_fraction": 0.0}
    assert len(prepare(file, tmp_path / "c", **options).types) == 5
    corpus = prepare(file, tmp_path / "c", as_written=True, **options)  # It is encoded again.
    assert decoded(corpus, corpus.train) == [["a", "<unk>", "b", "<UNK>", "<UNK>", "<UNK>", "a"]]
    assert len(corpus.types) == 6


def test_running_text_is_split_as_the_reader_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the text is cut into chunks: never inside a paragraph."""
    paragraph = "It was late.\nDr. Who had walked for a very long time along the river, and the\n"
    file = tmp_path / "a.txt"
    file.write_text((paragraph + "house was\nstill far. Why?\n\n") * 40 + "The end")
    expected = [line.tokens for line in read_sentences(file, split=True)]
    monkeypatch.setattr(sources, "CHUNK_CHARACTERS", 300)
    corpus = prepare(file, tmp_path / "c", valid_fraction=0)
    assert decoded(corpus, corpus.train) == expected
    assert len(list(sources.chunks_of_lines(file, split=True))) > 5


def test_the_result_does_not_depend_on_the_number_of_processes(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CHUNK_CHARACTERS", 1000)
    monkeypatch.setattr(sources, "INLINE_BYTES", 0)
    folders = []
    for workers in (1, 2):
        folders.append(tmp_path / f"c{workers}")
        prepare(text, folders[-1], tokenizer="whitespace", workers=workers)
    for file in folders[0].iterdir():
        assert file.read_bytes() == (folders[1] / file.name).read_bytes(), file.name


def test_compressed_files_globs_and_folders_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.txt.gz").write_bytes(gzip.compress(b"a a\n"))
    (folder / "b.txt.xz").write_bytes(lzma.compress(b"b b\n"))
    write(folder / "c.jsonl", json.dumps({"text": ["c\nc", "d"]}))
    options: dict[str, Any] = {"tokenizer": "whitespace", "valid_fraction": 0}
    expected = [["a", "a"], ["b", "b"], ["c", "c", "d"]]
    ways: list[Paths] = [folder, str(folder / "*"), sorted(folder.iterdir())]
    for i, given in enumerate(ways):
        corpus = prepare(given, tmp_path / f"c{i}", **options)
        assert decoded(corpus, corpus.train) == expected


def test_an_unchanged_corpus_is_not_encoded_again(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(text, tmp_path / "c", tokenizer="whitespace")
    text.touch()  # another time, the same text
    monkeypatch.setattr(module, "_encode", None)
    prepare(text, tmp_path / "c", tokenizer="whitespace", keep=True)


def test_a_changed_corpus_is_encoded_again_or_refused_with_the_difference(
    text: Path, tmp_path: Path
) -> None:
    prepare(text, tmp_path / "c", tokenizer="whitespace")
    with text.open("a") as stream:
        stream.write("one more\n")
    with pytest.raises(ElmokitError, match=r"the text of text\.txt has changed"):
        prepare(text, tmp_path / "c", tokenizer="whitespace", keep=True)
    with pytest.raises(ElmokitError, match="tokenizer was 'whitespace' and is now 'elmokit'"):
        prepare(text, tmp_path / "c", keep=True)
    more = write(tmp_path / "more.txt", "more")
    with pytest.raises(ElmokitError, match=r"more\.txt is new"):
        prepare([text, more], tmp_path / "c", tokenizer="whitespace", keep=True)
    corpus = prepare(text, tmp_path / "c", tokenizer="whitespace", valid_fraction=0)
    assert len(corpus.train) == 401


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "no sentences"),
        (b"\n\n \n", "no sentences"),
        (b"one line only\n", "1 sentence.* too few to hold out"),
        (b"\x00\x01\x02" * 100, "binary file"),
        (b"fine\nnot \xff utf-8\n", "line 2 of .* is not UTF-8"),
    ],
)
def test_bad_text_is_one_sentence_and_leaves_nothing(
    content: bytes, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(ElmokitError, match=sentence):
        prepare(tmp_path / "bad.txt", tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]


def test_held_out_text_without_a_sentence_is_refused(tmp_path: Path) -> None:
    text, empty = write(tmp_path / "text.txt", "some words ."), write(tmp_path / "empty.txt", "")
    with pytest.raises(ElmokitError, match="the held-out text has no sentences in 1 file"):
        prepare(text, tmp_path / "c", valid=empty)
    assert not (tmp_path / "c").exists()


def test_text_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ElmokitError, match=r"no text at '.*nothing\*'"):
        prepare(str(tmp_path / "nothing*"), tmp_path / "c")
