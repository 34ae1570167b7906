"""`elmokit embed` writes the vectors of each sentence, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from embed_command import FORMATS, SENTENCES, TOKENS, Run, Vectors, check, found_in, names_in

from elmokit.vectors.reader import read_vectors


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
