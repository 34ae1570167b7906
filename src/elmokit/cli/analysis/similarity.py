"""`elmokit similarity`: do cosines agree with people on words in context, or on sentences?

    FILE ─► pairs ─► cosines of each layer ─► correlation or accuracy ─► table, JSON

Every number is given twice: for the vectors as they are, and with the mean vector of all tokens
subtracted ("centered").
"""

from __future__ import annotations

from typing import Any, Literal

from elmokit import analysis
from elmokit.cli.options import ModelOptions, ResultOptions
from elmokit.cli.output import percent, table, write_result
from elmokit.errors import ElmokitError
from elmokit.io.lines import name_of


def similarity(
    file: str,
    /,
    *,
    kind: Literal["auto", "scws", "wic", "sentences"] = "auto",
    gold: str | None = None,
    train: str | None = None,
    train_gold: str | None = None,
    first_column: str | None = None,
    second_column: str | None = None,
    score_column: str | None = None,
    pooling: str = "mean,max,ends",
    vectors: str | None = None,
    errors: Literal["strict", "replace"] = "strict",
    writing: ResultOptions = ResultOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Measure how well cosines agree with people: on words in context, or on sentences.

    Args:
        file: Pairs that people have compared: SCWS, WiC, or a table of sentences with a score
            (TSV, CSV or JSON lines); also .gz, .xz, .zst.
        kind: Kind of file; auto decides by its first line.
        gold: Answers to a WiC file, T or F per line (default: dev.gold.txt beside dev.data.txt).
        train: WiC file to learn the threshold of the cosine from.
        train_gold: Answers to the WiC file to learn from.
        first_column: Column of the first sentence: a name, or a number from 1.
        second_column: Column of the second sentence.
        score_column: Column of the score.
        pooling: How tokens become a sentence vector: some of mean, max, min, first, last, ends,
            separated by commas.
        vectors: Static word vectors to compare with: GloVe, word2vec or fastText .vec.
        errors: How to handle bytes that are not UTF-8, in SCWS and WiC files.
    """
    settings = dict(locals())
    beside = (name and name.replace(".data.", ".gold.") for name in (file, train))
    writing.check(*(file, gold, train, train_gold, vectors), *beside, model=options.model)
    from elmokit.analysis.similarity.pairs import detect_kind
    from elmokit.analysis.similarity.rate import check_poolings
    from elmokit.text.tokenize import tokenizer as find_tokenizer
    from elmokit.vectors.static.table import read_static_vectors

    detected = kind if kind != "auto" else detect_kind(file)
    is_sentences = detected == "sentences"
    poolings = [name.strip() for name in pooling.split(",")] if is_sentences else ["mean"]
    check_poolings(poolings)
    if train is not None and detected != "wic":
        raise ElmokitError(f"--train learns a threshold for WiC, but {file} is {detected}")
    tokenize = find_tokenizer(options.tokenizer_name())
    columns = first_column, second_column, score_column
    pairs = analysis.read_pairs(file, detected, tokenize, gold=gold, errors=errors, columns=columns)
    training = None
    if train is not None:
        training = analysis.read_pairs(train, "wic", tokenize, gold=train_gold, errors=errors)
    static = None if vectors is None else read_static_vectors(vectors, quiet=writing.quiet)
    rating: Any = {"kind": detected, "training": training, "poolings": poolings, "static": static}
    store = options.open_store()
    result = analysis.rate_similarity(store, pairs, **rating, quiet=writing.quiet)
    print(similarity_table(result))
    if detected == "wic" and train is None:
        print(
            f"the thresholds are the best for {name_of(file)} itself, so these accuracies are too "
            "high: learn thresholds from another file with --train"
        )
    source = None if detected != "wic" else train or "the file itself"
    write_result(
        writing.json, "similarity", settings, {**result.to_dict(), "threshold_from": source}
    )


def similarity_table(result: analysis.SimilarityResult) -> str:
    """Format all measures times 100, raw and centered, and the number of pairs."""
    measures = [name for name in result.rows[-1].raw if name != "threshold"]
    has_pooling = result.kind == "sentences"
    names = [f"{name}{suffix}" for name in measures for suffix in ("", ", centered")]
    rows = [
        [row.name, *([row.pooling] if has_pooling else [])]
        + [percent(values[name]) for name in measures for values in (row.raw, row.centered)]
        for row in result.rows
    ]
    return (
        f"{table(['', *(['pooling'] if has_pooling else []), *names], rows)}\n\n"
        f"{result.pairs:,} pairs; all values times 100; centered: with the mean vector of all "
        "tokens subtracted"
    )
