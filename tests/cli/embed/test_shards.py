"""`elmokit embed --shard` writes a part of the input, and the parts join to the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from embed_command import (
    FORMATS,
    SENTENCES,
    TEXT,
    TOKENS,
    Run,
    Vectors,
    as_standard_input,
    check,
    content_of,
    long_text,
    names_in,
    refuse,
    stop_after,
)

import elmokit.cli.embed
import elmokit.embed
import elmokit.embed_file
import elmokit.engine
from elmokit.vectors.reader import read_vectors
from elmokit.vectors.shards import VectorShards


@pytest.mark.usefixtures("small_windows")
def test_npy_shards_are_mapped_from_the_disk(embed: Run, expected: list[Vectors]) -> None:
    embed("text.txt", "vectors.npy", "--batch-tokens", 4)
    assert len(list(Path("vectors.npy").glob("part-*.npy"))) > 2
    shards = VectorShards("vectors.npy")
    assert [shards[i][0] for i in range(len(shards))] == TOKENS
    assert isinstance(shards[7][1], np.memmap)
    check([shards[i][1] for i in range(len(shards))], expected)


@pytest.mark.parametrize("pooling", [(), ("--pooling=mean",)])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("section", [65_536, 4])
def test_shards_join_to_the_rows_of_the_whole(
    embed: Run,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    pooling: tuple[str, ...],
    section: int,
) -> None:
    if name == "vectors.parquet":
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(elmokit.embed_file, "SECTION", section)
    embed("text.txt", name, *pooling)
    rows: list[Any] = []
    for i in (1, 2, 3):
        embed("text.txt", f"{i}-{name}", f"--shard={i}/3", *pooling)
        rows += read_vectors(Path(f"{i}-{name}"))
    whole = list(read_vectors(Path(name)))
    if name in ("vectors.parquet", "vectors.npy") or not pooling:
        assert [index for index, *_ in rows] == list(range(len(SENTENCES)))
    for (*_, vectors), (*_, of_whole) in zip(rows, whole, strict=True):
        assert vectors.tobytes() == of_whole.tobytes()
    if name != "vectors.h5":
        assert [tokens for _, tokens, _ in rows] == TOKENS


@pytest.mark.parametrize("section", [65_536, 500, 512])
def test_shards_of_many_windows_have_the_bytes_of_the_whole(
    embed: Run, monkeypatch: pytest.MonkeyPatch, section: int
) -> None:
    """Rounding depends on which sentences form a batch and which words are new at one time."""
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 14)
    monkeypatch.setattr(elmokit.embed_file, "SECTION", section)
    Path("text.txt").write_text(long_text(1400), encoding="utf-8")
    options = ("--threads=1", "--batch-tokens=32", "--tokenizer=whitespace")
    embed("text.txt", "whole.npy", *options)
    rows: list[Any] = []
    for i in (1, 2, 3):
        workers = ("--workers=2",) if i == 2 and section == 65_536 else ()
        embed("text.txt", f"{i}.npy", *options, f"--shard={i}/3", *workers)
        assert len(names_in(Path(f"{i}.npy"))) > 5
        rows += read_vectors(Path(f"{i}.npy"))
    whole = list(read_vectors(Path("whole.npy")))
    assert [row[:2] for row in rows] == [row[:2] for row in whole]
    assert [row[2].tobytes() for row in rows] == [row[2].tobytes() for row in whole]


def test_a_section_does_not_depend_on_those_before(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other texts before it do not change which words are new in it."""
    monkeypatch.setattr(elmokit.embed_file, "SECTION", 100)
    lines = long_text(200).splitlines(keepends=True)
    options = ("--threads=1", "--tokenizer=whitespace")
    read: list[int] = []
    warm = elmokit.engine.WordVectors.make_room

    def counted(self: Any, words: dict[str, None]) -> list[str]:
        missing = warm(self, words)
        if missing:
            read.append(len(missing))
        return missing

    monkeypatch.setattr(elmokit.engine.WordVectors, "make_room", counted)
    counts = []
    for name, before in (("a", lines[:100]), ("b", ["other words\n"] * 100)):
        Path(f"{name}.txt").write_text("".join([*before, *lines[100:]]), encoding="utf-8")
        read.clear()
        embed(f"{name}.txt", f"{name}.npy", *options)
        counts.append(list(read))
    assert len(counts[0]) == 2
    assert counts[0][1] == counts[1][1] > 200 > counts[1][0]
    a, b = (list(read_vectors(Path(f"{name}.npy")))[100:] for name in "ab")
    assert [row[2].tobytes() for row in a] == [row[2].tobytes() for row in b]


def test_hdf5_of_a_shard_names_sentences_by_their_index_in_the_input(embed: Run) -> None:
    embed("text.txt", "vectors.h5", "--shard=2/3")
    with h5py.File("vectors.h5") as file:
        assert sorted(file) == ["3", "4", "5", "6", "sentence_to_index"]
        assert json.loads(file["sentence_to_index"][0])["The river bank was steep ."] == "4"


def test_a_shard_is_resumed_as_that_shard(embed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 11)
    options = ("text.txt", "vectors.h5", "--batch-tokens=2")
    embed("text.txt", "whole.h5", "--batch-tokens=2", "--shard=2/2")
    stop_after(monkeypatch, embed, 1, *options, "--shard=2/2")
    said = refuse(embed, *options, "--shard=1/2", "--resume")
    assert 'shard was "2/2" and is now "1/2"' in said
    embed(*options, "--shard=2/2", "--resume")
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))


def test_a_shard_of_a_pipe_is_refused(embed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    as_standard_input(monkeypatch, TEXT.encode())
    said = refuse(embed, "-", "vectors.h5", "--shard=1/2")
    assert said.endswith("a shard needs a file, because standard input cannot be read twice\n")
