"""`elmokit similarity`: do cosines say what people say of words in context, or of sentences?

    FILE ─► pairs (rated_pairs.py) ─► cosines a layer (pair_cosines.py) ─► agreement.py ─► table

Every number is given twice: for the vectors as they are, and with the mean vector of all tokens
taken off.
"""

from __future__ import annotations

from typing import Any, Literal

from elmokit.analysis.similarity.agreement import WAYS, measure_pairs
from elmokit.analysis.similarity.cosines import check_poolings, texts_of
from elmokit.analysis.similarity.rated_pairs import (
    kind_of_pairs,
    read_scws,
    read_sentence_pairs,
    read_wic,
)
from elmokit.cli.output import open_store, table, write_result
from elmokit.errors import ElmokitError
from elmokit.formats.detect import own_tokenizer
from elmokit.io.lines import name_of
from elmokit.io.paths import check_output
from elmokit.text.tokenize import tokenizer as tokenizer_named
from elmokit.vectors.static.table import read_static_vectors


def similarity(
    file: str,
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
    model: str = "shipped",
    tokenizer: Literal["elmokit", "whitespace", "chinese"] | None = None,
    errors: Literal["strict", "replace"] = "strict",
    device: str = "cpu",
    threads: int | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Measure how well cosines agree with people: words in context, or sentences.

    Args:
        file: pairs that people have compared: SCWS, WiC, or a table of sentences with a score
            (tabs, CSV or JSON lines); also .gz, .xz, .zst.
        kind: what the file is; by its first line if auto.
        gold: the answers to a WiC file, T or F a line; dev.gold.txt beside dev.data.txt if not
            given.
        train: a WiC file to learn the threshold of the cosine from.
        train_gold: its answers.
        first_column: of the first sentence: a name, or a number from 1.
        second_column: of the second sentence.
        score_column: of the score.
        pooling: how tokens become a sentence: some of mean, max, min, first, last, ends, with
            commas between.
        vectors: static word vectors to compare with: GloVe, word2vec or fastText .vec.
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        tokenizer: whitespace for text that is tokenized already; if not given, chinese for a model
            that was trained with it, and else elmokit.
        errors: what to do with bytes that are not UTF-8, in SCWS and WiC files.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        json: file for the result with all settings.
        quiet: no progress.
    """
    settings = dict(locals())
    check_output(json)
    kind = kind if kind != "auto" else kind_of_pairs(file)  # type: ignore[assignment]
    poolings = [name.strip() for name in pooling.split(",")] if kind == "sentences" else ["mean"]
    check_poolings(poolings)
    if train is not None and kind != "wic":
        raise ElmokitError(f"a threshold is learned with --train for WiC, and {file} is {kind}")
    tokenize = tokenizer_named(tokenizer or own_tokenizer(model))
    training = None
    if kind == "scws":
        pairs = read_scws(file, tokenize, errors=errors)
    elif kind == "wic":
        pairs = read_wic(file, gold, errors=errors)
        training = None if train is None else read_wic(train, train_gold, errors=errors)
    else:
        pairs = read_sentence_pairs(
            file,
            tokenize,
            first_column=first_column,
            second_column=second_column,
            score_column=score_column,
        )
    static = None if vectors is None else read_static_vectors(vectors, quiet=quiet)
    store = open_store(model, device=device, threads=threads)
    store.prepare(texts_of([*(training or []), *pairs]), quiet=quiet)
    result = measure_pairs(
        store, pairs, kind=kind, training=training, poolings=poolings, static=static, quiet=quiet
    )
    result["threshold_from"] = None if kind != "wic" else train or "the file itself"
    print(similarity_table(result))
    if kind == "wic" and train is None:
        print(
            f"the thresholds are the best ones for {name_of(file)} itself, so these accuracies are "
            "too good: learn them from another file with --train"
        )
    write_result(json, "similarity", settings, result)


def similarity_table(result: dict[str, Any]) -> str:
    """All values times 100, raw and with the mean taken off, and the number of pairs."""
    measures = [name for name in result["rows"][-1]["raw"] if name != "threshold"]
    poolings = ["pooling"] if result["kind"] == "sentences" else []
    names = ["", *poolings, *(f"{name}{way}" for name in measures for way in ("", ", mean off"))]
    rows = [
        [row["name"], *([row["pooling"]] if poolings else [])]
        + [_hundredfold(row[way][name]) for name in measures for way in WAYS]
        for row in result["rows"]
    ]
    return f"{table(names, rows)}\n\n{result['pairs']:,} pairs; all values times 100"


def _hundredfold(value: float | None) -> float | None:
    return None if value is None else 100 * value
