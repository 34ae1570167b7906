"""`elmokit senses build | tag | score | induce`: the senses of words in their sentences."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain, islice
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmokit import analysis
from elmokit.cli.options import (
    Flag,
    ModelOptions,
    RecordedModelOptions,
    ResultOptions,
    Seed,
    TextOptions,
    WriteOptions,
)
from elmokit.cli.output import percent, table, write_result
from elmokit.errors import ElmokitError, plural
from elmokit.io.atomic import write_file

if TYPE_CHECKING:
    from elmokit.store import LayerStore

NO_INVENTORY = "none"


def build(
    data: str,
    out: str,
    /,
    *,
    keys: str | None = None,
    center: Flag = False,
    writing: ResultOptions = ResultOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Average the vectors of each sense's uses in sense-tagged text.

    Args:
        data: An .xml file in Raganato's format such as SemCor, or a tab-separated table of
            sentence, position, sense and optionally lemma; also .gz, .xz, .zst.
        out: Folder to write the senses to.
        keys: File with the senses of an .xml file.
        center: Subtract the mean vector of all tokens before vectors are compared.
    """
    settings = dict(locals())
    from elmokit.analysis.senses.inventory import check_output_folder

    check_output_folder(out, writing.overwrite, inputs=(data, keys, *options.inputs))
    writing.check(data, keys, *options.inputs, out=out)
    corpus = analysis.TaggedCorpus(data, keys)
    run: Any = {"center": center, "model_name": options.model, "quiet": writing.quiet}
    inventory = analysis.build_senses(options.open_store(), corpus, **run)
    given = {"data": data, "keys": keys, "model": options.model, "center": center}
    sizes = {"sentences": corpus.sentences, "instances": corpus.instances}
    inventory.metadata |= {"settings": given, **sizes}
    inventory.save(out, overwrite=writing.overwrite)
    size = plural(len(inventory.senses), "sense"), plural(len(inventory.words), "word")
    print(f"{out}: {' of '.join(size)}")
    if choices := inventory.metadata["choices"]:
        rows = [[name, percent(s)] for name, s in inventory.metadata["leave_one_out"].items()]
        print(
            f"accuracy in percent on {choices:,} uses, the sense of each found from the other "
            f"uses:\n{table(['', 'accuracy'], rows)}"
        )
    write_result(writing.json, "senses build", settings, inventory.to_dict())


def score(
    inventory: str,
    data: str,
    /,
    *,
    keys: str | None = None,
    index: str | None = None,
    writing: ResultOptions = ResultOptions(),
    options: RecordedModelOptions = RecordedModelOptions(),
) -> None:
    """Measure how many senses of sense-tagged text are found: precision, recall and F1.

    Args:
        inventory: Folder of the senses, or "none" to measure WordNet's first senses alone.
        data: An .xml file in Raganato's format, or a tab-separated table of sentence, position,
            sense and optionally lemma; also .gz, .xz, .zst.
        keys: File with the senses of an .xml file.
        index: WordNet's index.sense, whose first senses are used for words that the inventory does
            not know.
    """
    settings = dict(locals())
    if inventory == NO_INVENTORY and index is None:
        raise ElmokitError("without an inventory, name WordNet's index.sense with --index")
    writing.check(inventory, data, keys, index, *options.inputs)
    from tqdm import tqdm

    corpus = analysis.TaggedCorpus(data, keys)
    first_senses = None if index is None else analysis.read_first_senses(index)
    bar: Any = {"unit": " sentences", "desc": "senses", "disable": writing.quiet}
    if inventory == NO_INVENTORY:
        scores = analysis.score_first_senses(tqdm(corpus, **bar), first_senses or {})
    else:
        senses = analysis.load_inventory(inventory)
        store = open_store(senses, options)
        scores = analysis.score_senses(store, senses, tqdm(corpus, **bar), first_senses)
    print(score_table(scores))
    write_result(writing.json, "senses score", settings, {"scores": scores.to_dict()})


def tag(
    inventory: str,
    input: str,
    /,
    *,
    out: str = "-",
    format: Literal["tsv", "jsonl"] = "tsv",
    method: str = "mix + frequency",
    tokenizer: str | None = None,
    jieba_dict: str | None = None,
    writing: WriteOptions = WriteOptions(),
    text: TextOptions = TextOptions(),
    options: RecordedModelOptions = RecordedModelOptions(),
) -> None:
    """Write the senses of those words of a text that the inventory knows.

    Args:
        inventory: Folder of the senses.
        input: Text file with a sentence per line (.txt, .jsonl, .conll, .conllu; also .gz, .xz,
            .zst), or - for standard input.
        out: File to write, or - for standard output.
        format: One word per line (tsv) or one sentence per line (jsonl).
        method: How to choose a sense: "layer 0" and so on, "average", "mix" or "mix + frequency".
        tokenizer: Tokenizer of the text: elmokit, whitespace or chinese (default: the model's own).
        jieba_dict: Dictionary file for the tokenizer chinese, a word per line.
    """
    file = None if out == "-" else out
    writing.check(inventory, input, jieba_dict, *options.inputs, file=file)
    from elmokit.analysis.sampling import read_with_progress
    from elmokit.text.readers import whole_lines

    senses = analysis.load_inventory(inventory)
    senses.check_method(method)
    name = options.resolve(senses.model, tokenizer, jieba_dict).tokenizer_name()
    reading: Any = {"tokenizer": name, **asdict(text)}
    lines = read_with_progress(input, name="senses", quiet=writing.quiet, **reading)
    sentences = whole_lines(lines)
    # Read one sentence now, so that input errors surface before the model is loaded.
    sentences = chain(list(islice(sentences, 1)), sentences)
    tagged = analysis.tag_senses(open_store(senses, options), senses, sentences, method)
    if format == "tsv":
        output = tsv_lines(tagged)
    else:
        output = (dumps(sentence.to_dict(), ensure_ascii=False) + "\n" for sentence in tagged)
    if file is None:
        sys.stdout.writelines(output)
    else:
        write_file(Path(file).expanduser(), output)


def induce(
    word: str,
    corpus: str,
    /,
    *,
    clusters: int | None = None,
    layer: str = "average",
    max_uses: int = 1000,
    examples: int = 3,
    seed: Seed = 1,
    out: str | None = None,
    writing: ResultOptions = ResultOptions(),
    text: TextOptions = TextOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Find the senses of a word without an inventory: cluster its uses in a corpus.

    Args:
        word: Word to find, in upper or lower case.
        corpus: Text file with a sentence per line (.txt, .jsonl, .conll, .conllu; also .gz, .xz,
            .zst), or - for standard input.
        clusters: Number of clusters (default: the best by silhouette from 2 to 8).
        layer: Layer whose vectors are clustered: a number, top or average.
        max_uses: Maximum number of uses to cluster; more are sampled at random.
        examples: Number of sentences to print of each cluster.
        seed: Seed of the random numbers.
        out: File to write all uses with their clusters to, a table that `senses build` reads.
    """
    settings = dict(locals())
    if clusters is not None and clusters < 2:
        raise ElmokitError(f"clusters must be at least 2, not {clusters}")
    if max_uses < 3 or examples < 0:
        raise ElmokitError("--max-uses must be at least 3, and --examples at least 0")
    writing.check(corpus, *options.inputs, file=out)
    from elmokit.analysis.sampling import sample_uses

    reading: Any = {"tokenizer": options.tokenizer_name(), "name": "uses", **asdict(text)}
    uses, total = sample_uses(corpus, word, max_uses, seed, quiet=writing.quiet, **reading)
    if len(uses) < max(3, clusters or 0):
        raise ElmokitError(f"{corpus} has {plural(total, 'use')} of {word!r}: too few for clusters")
    run: Any = {"layer": layer, "clusters": clusters, "seed": seed, "quiet": writing.quiet}
    induced = analysis.induce_senses(options.open_store(), uses, **run)
    count = f"{len(uses):,}" if len(uses) == total else f"{len(uses):,} of {total:,}"
    print(f"{count} uses of {word!r}, clustered by their vectors ({induced.layer})")
    print(cluster_report(induced, examples))
    if out is not None:
        write_file(Path(out).expanduser(), induced.lines())
    result = {"uses": len(uses), "uses_total": total, **induced.to_dict(examples)}
    write_result(writing.json, "senses induce", settings, result)


def open_store(senses: analysis.Inventory, options: RecordedModelOptions) -> LayerStore:
    """Open the store of the model that the senses were built with; raise for another one."""
    model = options.resolve(senses.model)
    store = model.open_store()
    senses.check_model(store, model.model)
    return store


def score_table(scores: analysis.SenseScores) -> str:
    """Format the scores of each method in percent, and F1 by part of speech."""
    parts = scores.parts_of_speech
    rows = []
    for method, tallies in scores.tallies.items():
        total = tallies["all"]
        values = [total.precision, total.recall, total.f1, *(tallies[pos].f1 for pos in parts)]
        rows.append([method, *map(percent, values)])
    explained = "\nin percent" + (f"; {', '.join(parts)}: F1 by part of speech" * bool(parts))
    return table(["", "precision", "recall", "F1", *parts], rows) + explained


def cluster_report(induced: analysis.InducedSenses, examples: int) -> str:
    """Format the clusters with their typical words and some examples, and their silhouettes."""
    clusters = induced.to_dict(examples)["clusters"]
    lines = [table(["", "uses"], [[cluster["name"], cluster["uses"]] for cluster in clusters])]
    lines.append("uses: size of the cluster; below, words that are near its uses more than others'")
    for cluster in clusters:
        lines.append(f"\n{cluster['name']}: {', '.join(cluster['typical'])}")
        lines += [f"  {example}" for example in cluster["examples"]]
    lines.append("\n" + table(["", "silhouette"], [[*row] for row in induced.silhouettes.items()]))
    lines.append("silhouette: how well the clusters are separated in a layer, from -1 to 1")
    return "\n".join(lines)


def tsv_lines(tagged: Iterable[analysis.SentenceTags]) -> Iterator[str]:
    """Yield one line per word with a sense."""
    yield "sentence\tposition\tword\tlemma\tsense\tscore\n"
    for i, sentence in enumerate(tagged, start=1):
        for tag in sentence.tags:
            use = analysis.Use(tuple(sentence.tokens), tag.start, tag.end, tag.lemma, tag.sense)
            cells = (i, use.position, use.word, use.lemma, use.sense, f"{tag.score:.3f}")
            yield "\t".join(map(str, cells)) + "\n"
