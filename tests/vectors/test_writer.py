"""Vectors are read back as they were written, in every format; what is wrong is refused."""

from __future__ import annotations

import json
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from children import Child
from vector_files import (
    NAMES,
    REPLACED,
    SETTINGS,
    TEXTS,
    begin,
    content_of,
    parts_of,
    run_python,
    sentences,
    write,
)

from elmokit.errors import ElmokitError
from elmokit.vectors import hdf5
from elmokit.vectors import writer as vectors
from elmokit.vectors.reader import read_vectors
from elmokit.vectors.shards import EmbeddedSentence as Sentence
from elmokit.vectors.shards import VectorShards
from elmokit.vectors.writer import VectorWriter


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("pooled", "squeeze"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_every_format_gives_back_what_was_written(
    tmp_path: Path, name: str, dtype: str, pooled: bool, squeeze: bool
) -> None:
    written = sentences(dtype=dtype, pooled=pooled, layers=1 if squeeze else 3)
    out = write(tmp_path / name, written, pooled=pooled, squeeze=squeeze)
    read = list(read_vectors(out))
    assert [index for index, _, _ in read] == list(range(len(TEXTS)))
    for sentence, (_, _, array) in zip(written, read, strict=True):
        expected = sentence.layers[0] if squeeze else sentence.layers
        assert array.dtype == dtype
        assert array.shape == expected.shape
        assert np.array_equal(array, expected)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pooled", [False, True])
def test_every_format_gives_back_the_tokens_it_can_hold(
    tmp_path: Path, name: str, pooled: bool
) -> None:
    out = write(tmp_path / name, sentences(pooled=pooled), pooled=pooled)
    expected: list[list[str] | None] = list(TEXTS)
    if name in ("vectors.h5", "vectors.parquet"):
        expected[4] = REPLACED
    if name == "vectors.h5":
        expected[3] = expected[5] = None  # repeated sentences
    assert [tokens for _, tokens, _ in read_vectors(out)] == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pooled", [False, True])
def test_an_input_without_sentences_gives_an_empty_output(
    tmp_path: Path, name: str, pooled: bool
) -> None:
    assert list(read_vectors(write(tmp_path / name, [], pooled=pooled))) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_part_of_empty_lines_only_is_kept(tmp_path: Path, name: str) -> None:
    empty = [Sentence([], np.zeros((3, 0, 5), np.float32))] * 4
    out = write(tmp_path / name, empty)
    assert [array.shape for _, _, array in read_vectors(out)] == [(3, 0, 5)] * 4


def test_hdf5_is_read_as_allennlp_reads_its_own(tmp_path: Path) -> None:
    written = sentences()
    with h5py.File(write(tmp_path / "vectors.h5", written), "r") as file:
        for i, sentence in enumerate(written):
            assert np.array_equal(file[str(i)][...], sentence.layers)
        index = json.loads(file["sentence_to_index"][0])
        assert file["sentence_to_index"].shape == (1,)
        assert h5py.check_string_dtype(file["sentence_to_index"].dtype).length is None
        assert len(file) == len(written) + 1
    assert index["The bank opens ."] == "0"
    assert index[""] == "1"
    assert index["她 喜欢 naïve 🙂"] == "2"
    assert sorted(index.values()) == ["0", "1", "2", "4", "6", "7"]


def test_hdf5_does_not_guess_at_tokens_with_spaces(tmp_path: Path) -> None:
    two = Sentence(["New York", "sleeps"], np.ones((1, 2, 5), np.float32))
    [(_, tokens, _)] = read_vectors(write(tmp_path / "vectors.h5", [two]))
    assert tokens is None


def test_a_sentence_index_too_large_for_memory_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hdf5, "MAX_SENTENCE_INDEX_BYTES", 30)
    out = write(tmp_path / "vectors.h5")
    assert "sentence_to_index is left out" in caplog.text
    with h5py.File(out, "r") as file:
        assert "sentence_to_index" not in file
        assert len(file) == len(TEXTS)


def test_npz_is_read_by_numpy_without_pickle(tmp_path: Path) -> None:
    written = sentences(dtype="float16")
    with np.load(write(tmp_path / "vectors.npz", written), allow_pickle=False) as archive:
        assert archive["tokens"].dtype.kind == "U"
        assert [json.loads(text) for text in archive["tokens"]] == TEXTS
        for i, sentence in enumerate(written):
            assert np.array_equal(archive[str(i)], sentence.layers)
    pooled = sentences(pooled=True)
    out = write(tmp_path / "pooled.npz", pooled, pooled=True)
    with np.load(out, allow_pickle=False) as archive:
        assert np.array_equal(archive["vectors"], np.stack([each.layers for each in pooled]))


def test_pooled_hdf5_is_one_dataset(tmp_path: Path) -> None:
    written = sentences(pooled=True, layers=1)
    out = write(tmp_path / "vectors.h5", written, pooled=True, squeeze=True)
    with h5py.File(out, "r") as file:
        assert sorted(file) == ["sentence_to_index", "vectors"]
        assert np.array_equal(file["vectors"][...], np.concatenate([s.layers for s in written]))


def test_parquet_has_a_row_a_sentence_and_a_row_group_a_part(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    written = sentences(dtype="float16")
    with parquet.ParquetFile(write(tmp_path / "vectors.parquet", written)) as file:
        assert file.num_row_groups == 3
        table = file.read()
    vectors = "list<element: fixed_size_list<element: halffloat>[5]>"
    assert {name: str(table.schema.field(name).type) for name in table.column_names} == {
        "id": "int64",
        "tokens": "list<element: string>",
        "layer_0": vectors,
        "layer_1": vectors,
        "layer_2": vectors,
    }
    assert table["id"].to_pylist() == list(range(len(written)))
    assert table["tokens"].to_pylist()[2] == TEXTS[2]
    for k in range(3):
        assert np.array_equal(table[f"layer_{k}"][2].as_py(), written[2].layers[k])
    saved = json.loads(table.schema.metadata[b"elmokit"])
    form = {"format": "parquet", "pooled": False, "squeeze": False, "start": 0}
    assert saved == SETTINGS | form


@pytest.mark.parametrize("pooled", [False, True])
def test_pandas_and_arrow_take_a_column_of_parquet_as_vectors(tmp_path: Path, pooled: bool) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    written = sentences(layers=1, pooled=pooled)
    out = write(tmp_path / "vectors.parquet", written, pooled=pooled, squeeze=True)
    table = parquet.read_table(out)
    assert table.column_names == ["id", "tokens", "vector"]
    kind = str(table.schema.field("vector").type)
    fixed = "fixed_size_list<element: float>[5]"
    assert kind == (fixed if pooled else f"list<element: {fixed}>")
    if pooled:  # a matrix, without a copy
        matrix = table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, 5)
        assert np.array_equal(matrix, np.stack([each.layers[0] for each in written]))
    pandas = pytest.importorskip("pandas")
    column = pandas.read_parquet(out)["vector"]
    for value, each in zip(column, written, strict=True):
        if pooled:
            assert np.array_equal(value, each.layers[0])
        elif len(value):
            assert np.array_equal(np.stack(value), each.layers[0])


def test_shards_map_vectors_instead_of_reading_them(tmp_path: Path) -> None:
    written = sentences()
    shards = VectorShards(write(tmp_path / "vectors.npy", written))
    assert len(shards) == len(written)
    for index in (6, 0, 3, -1):
        tokens, array = shards[index]
        assert isinstance(array, np.memmap)
        assert tokens == TEXTS[index]
        assert np.array_equal(array, written[index].layers)
    for outside in (len(written), -len(written) - 1):
        with pytest.raises(IndexError):
            shards[outside]
    copy = pickle.loads(pickle.dumps(shards))
    assert np.array_equal(copy[2][1], written[2].layers)


def test_no_file_remembers_when_it_was_written(tmp_path: Path) -> None:
    with zipfile.ZipFile(write(tmp_path / "vectors.npz")) as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    with h5py.File(write(tmp_path / "vectors.h5"), "r") as file:
        times = {h5py.h5g.get_objinfo(file.id, key.encode()).mtime for key in file}
    assert times == {0}


@pytest.mark.parametrize("name", ["shards/", "anything"])
def test_shards_are_chosen_by_a_slash_or_by_name(tmp_path: Path, name: str) -> None:
    out = write(f"{tmp_path}/{name}", format=None if name.endswith("/") else "npy")
    assert len(VectorShards(out)) == len(TEXTS)


def test_an_explicit_format_goes_before_the_ending(tmp_path: Path) -> None:
    out = write(tmp_path / "vectors.npz", format="h5")
    assert h5py.is_hdf5(out)
    assert len(list(read_vectors(out))) == len(TEXTS)


# What is refused


@pytest.mark.parametrize(
    ("changed", "field", "before", "now"),
    [
        ({**SETTINGS, "model": "c3d4"}, "model", '"a1b2"', '"c3d4"'),
        ({**SETTINGS, "input": ["corpus.txt", 121]}, "input", "120", "121"),
        ({**SETTINGS, "layers": "top"}, "layers", "not set", '"top"'),
    ],
)
def test_other_settings_are_refused_by_name(
    tmp_path: Path, changed: dict[str, Any], field: str, before: str, now: str
) -> None:
    out = tmp_path / "vectors.h5"
    begin(out)
    with pytest.raises(ElmokitError) as error:
        VectorWriter(out, changed, resume=True)
    for output in (field, before, now, "--overwrite"):
        assert output in str(error.value)
    assert VectorWriter(out, SETTINGS, resume=True).done == 6


def test_pooled_vectors_do_not_continue_others(tmp_path: Path) -> None:
    begin(tmp_path / "vectors.h5")
    with pytest.raises(ElmokitError, match="pooled was false and is now true"):
        VectorWriter(tmp_path / "vectors.h5", SETTINGS, pooled=True, resume=True)


def test_tuples_in_the_settings_are_the_lists_they_are_saved_as(tmp_path: Path) -> None:
    begin(tmp_path / "vectors.h5")
    settings = {**SETTINGS, "input": ("corpus.txt", 120)}
    assert VectorWriter(tmp_path / "vectors.h5", settings, resume=True).done == 6


@pytest.mark.parametrize("name", NAMES)
def test_an_output_that_exists_is_replaced_only_when_asked(tmp_path: Path, name: str) -> None:
    out = write(tmp_path / name)
    before = content_of(out)
    with pytest.raises(ElmokitError, match=r"exists.*--overwrite"):
        write(out)
    with pytest.raises(ElmokitError, match=r"complete.*nothing to resume"):
        write(out, resume=True)
    assert content_of(out) == before
    write(out, sentences()[:2], overwrite=True)
    assert len(list(read_vectors(out))) == 2
    assert list(tmp_path.iterdir()) == [out]


def test_an_unfinished_run_is_not_dropped_unasked(tmp_path: Path) -> None:
    out = tmp_path / "vectors.h5"
    begin(out)
    with pytest.raises(ElmokitError, match=r"unfinished run.*--resume.*--overwrite"):
        VectorWriter(out, SETTINGS)
    assert VectorWriter(out, {"other": "settings"}, overwrite=True).done == 0


@pytest.mark.parametrize("name", ["vectors.csv", "vectors", "/"])
def test_an_unknown_format_is_answered_with_the_known_ones(tmp_path: Path, name: str) -> None:
    out = name if name == "/" else tmp_path / name
    with pytest.raises(ElmokitError, match=r"\.h5, \.hdf5, \.npz, \.parquet or \.npy"):
        VectorWriter(out, SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_other_files_is_never_replaced(tmp_path: Path) -> None:
    out = tmp_path / "photos"
    out.mkdir()
    (out / "cat.jpg").write_bytes(b"cat")
    for format in ("npy", "h5"):
        with pytest.raises(ElmokitError, match="not replaced"):
            VectorWriter(out, SETTINGS, format=format, overwrite=True)
    assert (out / "cat.jpg").read_bytes() == b"cat"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ElmokitError, match=r"there is no folder .*missing to write"):
        VectorWriter(tmp_path / "missing" / "vectors.h5", SETTINGS)


@pytest.mark.parametrize("harm", ["cut", "gone", "other rows", "nonsense", "moved", "gap"])
def test_damaged_parts_are_refused(tmp_path: Path, harm: str) -> None:
    out = tmp_path / "vectors.h5"
    begin(out)
    array, mark = (parts_of(out) / f"part-000000.{ending}" for ending in ("npy", "json"))
    if harm == "cut":
        array.write_bytes(array.read_bytes()[:-4])
    elif harm == "gone":
        array.unlink()
    elif harm == "other rows":
        np.save(array, np.zeros((3, 4, 5), np.float32))
    elif harm == "nonsense":
        mark.write_text("{")
    elif harm == "moved":
        mark.write_text(json.dumps({**json.loads(mark.read_text()), "first": 1}))
    else:
        mark.unlink()
    with pytest.raises(ElmokitError, match=r"damaged.*--overwrite"):
        VectorWriter(out, SETTINGS, resume=True)


def test_a_foreign_or_damaged_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "text.h5").write_text("just text")
    with pytest.raises(ElmokitError, match="not a file of vectors"):
        read_vectors(tmp_path / "text.h5")
    with pytest.raises(ElmokitError, match="cannot read"):
        read_vectors(tmp_path / "missing.h5")
    begin(tmp_path / "unfinished.npy")
    with pytest.raises(ElmokitError, match="not a finished folder"):
        read_vectors(tmp_path / "unfinished.npy.parts")
    for name in NAMES[:3]:
        out = write(tmp_path / name)
        out.write_bytes(out.read_bytes()[:200])
        with pytest.raises(ElmokitError, match="damaged"):
            list(read_vectors(out))


@pytest.mark.parametrize(
    "wrong",
    [
        Sentence(["a"], np.zeros((3, 2, 5), np.float32)),  # tokens and rows differ
        Sentence(["a"], np.zeros((2, 1, 5), np.float32)),  # other layers than before
        Sentence(["a"], np.zeros((3, 1, 5), np.float16)),
        Sentence(["a"], np.zeros((3, 1, 6), np.float32)),
    ],
)
def test_vectors_of_another_kind_are_a_defect_of_the_caller(
    tmp_path: Path, wrong: Sentence
) -> None:
    begin(tmp_path / "vectors.h5", parts=1)
    writer = VectorWriter(tmp_path / "vectors.h5", SETTINGS, resume=True)
    with pytest.raises(ValueError, match="layers"):
        writer.write([wrong])
    assert writer.done == 3


def test_float64_is_a_defect_of_the_caller(tmp_path: Path) -> None:
    writer = VectorWriter(tmp_path / "vectors.h5", SETTINGS)
    with pytest.raises(ValueError, match="float16 or float32"):
        writer.write([Sentence(["a"], np.zeros((3, 1, 5)))])
    writer.write(sentences()[:1])


def test_a_part_too_large_for_a_row_group_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "MAX_PART_VALUES", 4 * 3 * 5)
    writer = VectorWriter(tmp_path / "vectors.parquet", SETTINGS)
    writer.write(sentences()[:2])
    with pytest.raises(ValueError, match="smaller"):
        writer.write(sentences()[2:4])
    assert writer.done == 2


PEAK = """
import sys, tracemalloc
import numpy as np
from elmokit.vectors.shards import EmbeddedSentence as Sentence
from vector_files import write

pooled = sys.argv[2] == "True"
layers = np.ones((1, 50_000) if pooled else (1, 10, 5_000), np.float32)  # 200 kB
part = [Sentence([f"word{i}" for i in range(10)], layers)] * 4
write(f"warm-{sys.argv[1]}", part, pooled=pooled)  # imports are no data
tracemalloc.start()
write(sys.argv[1], part * 15, pooled=pooled)  # 12 MB
peak = tracemalloc.get_traced_memory()[1]
assert peak < 3_000_000, peak
"""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pooled", [False, True])
def test_memory_is_bounded_by_a_part_not_by_the_file(
    tmp_path: Path, name: str, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # In a process of its own, without the threads of other tests.
    assert Child([name, str(pooled)], code=PEAK).finish() == (0, "")


def test_the_module_is_imported_without_its_heavy_packages() -> None:
    heavy = "{'torch', 'h5py', 'pyarrow'} & {*sys.modules}"
    script = f"import sys, elmokit.vectors.writer; print({heavy})"
    done = run_python([sys.executable, "-c", script])
    assert done.stdout == "set()\n", done.stderr
