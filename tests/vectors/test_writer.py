"""Vectors reach the disk whole, whatever happens in between."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from elmokit.errors import ElmokitError
from elmokit.vectors import hdf5
from elmokit.vectors import writer as vectors
from elmokit.vectors.reader import read_vectors
from elmokit.vectors.shards import VectorShards
from elmokit.vectors.writer import VectorWriter

NAMES = ["vectors.h5", "vectors.npz", "vectors.parquet", "vectors.npy"]
SETTINGS = {"model": "a1b2", "input": ["corpus.txt", 120], "dtype": "float32"}
TEXTS = [
    ["The", "bank", "opens", "."],
    [],
    ["她", "喜欢", "naïve", "🙂"],
    ["The", "bank", "opens", "."],
    ["broken", "\ud800byte"],
    [],
    ["one"],
    ["zero\0byte", '"quoted"', "tab\there"],
]
REPLACED = ["broken", "\ufffdbyte"]


@dataclass(frozen=True)
class Sentence:
    tokens: list[str]
    layers: np.ndarray


def sentences(
    *, dtype: str = "float32", pooled: bool = False, layers: int = 3, dim: int = 5
) -> list[Sentence]:
    random = np.random.default_rng(7)
    return [
        Sentence(
            tokens,
            random.normal(size=(layers, dim) if pooled else (layers, len(tokens), dim)).astype(
                dtype
            ),
        )
        for tokens in TEXTS
    ]


def write(
    out: Path | str,
    content: list[Sentence] | None = None,
    *,
    settings: dict[str, Any] = SETTINGS,
    **options: Any,
) -> Path:
    """Do what `elmokit embed` does: skip what is done, write parts of three, finish."""
    content = sentences() if content is None else content
    writer = VectorWriter(out, settings, **options)
    for start in range(writer.done, len(content), 3):
        writer.write(content[start : start + 3])
    return writer.finish()


def content_of(out: Path) -> bytes | dict[str, bytes]:
    if out.is_dir():
        return {path.name: path.read_bytes() for path in out.iterdir()}
    return out.read_bytes()


def parts_of(out: Path) -> Path:
    return out.with_name(out.name + ".parts")


def begin(out: Path, parts: int = 2) -> None:
    """A run that stopped after some parts."""
    writer = VectorWriter(out, SETTINGS)
    for i in range(parts):
        writer.write(sentences()[3 * i : 3 * i + 3])


# What is written can be read


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


# Interrupted and gone on


class Killed(BaseException):
    """Stands for SIGKILL: nothing that handles errors may catch it."""


@pytest.fixture
def kill_before(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], list[str]]:
    """Raise Killed instead of the n-th thing that changes the disk; returns what was done."""
    steps: list[str] = []
    limit: list[int | None] = [None]

    def watched(owner: Any, name: str, real: Callable[..., Any]) -> None:
        def step(*arguments: Any, **options: Any) -> Any:
            if limit[0] is not None and len(steps) >= limit[0]:
                raise Killed
            steps.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, step)

    watched(os, "fsync", os.fsync)
    for name in ("replace", "rename", "unlink", "rmdir", "mkdir"):
        watched(Path, name, getattr(Path, name))

    def arm(last_step: int | None) -> list[str]:
        steps.clear()
        limit[0] = last_step
        return steps

    return arm


@pytest.mark.parametrize("name", NAMES)
def test_a_run_killed_at_any_step_resumes_to_the_same_bytes(
    tmp_path: Path, name: str, kill_before: Callable[[int | None], list[str]]
) -> None:
    steps = kill_before(None)
    in_one_go = content_of(write(tmp_path / name))
    number_of_steps = len(steps)
    renames = [step for step, what in enumerate(steps) if what in ("replace", "rename")]
    assert len(renames) >= 8  # settings, three parts of two files, and the output
    for step in renames:  # the content before its name, and the name before what follows
        assert (steps[step - 1], steps[step + 1 : step + 2]) == ("fsync", ["fsync"])
    for step in range(number_of_steps):
        out = tmp_path / f"killed-{step}" / name
        kill_before(None)
        out.parent.mkdir()
        kill_before(step)
        with pytest.raises(Killed):
            write(out)
        kill_before(None)
        assert not out.exists() or content_of(out) == in_one_go
        if not out.exists() or parts_of(out).exists():
            write(out, resume=True)
        assert content_of(out) == in_one_go
        assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("name", NAMES)
def test_replacing_an_output_killed_at_any_step_keeps_the_old_or_the_new(
    tmp_path: Path, name: str, kill_before: Callable[[int | None], list[str]]
) -> None:
    kill_before(None)
    old = content_of(write(tmp_path / f"old-{name}", sentences()[:3]))
    new = content_of(write(tmp_path / f"new-{name}"))
    out = tmp_path / "here" / name
    step = 0
    while True:
        kill_before(None)
        out.parent.mkdir()
        write(out, sentences()[:3])
        kill_before(step)
        try:
            write(out, overwrite=True)
        except Killed:
            kill_before(None)
        else:
            break
        # A folder cannot replace another in one step: in between, the old one is beside it.
        standing = out if out.exists() else next(out.parent.glob(f".{name}.*.elmokit.old"))
        assert content_of(standing) in (old, new)
        if parts_of(out).exists():
            write(out, resume=True)
            assert list(out.parent.iterdir()) == [out]
            assert content_of(out) == new
        for path in sorted(out.parent.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        out.parent.rmdir()
        step += 1
    assert step > 20
    assert content_of(out) == new


KILL_AT_RANDOM = """
import os, random, shutil, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_writer import NAMES, content_of, parts_of, sentences, write
import h5py, pyarrow.parquet  # before forking, so that a child starts writing at once

random.seed(1)
content = sentences(dim=2000) * 5

def write_and_kill(out, seconds):
    child = os.fork()
    if child == 0:
        write(out, content, resume=True)
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL

def kill_until_finished(out):
    kills = 0
    while kills < 3 or not out.exists() or parts_of(out).exists():
        if out.exists() and not parts_of(out).exists():  # It was faster than the kills: again.
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        # Longer after the tenth kill, for what cannot be done in pieces: assembling.
        kills += write_and_kill(out, random.uniform(0, 0.02 if kills < 10 else 0.02 * kills))
        assert not out.exists() or content_of(out) == in_one_go
        assert kills < 100
    return kills

folder = Path(sys.argv[2])
for name in NAMES:
    in_one_go = content_of(write(folder / ("whole-" + name), content))
    print(kill_until_finished(folder / name))
    assert content_of(folder / name) == in_one_go
assert len(list(folder.iterdir())) == 2 * len(NAMES)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_process_killed_at_random_moments_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    tests = str(Path(__file__).parent)
    done = run_python([sys.executable, "-c", KILL_AT_RANDOM, tests, str(tmp_path)])
    assert done.returncode == 0, done.stderr
    assert all(int(kills) >= 3 for kills in done.stdout.split()), done.stdout


def run_python(command: list[str]) -> subprocess.CompletedProcess[str]:
    source = str(Path(vectors.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_a_resumed_run_says_how_many_sentences_are_done(tmp_path: Path) -> None:
    out = tmp_path / "vectors.h5"
    assert VectorWriter(out, SETTINGS, resume=True).done == 0
    begin_again = VectorWriter(out, SETTINGS, resume=True)
    begin_again.write(sentences()[:5])
    assert begin_again.done == 5
    assert VectorWriter(out, SETTINGS, resume=True).done == 5


def test_what_an_interruption_left_over_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "vectors.npy"
    begin(out)
    leftovers = ["part-000002.npy", "part-000002.json.tmp", "assembled.tmp"]
    for name in leftovers:
        (parts_of(out) / name).write_bytes(b"half")
    VectorWriter(out, SETTINGS, resume=True)
    assert not any((parts_of(out) / name).exists() for name in leftovers)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("option", ["resume", "overwrite"])
def test_a_folder_of_parts_with_files_of_a_user_is_refused(
    tmp_path: Path, name: str, option: str
) -> None:
    out = tmp_path / name
    begin(out)
    (parts_of(out) / "notes.tmp").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ElmokitError, match=r"other files are in it \(notes.tmp\)"):
        VectorWriter(out, SETTINGS, resume=option == "resume", overwrite=option == "overwrite")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["settings.json.tmp", "part-000002.npy.tmp", "part-000002.json.tmp", "assembled.tmp"]
)
def test_nothing_is_written_through_a_planted_link(tmp_path: Path, name: str) -> None:
    out, mine = tmp_path / "vectors.h5", tmp_path / "mine"
    mine.write_text("years of work")
    begin(out)
    (parts_of(out) / name).symlink_to(mine)
    write(out, resume=True)
    assert mine.read_text() == "years of work"
    assert content_of(out) == content_of(write(tmp_path / "other.h5"))


@pytest.mark.parametrize("option", ["resume", "overwrite"])
def test_nothing_is_deleted_through_a_linked_folder_of_parts(tmp_path: Path, option: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "settings.json").write_text("{}")
    out = tmp_path / "vectors.h5"
    parts_of(out).symlink_to(tmp_path / "mine")
    with pytest.raises(ElmokitError, match="is a link, so it is not replaced"):
        VectorWriter(out, SETTINGS, resume=option == "resume", overwrite=option == "overwrite")
    assert (tmp_path / "mine" / "settings.json").read_text() == "{}"


def test_a_folder_with_an_index_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    site = tmp_path / "site.npy"
    site.mkdir()
    (site / "index.json").write_text('{"pages": []}')
    with pytest.raises(ElmokitError, match="is not an output of this format"):
        VectorWriter(site, SETTINGS, overwrite=True)
    (site / "page.html").write_text("mine")
    with pytest.raises(ElmokitError, match=r"other files are in it \(page.html\)"):
        VectorWriter(site, SETTINGS, overwrite=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "index.json", "page.html", "site.npy",
    ]  # fmt: skip


def test_dropping_an_unfinished_run_killed_at_any_step_leaves_a_sound_one(
    tmp_path: Path, kill_before: Callable[[int | None], list[str]]
) -> None:
    for step in range(5):  # two parts of two files each
        out = tmp_path / f"{step}.h5"
        kill_before(None)
        begin(out)
        kill_before(step)
        with pytest.raises(Killed):
            VectorWriter(out, {"other": "settings"}, overwrite=True)
        kill_before(None)
        assert VectorWriter(out, SETTINGS, resume=True).done == (6, 3, 0, 0, 0)[step]


def test_nothing_is_embedded_again_when_only_the_parts_were_left_to_delete(
    tmp_path: Path, kill_before: Callable[[int | None], list[str]]
) -> None:
    out = tmp_path / "vectors.h5"
    steps = kill_before(None)
    write(out)
    deleting = steps.index("unlink") + 2
    out.unlink()
    kill_before(deleting)
    with pytest.raises(Killed):
        write(out)
    kill_before(None)
    writer = VectorWriter(out, SETTINGS, resume=True)
    assert writer.done == len(TEXTS)
    writer.finish()
    assert list(tmp_path.iterdir()) == [out]


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


# The disk


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported_and_the_parts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    in_one_go = content_of(write(tmp_path / f"whole-{name}"))
    out = tmp_path / name
    begin(out)
    writer = VectorWriter(out, SETTINGS, resume=True)

    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ElmokitError, match=r"disk is full.*are kept.*--resume"):
            writer.write(sentences()[6:])
        with pytest.raises(ElmokitError, match=r"disk is full.*are kept.*--resume"):
            writer.finish()
    assert not list(tmp_path.rglob("*.tmp"))
    assert not out.exists()
    assert content_of(write(out, resume=True)) == in_one_go


class FailingFile(io.FileIO):
    """A file on a disk that is full before a given write."""

    writes_left = 1_000_000

    def write(self, content: Any) -> int:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content)


def test_hdf5_tells_every_write_that_failed(tmp_path: Path) -> None:
    shards = VectorShards(write(tmp_path / "vectors.npy"))

    def assemble(writes: int) -> FailingFile:
        raw = FailingFile(tmp_path / "vectors.h5", "w+")
        raw.writes_left = writes
        with io.BufferedRandom(raw) as file:
            hdf5.write_hdf5(shards, file)
        return raw

    needed = 1_000_000 - assemble(1_000_000).writes_left
    assert needed > len(TEXTS)
    for writes in range(needed):
        with pytest.raises(OSError, match="No space left"):
            assemble(writes)


FILL_THE_DISK = """
import gc, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_writer import NAMES, ElmokitError, content_of, sentences, write

small, folder = Path(sys.argv[2]), Path(sys.argv[3])
content = sentences(dim=1250) * 8
ballast = small / "ballast"
disk = os.statvfs(small)

def fails(out, space):
    gc.collect()  # a deleted file that is still mapped keeps its space
    free = os.statvfs(small).f_bavail * disk.f_frsize
    ballast.write_bytes(bytes(min(free, disk.f_blocks * disk.f_frsize - space)))
    try:
        write(out, content, resume=True)
    except ElmokitError as error:
        assert "disk is full" in str(error) and "--resume" in str(error), error
        assert not out.exists()
        return True
    finally:
        ballast.unlink()
    return False

for name in NAMES:
    out, in_one_go = small / name, content_of(write(folder / name, content))
    size = sum(map(len, in_one_go.values())) if out.suffix == ".npy" else len(in_one_go)
    # Shares of the space that the output alone takes; assembling needs it twice.
    shares = (0.02, 0.3, 0.8, 1.1, 1.5, 1.9, 2.5)
    print(sum(not out.exists() and fails(out, int(share * size)) for share in shares))
    assert content_of(out) == in_one_go
    assert list(small.iterdir()) == [out]
    [path.unlink() for path in [*out.glob("*"), out] if not path.is_dir()]
    out.is_dir() and out.rmdir()
"""


def run_on_a_small_disk(disk: Path, options: str, script: str, *arguments: str) -> str:
    """Run Python where `disk` is a file system of its own, which nobody else sees."""
    disk.mkdir()
    mount = f'mount -t tmpfs -o {options} none "$0" && echo mounted && exec "$@"'
    command = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", mount, str(disk)]
    tests = str(Path(__file__).parent)
    try:
        done = run_python([*command, sys.executable, "-c", script, tests, str(disk), *arguments])
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if not done.stdout.startswith("mounted"):
        pytest.skip("mounting a file system is not allowed here")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.removeprefix("mounted\n")


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small tmpfs")
def test_a_disk_that_is_really_full_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    output = run_on_a_small_disk(tmp_path / "small", "size=9m", FILL_THE_DISK, str(tmp_path))
    failures = dict(zip(NAMES, map(int, output.split()), strict=True))
    shards = failures.pop("vectors.npy")  # the parts themselves, no second copy
    assert 3 <= shards < 5 <= min(failures.values()), (shards, failures)


READ_ONLY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_writer import SETTINGS, ElmokitError, VectorWriter

try:
    VectorWriter(Path(sys.argv[2]) / "vectors.h5", SETTINGS)
except ElmokitError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small tmpfs")
def test_a_read_only_directory_is_reported(tmp_path: Path) -> None:
    output = run_on_a_small_disk(tmp_path / "fixed", "ro", READ_ONLY)
    assert "vectors.h5: its folder does not allow it" in output


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pooled", [False, True])
def test_memory_is_bounded_by_a_part_not_by_the_file(
    tmp_path: Path, name: str, pooled: bool
) -> None:
    shape = (1, 50_000) if pooled else (1, 10, 5_000)
    layers = np.ones(shape, np.float32)  # 200 kB
    part = [Sentence([f"word{i}" for i in range(10)], layers)] * 4
    output = write(tmp_path / f"warm-{name}", part, pooled=pooled)  # imports are no data
    output.unlink() if output.is_file() else None
    tracemalloc.start()
    try:
        write(tmp_path / name, part * 15, pooled=pooled)  # 12 MB
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000


def test_the_module_is_imported_without_its_heavy_packages() -> None:
    heavy = "{'torch', 'h5py', 'pyarrow'} & {*sys.modules}"
    script = f"import sys, elmokit.vectors.writer; print({heavy})"
    done = run_python([sys.executable, "-c", script])
    assert done.stdout == "set()\n", done.stderr
