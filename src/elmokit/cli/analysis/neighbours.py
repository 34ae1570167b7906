"""`elmokit neighbours index | find`: where a corpus uses words as a sentence uses one."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from elmokit import analysis
from elmokit.cli.options import (
    Flag,
    ModelOptions,
    RecordedModelOptions,
    ResultOptions,
    TextOptions,
    split_words,
)
from elmokit.cli.output import table, write_result
from elmokit.errors import ElmokitError, located, plural
from elmokit.io.paths import find_files
from elmokit.io.resumable import check_unused, input_identity
from elmokit.progress import TokenRate, logger


def index(
    corpus: list[str],
    out: str,
    /,
    *,
    layer: str = "top",
    words: str | None = None,
    approximate: bool | None = None,
    resume: Flag = False,
    writing: ResultOptions = ResultOptions(),
    text: TextOptions = TextOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Index the uses of words in a corpus, to find those that are similar.

    Args:
        corpus: Files, globs or folders of text (.txt, .jsonl, .conll, .conllu; also .gz, .xz,
            .zst).
        out: Folder to write the index to.
        layer: Layer of the vectors: a number from 0, top or average.
        words: Comma-separated words: index only their uses (default: those of all words).
        approximate: Build graphs for a faster search that misses a few uses; needs the extra ann
            (default: from a million uses on, if it is installed).
        resume: Resume a run that was stopped.
    """
    files = find_files(corpus)
    inputs = [*files, *options.inputs]
    check_unused(Path(out), resume=resume, overwrite=writing.overwrite, inputs=inputs)
    writing.check(*inputs, out=out)
    from tqdm import tqdm

    from elmokit.analysis.neighbours.approximate import require_usearch
    from elmokit.text.readers import read_sentences, whole_lines

    if approximate:
        require_usearch()
    chosen = None if words is None else split_words(words)
    reading: dict[str, Any] = {"tokenizer": options.tokenizer_name(), **asdict(text)}
    read: list[int] = []  # bytes of the corpus read since the bar moved
    lines = chain.from_iterable(
        read_sentences(file, on_bytes=read.append, **reading) for file in files
    )
    # Read one line now so that input errors surface before torch is imported.
    lines = chain([next(lines)], lines)
    elmo = options.load()

    model = Path(options.model)
    settings = {
        "model": str(model.absolute()) if model.exists() else options.model,
        "corpus": [{"name": file.name, **input_identity(file)} for file in files],
        **reading,
    }
    run: Any = {"layer": layer, "words": chosen, "settings": settings}
    run |= {"resume": resume, "overwrite": writing.overwrite}
    run["finish"] = lambda made: add_graphs(made, approximate, options.threads, writing.quiet)
    size = sum(file.stat().st_size for file in files)
    with tqdm(total=size, unit="B", unit_scale=True, disable=writing.quiet) as bar:
        rate = TokenRate(bar, read)
        made = analysis.index_uses(elmo, whole_lines(lines), out, on_tokens=rate.advance, **run)
    print(table(["", out], list(made.to_dict().items())))
    write_result(writing.json, "neighbours index", made.settings, made.to_dict())


def add_graphs(
    made: analysis.Index, approximate: bool | None, threads: int | None, quiet: bool
) -> None:
    """Build graphs if they are asked for, or by default for a large index if possible."""
    from elmokit.analysis.neighbours import approximate as ann

    is_large = len(made) >= ann.MIN_USES
    if approximate or (approximate is None and is_large and ann.available()):
        if not approximate:
            logger.warning(
                f"building graphs of {len(made):,} uses for a faster search (--no-approximate)"
            )
        ann.build_graphs(made, threads=threads, quiet=quiet)
    elif approximate is None and is_large:
        logger.warning(f"{len(made):,} uses are searched faster with pip install 'elmokit[ann]'")


def find(
    index: str,
    query: str,
    /,
    *,
    k: int = 10,
    only: Literal["same-word", "other-words"] | None = None,
    vectors: str | None = None,
    exact: Flag = False,
    writing: ResultOptions = ResultOptions(),
    options: RecordedModelOptions = RecordedModelOptions(),
) -> None:
    """Find the uses in an index that are nearest to a marked word.

    Args:
        index: Folder written by elmokit neighbours index.
        query: Sentence with the word between asterisks, such as "She sat on the river *bank* .",
            or a file with such a sentence per line.
        k: Number of uses to find.
        only: Find only uses of the same word, in upper or lower case, or only of other words
            (default: of any word).
        vectors: Static word vectors (GloVe, word2vec, fastText .vec) whose nearest words without
            context are printed besides those of layer 0.
        exact: Search exactly even if the index has graphs.
    """
    if k < 1:
        raise ElmokitError(f"k must be at least 1, not {k}")
    writing.check(index, query, vectors, *options.inputs)
    from elmokit.analysis.neighbours import approximate as ann
    from elmokit.vectors.static.table import read_static_vectors

    opened = analysis.open_index(index)
    made_with = opened.settings
    recorded = options.resolve(made_with.get("model", ""), made_with.get("tokenizer"))
    uses = read_queries(query, recorded.tokenizer_name())
    static = None if vectors is None else read_static_vectors(vectors, quiet=writing.quiet)
    store = recorded.open_store()
    graphs = None
    if not exact and only != "same-word" and ann.has_graphs(opened):
        if ann.available():
            graphs = ann.open_graphs(opened)
        else:
            logger.warning(
                "usearch is not installed (pip install 'elmokit[ann]'): the search is exact"
            )
    results = analysis.find_neighbours(
        store, opened, uses, k=k, only=only, graphs=graphs, static=static
    )
    search = "exact" if graphs is None else "approximate"
    layer = made_with["layer"]
    layer = "average of the layers" if layer == "average" else f"layer {layer}"
    title = f"{layer}, {plural(len(opened), 'use')}, {search} search"
    print("\n\n".join(report(result, title) for result in results))
    settings = {"index": made_with, "k": k, "only": only, "search": search, "vectors": vectors}
    queries = [result.to_dict() for result in results]
    write_result(writing.json, "neighbours find", settings, {"queries": queries})


def read_queries(query: str, tokenizer: str) -> list[analysis.Use]:
    """Return the marked word of a sentence, or of each sentence of a file."""
    from elmokit.data.labeled import BadLines
    from elmokit.data.lines import good_lines
    from elmokit.text.tokenize import tokenizer as find_tokenizer

    tokenize = find_tokenizer(tokenizer)
    if "*" in query or not Path(query).is_file():
        return [analysis.marked_use(query, tokenize)]
    uses = []
    for where, text in good_lines(query, BadLines()):
        if text:
            with located(where, raising=ElmokitError):
                uses.append(analysis.marked_use(text, tokenize))
    if not uses:
        raise ElmokitError(f"{query} has no sentences")
    return uses


def report(result: analysis.QueryResult, title: str) -> str:
    """Format the neighbours of a query, and the nearest words without context in columns."""
    lines = [result.query.marked(), "", f"nearest uses ({title}), with cosines:"]
    lines += [f"{near.score:6.2f}  {near.use.shortened().marked()}" for near in result.neighbours]
    if not result.neighbours:
        lines.append("  none")
    columns = {name: near for name, near in result.static.items() if near is not None}
    cells = [
        [cell for near in columns.values() for cell in (near[row] if row < len(near) else ("", ""))]
        for row in range(max(map(len, columns.values())))
    ]
    names = [cell for name in columns for cell in (name, "cosine")]
    lines += ["", "nearest words without context:", table(names, cells)]
    for name in result.static.keys() - columns:
        lines.append(f"{name} does not have the word {result.query.word!r}")
    return "\n".join(lines)
