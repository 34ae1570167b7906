"""`elmokit probe | similarity | drift`: what each layer knows, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from elmokit import analysis
from elmokit.cli.options import Flag, ModelOptions, ResultOptions, Seed, TextOptions
from elmokit.cli.output import percent, table, write_result
from elmokit.errors import ElmokitError, plural
from elmokit.figures import write_figure
from elmokit.io.lines import name_of
from elmokit.progress import logger

Training = Parameter(group=Group("Training", sort_key=5))
COLUMNS = "word,uses A,uses B,change,apd,within A,within B,prt,halves A,halves B".split(",")
EXPLAINED = """\
uses: number of uses that were compared, in A and in B
change: apd minus the mean of within A and within B; near 0 if both corpora use the word alike
apd: average pairwise distance, 1 - cosine, of a use in A and a use in B
within: average pairwise distance of two uses in the same corpus
prt: prototype distance, 1 - cosine of the mean vectors of A and B
halves: prt of random halves of one corpus, which is what chance alone gives"""


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
    writing.check(train, dev, vectors, *options.inputs, figure=figure)
    from elmokit.analysis.probes.tokens import label_names
    from elmokit.data.labeled import BadLines
    from elmokit.vectors.static.table import read_static_vectors

    texts = []
    reading: Any = {"column": column, "token_column": token_column, "kind": kind}
    for path in (train, dev):
        bad = BadLines(skip=skip_bad)
        texts.append(analysis.read_tagged_text(path, **reading, bad=bad))
        if summary := bad.summary():
            logger.warning(summary)
    label_names(texts[0])  # Raise for too few or too many labels before the model is loaded.
    static = None if vectors is None else read_static_vectors(vectors, quiet=writing.quiet)
    training: Any = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "seed": seed}
    training |= {"static": static, "quiet": writing.quiet}
    result = analysis.probe_layers(options.open_store(), *texts, **training)
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
    writing.check(*(file, gold, train, train_gold, vectors), *beside, *options.inputs)
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
    result = analysis.rate_similarity(options.open_store(), pairs, **rating, quiet=writing.quiet)
    print(similarity_table(result))
    if detected == "wic" and train is None:
        print(
            f"the thresholds are the best for {name_of(file)} itself, so these accuracies are too "
            "high: learn thresholds from another file with --train"
        )
    source = None if detected != "wic" else train or "the file itself"
    content = {**result.to_dict(), "threshold_from": source}
    write_result(writing.json, "similarity", settings, content)


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


def drift(
    a: str,
    b: str,
    /,
    *,
    words: str | None = None,
    min_count: int = 5,
    max_uses: int = 500,
    max_words: int = 200,
    skip_words: int = 100,
    layer: str = "average",
    measure: Literal["change", "apd", "prt"] = "change",
    show: int = 20,
    examples: int = 2,
    case_sensitive: Flag = False,
    seed: Seed = 1,
    writing: ResultOptions = ResultOptions(),
    text: TextOptions = TextOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Measure how differently two corpora use words.

    Args:
        a: Text file with a sentence per line; also .jsonl, .conll, .conllu, and .gz, .xz, .zst.
        b: Text file of another time or domain.
        words: Comma-separated words (default: words that are frequent in both).
        min_count: Minimum number of uses of a word in each corpus.
        max_uses: Maximum number of uses of a word in a corpus; more are sampled at random.
        max_words: Maximum number of words, if no --words are given.
        skip_words: Number of most frequent words to skip then; most are function words.
        layer: Layer to rank by: a number, top or average.
        measure: Distance to rank by: apd (average pairwise distance), prt (prototype distance) or
            change (apd minus the distances inside the corpora).
        show: Number of words to print; the JSON file has all.
        examples: Number of sentences to print of each word and corpus.
        case_sensitive: Distinguish upper and lower case.
        seed: Seed of the random numbers.
    """
    settings = dict(locals())
    writing.check(a, b, *options.inputs)
    limits = {"--max-words": (max_words, 1), "--show": (show, 1)}
    limits |= {"--skip-words": (skip_words, 0), "--examples": (examples, 0)}
    for name, (value, least) in limits.items():
        if value < least:
            raise ElmokitError(f"{name} must be at least {least}, not {value}")
    if min_count < 2 or max_uses < min_count:
        raise ElmokitError("--min-count must be at least 2, and --max-uses at least --min-count")

    reading: dict[str, Any] = {"case_sensitive": case_sensitive, "quiet": writing.quiet}
    reading |= {"tokenizer": options.tokenizer_name(), **asdict(text)}
    sampling: Any = {"min_count": min_count, "max_uses": max_uses, "max_words": max_words}
    sampling |= {"skip_words": skip_words, "seed": seed}
    chosen = None if words is None else [word.strip() for word in words.split(",")]
    corpora = analysis.Corpus(a, **reading), analysis.Corpus(b, **reading)
    uses, left_out = analysis.sample_both(*corpora, chosen, **sampling)
    ranking: Any = {"layer": layer, "measure": measure, "seed": seed}
    result = analysis.measure_drift(options.open_store(), uses, **ranking, quiet=writing.quiet)
    print(report(result, (a, b), show=show, examples=examples))
    if left_out:
        rare = ", ".join(f"{word} ({m}, {n})" for word, (m, n) in left_out.items())
        print(f"\nleft out, because both corpora need {min_count} uses: {rare}")
    content = {**result.to_dict(examples), "left_out": left_out}
    write_result(writing.json, "drift", settings, content)


def report(result: analysis.DriftResult, names: Sequence[str], *, show: int, examples: int) -> str:
    """Format the first words of the ranking: all distances, all layers, and examples."""
    from elmokit.layers import layer_names

    shown = result.words[:show]
    layers = layer_names(len(shown[0].apd) - 2)
    layer, distances, in_layers = layers.index(result.layer), [], []
    for word in shown:
        measures = (word.change, word.apd, *word.within, word.prt, *word.halves)
        distances.append([word.word, *map(len, word.uses), *(f"{m[layer]:.3f}" for m in measures)])
        in_layers.append([word.word, *map("{:.3f}".format, getattr(word, result.measure))])
    parts = [
        f"{result.layer}, ranked by {result.measure}:",
        table(COLUMNS, distances),
        EXPLAINED,
        f"\n{result.measure} in every layer:",
        table(["word", *layers], in_layers),
    ]
    for word in shown if examples > 0 else ():
        parts.append(f"\n{word.word}:")
        for side, name in enumerate(names):
            if typical := word.words[side]:
                parts.append(f"  {name}, typical words: {', '.join(typical)}")
            uses = word.examples(side, examples)
            parts += [f"  {name}: {use.shortened().marked()}" for use in uses]
    return "\n".join(parts)
