"""Small made-up data that the tasks' tests learn from."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

PEOPLE = ("Anna", "Bo", "Carl", "Dora", "Emil")
PLACES = ("Lund", "Oslo", "Turku", "Riga", "Kiel")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept vectors go to a folder of the tests' own."""
    if "ELMOKIT_CACHE" not in os.environ:
        monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path_factory.mktemp("cache")))


def tagged_lines(count: int, seed: int) -> str:
    """Sentences in columns where a name's kind is decided by its neighbours and by itself."""
    rng = random.Random(seed)
    sentences = []
    for _ in range(count):
        person, place = rng.choice(PEOPLE), rng.choice(PLACES)
        words = [(person, "B-PER")]
        if rng.random() < 0.5:
            words.append(("Berg", "I-PER"))
        words += [("lives", "O"), ("in", "O"), (place, "B-LOC"), (".", "O")]
        sentences.append("".join(f"{word} {tag}\n" for word, tag in words))
    return "\n".join(sentences)


@pytest.fixture
def conll(tmp_path: Path) -> tuple[Path, Path]:
    """Training and dev data of a tagger."""
    train, dev = tmp_path / "train.conll", tmp_path / "dev.conll"
    train.write_text(tagged_lines(60, 1))
    dev.write_text(tagged_lines(20, 2))
    return train, dev


@pytest.fixture
def reviews(tmp_path: Path) -> tuple[Path, Path]:
    """Training and dev data of a classifier: `label text`."""
    rng = random.Random(3)
    good, poor = ("fine", "great", "lovely"), ("bad", "awful", "dull")

    def lines(count: int) -> str:
        made = []
        for _ in range(count):
            label = rng.choice(("good", "poor"))
            word = rng.choice(good if label == "good" else poor)
            made.append(f"{label} the {rng.choice(('film', 'book', 'play'))} was {word} .\n")
        return "".join(made)

    train, dev = tmp_path / "train.txt", tmp_path / "dev.txt"
    train.write_text(lines(80))
    dev.write_text(lines(30))
    return train, dev
