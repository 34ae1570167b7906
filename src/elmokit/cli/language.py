"""`elmokit evaluate` and `elmokit fill`: the biLM as a language model."""

from __future__ import annotations

import math
from typing import Any, Literal

from elmokit.cli.options import ComputeOptions, ModelOptions, WriteOptions, model_files
from elmokit.cli.output import table
from elmokit.errors import plural
from elmokit.io.paths import find_files


def evaluate(
    model: str,
    text: str,
    /,
    *,
    state: Literal["carry", "fresh"] = "carry",
    stretches: int = 32,
    sentences: str | None = None,
    writing: WriteOptions = WriteOptions(),
    options: ComputeOptions = ComputeOptions(),
) -> None:
    """Print the perplexity of a text in both directions, by the full softmax.

    Args:
        model: A model folder or Hub name with a softmax; "english" and "chinese" are included.
        text: A file, glob or folder of text, also .gz, .xz, .zst.
        state: Carry the LSTM state from sentence to sentence, or begin each with a fresh one.
        stretches: Number of parts of the text to read in parallel; 1 is exact but slow.
        sentences: A .tsv file to write, with the perplexity of each sentence.
    """
    writing.check(*find_files(text), *model_files(model), *options.inputs, file=sentences)
    from elmokit.pretrain import evaluate

    settings: Any = {"state": state, "stretches": stretches, "quiet": writing.quiet}
    result = evaluate(options.load_model(model), text, sentences=sentences, **settings)
    measured = result.perplexity
    values = (measured.forward, measured.backward, measured.average)
    bits = (f"{math.log2(value):.3f}" for value in values)
    rows: list[list[object]] = [["perplexity", *values], ["bits per word", *bits]]
    ends = plural(measured.tokens - result.words, "sentence end")
    print(table(["", "forward", "backward", "average"], rows))
    print(
        f"{plural(result.words, 'word')} and {ends}; "
        f"{result.unknown / max(result.words, 1):.1%} of the words are outside the vocabulary and "
        "counted as <UNK>"
    )


def fill(sentence: str, /, *, k: int = 10, options: ModelOptions = ModelOptions()) -> None:
    """Print the words that best fit a gap in a sentence, rather than the most frequent ones.

    Args:
        sentence: A sentence with three underscores as its gap: "He sat on the river ___ ."
        k: Number of words to print.
    """
    from elmokit.language import CANDIDATES

    elmo = options.load()
    fillings = elmo.fill(sentence, k)
    rows = [[one.word, f"{one.fit:.1%}", f"{one.probability:.1%}"] for one in fillings]
    print(table(["word", "fit", "probability"], rows))
    tried = min(max(CANDIDATES, k), len(elmo.vocabulary or ()))
    print(f"probability: share among the {tried} words that were tried in the whole sentence")
    print("fit: that share after division by the square root of the word's frequency")
