"""Readers of texts with labels, of pairs of texts, and of texts to rewrite.

file ─► rows with their locations (tables.py) ─► tokens ─► examples
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

from elmokit.data.examples import Labeled, Tokens, Translated
from elmokit.data.lines import BadRecord, decoded_lines, good_lines, location, reporting
from elmokit.data.tables import Column, ColumnSpec, Rows, Value, kind_of, read_table
from elmokit.errors import ElmokitError
from elmokit.io.lines import STANDARD_INPUT, FilePath, name_of
from elmokit.text.readers import Tokenize

NO_AGREEMENT = "-"  # SNLI's label of a pair on which the annotators did not agree

# Names of columns, the most certain first.
TEXT = """text sentence review content document comment tweet message utterance question query body
    description phrase""".split()
LABEL = """gold_label label labels class category entailment_judgment entailment_label is_duplicate
    sentiment polarity topic intent emotion rating stars quality class_index target tag""".split()
FIRST = """sentence1 sentence_a sentence_1 premise question1 text1 text_a text_1 #1_string first
    question context query""".split()
SECOND = """sentence2 sentence_b sentence_2 hypothesis question2 text2 text_b text_2 #2_string
    second sentence passage title""".split()
SOURCE = "text document article source body content dialogue".split()
SUMMARY = "summary headline title highlights abstract target".split()


@dataclass
class BadLines:
    """Collects lines that cannot be used; the first one is an error unless they are skipped.

    >>> bad = BadLines(skip=True)
    >>> bad("train.tsv, line 3", "the text is empty")
    >>> bad.summary()
    'skipped 1 line: train.tsv, line 3: the text is empty'
    """

    skip: bool = False
    count: int = 0
    first: str = ""
    undecided: int = 0
    """Number of pairs skipped because the annotators did not agree on a label."""

    def __call__(self, where: str, sentence: str) -> None:
        message = f"{where}: {sentence}"
        if not self.skip:
            raise ElmokitError(message)
        self.count += 1
        self.first = self.first or message

    def summary(self) -> str:
        """Describe the skipped lines in a sentence; return "" if there are none."""
        parts = []
        if self.count:
            lines = "1 line" if self.count == 1 else f"{self.count} lines, the first"
            parts.append(f"skipped {lines}: {self.first}")
        if self.undecided:
            parts.append(f"skipped {self.undecided} pairs without an agreed label")
        return "; ".join(parts)


@dataclass(frozen=True)
class Reading:
    """How to read a file of examples; the same for all readers."""

    tokenize: Tokenize
    bad: BadLines
    labeled: bool = True
    """False for examples to predict for: the answers may be missing, and are None."""
    tokenize_target: Tokenize | None = None
    """Tokenizer of targets (default: the same)."""


def read_labeled(
    path: FilePath, reading: Reading, *, text_column: Column = None, label_column: Column = None
) -> Iterator[Labeled]:
    """Read texts with a label from TSV, CSV, JSON lines, or lines of `label text`.

    The extension decides; .txt and any other mean lines whose first word is the label, unless a
    column is named: then the file is TSV. Without labels such a line is all text.
    """
    is_table = text_column is not None or label_column is not None
    if is_text_file(path, is_table=is_table, labeled=reading.labeled):
        rows = _text_rows(path, reading)
    else:
        specs = [
            ColumnSpec("text", "text_column", TEXT, text_column),
            ColumnSpec("label", "label_column", LABEL, label_column, needed=reading.labeled),
        ]
        rows = read_table(path, specs, reading.bad)
    return _labeled(rows, reading)


def read_pairs(
    path: FilePath,
    reading: Reading,
    *,
    text_column: Column = None,
    second_column: Column = None,
    label_column: Column = None,
) -> Iterator[Labeled]:
    """Read pairs of texts with a label from TSV (any extension), CSV or JSON lines.

    The columns of SICK, SNLI, MultiNLI and of the tasks of GLUE are found by their names.
    Pairs of SNLI whose label is "-" are skipped and counted in `bad.undecided`.
    """
    specs = [
        ColumnSpec("first text", "text_column", FIRST, text_column),
        ColumnSpec("second text", "second_column", SECOND, second_column),
        ColumnSpec("label", "label_column", LABEL, label_column, needed=reading.labeled),
    ]
    return _labeled(read_table(path, specs, reading.bad), reading)


def read_parallel(
    source_path: FilePath, target_path: FilePath | None, reading: Reading
) -> Iterator[Translated]:
    """Read the parallel lines of two files; without a second file, only sources."""
    bad = reading.bad
    if target_path is None:
        for where, text in good_lines(source_path, bad, filled=True):
            with reporting(bad, where):
                yield _translated(where, text, None, replace(reading, labeled=False))
        return
    counts = [0, 0]
    for source, target in zip_longest(decoded_lines(source_path), decoded_lines(target_path)):
        counts[0] += source is not None
        counts[1] += target is not None
        if source is None or target is None:
            continue  # Count the rest of the longer file.
        where = location(source_path, source[0])
        if source[2]:
            bad(where, source[2])
        elif target[2]:
            bad(location(target_path, target[0]), target[2])
        else:
            with reporting(bad, where):
                yield _translated(where, source[1], target[1], reading)
    if counts[0] != counts[1]:
        raise ElmokitError(
            f"{name_of(source_path)} has {counts[0]:,} lines and {name_of(target_path)} has "
            f"{counts[1]:,}: parallel files have the same number of lines"
        )


def read_summaries(
    path: FilePath, reading: Reading, *, text_column: Column = None, label_column: Column = None
) -> Iterator[Translated]:
    """Read texts with their summaries from JSON lines, TSV or CSV; without them, also from lines.

    A field of JSON may be a dotted path, such as translation.en.
    """
    if not reading.labeled and is_text_file(path, is_table=text_column is not None, labeled=False):
        yield from read_parallel(path, None, reading)
        return
    specs = [ColumnSpec("text", "text_column", SOURCE, text_column)]
    if reading.labeled:
        specs.append(ColumnSpec("summary", "label_column", SUMMARY, label_column))
    for where, (text, *rest) in read_table(path, specs, reading.bad):
        with reporting(reading.bad, where):
            yield _translated(where, text, rest[0] if rest else None, reading)


def is_text_file(path: FilePath, *, is_table: bool, labeled: bool) -> bool:
    """Tell whether a file has lines of text; named columns may be those of the training data."""
    if kind_of(path) != "text":
        return False
    if not is_table or (not labeled and os.fspath(path) == STANDARD_INPUT):
        return True
    _, text, _ = next(decoded_lines(path), (0, "", ""))
    return not labeled and "\t" not in text


def _text_rows(path: FilePath, reading: Reading) -> Rows:
    """Read lines whose first word is the label, or lines without labels."""
    for where, line in good_lines(path, reading.bad, filled=True):
        before_tab, tab, _ = line.partition("\t")
        label, *rest = line.split(None, 1)
        if not reading.labeled:
            yield where, [line, None]
        elif not rest:
            reading.bad(where, f"the line has no text after its label {label!r}")
        elif tab and label != before_tab.strip():
            problem = "the label must be one word, and there are several before the tab"
            reading.bad(where, f"{problem}: labels with spaces need a .tsv, .csv or .jsonl file")
        else:
            yield where, [rest[0], label]


def _labeled(rows: Rows, reading: Reading) -> Iterator[Labeled]:
    for where, (*values, value) in rows:
        texts = tuple(words(text, reading.tokenize) for text in values)
        label = " ".join(value.split()) if isinstance(value, str) else ""
        if reading.labeled and len(values) == 2 and value == NO_AGREEMENT:
            reading.bad.undecided += 1
        elif not all(texts):
            which = "second text" if texts[0] else "first text" if len(texts) > 1 else "text"
            reading.bad(where, f"the {which} is empty")
        elif reading.labeled and not label:
            problem = "a list" if isinstance(value, list) else "missing"
            reading.bad(where, f"the label is {problem}")
        else:
            yield Labeled(texts, where, label if reading.labeled else None)


def _translated(where: str, text: Value, target: Value, reading: Reading) -> Translated:
    tokens = words(text, reading.tokenize)
    if not tokens:
        raise BadRecord("the text is empty")
    if not reading.labeled:
        return Translated((tokens,), where, None, None)
    target_tokens = words(target, reading.tokenize_target or reading.tokenize)
    if not target_tokens:
        raise BadRecord("the target is empty")
    reference = " ".join(target) if isinstance(target, list) else target
    return Translated((tokens,), where, target_tokens, (reference or "").strip())


def words(value: Value, tokenize: Tokenize) -> Tokens:
    """Return the tokens of a text, which may be a list of them already."""
    if isinstance(value, list):
        return tuple(word for word in value if word)
    return tuple(tokenize(value)) if value else ()
