"""`elmokit plot uses | weights | pair | surprisal`: a figure, a table of its numbers, and JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.cli.output import open_store, table, write_result
from elmokit.errors import ElmokitError
from elmokit.figures import check_figure, write_figure
from elmokit.io.paths import check_output

if TYPE_CHECKING:
    from elmokit.analysis.plots.maps import WordMap
    from elmokit.language import Surprisal

MOST_TOKENS = 60  # of a sentence in a heat map


def plot_uses(
    input: str,
    out: str,
    *,
    word: str | None = None,
    clusters: int | None = None,
    limit: int = 300,
    model: str = "shipped",
    tokenizer: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Draw a word's uses as points, a panel for each layer, and say how well its senses part.

    Args:
        input: a .tsv of sentence, position, sense and perhaps lemma; or any text, with --word.
        out: the figure, .png or .svg.
        word: the word to draw, or several with commas between; of a .tsv all if not given.
        clusters: of a text that is no .tsv: how many groups of uses to look for; if not given,
            as many as are told apart best.
        limit: uses of a word, at most: of a .tsv the first ones, of a text a fair draw.
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        tokenizer: of a text that is no .tsv: elmokit, whitespace or chinese; if not given, chinese
            for a model that was trained with it, and else elmokit.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        json: also write the points and numbers to this file.
        quiet: no progress.
    """
    check_figure(out)
    check_output(json)
    if limit < 3:
        raise ElmokitError(f"limit must be at least 3, not {limit}")
    words = None if word is None else words_of(word)
    if clusters is not None and clusters < 1:
        raise ElmokitError(f"clusters must be at least 1, not {clusters}")
    from elmokit.analysis.plots.draw import draw_uses
    from elmokit.analysis.plots.inputs import table_uses, text_uses
    from elmokit.analysis.plots.maps import map_clusters, map_uses
    from elmokit.formats.detect import own_tokenizer

    has_senses = ".tsv" in [suffix.lower() for suffix in Path(input).suffixes]
    if has_senses:
        groups = [table_uses(input, words, limit)]
    elif words is None:
        raise ElmokitError(f"{input} is no .tsv of uses: name the word to look for with --word")
    else:
        splitting = tokenizer or own_tokenizer(model)
        groups = [text_uses(input, w, limit, tokenizer=splitting, quiet=quiet) for w in words]
    store = open_store(model, device=device, threads=threads)
    store.prepare([use.tokens for uses in groups for use in uses], quiet=quiet)
    if has_senses:
        maps = map_uses(store, groups[0])
    else:
        maps = [map_clusters(store, uses, clusters) for uses in groups]
    write_figure(draw_uses(maps), out)
    print(uses_table(maps))
    settings = {"input": input, "word": word, "clusters": clusters, "limit": limit, "model": model}
    settings |= {"tokenizer": tokenizer, "figure": out}
    write_result(json, "plot uses", settings, {"words": {m.word: m.to_dict() for m in maps}})


def words_of(text: str) -> list[str]:
    """Words with commas between, each once."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ElmokitError(f"--word names one word, or several with commas between, not {text!r}")
    return list(dict.fromkeys(words))


def uses_table(maps: list[WordMap]) -> str:
    """Purity and silhouette of each word, for each layer."""
    rows: list[list[object]] = []
    for each in maps:
        for name in ("purity", "silhouette"):
            values = getattr(each, name)
            shown = [None] * len(each.names) if values is None else map(float, values)
            rows.append([f"{each.word}: {name}", *shown])
    return table(["", *maps[0].names], rows)


def plot_weights(models: list[str], out: str, *, json: str | None = None) -> None:
    """Draw the weights that trained task models give the layers.

    Args:
        models: folders that `elmokit train` wrote, one or more.
        out: the figure, .png or .svg.
        json: also write the weights to this file.
    """
    check_figure(out)
    check_output(json)
    from elmokit.analysis.plots.draw import draw_weights
    from elmokit.analysis.plots.maps import Mixes, short_names
    from elmokit.tasks.folder import read_mixes

    names = short_names(models)
    found = []
    for name, folder in zip(names, models, strict=True):
        mixes = read_mixes(folder)
        if mixes is None:
            print(f"elmokit: {folder} has learned no mix of layers: left out", file=sys.stderr)
        else:
            found.append(Mixes(name, mixes.task, mixes.weights, mixes.scales))
    if not found:
        raise ElmokitError("none of the models has learned a mix of layers")
    write_figure(draw_weights(found), out)
    layers = max(len(shares) for mixes in found for shares in mixes.places.values())
    rows: list[list[object]] = [
        [f"{mixes.name}: {place}", *shares, *[None] * (layers - len(shares)), mixes.scales[place]]
        for mixes in found
        for place, shares in mixes.places.items()
    ]
    print(table(["", *(f"layer {number}" for number in range(layers)), "scale"], rows))
    result = {
        mixes.name: {"task": mixes.task, "weights": mixes.places, "scales": mixes.scales}
        for mixes in found
    }
    write_result(json, "plot weights", {"models": models, "figure": out}, {"mixes": result})


def plot_pair(
    first: str,
    second: str,
    out: str,
    *,
    layer: str = "top",
    model: str = "shipped",
    tokenizer: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    json: str | None = None,
) -> None:
    """Draw how alike the words of two sentences are, each with each, and print the nearest ones.

    Args:
        first: a sentence.
        second: another one.
        out: the figure, .png or .svg.
        layer: to be drawn: a number from 0, top or average. The table has all.
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        tokenizer: elmokit, whitespace or chinese; if not given, chinese for a model that was
            trained with it, and else elmokit.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        json: also write the cosines of all layers to this file.
    """
    check_figure(out)
    check_output(json)
    for text in (first, second):
        if not text.strip():
            raise ElmokitError("a sentence is empty")
    from elmokit.analysis.plots.draw import draw_pair
    from elmokit.analysis.plots.maps import compare_tokens, layer_index

    store = open_store(model, device=device, threads=threads, tokenizer=tokenizer)
    chosen = layer_index(layer, store.elmo.config.num_layers)
    one, other = (store.elmo.tokenize(text) for text in (first, second))
    for tokens in (one, other):
        if len(tokens) > MOST_TOKENS:
            raise ElmokitError(
                f"a sentence has {len(tokens)} tokens, and the figure has room for {MOST_TOKENS}"
            )
    pair = compare_tokens(store, one, other)
    write_figure(draw_pair(pair, chosen), out)
    nearest = pair.cosines.argmax(axis=2)  # (L + 2, tokens of the first)
    rows = [
        [token, *(f"{other[n]} {c[n]:.2f}" for n, c in zip(near, cosines, strict=True))]
        for token, near, cosines in zip(one, nearest.T, pair.cosines.swapaxes(0, 1), strict=True)
    ]
    print(table(["nearest in", *pair.names], rows))
    settings: dict[str, Any] = {"first": first, "second": second, "layer": layer, "model": model}
    settings |= {"tokenizer": tokenizer, "figure": out}
    cosines = dict(zip(pair.names, pair.cosines.tolist(), strict=True))
    write_result(json, "plot pair", settings, {"first": one, "second": other, "cosines": cosines})


def plot_surprisal(
    text: str,
    out: str,
    *,
    model: str = "shipped",
    tokenizer: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Draw how unexpected each word of a text is, in bits, from either side.

    Args:
        text: a file of running text (also .jsonl, .conll, .conllu, .gz, .xz, .zst), - for standard
            input, or the text itself.
        out: the figure, .png or .svg.
        model: a model folder or Hub name with a softmax; "shipped" is elmokit's own.
        tokenizer: elmokit, whitespace or chinese; if not given, chinese for a model that was
            trained with it, and else elmokit.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        json: also write the numbers to this file.
        quiet: no progress.
    """
    check_figure(out)
    check_output(json)
    from tqdm import tqdm

    from elmokit.analysis.plots.draw import draw_surprisal
    from elmokit.analysis.plots.inputs import MOST_TEXT, first_words, text_sentences
    from elmokit.formats.detect import own_tokenizer

    splitting = tokenizer or own_tokenizer(model)
    sentences, is_cut = first_words(text_sentences(text, splitting))
    if is_cut:
        print(f"elmokit: only the first {MOST_TEXT} words are drawn", file=sys.stderr)
    elmo = open_store(model, device=device, threads=threads).elmo
    found = [
        elmo.surprisal([tokens])[0] for tokens in tqdm(sentences, unit=" sentences", disable=quiet)
    ]
    write_figure(draw_surprisal(found), out)
    print(surprisal_table(found))
    settings = {"text": text, "model": model, "tokenizer": splitting, "figure": out}
    write_result(json, "plot surprisal", settings, {"sentences": [as_dict(each) for each in found]})


def surprisal_table(found: list[Surprisal]) -> str:
    """Each word with its bits in both directions and their mean."""
    rows = [
        [token, float(ahead), float(back), float(mean), "" if known else "as <UNK>"]
        for each in found
        for token, ahead, back, mean, known in zip(
            each.tokens, each.forward, each.backward, each.average, each.known, strict=True
        )
    ]
    return table(["", "forward", "backward", "average", ""], rows)


def as_dict(found: Surprisal) -> dict[str, Any]:
    """The surprisal of a sentence, for a JSON file."""
    return {
        "tokens": found.tokens,
        "forward": found.forward.tolist(),
        "backward": found.backward.tolist(),
        "known": found.known.tolist(),
    }
