"""`elmokit plot uses | weights | pair | surprisal`: a figure, a table of its numbers, and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit import analysis
from elmokit.cli.options import ModelOptions, ResultOptions, split_words
from elmokit.cli.output import table, write_result
from elmokit.errors import ElmokitError
from elmokit.figures import write_figure
from elmokit.progress import logger

if TYPE_CHECKING:
    from elmokit.tasks.folder import LearnedMixes

MAX_TOKENS = 60  # of a sentence in a heat map


def uses(
    input: str,
    out: str,
    /,
    *,
    words: str | None = None,
    clusters: int | None = None,
    max_uses: int = 300,
    writing: ResultOptions = ResultOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Draw a word's uses as points, a panel for each layer, and print how well its senses separate.

    Args:
        input: A .tsv of sentence, position, sense and optionally lemma; or any text, with --words.
        out: Figure to write, .png or .svg.
        words: Comma-separated words to draw (default: all words of a .tsv).
        clusters: Number of clusters to find in a text without senses (default: the best by
            silhouette).
        max_uses: Maximum number of uses of a word: the first of a .tsv, a random sample of a text.
    """
    settings = dict(locals())
    writing.check(input, *options.inputs, figure=out)
    if max_uses < 3:
        raise ElmokitError(f"--max-uses must be at least 3, not {max_uses}")
    if clusters is not None and clusters < 1:
        raise ElmokitError(f"clusters must be at least 1, not {clusters}")
    from elmokit.analysis.plots.maps import read_table_uses, sample_text_uses

    chosen = None if words is None else split_words(words)
    has_senses = ".tsv" in [suffix.lower() for suffix in Path(input).suffixes]
    if has_senses:
        groups = [read_table_uses(input, chosen, max_uses)]
    elif chosen is None:
        raise ElmokitError(f"{input} is not a .tsv of uses: name the word to find with --words")
    else:
        reading: Any = {"tokenizer": options.tokenizer_name(), "quiet": writing.quiet}
        groups = [sample_text_uses(input, word, max_uses, **reading) for word in chosen]

    store = options.open_store()
    if has_senses:
        maps = analysis.map_uses(store, groups[0], quiet=writing.quiet)
    else:
        maps = [analysis.map_clusters(store, own, clusters, quiet=writing.quiet) for own in groups]
    write_figure(analysis.draw_uses(maps), out)
    print(uses_table(maps))
    by_word = {word_map.word: word_map.to_dict() for word_map in maps}
    write_result(writing.json, "plot uses", settings, {"words": by_word})


def uses_table(maps: Sequence[analysis.WordMap]) -> str:
    """Format purity and silhouette of each word in each layer."""
    rows: list[list[object]] = []
    for word_map in maps:
        for name in ("purity", "silhouette"):
            values = getattr(word_map, name)
            cells = [None] * len(word_map.names) if values is None else map(float, values)
            rows.append([f"{word_map.word}: {name}", *cells])
    return (
        f"{table(['', *maps[0].names], rows)}\n\n"
        "purity: how often the nearest other use has the same sense\n"
        "silhouette: how well the senses or clusters are separated, from -1 to 1"
    )


def weights(models: list[str], out: str, /, *, writing: ResultOptions = ResultOptions()) -> None:
    """Draw the weights that trained task models give the layers.

    Args:
        models: One or more folders written by elmokit train.
        out: Figure to write, .png or .svg.
    """
    settings = dict(locals())
    writing.check(*models, figure=out)
    from elmokit.analysis.plots.draw import short
    from elmokit.analysis.plots.maps import short_names
    from elmokit.tasks.folder import read_mixes

    learned = {}
    for name, folder in zip(short_names(models), models, strict=True):
        mixes = read_mixes(folder)
        if mixes is None:
            logger.warning(f"{folder} has not learned a mix of layers, so it is left out")
        else:
            learned[name] = mixes
    if not learned:
        raise ElmokitError("none of the models has learned a mix of layers")
    labels = [f"{short(name)} ({mixes.task})" for name, mixes in learned.items()]
    write_figure(analysis.draw_weights(labels, [mixes.weights for mixes in learned.values()]), out)
    print(weights_table(learned))
    result = {name: asdict(mixes) for name, mixes in learned.items()}
    write_result(writing.json, "plot weights", settings, {"mixes": result})


def weights_table(learned: Mapping[str, LearnedMixes]) -> str:
    """Format the share of each layer in each mix, and the factor of the mix."""
    layers = max(len(shares) for mixes in learned.values() for shares in mixes.weights.values())
    rows: list[list[object]] = [
        [f"{name}: {placement}", *shares, *[None] * (layers - len(shares)), mixes.scales[placement]]
        for name, mixes in learned.items()
        for placement, shares in mixes.weights.items()
    ]
    names = ["", *(f"layer {i}" for i in range(layers)), "scale"]
    return f"{table(names, rows)}\n\nlayer: its share in the mix; scale: the factor of the mix"


def pair(
    first: str,
    second: str,
    out: str,
    /,
    *,
    layer: str = "top",
    writing: ResultOptions = ResultOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Draw how similar the words of two sentences are, and print the nearest ones.

    Args:
        first: A sentence.
        second: Another sentence.
        out: Figure to write, .png or .svg.
        layer: Layer to draw: a number from 0, top or average; the table has all layers.
    """
    settings = dict(locals())
    writing.check(*options.inputs, figure=out)
    if not first.strip() or not second.strip():
        raise ElmokitError("a sentence is empty")
    from elmokit.layers import layer_index

    store = options.open_store()
    index = layer_index(layer, store.elmo.config.num_layers)
    sentences = [store.elmo.tokenize(text) for text in (first, second)]
    for tokens in sentences:
        if len(tokens) > MAX_TOKENS:
            raise ElmokitError(
                f"a sentence has {len(tokens)} tokens, and the figure has room for {MAX_TOKENS}"
            )
    compared = analysis.compare_tokens(store, *sentences)
    write_figure(analysis.draw_pair(compared, index), out)
    by_token = compared.cosines.swapaxes(0, 1)  # (tokens of the first, L + 2, of the second)
    rows = [
        [token, *(f"{compared.second[c.argmax()]} {c.max():.2f}" for c in cosines)]
        for token, cosines in zip(compared.first, by_token, strict=True)
    ]
    print(table(["nearest in", *compared.names], rows))
    write_result(writing.json, "plot pair", settings, compared.to_dict())


def surprisal(
    text: str,
    out: str,
    /,
    *,
    writing: ResultOptions = ResultOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Draw how unexpected each word of a text is, in bits, from either side.

    Args:
        text: File of running text (also .jsonl, .conll, .conllu, .gz, .xz, .zst), - for standard
            input, or the text itself.
        out: Figure to write, .png or .svg.
    """
    writing.check(text, *options.inputs, figure=out)
    from tqdm import tqdm

    from elmokit.analysis.plots import maps

    tokenizer = options.tokenizer_name()
    exact = replace(options, tokenizer=tokenizer, jieba_dict=None)
    settings = {"text": text, "out": out, "options": exact}
    sentences, is_cut = maps.first_words(maps.read_text(text, tokenizer))
    if is_cut:
        logger.warning(f"only the first {maps.MAX_TEXT} words are drawn")
    elmo = options.load()
    progress = tqdm(sentences, unit=" sentences", disable=writing.quiet)
    results = [elmo.surprisal([tokens])[0] for tokens in progress]
    write_figure(analysis.draw_surprisal(results), out)
    rows: list[tuple[object, ...]] = []
    content = []
    for result in results:
        bits = {name: getattr(result, name).tolist() for name in ("forward", "backward")}
        notes = ["" if known else "as <UNK>" for known in result.known]
        columns = (*bits.values(), result.average.tolist(), notes)
        rows += zip(result.tokens, *columns, strict=True)
        content.append({"tokens": result.tokens, **bits, "known": result.known.tolist()})
    print(table(["", "forward", "backward", "average", ""], rows))
    print("\nin bits; forward: given the words before; backward: given the words after")
    write_result(writing.json, "plot surprisal", settings, {"sentences": content})
