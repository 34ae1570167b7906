"""`elmokit senses build`, `tag`, `score` and `induce`: the senses of words in their sentences."""

from __future__ import annotations

import json as as_json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from elmokit.analysis.senses.data import TaggedSentence, read_first_senses, read_tagged, survey
from elmokit.analysis.senses.induce import (
    Induced,
    find_uses,
    induce_senses,
    nearby,
    position,
    sample_uses,
)
from elmokit.analysis.senses.inventory import (
    WITH_FREQUENCY,
    Inventory,
    check_replaced,
    load_inventory,
)
from elmokit.analysis.senses.scores import score_first_senses, score_inventory
from elmokit.analysis.senses.sums import build_inventory
from elmokit.analysis.senses.tags import Tag, tag_sentences
from elmokit.cli.output import open_store, table, write_result
from elmokit.errors import ElmokitError
from elmokit.io.atomic import write_file
from elmokit.io.paths import check_output
from elmokit.text.readers import read_sentences, total_bytes, whole_lines

# Nothing here is imported for type checkers alone: jsonargparse would import it, torch and all.

NO_INVENTORY = "none"


def build(
    data: str,
    out: str,
    *,
    keys: str | None = None,
    model: str = "shipped",
    centre: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    overwrite: bool = False,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Average the vectors of each sense's uses in sense-tagged text.

    Args:
        data: an .xml file in Raganato's format such as SemCor, or a table with tabs: sentence,
            position, sense and perhaps lemma; also .gz, .xz, .zst.
        out: folder of the senses.
        keys: the file with the senses of an .xml file.
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        centre: take the mean vector of all tokens off before vectors are compared.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        overwrite: replace the senses that are in the folder.
        json: file for the result with all settings.
        quiet: no progress.
    """
    settings = dict(locals())
    check_replaced(Path(out), overwrite)
    check_output(json)
    extent = survey(data, keys)
    store = open_store(model, device=device, threads=threads)
    steps = iter(("averages", "mix"))

    def read() -> Iterable[TaggedSentence]:
        return _shown(read_tagged(data, keys), extent.sentences, next(steps), quiet)

    inventory = build_inventory(store, read, centre=centre, model=model)
    inventory.facts |= {
        "settings": {"data": data, "keys": keys, "model": model, "centre": centre},
        "sentences": extent.sentences,
        "instances": extent.instances,
    }
    inventory.save(out, overwrite=overwrite)
    facts = inventory.facts
    words = f"{len(inventory.words):,} word{'s' * (len(inventory.words) != 1)}"
    print(f"{out}: {len(inventory.senses):,} senses of {words}")
    if facts["choices"]:
        rows = [[name, 100 * share] for name, share in facts["leave_one_out"].items()]
        print(f"found from the other uses, of {facts['choices']:,} uses, in per cent:")
        print(table(["", "right"], rows))
    result = {
        "senses": len(inventory.senses),
        "words": len(inventory.words),
        "mixes": {name: vars(mix) for name, mix in inventory.mixes.items()},
        **facts,
    }
    write_result(json, "senses build", settings, result)


def score(
    inventory: str,
    data: str,
    *,
    keys: str | None = None,
    index: str | None = None,
    model: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Measure how many senses of sense-tagged text are found: precision, recall and F1.

    Args:
        inventory: folder of the senses; "none" to measure WordNet's first senses alone.
        data: an .xml file in Raganato's format, or a table with tabs: sentence, position, sense
            and perhaps lemma; also .gz, .xz, .zst.
        keys: the file with the senses of an .xml file.
        index: WordNet's index.sense, whose first sense words get that the inventory does not know.
        model: the biLM, where it lies elsewhere than when the senses were built.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        json: file for the result with all settings.
        quiet: no progress.
    """
    settings = dict(locals())
    if inventory == NO_INVENTORY and index is None:
        raise ElmokitError("without an inventory, WordNet's index.sense must be named with --index")
    check_output(json)
    extent = survey(data, keys)
    first = None if index is None else read_first_senses(index)
    sentences = _shown(read_tagged(data, keys), extent.sentences, "senses", quiet)
    if inventory == NO_INVENTORY:
        assert first is not None
        scores = score_first_senses(sentences, first)
    else:
        senses = load_inventory(inventory)
        store = _own_store(senses, model, device=device, threads=threads)
        scores = score_inventory(store, senses, sentences, first)
    print(table(*scores.rows()))
    write_result(json, "senses score", settings, {"scores": scores.to_dict()})


def tag(
    inventory: str,
    input: str,
    *,
    out: str = "-",
    format: Literal["tsv", "jsonl"] = "tsv",
    method: str = WITH_FREQUENCY,
    model: str | None = None,
    tokenizer: Literal["elmokit", "whitespace", "chinese"] | None = None,
    split: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    quiet: bool = False,
) -> None:
    """Write the senses of the words of a text, of those that the inventory knows.

    Args:
        inventory: folder of the senses.
        input: a text file with a sentence a line (.txt, .jsonl, .conll, .conllu; also .gz, .xz,
            .zst), or - for standard input.
        out: file to write; - for standard output.
        format: tsv, a line a word, or jsonl, a line a sentence.
        method: what decides: "layer 0" and so on, "average", "mix" or "mix + frequency".
        model: the biLM, where it lies elsewhere than when the senses were built.
        tokenizer: whitespace for text that is tokenized already; the model's if not given.
        split: the input is running text, to be split into sentences.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        quiet: no progress.
    """
    from elmokit.formats.detect import own_tokenizer

    check_output(None if out == "-" else out)
    senses = load_inventory(inventory)
    if method not in senses.methods:
        raise ElmokitError(f"the method may be {', '.join(senses.methods)}, not {method!r}")
    splitting = tokenizer or own_tokenizer(model or senses.model)
    bar = tqdm(total=total_bytes(input), unit="B", unit_scale=True, desc="senses", disable=quiet)
    lines = read_sentences(
        input, tokenizer=splitting, split=split, on_bytes=lambda n: _move(bar, n)
    )
    with bar:
        texts = _begun(whole_lines(lines))
        store = _own_store(senses, model, device=device, threads=threads)
        found = tag_sentences(store, senses, texts, method)
        pieces = _as_lines(found) if format == "tsv" else _as_json_lines(found)
        if out == "-":
            sys.stdout.writelines(pieces)
        else:
            write_file(Path(out).absolute(), pieces)


def induce(
    word: str,
    corpus: str,
    *,
    clusters: int | None = None,
    layer: str = "average",
    uses: int = 1000,
    examples: int = 3,
    seed: int = 1,
    model: str = "shipped",
    tokenizer: Literal["elmokit", "whitespace", "chinese"] | None = None,
    split: bool = False,
    out: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Find the senses of a word without an inventory: cluster its uses in a corpus.

    Args:
        word: the word, in any case.
        corpus: a text file with a sentence a line (.txt, .jsonl, .conll, .conllu; also .gz, .xz,
            .zst), or - for standard input.
        clusters: how many; the clearest number from 2 to 8 if not given.
        layer: whose vectors are clustered: a number, top or average.
        uses: at most so many are clustered, drawn at random from all.
        examples: sentences to show of each cluster.
        seed: of what is drawn at random.
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        tokenizer: whitespace for text that is tokenized already; the model's if not given.
        split: the corpus is running text, to be split into sentences.
        out: file for all uses with their clusters, a table that `senses build` reads.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        json: file for the result with all settings.
        quiet: no progress.
    """
    settings = dict(locals())
    if clusters is not None and clusters < 2:
        raise ElmokitError(f"clusters must be at least 2, not {clusters}")
    if uses < 3 or examples < 0:
        raise ElmokitError("uses must be at least 3, and examples at least 0")
    check_output(json)
    check_output(out)
    from elmokit.formats.detect import own_tokenizer
    from elmokit.text.tokenize import tokenizer as find_tokenizer

    splitting = tokenizer or own_tokenizer(model)
    wanted = find_tokenizer(splitting)(word)
    if not wanted:
        raise ElmokitError("the word is empty")
    bar = tqdm(total=total_bytes(corpus), unit="B", unit_scale=True, desc="uses", disable=quiet)
    with bar:
        lines = read_sentences(
            corpus, tokenizer=splitting, split=split, on_bytes=lambda n: _move(bar, n)
        )
        kept, there = sample_uses(find_uses(whole_lines(lines), wanted), uses, seed)
    if len(kept) < max(3, clusters or 0):
        raise ElmokitError(f"{corpus} has {there} uses of {word!r}: too few for clusters")
    store = open_store(model, device=device, threads=threads, tokenizer=tokenizer)
    if not quiet:
        store.prepare([use.tokens for use in kept])
    induced = induce_senses(store, kept, layer=layer, clusters=clusters, seed=seed)
    _show_clusters(word, induced, len(kept), there, examples)
    if out is not None:
        write_file(Path(out).absolute(), induced.lines())
    result = induced.to_dict(examples)
    write_result(
        json, "senses induce", settings, {"uses": len(kept), "uses_there": there, **result}
    )


# ---------------------------------------------------------------------- what they share
def _own_store(senses: Inventory, model: str | None, *, device: str, threads: int | None) -> Any:
    """The store of the biLM that the senses were built with; another one is refused."""
    name = model or senses.model
    store = open_store(name, device=device, threads=threads)
    senses.check_model(store, name)
    return store


def _shown(
    sentences: Iterable[TaggedSentence], total: int, what: str, quiet: bool
) -> Iterable[TaggedSentence]:
    return tqdm(sentences, total=total, unit=" sentences", desc=what, disable=quiet)


def _move(bar: tqdm[Any], count: int) -> None:
    bar.update(count)


def _begun(lines: Iterator[list[str]]) -> Iterator[list[str]]:
    """The same lines; trouble with the first is told at once."""
    first = next(lines, None)
    return iter(()) if first is None else chain([first], lines)


def _as_lines(found: Iterable[tuple[Sequence[str], list[Tag]]]) -> Iterator[str]:
    yield "sentence\tposition\tword\tlemma\tsense\tscore\n"
    for number, (tokens, tags) in enumerate(found, start=1):
        for each in tags:
            word = " ".join(tokens[each.start : each.end])
            place = f"{number}\t{position(each.start, each.end)}"
            yield f"{place}\t{word}\t{each.lemma}\t{each.sense}\t{each.score:.3f}\n"


def _as_json_lines(found: Iterable[tuple[Sequence[str], list[Tag]]]) -> Iterator[str]:
    for tokens, tags in found:
        line = {"tokens": list(tokens), "senses": [vars(each) for each in tags]}
        yield as_json.dumps(line, ensure_ascii=False) + "\n"


def _show_clusters(word: str, induced: Induced, kept: int, there: int, examples: int) -> None:
    some = f"{kept:,}" if kept == there else f"{kept:,} of {there:,}"
    print(f"{some} uses of {word!r}, clustered by their vectors ({induced.layer})")
    sizes = [[cluster.name, len(cluster.uses)] for cluster in induced.clusters]
    print(table(["", "uses"], sizes))
    for cluster in induced.clusters:
        print(f"\n{cluster.name}: {', '.join(cluster.typical)}")
        for use in cluster.uses[:examples]:
            print(f"  {nearby(use).marked()}")
    print("\nhow clearly they lie apart:")
    print(table(["", "silhouette"], [list(row) for row in induced.silhouettes.items()]))
