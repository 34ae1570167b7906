"""`elmokit fill`: words that fit a gap in a sentence."""

from __future__ import annotations

from elmokit.errors import ElmokitError


def fill_gap(
    sentence: str,
    *,
    model: str = "shipped",
    k: int = 10,
    tokenizer: str | None = None,
) -> None:
    """Print the words that fit a gap in a sentence.

    Args:
        sentence: with the gap as three underscores: "He sat on the river ___ ."
        model: a model folder or Hub name with a softmax; "shipped" is elmokit's own.
        k: how many words.
        tokenizer: what splits the sentence: elmokit, whitespace or chinese; if not given, chinese
            for a model that was trained with it, and else elmokit.
    """
    if k < 1:
        raise ElmokitError(f"k must be at least 1, not {k}")
    from elmokit.loading import load

    for found in load(model, tokenizer=tokenizer).fill(sentence, k):
        print(f"{found.probability:7.1%}  {found.word}")
