"""`elmokit neighbours index | find`: where a corpus uses words as a sentence uses one.

    index: corpus ─► a vector for every word of every sentence ─► a folder (indexing.py)
    find:  sentence with a marked word ─► its vector ─► nearest uses, each with its sentence

Beside them stand the nearest words without any context: by layer 0 of the model, and by static
vectors where some are given. Table 4 of the ELMo paper compares the same two.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from elmokit.analysis.neighbours import approximate as ann
from elmokit.analysis.neighbours.index import Index, open_index
from elmokit.analysis.neighbours.nearest import Answer, Words, answer, word_of
from elmokit.analysis.uses import Use, marked_use
from elmokit.cli.output import open_store, table, write_result
from elmokit.data.lines import decoded_lines
from elmokit.errors import ElmokitError
from elmokit.io.paths import check_output, find_files
from elmokit.io.resumable import input_identity
from elmokit.text.readers import Line, read_sentences, whole_lines
from elmokit.text.tokenize import tokenizer as find_tokenizer
from elmokit.vectors.static.table import read_vectors

# Nothing here is imported for type checkers alone: jsonargparse would import it, torch and all.

AROUND = 12  # words shown on either side of a use


# ---------------------------------------------------------------------- elmokit neighbours index
def index(
    corpus: str | list[str],
    out: str,
    *,
    layer: str = "top",
    words: str | None = None,
    split: bool = False,
    kind: Literal["auto", "text", "jsonl", "conll", "conllu"] = "auto",
    field: str = "text",
    column: int | None = None,
    errors: Literal["strict", "replace"] = "strict",
    approximate: bool | None = None,
    model: str = "shipped",
    tokenizer: Literal["elmokit", "whitespace", "chinese"] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Index the uses of words in a corpus, to find those that are alike.

    Args:
        corpus: files, globs or folders of text (.txt, .jsonl, .conll, .conllu; also .gz, .xz,
            .zst); several as '[a.txt, b.txt]'.
        out: the folder to write.
        layer: a number from 0, top or average.
        words: only uses of these words, with commas between; sentences without any are passed over.
        split: the corpus is running text, to be split into sentences.
        kind: what the files are; by their extensions if auto.
        field: the JSONL field with the text.
        column: the CoNLL column with the words.
        errors: what to do with bytes that are not UTF-8.
        approximate: build graphs for a faster search, which misses a few; needs the extra ann. If
            not given, from a million uses on where it is installed.
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        tokenizer: whitespace for text that is tokenized already; if not given, chinese for a model
            that was trained with it, and else elmokit.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        resume: go on with a run that was stopped.
        overwrite: replace the index if it exists.
        json: write what is printed there too, with all settings.
        quiet: no progress.
    """
    from elmokit.formats.detect import own_tokenizer

    check_output(json)
    if approximate:
        ann.usearch()  # before the work, not after it
    chosen = None if words is None else _words(words)
    files = find_files(corpus)
    reading: dict[str, Any] = {
        "tokenizer": tokenizer or own_tokenizer(model),
        "kind": kind,
        "split": split,
        "field": field,
        "column": column,
        "errors": errors,
    }
    read: list[int] = []  # bytes of the corpus since the bar moved
    lines = read_corpus(files, reading, read)
    lines = chain([next(lines)], lines)  # trouble is told before torch loads
    elmo = open_store(model, device=device, threads=threads, tokenizer=reading["tokenizer"]).elmo
    from elmokit.analysis.neighbours.indexing import build_index

    settings = {
        "model": str(Path(model).absolute()) if Path(model).exists() else model,
        "corpus": [{"name": file.name, **input_identity(str(file))} for file in files],
        **reading,
    }
    size = sum(file.stat().st_size for file in files)
    with tqdm(total=size, unit="B", unit_scale=True, disable=quiet) as bar:
        progress = Progress(bar, read)
        made = build_index(
            elmo,
            whole_lines(lines),
            out,
            layer=layer,
            words=chosen,
            settings=settings,
            resume=resume,
            overwrite=overwrite,
            on_tokens=progress.advance,
            finish=lambda made: add_graphs(made, approximate, threads, quiet),
        )
    facts = describe(made)
    print(table(["", out], list(facts.items())))
    write_result(json, "neighbours index", made.settings, facts)


def _words(words: str) -> list[str]:
    found = [word.strip() for word in words.split(",") if word.strip()]
    if not found:
        raise ElmokitError(f"--words takes words with commas between them, not {words!r}")
    return found


def read_corpus(files: Sequence[Path], reading: dict[str, Any], read: list[int]) -> Iterator[Line]:
    """The sentences of some files; `read` gets the bytes that were read."""
    for file in files:
        yield from read_sentences(file, on_bytes=read.append, **reading)


class Progress:
    """A bar of the bytes that were read, with the tokens a second."""

    def __init__(self, bar: tqdm[Any], read: list[int]) -> None:
        self.bar, self.read = bar, read
        self.tokens, self.since = 0, time.perf_counter()

    def advance(self, tokens: int) -> None:
        """Move on after a window, of which so many tokens were embedded."""
        if tokens:
            self.tokens += tokens
            speed = self.tokens / (time.perf_counter() - self.since)
            self.bar.set_postfix_str(f"{speed:,.0f} tokens/s", refresh=False)
        else:  # it was written by an earlier run
            self.since = time.perf_counter()
        self.bar.update(sum(self.read))
        self.read.clear()


def add_graphs(made: Index, wanted: bool | None, threads: int | None, quiet: bool) -> None:
    """Build graphs if they are wanted, or worth it and possible."""
    large = len(made) >= ann.WORTH
    if wanted or (wanted is None and large and ann.available()):
        if not wanted:
            _warn(f"{len(made):,} uses: graphs are built for a faster search (--no-approximate)")
        ann.build_graphs(made, threads=threads, quiet=quiet)
    elif wanted is None and large:
        _warn(f"{len(made):,} uses are searched faster with pip install 'elmokit[ann]'")


def describe(made: Index) -> dict[str, Any]:
    """What an index holds, for a table."""
    return {
        "sentences": made.sentences,
        "uses": len(made),
        "distinct words": len(made.words),
        "layer": made.settings["layer"],
        "columns": made.dim,
        "MB": made.bytes_on_disk() / 1e6,
        "search": "approximate" if ann.has_graphs(made) else "exact",
    }


# ---------------------------------------------------------------------- elmokit neighbours find
def find(
    index: str,
    query: str,
    *,
    k: int = 10,
    same_word: bool = False,
    other_words: bool = False,
    static: str | None = None,
    exact: bool = False,
    model: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Find the uses in an index that are nearest to a marked word.

    Args:
        index: a folder that elmokit neighbours index has written.
        query: a sentence with the word between asterisks, "She sat on the river *bank* .", or a
            file with such a sentence a line.
        k: how many.
        same_word: only uses of the same word, in capital letters or not.
        other_words: only uses of other words.
        static: word vectors (GloVe, word2vec, fastText .vec), for the nearest words without
            context; those of layer 0 are always given.
        exact: search all uses, also where there are graphs for a faster search.
        model: the one that the index was made with, if it is not where it was.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        json: write what is printed there too, with whole sentences and all settings.
        quiet: no progress.
    """
    if k < 1:
        raise ElmokitError(f"k must be at least 1, not {k}")
    if same_word and other_words:
        raise ElmokitError("--same-word and --other-words exclude each other: give one of them")
    check_output(json)
    opened = open_index(index)
    uses = read_queries(query, opened.settings["tokenizer"])
    vectors = None if static is None else read_vectors(static, quiet=quiet)
    store = open_store(
        model or opened.settings["model"],
        device=device,
        threads=threads,
        tokenizer=opened.settings["tokenizer"],
    )
    which: Words = "same" if same_word else "other" if other_words else "any"
    graphs = None if exact or which == "same" else find_graphs(opened)
    answers = answer(opened, store, uses, k=k, words=which, graphs=graphs, static=vectors)
    how = "exact" if graphs is None else "approximate"
    layer = opened.settings["layer"]
    layer = "average of the layers" if layer == "average" else f"layer {layer}"
    title = f"{layer}, {len(opened):,} uses, {how} search"
    print("\n\n".join(report(each, title) for each in answers))
    settings = {"index": opened.settings, "k": k, "words": which, "search": how, "static": static}
    write_result(json, "neighbours find", settings, {"queries": [each.facts() for each in answers]})


def read_queries(query: str, tokenizer: str) -> list[Use]:
    """The marked word of a sentence, or of each sentence of a file."""
    tokenize = find_tokenizer(tokenizer)
    if "*" in query or not Path(query).is_file():
        return [marked_use(query, tokenize)]
    uses = []
    for number, text, trouble in decoded_lines(query):
        where = f"{query}, line {number}"
        if trouble:
            raise ElmokitError(f"{where}: {trouble}")
        if text.strip():
            try:
                uses.append(marked_use(text, tokenize))
            except ElmokitError as error:
                raise ElmokitError(f"{where}: {error}") from None
    if not uses:
        raise ElmokitError(f"{query} has no sentences")
    return uses


def find_graphs(opened: Index) -> ann.Graphs | None:
    """The graphs of an index, if it has any and they can be read."""
    if not ann.has_graphs(opened):
        return None
    if not ann.available():
        _warn("usearch is not installed (pip install 'elmokit[ann]'): the search is exact")
        return None
    return ann.open_graphs(opened)


# ---------------------------------------------------------------------- printing
def report(found: Answer, title: str) -> str:
    """An answer in lines."""
    lines = [found.use.marked(), "", f"nearest uses ({title})"]
    lines += [f"{each.score:6.2f}  {shortened(each.use).marked()}" for each in found.neighbours]
    if not found.neighbours:
        lines.append("  none")
    columns = {name: near for name, near in found.static.items() if near is not None}
    rows = max(map(len, columns.values()))
    cells = [
        [cell for near in columns.values() for cell in (near[row] if row < len(near) else ("", ""))]
        for row in range(rows)
    ]
    names = [cell for name in columns for cell in (name, "cosine")]
    lines += ["", "nearest words without context", table(names, cells)]
    lines += [
        f"{name} does not have the word {word_of(found.use)!r}"
        for name, near in found.static.items()
        if near is None
    ]
    return "\n".join(lines)


def shortened(use: Use) -> Use:
    """The same use with only the words around it, if its sentence is long."""
    first, last = max(0, use.start - AROUND), use.end + AROUND
    before = ("…",) if first else ()
    after = ("…",) if last < len(use.tokens) else ()
    tokens = (*before, *use.tokens[first:last], *after)
    shift = len(before) - first
    return replace(use, tokens=tokens, start=use.start + shift, end=use.end + shift)


def _warn(text: str) -> None:
    tqdm.write(f"elmokit: {text}", file=sys.stderr)
