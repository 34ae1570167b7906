"""`elmokit probe`: what a linear classifier finds in each layer, compared with baselines.

TRAIN, DEV ─► tokens with labels ─► a classifier per layer ─► table, JSON, figure
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from elmokit import analysis
from elmokit.cli.options import Flag, ModelOptions, ResultOptions, Seed
from elmokit.cli.output import percent, table, warn, write_result
from elmokit.errors import plural
from elmokit.figures import write_figure

Training = Parameter(group=Group("Training", sort_key=5))


def probe(
    train: str,
    dev: str,
    /,
    *,
    column: str | None = None,
    token_column: str | None = None,
    kind: Literal["auto", "conll", "conllu"] = "auto",
    skip_bad: Flag = False,
    vectors: str | None = None,
    epochs: Annotated[int | None, Training] = None,
    batch_size: Annotated[int, Training] = 64,
    lr: Annotated[float, Training] = 0.005,
    seed: Annotated[Seed, Training] = 1,
    figure: str | None = None,
    writing: ResultOptions = ResultOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Measure how well a linear classifier predicts a token's label from each layer.

    Args:
        train: CoNLL or CoNLL-U file to learn from; also .gz, .xz, .zst.
        dev: CoNLL or CoNLL-U file to measure on.
        column: Column of the label: a number from 1, negative from the end, or a name of CoNLL-U
            (default: UPOS in CoNLL-U, the last one in CoNLL).
        token_column: Column of the tokens (default: FORM in CoNLL-U, the first one in CoNLL).
        kind: Kind of file; auto decides by the extension.
        skip_bad: Skip and count bad lines instead of stopping at the first.
        vectors: Static word vectors to compare with: GloVe, word2vec or fastText .vec.
        epochs: Number of epochs (default: 10, or as many as give 1,000 steps).
        batch_size: Number of tokens per step.
        lr: Learning rate of Adam; it decays linearly to 0.
        seed: Seed of the order of the tokens.
        figure: File to draw accuracy by layer to, .png or .svg.
    """
    settings = dict(locals())
    writing.check(train, dev, vectors, model=options.model, figure=figure)
    from elmokit.analysis.probes.tokens import label_names
    from elmokit.data.labeled import BadLines
    from elmokit.vectors.static.table import read_static_vectors

    texts = []
    for path in (train, dev):
        bad = BadLines(skip=skip_bad)
        texts.append(
            analysis.read_tagged_text(
                path, column=column, token_column=token_column, kind=kind, bad=bad
            )
        )
        if summary := bad.summary():
            warn(summary)
    label_names(texts[0])  # Raise for too few or too many labels before the model is loaded.
    static = None if vectors is None else read_static_vectors(vectors, quiet=writing.quiet)
    store = options.open_store()

    result = analysis.probe_layers(
        store,
        *texts,
        static=static,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        quiet=writing.quiet,
    )
    print(probe_table(result))
    write_result(writing.json, "probe", settings, result.to_dict())
    if figure is not None:
        title = f"{column or 'Labels'} of {Path(dev).name} by layer"
        write_figure(analysis.draw_probe(result, title=title), figure)


def probe_table(result: analysis.ProbeResult) -> str:
    """Format the accuracies in percent, baselines first, and the number of tokens."""
    static = [result.static] if result.static else []
    rows = [
        [score.name, percent(score.accuracy), percent(score.unseen)]
        for score in [*result.guesses, *static, *result.layers]
    ]
    shares = ", ".join(f"{share:.2f}" for share in result.mix)
    return (
        f"{table(['', 'accuracy', 'unseen words'], rows)}\n\n"
        f"percent of {plural(result.dev_tokens, 'token')} with {len(result.labels)} labels; unseen "
        f"words: {result.unseen_tokens:,} of them that the {result.train_tokens:,} training tokens "
        f"do not have\nshares of the layers in the mix: {shares}"
    )
