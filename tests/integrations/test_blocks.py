"""Parquet files as blocks of rows, on local and other file systems; no cluster is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import make_reference
from tiny import complaint, difference

import elmokit
from elmokit.embed_file import EmbedOptions
from elmokit.errors import ElmokitError

pytest.importorskip("pyarrow", reason="pyarrow is not installed: elmokit[parquet]")
pytest.importorskip("fsspec", reason="fsspec is not installed: elmokit[ray]")

import fsspec
import pyarrow as arrow
from pyarrow import parquet

from elmokit.integrations import blocks
from elmokit.integrations.blocks import BlockFolder, find_files, plan_blocks, read_footers
from elmokit.integrations.ray import Embed, EmbedBlocks, actor_pool, actor_settings, check_options

TEXTS = [f"the river bank number {i} lay still"[: 9 + i] for i in range(23)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a tiny model."""
    return str(make_reference().save(tmp_path_factory.mktemp("model")))


@pytest.fixture(params=["local", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The path of a folder on some file system."""
    if request.param == "memory":
        yield "memory://bucket/run"
        fsspec.filesystem("memory").store.clear()
        fsspec.filesystem("memory").pseudo_dirs[:] = [""]
    else:
        yield str(tmp_path) if request.param == "local" else f"file://{tmp_path}"


def write_input(place: str) -> str:
    """Write two files with three row groups; return the pattern that names them."""
    for name, rows in (("b", range(14, 23)), ("a", range(14))):
        table = arrow.table({"id": list(rows), "text": [TEXTS[i] for i in rows]})
        with fsspec.open(f"{place}/in/{name}.parquet", "wb", auto_mkdir=True) as stream:
            parquet.write_table(table, stream, row_group_size=9)
    return f"{place}/in/*.parquet"


def plan(pattern: str) -> list[blocks.Block]:
    return plan_blocks(read_footers(find_files(pattern), "text"), 4)


def batch_of(some: list[blocks.Block]) -> dict[str, Any]:
    """Blocks as Ray Data passes them on."""
    return {
        name: np.array([getattr(b, name) for b in some]) for name in blocks.Block.__annotations__
    }


def rows_in(folder: str) -> Any:
    """All rows of an output, in the order of the names of its files."""
    system, path = fsspec.core.url_to_fs(folder)
    tables = []
    for name in sorted(system.glob(f"{path}/part-*.parquet")):
        with system.open(name, "rb") as stream:
            tables.append(parquet.read_table(stream))
    return arrow.concat_tables(tables)


def test_every_row_is_in_one_block(place: str) -> None:
    planned = plan(write_input(place))
    assert [b.stop - b.start for b in planned] == [4, 4, 1, 4, 1, 4, 4, 1]
    assert [b.index for b in planned] == list(range(8))
    ids = [i for b in planned for i in blocks.read_block(b).column("id").to_pylist()]
    assert ids == list(range(23))


def test_a_folder_is_its_parquet_files(place: str) -> None:
    pattern = write_input(place)
    assert find_files(pattern.removesuffix("/*.parquet")) == find_files(pattern)


def test_an_interrupted_run_resumes_to_every_row_once(place: str, model: str) -> None:
    planned, out = plan(write_input(place)), f"{place}/out"
    folder = BlockFolder(out)
    options = EmbedOptions(layers="average", pooling="mean")
    actor = EmbedBlocks(folder, actor_settings(options, model, "cpu"))
    folder.begin({"a": 1}, resume=False, overwrite=False)
    assert actor(batch_of(planned[3:5])) == {"rows": [4, 1]}
    assert "unfinished run" in complaint(lambda: folder.begin({}, resume=False, overwrite=False))
    assert "a was 1 and is now 2" in complaint(
        lambda: folder.begin({"a": 2}, resume=True, overwrite=False)
    )
    # What a killed process leaves, and a block that Ray has somebody repeat.
    system, path = fsspec.core.url_to_fs(out)
    system.pipe_file(f"{path}/.part-000000.parquet.01234567.elmokit", b"half")
    folder.begin({"a": 1}, resume=True, overwrite=False)
    assert folder.done() == {3, 4}
    actor(batch_of(planned))
    actor(batch_of(planned[:2]))
    folder.finish()
    assert sorted(BlockFolder(out).names()) == [
        "_SUCCESS", "_elmokit.json", *(f"part-{i:06d}.parquet" for i in range(8))
    ]  # fmt: skip
    rows = rows_in(out)
    assert rows.column("id").to_pylist() == list(range(23))
    assert rows.schema.field("vector").type.list_size == 12
    vectors = np.array(rows.column("vector").to_pylist(), np.float32)
    expected = elmokit.load(model).sentence_vectors(TEXTS)
    assert difference(vectors, expected) < 1e-5
    assert "nothing to resume" in complaint(lambda: folder.begin({}, resume=True, overwrite=False))
    assert "is complete" in complaint(lambda: folder.begin({}, resume=False, overwrite=False))
    folder.begin({"a": 3}, resume=False, overwrite=True)
    assert folder.names() == ["_elmokit.json"]


def test_a_file_appears_only_when_it_is_complete(place: str) -> None:
    folder = BlockFolder(f"{place}/out")
    folder.begin({}, resume=False, overwrite=False)

    def fail(stream: Any) -> None:
        stream.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.write("part-000000.parquet", fail)
    assert folder.done() == set()


def test_an_input_in_the_folder_is_refused(place: str, tmp_path: Path) -> None:
    pattern = write_input(place)
    folder = BlockFolder(f"{place}/out")
    folder.check_apart(find_files(pattern))
    folder.begin({}, resume=False, overwrite=False)
    folder.check_apart(find_files(pattern))
    system, path = fsspec.core.url_to_fs(place)
    system.mv(f"{path}/in/a.parquet", f"{path}/out/part-000000.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    places = [place.replace(str(tmp_path), f"{tmp_path}/.") + "/out", f"{place}/out/"]
    if "memory" not in place:
        places.append(f"{place}/link")
    for url in places:
        with pytest.raises(ElmokitError, match=r"would overwrite the input .*part-000000"):
            BlockFolder(url).check_apart(find_files(f"{place}/out"))


def test_parquet_files_of_others_are_never_touched(place: str) -> None:
    system, path = fsspec.core.url_to_fs(f"{place}/out")
    system.makedirs(path)
    system.pipe_file(f"{path}/part-000000.parquet", b"mine")
    folder = BlockFolder(f"{place}/out")
    for resume in (False, True):
        with pytest.raises(ElmokitError, match="are not of a run of elmokit"):
            folder.begin({}, resume=resume, overwrite=True)
    assert folder.names() == ["part-000000.parquet"]


def test_files_of_others_are_never_touched(place: str) -> None:
    system, path = fsspec.core.url_to_fs(f"{place}/out")
    system.makedirs(path)
    system.pipe_file(f"{path}/thesis.doc", b"mine")
    folder = BlockFolder(f"{place}/out")
    for overwrite in (False, True):
        with pytest.raises(ElmokitError, match=r"has other files in it \(thesis.doc\)"):
            folder.begin({}, resume=True, overwrite=overwrite)
    assert folder.names() == ["thesis.doc"]


def test_the_vectors_of_tokens_stand_beside_their_tokens(model: str) -> None:
    table = arrow.table({"words": [["the", "bank"], None, ["中文"]]})
    result = Embed("words", model=model, layers="all", pooling=None, dtype="float16")(table)
    assert result.column_names == ["words", "tokens", "layer_0", "layer_1", "layer_2"]
    assert result.column("tokens").to_pylist() == [["the", "bank"], [], ["中文"]]
    expected = elmokit.load(model).embed([["the", "bank"], [], ["中文"]], dtype="float16")
    for k in range(3):
        column = result.column(f"layer_{k}").to_pylist()
        assert [len(vectors) for vectors in column] == [2, 0, 1]
        for vectors, sentence in zip(column, expected, strict=True):
            actual = np.array(vectors, np.float16).reshape(-1, 12)
            np.testing.assert_allclose(actual, sentence.layers[k], rtol=0, atol=2e-3)


@pytest.mark.parametrize("pooling", ["mean", None])
def test_vectors_have_length_1_on_request(model: str, pooling: Any) -> None:
    options = EmbedOptions(pooling=pooling, layers="top", normalize=True, dtype="float16")
    texts = ["The bank was closed.", None, "Why not?"]
    result = Embed(**actor_settings(options, model, "cpu"))(arrow.table({"text": texts}))
    for row in result.column("vector").to_pylist():
        lengths = np.linalg.norm(np.array(row, np.float32).reshape(-1, 12), axis=1)
        is_zero = pooling is not None and not any(row)
        np.testing.assert_allclose(lengths, 0 if is_zero else 1, rtol=0, atol=2e-3)


def test_an_empty_batch_has_the_columns_of_others(model: str) -> None:
    embed = Embed(model=model)
    full, empty = (
        embed(arrow.table({"text": arrow.array(t, arrow.string())})) for t in (["a"], [])
    )
    assert full.schema == empty.schema


def test_wrong_input_is_one_sentence(tmp_path: Path, model: str) -> None:
    pattern = write_input(str(tmp_path))
    assert "no Parquet files at" in complaint(lambda: find_files(f"{tmp_path}/*.pq"))
    assert "has no column 'body': it has id, text; name one with --field" in complaint(
        lambda: read_footers(find_files(pattern), "body")
    )
    (tmp_path / "in" / "c.parquet").write_text("a table")
    assert "c.parquet is not a Parquet file" in complaint(
        lambda: read_footers(find_files(pattern), "text")
    )
    assert "cannot open nowhere://a" in complaint(lambda: find_files("nowhere://a"))
    assert "already has a column 'vector'" in complaint(
        lambda: Embed(model=model)(arrow.table({"text": ["a"], "vector": [1]}))
    )
    assert "--shard is for text files" in complaint(
        lambda: check_options(EmbedOptions(shard="1/2"))
    )


@pytest.mark.parametrize("cpus", [1, 2, 3, 64])
def test_a_pool_leaves_room_for_other_tasks(cpus: int) -> None:
    pool = actor_pool({"CPU": float(cpus)}, workers=None, gpu=False)
    assert pool.actors >= 1
    assert pool.actors * pool.cpus < cpus
    said = complaint(lambda: actor_pool({"CPU": float(cpus)}, workers=cpus + 1, gpu=False))
    assert f"not {cpus + 1}: the Ray cluster has" in said


def test_each_gpu_gets_an_actor() -> None:
    assert actor_pool({"CPU": 8, "GPU": 4}, workers=None, gpu=True).actors == 4
    assert "has no GPU" in complaint(lambda: actor_pool({"CPU": 8}, workers=None, gpu=True))


def test_changed_inputs_are_other_inputs(tmp_path: Path) -> None:
    pattern = write_input(str(tmp_path))
    before = blocks.identity(read_footers(find_files(pattern), "text"))
    assert json.dumps(before)
    assert before["rows"] == 23
    parquet.write_table(arrow.table({"text": ["new"]}), tmp_path / "in" / "a.parquet")
    assert blocks.identity(read_footers(find_files(pattern), "text")) != before
