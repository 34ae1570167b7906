"""`elmokit embed` as a user runs it: a text file in, a file of vectors out, whatever happens."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import h5py
import numpy as np
import pytest
import torch

import elmokit.cli.embed
import elmokit.embed
import elmokit.embed_file
from elmokit.cli.main import main
from elmokit.config import BiLMConfig
from elmokit.embed import Embedder
from elmokit.formats import bilm
from elmokit.layers import POOLINGS
from elmokit.model.bilm import BiLM
from elmokit.text.tokenize import tokenize
from elmokit.vectors import hdf5
from elmokit.vectors import writer as vectors
from elmokit.vectors.reader import read_vectors
from elmokit.vectors.shards import VectorShards
from elmokit.vectors.writer import VectorWriter

Vectors = np.ndarray
Run = Callable[..., str]

SENTENCES = [
    "The river bank was steep.",
    "",
    "Dr. Ng doesn't owe the bank $1,234.56 (yet)...",
    "她 喜欢 naïve 🙂 café",
    "The river bank was steep.",
    "No",
    "   ",
    "A much longer sentence comes after the short ones , so that sorting by length moves it",
    "Straße und Москва",
    "",
    "last one",
]
TEXT = "\n".join(SENTENCES) + "\n"
TOKENS = [tokenize(sentence) for sentence in SENTENCES]
FORMATS = ["vectors.h5", "vectors.npz", "vectors.parquet", "vectors.npy"]


def save_model(folder: Path, *, seed: int, **sizes: Any) -> Path:
    """A model with random weights, as its user finds it on the disk."""
    torch.manual_seed(seed)
    form = {"character_dim": 4, "filters": ((1, 4), (2, 4)), "lstm_dim": 16, "projection_dim": 8}
    Embedder(BiLM(BiLMConfig(**{**form, **sizes})).eval()).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power cut would show the difference; the child processes do sync."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny", seed=1)


@pytest.fixture(scope="module")
def elmo(model: Path) -> Embedder:
    return elmokit.load(model)


@pytest.fixture(scope="module")
def expected(elmo: Embedder) -> list[Vectors]:
    """All layers of every sentence of TEXT, each embedded alone."""
    return [elmo.embed([tokens])[0].layers for tokens in TOKENS]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command runs: names in its arguments are relative to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELMOKIT_DEBUG", raising=False)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.fixture
def embed(folder: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `elmokit embed … --quiet` in this process; returns what is on stderr."""

    def run(*arguments: object, code: int = 0) -> str:
        words = [str(argument) for argument in arguments]
        if not any(word.startswith("--model") for word in words):
            words += ["--model", str(model)]
        capsys.readouterr()
        got = main(["embed", *words, "--quiet"])
        out, err = capsys.readouterr()
        assert (got, out) == (code, ""), err
        return err

    return run


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make parts of a few sentences, which a real model fills with thousands."""
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 12)  # 21 tokens of all layers


def found_in(out: Path) -> list[Vectors]:
    return [np.array(layers) for _, _, layers in read_vectors(out)]


def check(result: list[Vectors], correct: list[Vectors], tolerance: float = 1e-5) -> None:
    assert [each.shape for each in result] == [each.shape for each in correct]
    for one, other in zip(result, correct, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def content_of(out: Path) -> bytes | dict[str, bytes]:
    if out.is_dir():
        return {path.name: path.read_bytes() for path in out.iterdir()}
    return out.read_bytes()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def as_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


# What comes in


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


# What comes out


def test_hdf5_has_the_layout_of_allennlp(embed: Run, expected: list[Vectors]) -> None:
    embed("text.txt", "vectors.h5")
    with h5py.File("vectors.h5", "r") as file:
        keys = [str(i) for i in range(len(SENTENCES))]
        assert sorted(file) == sorted([*keys, "sentence_to_index"])
        check([file[key][...] for key in keys], expected)
        assert file["7"].shape == (3, len(TOKENS[7]), 16)
        assert file["1"].shape == (3, 0, 16)
        assert file["7"].dtype == np.float32
        index = json.loads(file["sentence_to_index"][0])
    first = {" ".join(tokens): str(TOKENS.index(tokens)) for tokens in TOKENS}
    assert index == first


def test_npz_is_read_by_numpy(embed: Run, expected: list[Vectors]) -> None:
    embed("text.txt", "vectors.npz")
    with np.load("vectors.npz", allow_pickle=False) as archive:
        assert [json.loads(text) for text in archive["tokens"]] == TOKENS
        check([archive[str(i)] for i in range(len(TOKENS))], expected)


def test_parquet_has_a_row_a_sentence(embed: Run, expected: list[Vectors]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    embed("text.txt", "vectors.parquet")
    rows = parquet.read_table("vectors.parquet").to_pylist()
    assert [row["id"] for row in rows] == list(range(len(TOKENS)))
    assert [row["tokens"] for row in rows] == TOKENS
    layers = [[row[f"layer_{k}"] for k in range(len(expected[0]))] for row in rows]
    pairs = zip(layers, expected, strict=True)
    check([np.reshape(each, array.shape) for each, array in pairs], expected)


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


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_vectors_have_length_1_on_request(
    embed: Run, expected: list[Vectors], name: str, dtype: str
) -> None:
    if name == "vectors.parquet":
        pytest.importorskip("pyarrow")
    embed("text.txt", name, "--normalize", "--dtype", dtype)
    embed("text.txt", "pooled-" + name, "--normalize", "--dtype", dtype, "--pooling", "mean")
    tolerance = 1e-5 if dtype == "float32" else 2e-3
    for result, array in zip(found_in(Path(name)), expected, strict=True):
        lengths = np.sqrt((array.astype(np.float64) ** 2).sum(axis=2, keepdims=True))
        np.testing.assert_allclose(result, array / lengths, rtol=0, atol=tolerance)
    for result, array in zip(found_in(Path("pooled-" + name)), expected, strict=True):
        length = np.sqrt((result.astype(np.float64) ** 2).sum(axis=1))
        np.testing.assert_allclose(length, float(array.shape[1] > 0), rtol=0, atol=tolerance)


@pytest.mark.usefixtures("small_windows")
def test_npy_shards_are_mapped_from_the_disk(embed: Run, expected: list[Vectors]) -> None:
    embed("text.txt", "vectors.npy", "--batch-tokens", 4)
    assert len(list(Path("vectors.npy").glob("part-*.npy"))) > 2
    shards = VectorShards("vectors.npy")
    assert [shards[i][0] for i in range(len(shards))] == TOKENS
    assert isinstance(shards[7][1], np.memmap)
    check([shards[i][1] for i in range(len(shards))], expected)


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, ["--batch-tokens", 9]) for name in FORMATS] + [("vectors.h5", ["--batch-size", 2])],
)
def test_sentences_stay_in_the_order_of_the_file(
    embed: Run, expected: list[Vectors], name: str, options: list[object]
) -> None:
    if name == "vectors.parquet":
        pytest.importorskip("pyarrow")
    embed("text.txt", name, *options)
    assert [i for i, _, _ in read_vectors(name)] == list(range(len(SENTENCES)))
    check(found_in(Path(name)), expected)
    assert names_in(Path()) == sorted(["text.txt", name])


@pytest.mark.parametrize(
    ("layers", "mix"),
    [
        ("all", None),
        ("top", [0, 0, 1]),
        ("average", [1 / 3, 1 / 3, 1 / 3]),
        ("0", [1, 0, 0]),
        ("-2", [0, 1, 0]),
        ("0.5,-1,2", [0.5, -1, 2]),
    ],
)
def test_layers_are_chosen_or_mixed(
    embed: Run, expected: list[Vectors], layers: str, mix: list[float] | None
) -> None:
    embed("text.txt", "vectors.h5", f"--layers={layers}")
    correct = expected if mix is None else [np.tensordot(mix, each, 1) for each in expected]
    check(found_in(Path("vectors.h5")), correct)


POOLED: dict[str, Callable[[Vectors], Vectors]] = {
    "mean": lambda layers: layers.mean(axis=1),
    "max": lambda layers: layers.max(axis=1),
    "min": lambda layers: layers.min(axis=1),
    "sum": lambda layers: layers.sum(axis=1),
    "first": lambda layers: layers[:, 0],
    "last": lambda layers: layers[:, -1],
    "ends": lambda layers: np.concatenate([layers[:, -1, :8], layers[:, 0, 8:]], axis=1),
}


@pytest.mark.parametrize("pooling", POOLED)
def test_pooling_gives_one_vector_a_sentence(
    embed: Run, expected: list[Vectors], pooling: str
) -> None:
    embed("text.txt", "vectors.h5", "--pooling", pooling)
    empty = np.zeros((3, 16), np.float32)
    correct = [POOLED[pooling](each) if each.shape[1] else empty for each in expected]
    with h5py.File("vectors.h5", "r") as file:
        assert file["vectors"].shape == (len(SENTENCES), 3, 16)
        check(list(file["vectors"]), correct)


def test_pooling_of_one_layer_is_a_plain_matrix(embed: Run, expected: list[Vectors]) -> None:
    embed("text.txt", "vectors.npz", "--pooling", "mean", "--layers", "top")
    with np.load("vectors.npz") as archive:
        assert archive["vectors"].shape == (len(SENTENCES), 16)
        check([archive["vectors"][7]], [expected[7][2].mean(axis=0)])


@pytest.mark.parametrize("name", FORMATS)
def test_vectors_are_stored_as_float16_on_request(
    embed: Run, expected: list[Vectors], name: str
) -> None:
    if name == "vectors.parquet":
        pytest.importorskip("pyarrow")
    embed("text.txt", name, "--dtype", "float16")
    result = found_in(Path(name))
    assert {each.dtype for each in result} == {np.dtype(np.float16)}
    check(result, expected, tolerance=2e-3)


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_lower_precision_gives_nearly_the_same_vectors(
    embed: Run, expected: list[Vectors], precision: str
) -> None:
    embed("text.txt", "vectors.h5", "--precision", precision)
    result, correct = (
        np.concatenate([each.reshape(-1, 16) for each in group])
        for group in (found_in(Path("vectors.h5")), expected)
    )
    lengths = np.linalg.norm(result, axis=1) * np.linalg.norm(correct, axis=1)
    assert ((result * correct).sum(axis=1) / lengths).min() > 0.98


# Stopped and gone on


def stop_after(monkeypatch: pytest.MonkeyPatch, embed: Run, parts: int, *arguments: object) -> None:
    """Leave an unfinished run of that many parts behind, as Ctrl-C does."""
    real, calls = VectorWriter.write, iter(range(parts))

    def write(writer: VectorWriter, *part: Any) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        real(writer, *part)

    with monkeypatch.context() as patch:
        patch.setattr(VectorWriter, "write", write)
        assert embed(*arguments, code=130) == "elmokit: interrupted.\n"


# Runs the command again and again in processes that are forked after the slow imports.
KILL_AT_RANDOM = """
import os, random, signal, sys, time
from pathlib import Path
import elmokit.embed, elmokit.formats.detect, h5py, safetensors
from elmokit.cli.main import main
from elmokit.io.resumable import parts_folder
from elmokit.vectors.shards import ASSEMBLED, INDEX

elmokit.embed.WINDOW_BYTES = 1 << 15  # 26 parts
model, names = sys.argv[1], sys.argv[2:]
random.seed(1)
assert main(["embed", "missing", "missing.h5"]) == 2  # imports the rest

def run(out, moment):
    child = os.fork()
    if child == 0:
        options = ["--tokenizer=whitespace", "--batch-tokens=32", "--resume", "--quiet"]
        os._exit(main(["embed", "text.txt", str(out), "--model", model, *options]))
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if moment():
            time.sleep(random.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.001)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL

def parts_done(out):
    return len(list(parts_folder(out).glob("part-*.json")))

def content_of(out):
    if out.is_dir():
        return {path.name: path.read_bytes() for path in out.iterdir()}
    return out.read_bytes()

for name in names:
    whole, out = Path("whole-" + name), Path(name)
    assert not run(whole, lambda: False)
    in_one_go = content_of(whole)
    parts = parts_folder(out)
    early = late = 0
    while not out.exists() or parts.exists():
        if early < 4:
            enough = parts_done(out) + random.randint(0, 3)
            early += run(out, lambda: parts_done(out) >= enough)
        elif late < 2:
            for file in (INDEX, ASSEMBLED):
                (parts / file).unlink(missing_ok=True)
            late += run(out, lambda: (parts / INDEX).exists())
        else:
            run(out, lambda: False)
        assert not out.exists() or content_of(out) == in_one_go
    print(early, late)
    assert content_of(out) == in_one_go
"""


def long_text(sentences: int, seed: int = 3) -> str:
    """Lines of one to six words, some of them empty and some repeated."""
    source = random.Random(seed)
    words = ["".join(source.choices("abcdeéöя中 ", k=source.randint(2, 9))) for _ in range(500)]
    words = [word.replace(" ", "") or "word" for word in words]
    lines = [" ".join(source.choices(words, k=source.randint(1, 6))) for _ in range(sentences)]
    for i in range(7, sentences, 20):
        lines[i] = ""
        lines[i - 1] = lines[i // 2]
    return "\n".join(lines) + "\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_run_killed_at_random_moments_resumes_to_the_same_bytes(
    folder: Path, model: Path
) -> None:
    (folder / "text.txt").write_text(long_text(1000), encoding="utf-8")
    names = ["vectors.h5", "vectors.npy"]
    done = python("-c", KILL_AT_RANDOM, str(model), *names, cwd=folder)
    assert done.returncode == 0, done.stderr
    kills = [[int(i) for i in row.split()] for row in done.stdout.splitlines()]
    assert all(early >= 3 for early, _ in kills)
    assert kills[0][1] >= 1  # HDF5 takes its time to be put together
    assert names_in(folder) == sorted(["text.txt", *names, *("whole-" + name for name in names)])


def python(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # waiting threads would only take turns
        **settings,
    )


WITH_SMALL_WINDOWS = """
import sys
import elmokit.embed
from elmokit.cli.main import main
elmokit.embed.WINDOW_BYTES = 1 << 16
sys.exit(main(["embed", *sys.argv[1:]]))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
@pytest.mark.parametrize(
    ("stop", "code", "said"),
    [(signal.SIGINT, 130, "elmokit: interrupted.\n"), (signal.SIGTERM, -signal.SIGTERM, "")],
)
def test_a_run_stopped_by_a_signal_can_go_on(
    folder: Path,
    model: Path,
    embed: Run,
    monkeypatch: pytest.MonkeyPatch,
    stop: signal.Signals,
    code: int,
    said: str,
) -> None:
    (folder / "text.txt").write_text(long_text(1500), encoding="utf-8")
    options = ["text.txt", "vectors.h5", "--batch-tokens=64", "--tokenizer=whitespace"]
    command = [sys.executable, "-c", WITH_SMALL_WINDOWS, *options, "--model", str(model), "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as child:
        while child.poll() is None and not Path("vectors.h5.parts/part-000002.json").exists():
            time.sleep(0.001)
        child.send_signal(stop)
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (code, said)
    assert names_in(folder) == ["text.txt", "vectors.h5.parts"]

    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 16)
    embed(*options, "--resume")
    embed("text.txt", "whole.h5", *options[2:])
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))
    assert names_in(folder) == ["text.txt", "vectors.h5", "whole.h5"]


@pytest.mark.skipif(os.name == "nt", reason="there are no locks")
def test_an_output_takes_one_run_at_a_time(
    folder: Path, model: Path, embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "text.txt").write_text(long_text(1500), encoding="utf-8")
    options = ["text.txt", "vectors.h5", "--batch-tokens=64", "--tokenizer=whitespace", "--resume"]
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 16)
    command = [sys.executable, "-c", WITH_SMALL_WINDOWS, *options, "--model", str(model), "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as child:
        while child.poll() is None and not Path("vectors.h5.parts/part-000002.json").exists():
            time.sleep(0.001)
        child.send_signal(signal.SIGSTOP)  # the first is at work, and stays so
        Path("vectors.h5.parts/part-000099.npy").touch()  # as if it were half through one
        before = names_in(Path("vectors.h5.parts"))
        try:
            for option in ("--resume", "--overwrite"):
                assert embed(*options[:-1], option, code=2) == (
                    "elmokit: error: another process is writing to vectors.h5.parts: wait until it "
                    "ends, or choose another output\n"
                )
                assert names_in(Path("vectors.h5.parts")) == before
        finally:
            child.kill()
    embed(*options)
    embed("text.txt", "whole.h5", *options[2:])
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))


class ControlC:
    """Arrives where Python loses what is raised, as in the callbacks of h5py."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_control_c_while_hdf5_is_written_is_neither_lost_nor_harmful(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed("text.txt", "whole.h5")
    real = hdf5.DeferredErrors.write
    for writes in (0, 1, 5, 10, 15):
        left = iter(range(writes))

        def write(shield: Any, content: bytes, left: Any = left) -> int:
            if next(left, None) is None:
                ControlC()
            return real(shield, content)

        with monkeypatch.context() as patch:
            patch.setattr(hdf5.DeferredErrors, "write", write)
            said = embed("text.txt", "vectors.h5", "--overwrite", code=130)
        assert said == "elmokit: interrupted.\n"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert names_in(Path()) == ["text.txt", "vectors.h5.parts", "whole.h5"]
    embed("text.txt", "vectors.h5", "--resume")
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("name", FORMATS)
def test_a_stopped_run_resumes_where_it_was(
    embed: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "vectors.parquet":
        pytest.importorskip("pyarrow")
    options = ("--batch-tokens", 4)
    embed("text.txt", "whole-" + name, *options)
    stop_after(monkeypatch, embed, 2, "text.txt", name, *options)
    assert name not in names_in(Path())
    again: list[int] = []
    real = VectorWriter.write

    def write(writer: VectorWriter, *part: Any) -> None:
        again.append(writer.done)
        real(writer, *part)

    monkeypatch.setattr(VectorWriter, "write", write)
    embed("text.txt", name, *options, "--resume")
    assert again
    assert again[0] > 0
    assert content_of(Path(name)) == content_of(Path("whole-" + name))


@pytest.mark.usefixtures("small_windows")
def test_standard_input_resumes_only_with_the_same_text(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("-", "vectors.h5", "--batch-tokens", 4)
    as_standard_input(monkeypatch, TEXT.encode())
    stop_after(monkeypatch, embed, 2, *options)
    for other in (TEXT.replace("yet", "now"), "\n".join(SENTENCES[:2]), "one more\n" + TEXT):
        as_standard_input(monkeypatch, other.encode())
        refused = embed(*options, "--resume", code=2)
        assert "not the input that the unfinished run of vectors.h5 was started with" in refused
    as_standard_input(monkeypatch, TEXT.encode())
    embed(*options, "--resume")
    embed("text.txt", "whole.h5", "--batch-tokens", 4)
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))


@pytest.mark.usefixtures("small_windows")
def test_an_input_changed_behind_its_first_megabyte_is_noticed(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elmokit.embed_file, "input_identity", lambda path: {"bytes": 0})
    options = ("text.txt", "vectors.h5", "--batch-tokens", 4)
    stop_after(monkeypatch, embed, 2, *options)
    Path("text.txt").write_text(TEXT.replace("bank", "back"), encoding="utf-8")
    assert "not the input" in embed(*options, "--resume", code=2)


@pytest.mark.usefixtures("small_windows")
def test_an_unfinished_run_is_an_error_without_resume_or_overwrite(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("text.txt", "vectors.h5", "--batch-tokens", 4)
    stop_after(monkeypatch, embed, 2, *options)
    said = embed(*options, code=2)
    assert said == (
        "elmokit: error: vectors.h5.parts holds an unfinished run: continue it with --resume, or "
        "start again with --overwrite\n"
    )
    assert names_in(Path()) == ["text.txt", "vectors.h5.parts"]
    embed(*options, "--overwrite")
    assert names_in(Path()) == ["text.txt", "vectors.h5"]


CHANGES = {
    "--layers=top": 'layers was "all" and is now "top"',
    "--pooling=mean": "pooled was false and is now true",
    "--dtype=float16": 'dtype was "float32" and is now "float16"',
    "--precision=int8": 'precision was "float32" and is now "int8"',
    "--tokenizer=whitespace": 'tokenizer was "elmokit" and is now "whitespace"',
    "--split": "split was false and is now true",
    "--batch-size=3": "batch_size was null and is now 3",
    "--format=npz": 'format was "hdf5" and is now "npz"',
    "--model=another": 'model was "[0-9a-f]+" and is now "[0-9a-f]+"',
}


@pytest.mark.usefixtures("small_windows")
def test_a_run_is_not_resumed_with_other_settings(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(Path("another"), seed=2)
    options = ("text.txt", "vectors.h5", "--batch-tokens", 4)
    stop_after(monkeypatch, embed, 2, *options)
    for change, difference in CHANGES.items():
        said = embed(*options, change, "--resume", code=2)
        assert re.search(rf"started with other settings \({difference}\)", said), said
        assert said.count("\n") == 1
    embed(*options, "--resume")


@pytest.mark.usefixtures("small_windows")
def test_a_run_does_not_go_on_with_another_input(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(monkeypatch, embed, 2, "text.txt", "vectors.h5", "--batch-tokens", 4)
    Path("text.txt").write_text(TEXT + "more\n", encoding="utf-8")
    said = embed("text.txt", "vectors.h5", "--batch-tokens", 4, "--resume", code=2)
    assert re.search(r"other settings \(input was .* and is now", said)


@pytest.mark.usefixtures("small_windows")
def test_when_all_parts_are_done_they_are_only_put_together(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    embed("text.txt", "whole.h5", "--batch-tokens", 4)
    options = ("text.txt", "vectors.h5", "--batch-tokens", 4)
    with monkeypatch.context() as patch:
        patch.setattr(VectorWriter, "finish", stop)
        embed(*options, code=130)
    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "stream", stop)
        patch.setattr("elmokit.vectors.shards.remove_parts", stop)
        embed(*options, "--resume", code=130)
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))
    with monkeypatch.context() as patch:  # now nothing is left but to delete the parts
        patch.setattr(Embedder, "skip", stop)
        embed(*options, "--resume")
    assert names_in(Path()) == ["text.txt", "vectors.h5", "whole.h5"]


@pytest.mark.usefixtures("small_windows")
def test_a_run_that_met_bad_bytes_resumes_with_them_replaced(embed: Run) -> None:
    Path("text.txt").write_bytes(TEXT.encode() + b"caf\xe9 au lait\n")
    options = ("text.txt", "vectors.h5", "--batch-tokens", 4)
    said = embed(*options, code=2)
    assert said.startswith("elmokit: error: line 12 of text.txt is not UTF-8 at its byte 4 (0xe9)")
    assert said.endswith("--errors replace\n")
    assert names_in(Path()) == ["text.txt", "vectors.h5.parts"]
    warned = "elmokit: 1 line of text.txt is not UTF-8: invalid bytes are read as U+FFFD\n"
    assert embed(*options, "--errors", "replace", "--resume") == warned
    assert embed("text.txt", "whole.h5", *options[2:], "--errors", "replace") == warned
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))
    assert list(read_vectors("vectors.h5"))[11][1] == ["caf", "\ufffd", "au", "lait"]


# What is refused: one sentence, exit code 2, and nothing is left behind


def refuse(embed: Run, *arguments: object) -> str:
    """Run what must fail; gives the sentence."""
    before = names_in(Path())
    said = embed(*arguments, code=2)
    assert said.startswith("elmokit: error: ")
    assert said.count("\n") == 1
    assert said.endswith("\n")
    assert "Traceback" not in said
    assert names_in(Path()) == before
    return said


BAD_INPUTS: dict[str, tuple[bytes | None, str]] = {
    "missing.txt": (None, "there is no file missing.txt"),
    "binary.txt": (b"\x7fELF\0\0\1\2", "seems to be a binary file"),
    "wide.txt": ("text".encode("utf-16"), "seems to be UTF-16 text"),
    "latin.txt": (b"one\ntwo\ncaf\xe9\n", "line 3 of latin.txt is not UTF-8"),
    "empty.txt": (b"", "empty.txt has no sentences"),
    "empty.txt.gz": (gzip.compress(b""), "empty.txt.gz has no sentences"),
    "false.gz": (b"plain text\n", "false.gz is not a .gz file"),
    "cut.gz": (gzip.compress(TEXT.encode() * 9)[:-20], "cut.gz is truncated"),
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
        (["--tokenizer", "whitspace"], "whitspace"),
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


# Runs where "disk" is a small file system of its own; gives code and stderr of each run as JSON.
ON_A_SMALL_DISK = """
import contextlib, gc, io, json, os, subprocess, sys
from pathlib import Path
from elmokit.cli.main import main

def run(*arguments):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        options = ["--tokenizer=whitespace", "--quiet", "--model", sys.argv[1]]
        code = main(["embed", "text.txt", *arguments, *options])
    print(json.dumps([code, said.getvalue(), sorted(os.listdir("disk"))]))

def remount(options):
    gc.collect()  # a map of a file on the disk may hang on to the error that was caught
    subprocess.run(["mount", "-o", "remount," + options, "disk"], check=True)

run("disk/vectors.h5")
remount("size=1m")
run("disk/vectors.h5")
remount("size=8m")
run("disk/vectors.h5", "--resume")
run("whole.h5")
same = Path("whole.h5").read_bytes() == Path("disk/vectors.h5").read_bytes()
remount("ro")
run("disk/other.h5")
print(same)
"""


def test_a_full_or_read_only_disk_is_reported_and_nothing_is_half_written(
    folder: Path, model: Path
) -> None:
    (folder / "text.txt").write_text(long_text(1000), encoding="utf-8")  # 0.7 MB of vectors
    (folder / "disk").mkdir()
    mount = 'mount -t tmpfs -o size=256k none disk && echo mounted && exec "$@"'
    own = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", mount, "sh"]
    try:
        done = subprocess.run(
            [*own, sys.executable, "-c", ON_A_SMALL_DISK, str(model)],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if "mounted" not in done.stdout:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")
    _, *runs, same = done.stdout.splitlines()
    for_the_part, for_the_file, resumed, _, read_only = map(json.loads, runs)
    full = "elmokit: error: the disk is full"
    assert (for_the_part[0], for_the_part[2]) == (2, [])
    assert (for_the_file[0], for_the_file[2]) == (2, ["vectors.h5.parts"])
    for _, said, _ in (for_the_part, for_the_file):
        assert said.startswith(full)
        assert said.count("\n") == 1
    assert resumed == [0, "", ["vectors.h5"]]
    assert same == "True"
    assert (read_only[0], read_only[2]) == (2, ["vectors.h5"])
    assert "its folder does not allow it" in read_only[1]
    assert read_only[1].count("\n") == 1


# By several processes, and in shards


@pytest.mark.parametrize("options", [(), ("--pooling=mean", "--layers=top", "--dtype=float16")])
def test_workers_write_the_bytes_of_one_process(
    embed: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 14)
    Path("text.txt").write_text(long_text(700), encoding="utf-8")
    options = ("--threads=1", "--batch-tokens=32", "--tokenizer=whitespace", *options)
    embed("text.txt", "whole.npy", *options)
    embed("text.txt", "vectors.npy", *options, "--workers=2")
    assert len(names_in(Path("whole.npy"))) > 20
    assert content_of(Path("vectors.npy")) == content_of(Path("whole.npy"))


def test_workers_resume_what_one_process_began(embed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 13)
    Path("text.txt").write_text(long_text(1000), encoding="utf-8")
    options = ("--threads=1", "--batch-tokens=32", "--tokenizer=whitespace")
    embed("text.txt", "whole.h5", *options)
    stop_after(monkeypatch, embed, 15, "text.txt", "vectors.h5", *options)
    embed("text.txt", "vectors.h5", *options, "--workers=2", "--resume")
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))


def write_rows(texts: Iterable[str]) -> list[dict[str, str]]:
    """Write rows.jsonl with an id for each text."""
    rows = [{"id": f"row {i} é", "text": text} for i, text in enumerate(texts)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


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


def test_an_error_in_a_worker_is_the_sentence_of_one_process(embed: Run) -> None:
    said = refuse(embed, "text.txt", "vectors.h5", "--batch-size=0", "--workers=2")
    assert said.endswith("batch_size must be an integer of at least 1, not 0\n")


def has_ended(process: int) -> bool:
    """Tell whether a process is gone, or only waits for its parent to notice."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")
@pytest.mark.parametrize(
    ("victim", "number", "code", "said"),
    [
        ("worker", signal.SIGKILL, 2, r"elmokit: error: worker process \d+ was killed by signal 9"),
        ("all", signal.SIGINT, 130, r"elmokit: interrupted.\n"),
        ("main", signal.SIGTERM, -signal.SIGTERM, r"$"),
        ("main", signal.SIGKILL, -signal.SIGKILL, r"$"),
    ],
)
def test_a_run_of_workers_is_stopped_as_a_whole_and_resumes_to_the_same_bytes(
    folder: Path,
    model: Path,
    embed: Run,
    monkeypatch: pytest.MonkeyPatch,
    victim: str,
    number: signal.Signals,
    code: int,
    said: str,
) -> None:
    (folder / "text.txt").write_text(long_text(5000), encoding="utf-8")
    options = ["text.txt", "vectors.h5", "--batch-tokens=64", "--tokenizer=whitespace"]
    options += ["--threads=1"]
    command = [sys.executable, "-c", WITH_SMALL_WINDOWS, *options, "--model", str(model)]
    command += ["--quiet", "--workers=2"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True
    ) as child:
        while child.poll() is None and not Path("vectors.h5.parts/part-000002.json").exists():
            time.sleep(0.001)
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        processes = [int(process) for process in children]
        workers = [p for p in processes if b"spawn_main" in Path(f"/proc/{p}/cmdline").read_bytes()]
        assert len(workers) == 2
        if victim == "all":  # as a terminal does
            os.killpg(child.pid, number)
        else:
            os.kill(workers[0] if victim == "worker" else child.pid, number)
        _, err = child.communicate(timeout=60)
    assert child.returncode == code, err
    assert re.match(said, err), err
    assert err.count("\n") <= 1
    end = time.monotonic() + 20
    while not all(map(has_ended, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    assert all(map(has_ended, processes))
    assert names_in(folder) == ["text.txt", "vectors.h5.parts"]

    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 16)
    embed(*options, "--resume")
    embed("text.txt", "whole.h5", *options[2:])
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))


@pytest.mark.parametrize("pooling", [(), ("--pooling=mean",)])
@pytest.mark.parametrize("name", FORMATS)
def test_shards_join_to_the_rows_of_the_whole(
    embed: Run, name: str, pooling: tuple[str, ...]
) -> None:
    if name == "vectors.parquet":
        pytest.importorskip("pyarrow")
    embed("text.txt", name, *pooling)
    rows: list[Any] = []
    for i in (1, 2, 3):
        embed("text.txt", f"{i}-{name}", f"--shard={i}/3", *pooling)
        rows += read_vectors(Path(f"{i}-{name}"))
    whole = list(read_vectors(Path(name)))
    if name in ("vectors.parquet", "vectors.npy") or not pooling:
        assert [index for index, *_ in rows] == list(range(len(SENTENCES)))
    check([vectors for *_, vectors in rows], [vectors for *_, vectors in whole])
    if name != "vectors.h5":
        assert [tokens for _, tokens, _ in rows] == TOKENS


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


# How much memory it takes

MEMORY = r"""
import json, re, sys
from pathlib import Path
import elmokit.embed
from elmokit.cli.main import main

def peak(*arguments):
    assert main(["embed", *arguments, "--quiet", "--model", sys.argv[1]]) == 0
    # Not what `resource` tells: on Linux that begins with the peak of the parent process.
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])

default = elmokit.embed.WINDOW_BYTES
elmokit.embed.WINDOW_BYTES = 1 << 20  # so that even the short file has several windows
peaks = [peak(name, name + ".npy", "--pooling", "mean") for name in ("short", "long")]
elmokit.embed.WINDOW_BYTES = default
peaks.append(peak("line", "line.h5", "--tokenizer=whitespace", "--batch-tokens=300000"))
print(json.dumps(peaks))
"""
RIVER = "a river of words runs on without a break from here to the sea and so it goes .".split()
MILLION_WORDS = (RIVER * 60_000)[:1_000_000]


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, list[int]]:
    """The highest use of memory, in bytes, after embedding files one larger than the other."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux, which tells the peak of a process")
    folder = tmp_path_factory.mktemp("memory")
    model = save_model(folder / "tiniest", seed=1, num_layers=1, lstm_dim=4, projection_dim=4)
    short = long_text(100)
    (folder / "short").write_text(short, encoding="utf-8")
    (folder / "long").write_text(short * 200, encoding="utf-8")
    (folder / "line").write_text(" ".join(MILLION_WORDS) + "\n")
    done = python("-c", MEMORY, str(model), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stderr, json.loads(done.stdout)


def test_memory_does_not_grow_with_the_file(peaks: tuple[Path, str, list[int]]) -> None:
    folder, _, (short, long, _) = peaks
    assert len(VectorShards(folder / "long.npy")) == 200 * 100
    assert long - short < 50e6


def test_a_line_of_a_million_words_is_read_in_windows(
    peaks: tuple[Path, str, list[int]],
) -> None:
    folder, said, (_, before, after) = peaks
    with h5py.File(folder / "line.h5", "r") as file:
        assert file["0"].shape == (2, 1_000_000, 8)
        elmo = elmokit.load(folder / "tiniest")
        for start in (0, 1024, 999_424):
            alone = elmo.embed([MILLION_WORDS[start : start + 1024]])[0].layers
            check([file["0"][:, start : start + 1024]], [alone])
    assert said == (
        "elmokit: sentence 0 has 1,000,000 tokens: the model reads it in windows of 1,024\n"
    )
    size_of_the_result = 2 * 1_000_000 * 8 * 4
    assert after - before < size_of_the_result + 300 * 1_000_000  # and 300 bytes a word


# Messages while it runs


@pytest.mark.skipif(os.name == "nt", reason="needs a terminal as POSIX has them")
def test_a_terminal_shows_speed_and_remaining_time(folder: Path, model: Path) -> None:
    import fcntl
    import pty
    import termios

    (folder / "text.txt").write_text(("word" * 20 + " more\n") * 3000)  # four blocks of 64 KB
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))  # rows, columns
    arguments = ["text.txt", "vectors.npy", "--batch-tokens", "64", "--pooling", "mean"]
    command = [sys.executable, "-c", WITH_SMALL_WINDOWS, *arguments, "--model", str(model)]
    shown = b""
    settings = {**os.environ, "TQDM_MININTERVAL": "0"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=folder, env=settings) as child:
        os.close(theirs)
        while piece := read_terminal(ours):
            shown += piece
    os.close(ours)
    text = shown.decode()
    assert child.returncode == 0, text
    shares = {int(share) for share in re.findall(r"(\d+)%\|", text)}
    assert {0, 100} < shares  # and some in between
    assert re.search(r"\d+%\|.*\[\d\d:\d\d<\d\d:\d\d, .*[\d,]+ tokens/s\]", text)
    last = text.splitlines()[-1]
    assert re.fullmatch(
        r"vectors.npy: 3,000 sentences; 6,000 tokens embedded in [\d.]+ s", last.strip()
    )


def test_the_summary_counts_one_sentence_in_the_singular(
    folder: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("one.txt").write_text("one\n")
    assert main(["embed", "one.txt", "vectors.h5", "--model", str(model)]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"vectors.h5: 1 sentence; 1 token embedded in [\d.]+ s", last)


def test_the_choices_of_pooling_are_those_of_the_library() -> None:
    hint = get_type_hints(elmokit.cli.embed.embed)["pooling"]  # Literal[…] | None
    assert get_args(get_args(hint)[0]) == POOLINGS


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # Linux raises this when nobody writes there any more.
        return b""


def test_quiet_prints_nothing_at_all(folder: Path, model: Path) -> None:
    arguments = ["text.txt", "vectors.h5", "--model", str(model), "--quiet"]
    done = python("-m", "elmokit", "embed", *arguments, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert names_in(folder) == ["text.txt", "vectors.h5"]
