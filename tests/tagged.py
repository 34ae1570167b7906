"""Tagged sentences that a probe can learn from, for the tests of probes and of their command."""

from __future__ import annotations

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
