"""`elmokit probe`: what a linear classifier finds in each layer, beside what needs no layers.

TRAIN, DEV ─► tokens with labels ─► a classifier a layer (linear_probes.py) ─► table, JSON, figure
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

from elmokit.analysis.probes.figure import draw_probe
from elmokit.analysis.probes.tokens import label_names, read_tagged_text
from elmokit.cli.output import open_store, table, write_result
from elmokit.data.labeled import BadLines
from elmokit.figures import check_figure, write_figure
from elmokit.io.paths import check_output
from elmokit.vectors.static.table import read_vectors


def probe(
    train: str,
    dev: str,
    *,
    column: str | None = None,
    token_column: str | None = None,
    kind: Literal["auto", "conll", "conllu"] = "auto",
    vectors: str | None = None,
    model: str = "shipped",
    epochs: int | None = None,
    batch_size: int = 64,
    lr: float = 0.005,
    seed: int = 1,
    skip_bad: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    json: str | None = None,
    figure: str | None = None,
    quiet: bool = False,
) -> None:
    """Measure how well a linear classifier tells a token's label from each layer.

    Args:
        train: sentences in columns to learn from, CoNLL or CoNLL-U; also .gz, .xz, .zst.
        dev: sentences to measure by.
        column: of the label: a number from 1, negative from the end, or a name of CoNLL-U; UPOS
            in CoNLL-U and the last one in CoNLL if not given.
        token_column: of the tokens; FORM in CoNLL-U and the first one in CoNLL if not given.
        kind: what the files are; by their extensions if auto.
        vectors: static word vectors to compare with: GloVe, word2vec or fastText .vec.
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        epochs: times that the training tokens are read; if not given 10, or more for a small
            text.
        batch_size: tokens of a step.
        lr: learning rate of Adam; it falls in a straight line to 0.
        seed: of the order of the tokens.
        skip_bad: leave bad lines out and count them, instead of stopping at the first.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        json: file for the result with all settings.
        figure: file for a figure of accuracy by layer, .png or .svg.
        quiet: no progress.
    """
    settings = dict(locals())
    check_output(json)
    check_figure(figure)
    texts = []
    for path in (train, dev):
        bad = BadLines(skip=skip_bad)
        texts.append(
            read_tagged_text(path, column=column, token_column=token_column, kind=kind, bad=bad)
        )
        if bad.summary():
            print(f"elmokit: {bad.summary()}", file=sys.stderr)
    label_names(texts[0])  # too few or too many are told of before the model loads
    static = None if vectors is None else read_vectors(vectors, quiet=quiet)
    store = open_store(model, device=device, threads=threads)
    from elmokit.analysis.probes.linear import run_probes

    result = run_probes(
        store,
        *texts,
        static=static,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        quiet=quiet,
    ).to_dict()
    print(probe_table(result))
    write_result(json, "probe", settings, result)
    if figure is not None:
        title = f"{column or 'Labels'} of {Path(dev).name} by layer"
        write_figure(draw_probe(result, title=title), figure)


def probe_table(result: dict[str, Any]) -> str:
    """Per cents of the dev tokens, with the base lines first, and what they are counted on."""
    static = [result["static"]] if result["static"] else []
    rows = [
        [score["name"], 100 * score["accuracy"], _per_cent(score["unseen"])]
        for score in [*result["guesses"], *static, *result["layers"]]
    ]
    shares = ", ".join(f"{share:.2f}" for share in result["mix"])
    dev, unseen, train = (result[f"{which}_tokens"] for which in ("dev", "unseen", "train"))
    return "\n".join(
        [
            table(["", "accuracy", "unseen words"], rows),
            "",
            f"per cent of {dev:,} tokens with {len(result['labels'])} labels; {unseen:,} of them "
            f"are words that the {train:,} training tokens do not have",
            f"shares of the layers in the mix: {shares}",
        ]
    )


def _per_cent(share: float | None) -> float | None:
    return None if share is None else 100 * share
