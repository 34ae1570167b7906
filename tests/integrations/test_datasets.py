"""`EmbedColumn` inside Hugging Face datasets."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_hub import FakeHub
from reference import make_reference
from tiny import difference

import elmokit
from elmokit.errors import ElmokitError

pytest.importorskip("datasets", reason="datasets is not installed: elmokit[datasets]")

import datasets
from datasets.fingerprint import Hasher

from elmokit.integrations.datasets import EmbedColumn

TEXTS = ["the river bank", "a bank of money", "", "naïve 中文"] * 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a tiny model."""
    return str(make_reference().save(tmp_path_factory.mktemp("model")))


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Texts read from a file, as only these are cached."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lines = [json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)]
    (tmp_path / "texts.jsonl").write_text("".join(lines))
    return datasets.Dataset.from_json(
        str(tmp_path / "texts.jsonl"), cache_dir=str(tmp_path / "cache")
    )


@pytest.mark.parametrize("num_proc", [None, 2])
def test_every_text_gets_the_vector_of_the_embedder(
    dataset: Any, model: str, num_proc: int | None
) -> None:
    embed = EmbedColumn(model=model)
    result = dataset.map(
        embed, batched=True, batch_size=3, num_proc=num_proc, features=embed.features(dataset)
    )
    expected = elmokit.load(model).sentence_vectors(TEXTS)
    assert difference(np.array(result["vector"]), expected) < 1e-6
    assert result["id"] == list(range(len(TEXTS)))
    assert str(result.data.schema.field("vector").type) == "fixed_size_list<item: float>[12]"


def test_the_vector_is_that_of_the_reference(dataset: Any, model: str) -> None:
    embed = EmbedColumn(model=model, layers="top", pooling="last")
    result = dataset.map(embed, batched=True)
    expected = make_reference().embed(["the", "river", "bank"])[-1, -1]
    assert np.abs(np.array(result[0]["vector"]) - expected).max() < 1e-5


def test_tokens_have_lists_of_vectors_of_fixed_size(dataset: Any, model: str) -> None:
    embed = EmbedColumn(model=model, layers="all", pooling=None, output="tokens")
    columns = {"remove_columns": dataset.column_names, "features": embed.features()}
    result = dataset.map(embed, batched=True, batch_size=7, **columns)
    assert result.column_names == ["tokens"]
    assert str(result.data.schema.field("tokens").type).count("fixed_size_list") == 1
    assert [len(row) for row in result["tokens"][:4]] == [3, 4, 0, 3]
    expected = elmokit.load(model).embed(TEXTS[0]).layers  # (layers, tokens, dim)
    vectors = np.array(result[0]["tokens"], np.float32).reshape(3, 3, 12)
    assert difference(vectors, expected.swapaxes(0, 1)) < 1e-6


def test_a_second_run_takes_the_vectors_from_the_cache(
    dataset: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = dataset.map(EmbedColumn(model=model), batched=True)

    def fail(*arguments: object) -> None:
        raise AssertionError("the vectors were computed again")

    monkeypatch.setattr(EmbedColumn, "_vectors", fail)
    second = dataset.map(EmbedColumn(model=model), batched=True)
    assert second["vector"] == first["vector"]


def test_the_fingerprint_depends_on_the_settings_and_on_nothing_else(
    model: str, tmp_path: Path
) -> None:
    embed = EmbedColumn(model=model)
    before = Hasher.hash(embed)
    embed({"text": TEXTS})
    assert Hasher.hash(embed) == before == Hasher.hash(EmbedColumn(model=model))
    assert len(pickle.dumps(embed)) < 1000
    code = (
        "import sys; from datasets.fingerprint import Hasher\n"
        "from elmokit.integrations.datasets import EmbedColumn\n"
        "print(Hasher.hash(EmbedColumn(model=sys.argv[1])))"
    )
    done = subprocess.run([sys.executable, "-c", code, model], capture_output=True, text=True)
    assert done.stdout.strip() == before, done.stderr
    for other in ({"layers": 0}, {"pooling": "max"}, {"precision": "int8"}, {"output": "other"}):
        assert Hasher.hash(EmbedColumn(model=model, **other)) != before
    weights = make_reference().save(tmp_path / "model")
    same_name = EmbedColumn(model=str(weights))
    make_reference(seed=1).save(tmp_path / "model")
    assert Hasher.hash(EmbedColumn(model=str(weights))) != Hasher.hash(same_name)
    with pytest.raises(ElmokitError, match="is not the one that this object was made with"):
        same_name({"text": TEXTS})


def test_the_hub_is_asked_for_a_new_callable_but_not_for_a_stored_one(hub: FakeHub) -> None:
    embed = EmbedColumn(model="bank/river")
    expected = embed({"text": TEXTS})["vector"]
    assert hub.asked == ["bank/river"]
    content = pickle.dumps(embed)
    hub.forget()
    again = pickle.loads(content)
    with pytest.raises(ElmokitError, match="a model that only a file names is not downloaded"):
        again({"text": TEXTS})
    hub.has_cached = True
    assert np.array_equal(again({"text": TEXTS})["vector"], expected)
    assert hub.asked == []


def test_a_streamed_dataset_is_embedded_batch_by_batch(dataset: Any, model: str) -> None:
    embed = EmbedColumn(model=model)
    stream = dataset.to_iterable_dataset().map(embed, batched=True, batch_size=3)
    expected = elmokit.load(model).sentence_vectors(TEXTS)
    vectors = np.array([example["vector"] for example in stream])
    assert difference(vectors, expected) < 1e-6
    with pytest.raises(ElmokitError, match="map without features"):
        embed.features(stream)


def test_wrong_use_is_one_sentence(model: str) -> None:
    embed = EmbedColumn("sentence", model=model)
    with pytest.raises(ElmokitError, match="no column 'sentence': it has text, id"):
        embed({"text": TEXTS, "id": [0]})
    with pytest.raises(ElmokitError, match="pass batched=True"):
        embed({"sentence": "one text"})
    with pytest.raises(ElmokitError, match="a text is a string or a list of tokens, not None"):
        embed({"sentence": ["a", None]})
    with pytest.raises(ElmokitError, match="pooling must be one of"):
        EmbedColumn(model=model, pooling="median")  # type: ignore[arg-type]
