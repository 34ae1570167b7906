"""`elmokit embed` reads texts, columns and fields, compressed or from a pipe."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from embed_command import (
    SENTENCES,
    TEXT,
    TOKENS,
    Run,
    Vectors,
    as_standard_input,
    check,
    content_of,
    found_in,
)

from elmokit.embed import Embedder
from elmokit.text.tokenize import tokenize
from elmokit.vectors.reader import read_vectors
from elmokit.vectors.shards import VectorShards


def zstd(content: bytes) -> bytes:
    zstandard = pytest.importorskip("zstandard")
    return bytes(zstandard.ZstdCompressor().compress(content))


@pytest.mark.parametrize(
    ("name", "pack"),
    [("a.txt", bytes), ("a.gz", gzip.compress), ("a.txt.xz", lzma.compress), ("a.txt.zst", zstd)],
)
def test_the_file_has_the_vectors_of_each_sentence_embedded_alone(
    embed: Run, expected: list[Vectors], name: str, pack: Callable[[bytes], bytes]
) -> None:
    Path(name).write_bytes(pack(TEXT.encode()))
    assert embed(name, "vectors.h5") == ""
    check(found_in(Path("vectors.h5")), expected)


def test_standard_input_is_read(
    embed: Run, expected: list[Vectors], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_standard_input(monkeypatch, gzip.compress(TEXT.encode()))
    embed("-", "packed.h5")
    as_standard_input(monkeypatch, TEXT.encode())
    embed("-", "vectors.h5")
    check(found_in(Path("vectors.h5")), expected)
    assert content_of(Path("packed.h5")) == content_of(Path("vectors.h5"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_read_to_its_end_and_only_once(embed: Run) -> None:
    os.mkfifo("pipe")
    lines = b"one two three four\n" * 20_000
    feeder = threading.Thread(target=Path("pipe").write_bytes, args=(lines,), daemon=True)
    feeder.start()
    embed("pipe", "vectors.npy", "--pooling", "first", "--tokenizer", "whitespace")
    feeder.join()
    assert len(VectorShards("vectors.npy")) == 20_000


def test_a_jsonl_field_holds_a_text_or_tokens(embed: Run, expected: list[Vectors]) -> None:
    rows = [
        {"meta": {"body": tokens if i % 2 else text}, "text": "not this"}
        for i, (text, tokens) in enumerate(zip(SENTENCES, TOKENS, strict=True))
    ]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    embed("a.jsonl", "vectors.h5", "--field", "meta.body")
    check(found_in(Path("vectors.h5")), expected)


def test_a_conll_column_holds_the_words(embed: Run, expected: list[Vectors]) -> None:
    tagged = [[f"{i}\t{word}\tX\n" for i, word in enumerate(tokens)] for tokens in TOKENS if tokens]
    Path("a.conll").write_text("\n".join("".join(rows) for rows in tagged), encoding="utf-8")
    embed("a.conll", "vectors.h5", "--column", 1)
    check(found_in(Path("vectors.h5")), [each for each in expected if each.shape[1]])


def test_conllu_gives_the_syntactic_words(embed: Run, elmo: Embedder) -> None:
    rows = ["# text = vámonos al mar", "1-2\tvámonos\t_", "1\tvamos\t_", "2\tnos\t_"]
    rows += ["3-4\tal\t_", "3\ta\t_", "4\tel\t_", "5\tmar\t_", "5.1\tnada\t_", ""]
    Path("a.conllu").write_text("\n".join(rows) + "\n", encoding="utf-8")
    embed("a.conllu", "vectors.npz")
    [(_, tokens, layers)] = read_vectors("vectors.npz")
    assert tokens == ["vamos", "nos", "a", "el", "mar"]
    check([layers], [elmo.embed([tokens])[0].layers])


def test_running_text_is_split_into_sentences(embed: Run, elmo: Embedder) -> None:
    text = 'Dr. Ito left at 5 p.m. on Monday. "Why?" she asked.\n\nNobody knew\nthe answer.\n'
    Path("a.txt").write_text(text)
    embed("a.txt", "vectors.npz", "--split")
    correct = ["Dr. Ito left at 5 p.m. on Monday.", '"Why?" she asked.', "Nobody knew the answer."]
    result = list(read_vectors("vectors.npz"))
    assert [tokens for _, tokens, _ in result] == [tokenize(sentence) for sentence in correct]
    check([layers for _, _, layers in result], [elmo.embed(each).layers for each in correct])


def test_tokenized_text_is_split_at_whitespace_alone(embed: Run, elmo: Embedder) -> None:
    Path("a.txt").write_text("don't split-this (please) .\n")
    embed("a.txt", "vectors.npz", "--tokenizer", "whitespace")
    [(_, tokens, layers)] = read_vectors("vectors.npz")
    assert tokens == ["don't", "split-this", "(please)", "."]
    check([layers], [elmo.embed([tokens])[0].layers])
