"""A small language with a grammar, and a model small enough to learn it in seconds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

NOUNS = "cat dog river bank house tree child teacher music window".split()
VERBS = "sees likes finds hears follows".split()
ADJECTIVES = "old red quiet small strange".split()

TINY = {
    "filters": [[1, 4], [2, 8], [3, 8]],
    "character_dim": 4,
    "max_characters": 12,
    "lstm_dim": 16,
    "projection_dim": 8,
    "num_layers": 2,
}


def make_sentences(count: int, seed: int = 0) -> list[list[str]]:
    """Tokenized sentences with a grammar, so that there is something to learn."""
    rng = random.Random(seed)

    def phrase() -> list[str]:
        return ["the", *rng.choices(ADJECTIVES, k=rng.randrange(3)), rng.choice(NOUNS)]

    def sentence() -> list[str]:
        more = ["and", rng.choice(VERBS), *phrase()] if rng.random() < 0.3 else []
        return [*phrase(), rng.choice(VERBS), *phrase(), *more, "."]

    return [sentence() for _ in range(count)]


def training_options(folder: Path) -> dict[str, Any]:
    """Options of a training run of a second, on 400 sentences that are written into the folder."""
    text = folder / "text.txt"
    text.write_text("".join(" ".join(words) + "\n" for words in make_sentences(400)))
    return {
        "corpus": str(text),
        "out": str(folder / "model"),
        "model": TINY,
        "tokenizer": "whitespace",
        "valid_fraction": 0.1,
        "min_count": 1,
        "epochs": 2,
        "batch_size": 4,
        "unroll": 10,
        "eval_every": 25,
        "save_every": 10,
        "threads": 1,
        "quiet": True,
    }
