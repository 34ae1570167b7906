"""`elmokit static`: static word vectors, each the mean of the uses of a word in a corpus."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elmokit import analysis
from elmokit.cli.options import Flag, ModelOptions, TextOptions, WriteOptions
from elmokit.errors import plural
from elmokit.io.jsonfile import read_text
from elmokit.io.resumable import check_unused


def static(
    corpus: str,
    out: str,
    /,
    *,
    layer: str = "1",
    min_count: int = 5,
    max_words: int = 100_000,
    vocabulary: str | None = None,
    lowercase: Flag = False,
    resume: Flag = False,
    writing: WriteOptions = WriteOptions(),
    text: TextOptions = TextOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Average the uses of each word in a corpus, and write one vector per word.

    Args:
        corpus: Text file (.txt, .jsonl, .conll, .conllu; also .gz, .xz, .zst).
        out: File of word2vec to write: text, or binary if it ends in .bin; also .gz.
        layer: Layer of the vectors: an index from 0, top, average, or comma-separated weights.
        min_count: Minimum number of uses of a word.
        max_words: Maximum number of words; the most frequent ones are kept.
        vocabulary: File of the words to keep, one per line (default: all).
        lowercase: Average the uses of a word in upper and lower case together.
        resume: Resume a run that was stopped.
    """
    inputs = [corpus, vocabulary, *options.inputs]
    check_unused(Path(out), resume=resume, overwrite=writing.overwrite, inputs=inputs)
    words = None if vocabulary is None else read_text(Path(vocabulary)).split()
    reading = {"tokenizer": options.tokenizer_name(), **asdict(text)}
    texts = analysis.Corpus(corpus, case_sensitive=not lowercase, quiet=writing.quiet, **reading)
    chosen: Any = {"vocabulary": words, "min_count": min_count, "max_words": max_words}
    run: Any = {"layer": layer, "resume": resume, "overwrite": writing.overwrite}
    result = analysis.average_uses(options.load(), texts, out, **chosen, **run)
    if not writing.quiet:
        size = f"{plural(result.words, 'word')} of {plural(result.dim, 'column')}"
        print(f"{out}: {size}, averages of {plural(result.uses, 'use')}", file=sys.stderr)
