"""Damaged indexes and inventories give a result or a sentence, never another exception."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from tiny import complaint, tiny_elmo

from elmokit.analysis.neighbours.index import open_index
from elmokit.analysis.neighbours.indexing import index_uses
from elmokit.analysis.neighbours.nearest import find_neighbours
from elmokit.analysis.senses.build import build_senses
from elmokit.analysis.senses.data import Instance, TaggedSentence
from elmokit.analysis.senses.find import tag_senses
from elmokit.analysis.senses.inventory import load_inventory
from elmokit.analysis.uses import Use
from elmokit.store import LayerStore

COUNT = int(os.environ.get("ELMOKIT_FUZZ", "900"))
SECONDS = 15  # of the processor; after these the test ends, however many files it has damaged.
SENTENCES = [("the", "river", "bank", "."), ("a", "bank", "lent", "money", "."), ("he", "sat", ".")]
VALUES = [None, True, -1, 0, 2**70, 1e300, "", "x", [], ["x"], {}, {"x": 1}]


@pytest.fixture
def store() -> LayerStore:
    return LayerStore(tiny_elmo())


@pytest.fixture
def folders(store: LayerStore, tmp_path: Path) -> Path:
    """An index and an inventory."""
    settings = {"model": "tiny", "tokenizer": "elmokit"}
    index_uses(store.elmo, SENTENCES * 3, tmp_path / "index", settings=settings)
    tagged = [
        TaggedSentence(SENTENCES[i % 2], (Instance(2 - i % 2, 3 - i % 2, "bank", "", (key,)),))
        for i, key in enumerate(["a%1", "b%1"] * 3)
    ]
    build_senses(store, tagged, model_name="tiny").save(tmp_path / "inventory")
    return tmp_path


def use_index(store: LayerStore, folder: Path) -> None:
    index = open_index(folder)
    query = Use(SENTENCES[0], 2, 3, "bank")
    for only in (None, "same-word"):
        find_neighbours(store, index, [query], k=5, only=only)
    index.to_dict()


def use_inventory(store: LayerStore, folder: Path) -> None:
    inventory = load_inventory(folder)
    inventory.check_model(store, "tiny")
    for method in inventory.methods:
        assert list(tag_senses(store, inventory, SENTENCES, method))
    inventory.to_dict()


USERS = {"index": use_index, "inventory": use_inventory}


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # of numbers that are not finite
@pytest.mark.parametrize("kind", USERS)
def test_a_damaged_folder_is_a_result_or_a_sentence(
    kind: str, store: LayerStore, folders: Path
) -> None:
    rng, end = random.Random(7), time.process_time() + SECONDS
    whole, damaged = folders / kind, folders / "damaged"
    assert complaint(lambda: USERS[kind](store, whole)) == ""
    complaints = 0
    for _ in range(COUNT):
        if time.process_time() > end:
            break
        shutil.copytree(whole, damaged)
        damage(rng, rng.choice(sorted(damaged.iterdir())))
        complaints += bool(complaint(lambda: USERS[kind](store, damaged)))
        shutil.rmtree(damaged)
    assert complaints > 10


def damage(rng: random.Random, path: Path) -> None:
    """Change a value of a JSON object, or bytes of another file, or cut it off."""
    content = bytearray(path.read_bytes())
    if path.suffix == ".json" and rng.random() < 0.8:
        values = json.loads(content)
        change_value(rng, values)
        path.write_text(json.dumps(values))
        return
    for _ in range(rng.choice([1, 4, 30])):
        content[rng.randrange(len(content))] = rng.randrange(256)
    if rng.random() < 0.2:
        del content[rng.randrange(len(content)) :]
    path.write_bytes(content)


def change_value(rng: random.Random, values: dict[str, Any]) -> None:
    name = rng.choice(sorted(values))
    if isinstance(values[name], dict) and values[name] and rng.random() < 0.7:
        change_value(rng, values[name])
    elif rng.random() < 0.15:
        del values[name]
    else:
        values[name] = rng.choice(VALUES)
