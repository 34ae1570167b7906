"""Tagged sentences that probes and taggers can learn from, and small taggers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elmokit.analysis.probes.tokens import TaggedText

NOUNS = "river bank boat tree house road".split()
VERBS = "runs sees takes leaves finds".split()
WORDS = {"DET": ["the", "a"], "NOUN": NOUNS, "VERB": VERBS, "ADV": ["here", "now", "often"]}


def made_text(count: int, seed: int, *, unseen: bool = False) -> TaggedText:
    """Make sentences whose labels follow from the words, except for some that are noise."""
    rng = np.random.default_rng(seed)
    text = TaggedText()
    for _ in range(count):
        labels = ["DET", "NOUN", "VERB", "DET", "NOUN", "ADV"]
        words = [str(rng.choice(WORDS[label])) for label in labels]
        if unseen:
            words[1] += "s"
        noise = [str(rng.choice(list(WORDS))) if rng.random() < 0.1 else label for label in labels]
        text.sentences.append(tuple(words))
        text.labels.append(tuple(noise))
    return text


def train_taggers(model: str, folder: Path) -> Path:
    """Train three taggers: with mixes at both positions, with one layer, and without ELMo."""
    from elmokit.tasks import train

    data = folder / "train.conll"
    data.write_text("Anna B-PER\nsat O\n\nBo B-PER\nran O\n\n" * 2)
    small: dict[str, Any] = {"train": str(data), "dev": str(data), "hidden": 4, "epochs": 1}
    small |= {"quiet": True, "cache": str(folder / "cache"), "word_dim": 4, "char_dim": 0}
    train("tagger", **small, elmo=model, placement="both", out=str(folder / "both"))
    train("tagger", **small, elmo=model, layers="top", out=str(folder / "top"))
    train("tagger", **small, elmo=None, out=str(folder / "without"))
    return folder
