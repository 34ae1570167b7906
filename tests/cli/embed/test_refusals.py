"""`elmokit embed` refuses what is wrong: one sentence, exit code 2, and nothing is left."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from embed_command import TEXT, Run, content_of, python, refuse

from elmokit.embed import Embedder
from elmokit.formats import bilm
from elmokit.vectors import writer as vectors
from elmokit.vectors.writer import VectorWriter

BAD_INPUTS: dict[str, tuple[bytes | None, str]] = {
    "missing.txt": (None, "there is no file missing.txt"),
    "binary.txt": (b"\x7fELF\0\0\1\2", "seems to be a binary file"),
    "wide.txt": ("text".encode("utf-16"), "seems to be UTF-16 text"),
    "latin.txt": (b"one\ntwo\ncaf\xe9\n", "line 3 of latin.txt is not UTF-8"),
    "empty.txt": (b"", "empty.txt has no sentences"),
    "empty.txt.gz": (gzip.compress(b"", mtime=0), "empty.txt.gz has no sentences"),
    "false.gz": (b"plain text\n", "false.gz is not a .gz file"),
    "cut.gz": (gzip.compress(TEXT.encode() * 9, mtime=0)[:-20], "cut.gz is truncated"),
    "broken.jsonl": (b'{"text": "a b"}\n{"text": \n', "line 2 of broken.jsonl is not valid JSON"),
    "other.jsonl": (b'{"body": "a b"}\n', "line 1 of other.jsonl has no field 'text'"),
    "short.conllu": (b"1\tword\n2\n", "line 2 of short.conllu has no word in column 1"),
    "comments.conllu": (b"# only a comment\n", "comments.conllu has no sentences"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_a_bad_input_is_refused(embed: Run, name: str) -> None:
    content, sentence = BAD_INPUTS[name]
    if content is not None:
        Path(name).write_bytes(content)
    assert sentence in refuse(embed, name, "vectors.h5")


def test_a_directory_is_not_an_input(embed: Run) -> None:
    Path("texts").mkdir()
    assert "texts is a directory" in refuse(embed, "texts", "vectors.h5")


def test_a_bad_input_is_one_sentence_of_the_whole_process_too(folder: Path, model: Path) -> None:
    done = python("-m", "elmokit", "embed", "missing.txt", "vectors.h5", "--model", str(model))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "elmokit: error: there is no file missing.txt\n"


def test_a_bad_input_is_reported_before_torch_is_imported(folder: Path) -> None:
    code = (
        "import sys; from elmokit.cli.main import main\n"
        "main(['embed', 'missing.txt', 'vectors.h5']); print('torch' in sys.modules)\n"
    )
    assert python("-c", code, cwd=folder).stdout == "False\n"


def spoil(folder: Path, harm: str, elmo: Embedder) -> None:
    """Make a model folder that has something wrong."""
    from safetensors.numpy import load_file, save_file

    if harm in ("truncated", "foreign", "lonely"):
        bilm.write(elmo.checkpoint(), folder)
        weights = folder / "weights.hdf5"
        if harm == "truncated":
            weights.write_bytes(weights.read_bytes()[:5000])
        elif harm == "foreign":
            with h5py.File(weights, "w") as file:
                file["temperatures"] = np.zeros((3, 4), np.float32)
        else:
            (folder / "options.json").unlink()
        return
    if harm == "empty folder":
        folder.mkdir()
        return
    elmo.save_pretrained(folder)
    weights = folder / "model.safetensors"
    if harm == "nan":
        tensors = load_file(weights)
        name = sorted(tensors)[0]
        tensors[name].reshape(-1)[0] = np.nan
        save_file(tensors, weights)
    elif harm == "cut":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif harm == "config":
        (folder / "config.json").write_text('{"format": "elmokit"')


BAD_MODELS = {
    "empty folder": "bad is not a model folder",
    "truncated": "weights.hdf5 is not an HDF5 file that can be read: it is truncated",
    "foreign": "bad/",
    "lonely": "no options.json beside",
    "nan": "values that are not finite (NaN)",
    "cut": "model.safetensors is not a safetensors file that can be read",
    "config": "config.json is not valid JSON",
}


@pytest.mark.parametrize("harm", BAD_MODELS)
def test_a_bad_model_is_refused(embed: Run, elmo: Embedder, harm: str) -> None:
    spoil(Path("bad"), harm, elmo)
    assert BAD_MODELS[harm] in refuse(embed, "text.txt", "vectors.h5", "--model", "bad")


def test_a_missing_model_is_refused(embed: Run, folder: Path) -> None:
    said = refuse(embed, "text.txt", "vectors.h5", "--model", folder / "nowhere")
    assert f"there is no file or folder {folder / 'nowhere'}" in said


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("nowhere/vectors.h5", "there is no folder nowhere to write vectors.h5 into"),
        ("vectors.csv", "the format of 'vectors.csv' is unknown"),
        ("vectors", "the format of 'vectors' is unknown"),
        (
            "there.h5",
            "already exists: choose another name, or replace it with --overwrite",
        ),
        (
            "there.npy",
            "already exists: choose another name, or replace it with --overwrite",
        ),
        ("text.txt/vectors.h5", "there is no folder text.txt to write vectors.h5 into"),
    ],
)
def test_a_bad_output_is_refused(embed: Run, output: str, sentence: str) -> None:
    Path("there.h5").write_bytes(b"precious")
    Path("there.npy").mkdir()
    assert sentence in refuse(embed, "text.txt", output)
    assert Path("there.h5").read_bytes() == b"precious"


def test_an_output_is_replaced_on_request_and_only_when_the_new_one_is_whole(embed: Run) -> None:
    embed("text.txt", "vectors.h5", "--layers", "top")
    old = content_of(Path("vectors.h5"))
    Path("bad.txt").write_bytes(b"\xff\n")
    refuse(embed, "bad.txt", "vectors.h5", "--overwrite")
    assert content_of(Path("vectors.h5")) == old
    embed("text.txt", "vectors.h5", "--overwrite")
    embed("text.txt", "new.h5")
    assert content_of(Path("vectors.h5")) == content_of(Path("new.h5"))
    assert "vectors.h5 is complete" in refuse(embed, "text.txt", "vectors.h5", "--resume")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--lyers", "top"], "--lyers"),
        (["--tokenizer", "whitspace"], "whitspace"),  # codespell:ignore whitspace
        (["--dtype", "float64"], "float64"),
        (["--precision", "int4"], "int4"),
        (["--kind", "word"], "word"),
        (["--format", "csv"], "csv"),
        (["--errors", "ignore"], "ignore"),
        (["--batch-size", "many"], "many"),
        (["--batch-size", "0"], "batch_size must be an integer of at least 1"),
        (["--threads", "0"], "threads must be at least 1"),
        (["--column", "1"], "column is for conll and conllu files"),
        (["--device", "abacus"], "the device 'abacus' cannot be used here"),
        (["--layers", "middle"], "layers must be 'all', 'top', 'average', an index"),
        (["--layers", "3"], "there is no layer 3; this model has layers 0 to 2"),
        (["--layers", "²"], "layers must be"),
        (["--layers", "1,2"], "3 weights"),
        (["--layers", "1,,2"], "layer weights must be comma-separated numbers"),
        (["--layers", "1,nan,1"], "layers must be"),
        (["--pooling", "median"], "median"),
        (["--columns", "id,words"], "columns are some of id,text,tokens, not 'words'"),
        (["--columns", "text"], "ids and texts are columns of Parquet"),
        (["--format", "parquet", "--id-field", "id"], "id_field is for jsonl files"),
        (["--workers", "0"], "workers must be between 1 and 4096, not 0"),
        (["--shard", "0/4"], "a shard is written 1/4, 2/4, 3/4 or 4/4, for 4 of them, not '0/4'"),
        (["--shard", "5/4"], "not '5/4'"),
        (["--shard", "half"], "not 'half'"),
        (["--engine", "ray", "--threads", "2"], "--threads is for one machine"),
        (["--engine", "ray", "--format", "npz"], "writes Parquet files, not --format npz"),
        (["--engine", "ray", "--errors", "replace"], "--errors is for text files"),
        (["--engine", "ray", "--id-field", "id"], "--id-field is for text files"),
        (["--engine", "ray", "--columns", "id,text"], "--columns is for text files"),
        (["--shard", "1/12"], "text.txt has only 11 sentences, too few for 12 shards"),
    ],
)
def test_a_wrong_option_is_refused(embed: Run, options: list[str], sentence: str) -> None:
    assert sentence in refuse(embed, "text.txt", "vectors.h5", *options)


def test_threads_are_for_the_run_alone(embed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, write = [], VectorWriter.write
    before = torch.get_num_threads()

    def watched(self: VectorWriter, *arguments: Any) -> None:
        seen.append(torch.get_num_threads())
        write(self, *arguments)

    monkeypatch.setattr(VectorWriter, "write", watched)
    embed("text.txt", "vectors.h5", "--threads", before + 1)
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("module", "arguments", "sentence"),
    [
        ("pyarrow", ["text.txt", "vectors.parquet"], "pip install 'elmokit[parquet]'"),
        ("zstandard", ["text.txt.zst", "vectors.h5"], "pip install 'elmokit[zstd]'"),
    ],
)
def test_a_missing_extra_is_named_with_how_to_get_it(
    embed: Run,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    arguments: list[str],
    sentence: str,
) -> None:
    Path("text.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd and so on")
    monkeypatch.setitem(sys.modules, module, None)
    assert sentence in refuse(embed, *arguments)


def test_a_sentence_too_long_for_parquet_is_refused(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(vectors, "MAX_PART_VALUES", 3 * 16 * 5)
    Path("long.txt").write_text("one two three four five six\n")
    said = refuse(embed, "long.txt", "vectors.parquet")
    assert "sentence 0 of 6 tokens is too long for Parquet" in said
    embed("long.txt", "vectors.h5")


def test_a_line_too_long_for_memory_is_refused(embed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.text.readers.MAX_SENTENCE_TOKENS", 5)
    Path("long.txt").write_text("short\none two three four five six\n")
    assert "sentence 1 has more than 5 tokens" in refuse(embed, "long.txt", "vectors.h5")
