"""`elmokit embed` keeps the ids and texts of the rows in columns of Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from embed_command import (
    SENTENCES,
    Run,
    as_standard_input,
    content_of,
    long_text,
    refuse,
    stop_after,
    write_rows,
)

import elmokit.cli.embed
import elmokit.embed
import elmokit.embed_file
from elmokit.vectors.reader import read_vectors


@pytest.mark.usefixtures("small_windows")
def test_parquet_has_the_columns_that_are_asked_for(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    options = ("--pooling=mean", "--layers=top", "--columns=text,id", "--batch-tokens", 4)
    embed("text.txt", "numbered.parquet", *options)
    table = parquet.read_table("numbered.parquet")
    assert str(table.schema.field("vector").type) == "fixed_size_list<element: float>[16]"
    assert table.column_names == ["id", "text", "vector"]
    assert table["id"].to_pylist() == list(range(len(SENTENCES)))
    assert table["text"].to_pylist() == SENTENCES
    assert [tokens for _, tokens, _ in read_vectors("numbered.parquet")] == [None] * len(SENTENCES)

    texts = ["Rain fell. It\ud800 rained.", ["no", "split here"], "The end. " * 9]
    rows = [{"key": {"id": i}, "text": text} for i, text in zip((7, "b", -1), texts, strict=True)]
    Path("rows.jsonl").write_text("\n".join([json.dumps(row) for row in rows[:2]] + ["", ""]))
    with Path("rows.jsonl").open("a") as file:
        file.write(json.dumps(rows[2]))
    own = ("rows.jsonl", "whole.parquet", "--split", "--id-field=key.id", *options)
    embed(*own)
    rows = parquet.read_table("whole.parquet", columns=["id", "text"]).to_pylist()
    assert rows[:3] == [
        {"id": "7", "text": "Rain fell."},
        {"id": "7", "text": "It\ufffd rained."},
        {"id": "b", "text": "no split here"},
    ]
    assert rows[3:] == [{"id": "-1", "text": "The end."}] * 9
    stop_after(monkeypatch, embed, 1, own[0], "stopped.parquet", *own[2:])
    embed(own[0], "stopped.parquet", *own[2:], "--resume")
    assert content_of(Path("stopped.parquet")) == content_of(Path("whole.parquet"))


def test_workers_write_the_columns_of_one_process(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 14)
    rows = write_rows(long_text(700).splitlines())
    options = ["--threads=1", "--batch-tokens=32", "--columns=id,text,tokens", "--id-field=id"]
    options += ["--pooling=mean", "--normalize"]
    embed("rows.jsonl", "whole.parquet", *options)
    assert parquet.ParquetFile("whole.parquet").num_row_groups > 10
    assert parquet.read_table("whole.parquet", columns=["id", "text"]).to_pylist() == rows
    embed("rows.jsonl", "workers.parquet", *options, "--workers=2")
    assert content_of(Path("workers.parquet")) == content_of(Path("whole.parquet"))
    stop_after(monkeypatch, embed, 5, "rows.jsonl", "resumed.parquet", *options)
    embed("rows.jsonl", "resumed.parquet", *options, "--workers=2", "--resume")
    assert content_of(Path("resumed.parquet")) == content_of(Path("whole.parquet"))


@pytest.mark.usefixtures("small_windows")
def test_a_run_is_not_resumed_with_other_ids(embed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    write_rows(SENTENCES)
    rows = Path("rows.jsonl").read_bytes()
    options = ("-", "vectors.parquet", "--kind=jsonl", "--id-field=id", "--batch-tokens=4")
    as_standard_input(monkeypatch, rows)
    stop_after(monkeypatch, embed, 1, *options)
    as_standard_input(monkeypatch, rows.replace(b"row 0", b"row _"))
    assert "is not the input that the unfinished run" in refuse(embed, *options, "--resume")
    as_standard_input(monkeypatch, rows)
    embed(*options, "--resume")


@pytest.mark.parametrize("own_ids", [True, False])
def test_shards_keep_ids_and_texts(embed: Run, own_ids: bool) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows: list[Any] = write_rows(SENTENCES)
    if not own_ids:
        rows = [{"id": i, "text": text} for i, text in enumerate(SENTENCES)]
    options = ["--columns=id,text", "--pooling=mean", *(["--id-field=id"] if own_ids else [])]
    shards = [f"{i}.parquet" for i in (1, 2, 3)]
    for i, shard in enumerate(shards, start=1):
        embed("rows.jsonl", shard, f"--shard={i}/3", *options)
    tables = [parquet.read_table(shard, columns=["id", "text"]) for shard in shards]
    assert [len(table) for table in tables] == [3, 4, 4]
    assert [row for table in tables for row in table.to_pylist()] == rows
    indices = [index for shard in shards for index, *_ in read_vectors(shard)]
    assert indices == list(range(len(SENTENCES)))
