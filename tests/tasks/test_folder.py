"""The folder of a task model: what it says when it is something else, or damaged."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny import complaint, tiny_elmo

from elmokit.errors import ElmokitError
from elmokit.io.marker import Command, write_marker
from elmokit.tasks import load_task, predict, score, train
from elmokit.tasks.folder import read_mixes

SMALL: dict[str, Any] = {"hidden": 4, "word_dim": 4, "char_dim": 4, "epochs": 1, "quiet": True}
LINES = "good a fine play\npoor a dull play\n" * 16


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with ELMo and static vectors."""
    folder = tmp_path_factory.mktemp("task")
    tiny_elmo().save_pretrained(folder / "elmo")
    (folder / "data.txt").write_text(LINES)
    (folder / "vectors.txt").write_text("fine 1 2\ndull 3 4\nplay 5 6\n")
    data, out = str(folder / "data.txt"), folder / "model"
    train(
        "classifier",
        train=data,
        dev=data,
        out=str(out),
        elmo=str(folder / "elmo"),
        vectors=str(folder / "vectors.txt"),
        **SMALL,
    )
    shutil.rmtree(out / "training")
    return out


# ---------------------------------------------------------------------- folders of another kind
def message(folder: Path) -> str:
    """Return what all readers of a task model say about a folder."""
    sentences = set[str]()
    calls: list[Callable[[], object]] = [
        lambda: load_task(folder),
        lambda: read_mixes(folder),
        lambda: predict(str(folder), "text.txt"),
        lambda: score(str(folder), "text.txt"),
    ]
    for call in calls:
        with pytest.raises(ElmokitError) as error:
            call()
        sentences.add(str(error.value))
    (sentence,) = sentences
    return sentence


def test_a_bilm_is_named_with_the_command_that_takes_it(model: Path, tmp_path: Path) -> None:
    elmo = model.parent / "elmo"
    assert message(elmo) == (
        f"there is no task model in {elmo}: it is a biLM, for elmokit embed and others; elmokit "
        f"train TASK --elmo {elmo} trains a task model with it"
    )
    write_marker(shutil.copytree(elmo, tmp_path / "pretrained"), "pretrain")
    assert "it is a biLM" in message(tmp_path / "pretrained")
    (tmp_path / "weights.hdf5").touch()
    assert "it is a biLM" in message(tmp_path)


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("train", "a training that has not saved a model yet; the same command resumes it"),
        ("pretrain", "an unfinished biLM; the same elmokit pretrain command resumes its training"),
        ("adapt", "an unfinished biLM; the same elmokit adapt command resumes its training"),
        ("compare", "a comparison, whose task models are in {folder}/runs"),
    ],
)
def test_the_folder_of_an_unfinished_run_is_named(
    tmp_path: Path, command: Command, what: str
) -> None:
    write_marker(tmp_path, command)
    expected = f"there is no task model in {tmp_path}: it is {what.format(folder=tmp_path)}"
    assert message(tmp_path) == expected


def test_what_is_not_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "it has no config.json of a task model" in message(tmp_path)
    assert message(tmp_path / "config.json").endswith("it is a file")
    assert message(tmp_path / "nowhere").endswith("it is missing")


@pytest.mark.parametrize("name", ["x" * 300, "ü" * 200])
def test_a_name_that_no_file_can_have_is_a_sentence(model: Path, name: str, tmp_path: Path) -> None:
    data = str(model.parent / "data.txt")
    calls: list[Callable[[], object]] = [
        lambda: load_task(name),
        lambda: predict(str(model), name),
        lambda: predict(str(model), data, str(tmp_path / name)),
        lambda: load_task(model, elmo=name),
        lambda: train("classifier", train=name, out=str(tmp_path / "out")),
        lambda: train("classifier", train=data, dev=name, out=str(tmp_path / "out")),
        lambda: train("classifier", train=data, out=str(tmp_path / name), elmo=None, **SMALL),
        lambda: train("classifier", train=data, out=str(tmp_path / "o"), vectors=name, elmo=None),
        lambda: train("classifier", train=data, out=str(tmp_path / "o"), elmo=name),
    ]
    for call in calls:
        with pytest.raises(ElmokitError):
            call()
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- damaged folders
VALUES: list[Any] = [None, True, 7, -1, 0.5, float("inf"), float("nan"), 1e300, "word", [], {}]
VALUES += [["word"], [7], [None, {}], {"labels": 3}, "\ud800", 10**30, "x" * 300]


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside a JSON value, down to the third level."""
    yield before
    items: list[tuple[Any, Any]] = list(value.items()) if isinstance(value, dict) else []
    items += enumerate(value[:2]) if isinstance(value, list) else []
    for key, inner in items if len(before) < 3 else ():
        yield from paths(inner, (*before, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of a JSON value with the value at a path replaced."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def damaged(content: bytes, is_json: bool, rng: random.Random) -> bytes:
    """Return the bytes of a file after one accident."""
    kind = rng.choice(["cut", "flip", "value", "value"] if is_json else ["cut", "flip"])
    if kind == "cut":
        return content[: rng.randrange(len(content))]
    if kind == "flip":
        head = rng.choice([len(content), min(len(content), 400)])
        flipped = bytearray(content)
        for _ in range(rng.choice([1, 8])):
            flipped[rng.randrange(head)] ^= rng.randrange(1, 256)
        return bytes(flipped)
    value = json.loads(content)
    path = rng.choice(list(paths(value)))
    return json.dumps(replaced(value, path, rng.choice(VALUES))).encode()


FILES = ("config.json", "words.json", "model.safetensors", "vectors/words.txt")


@pytest.mark.fuzz
@pytest.mark.parametrize("name", [*FILES, "vectors/vectors.safetensors"])
def test_a_damaged_file_of_a_model_loads_or_is_a_sentence(
    model: Path, tmp_path: Path, name: str
) -> None:
    folder = shutil.copytree(model, tmp_path / "model")
    elmo = load_task(model).elmo
    content, rng = (folder / name).read_bytes(), random.Random(name)
    for _ in range(int(os.environ.get("ELMOKIT_FUZZ", "60"))):
        (folder / name).write_bytes(damaged(content, name.endswith("json"), rng))
        assert "\n" not in complaint(lambda: load_task(folder, elmo=elmo).predict_texts(["a play"]))
        assert "\n" not in complaint(lambda: read_mixes(folder))
    (folder / name).unlink()
    with pytest.raises(ElmokitError):
        load_task(folder, elmo=elmo)
