"""Readers of texts with labels, of pairs of texts, and of texts to be rewritten.

    file ─► rows with their place (tables.py) ─► tokens ─► examples

Every reader takes `bad`, which is told of each line that cannot be used. With `labeled=False` a
reader reads what a model is to predict for: what is to be predicted may be missing, and is None.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from elmokit.data.examples import Labeled, Tokens, Translated
from elmokit.data.lines import decoded_lines, filled_lines, place
from elmokit.data.tables import Wanted, kind_of, read_table
from elmokit.errors import ElmokitError
from elmokit.io.lines import STANDARD_INPUT, FilePath, name_of
from elmokit.text.readers import Tokenize

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.data.tables import Value

    Column: TypeAlias = "str | int | None"  # a name, or a number from 1, or from -1 at the end

REMEMBERED = 5
NO_AGREEMENT = "-"  # SNLI's label of a pair on which its readers did not agree

# Names of columns, the surest first.
TEXT = tuple(
    """text sentence review content document comment tweet message utterance question query body
    description phrase""".split()
)
LABEL = tuple(
    """gold_label label labels class category entailment_judgment entailment_label is_duplicate
    sentiment polarity topic intent emotion rating stars quality class_index target tag""".split()
)
FIRST = tuple(
    """sentence1 sentence_a sentence_1 premise question1 text1 text_a text_1 #1_string first
    question context query""".split()
)
SECOND = tuple(
    """sentence2 sentence_b sentence_2 hypothesis question2 text2 text_b text_2 #2_string second
    sentence passage title""".split()
)
SOURCE = tuple("text document article source body content dialogue".split())
SUMMARY = tuple("summary headline title highlights abstract target".split())


@dataclass
class BadLines:
    """Takes note of lines that cannot be used; the first one is an error unless they are skipped.

    >>> bad = BadLines(skip=True)
    >>> bad("train.tsv, line 3", "the text is empty")
    >>> bad.summary()
    '1 line was left out: train.tsv, line 3: the text is empty'
    """

    skip: bool = False
    count: int = 0
    first: list[str] = field(default_factory=list)
    undecided: int = 0
    """Pairs that were left out because their readers did not agree on a label."""

    def __call__(self, where: str, sentence: str) -> None:
        """Raise an error, or count."""
        message = f"{where}: {sentence}"
        if not self.skip:
            raise ElmokitError(message)
        self.count += 1
        if len(self.first) < REMEMBERED:
            self.first.append(message)

    def summary(self) -> str:
        """What was left out, in a sentence; empty if nothing was."""
        told = []
        if self.count == 1:
            told.append(f"1 line was left out: {self.first[0]}")
        elif self.count:
            told.append(f"{self.count} lines were left out, the first: {self.first[0]}")
        if self.undecided:
            told.append(f"pairs without an agreed label, left out: {self.undecided}")
        return "; ".join(told)


def read_labeled(
    path: FilePath,
    *,
    tokenize: Tokenize,
    text_column: Column = None,
    label_column: Column = None,
    labeled: bool = True,
    bad: BadLines,
) -> Iterator[Labeled]:
    """Texts with a label, out of TSV, CSV, JSON lines, or lines of `label text`.

    The extension says which of them; .txt and any other are lines, of which the first word is the
    label, unless a column is named: that is TSV. Without labels such a line is all text.
    """
    is_table = text_column is not None or label_column is not None
    if is_text_file(path, is_table=is_table, labeled=labeled):
        rows = _label_text(path, bad) if labeled else _plain_text(path, bad)
    else:
        wanted = [
            Wanted("text", "text_column", TEXT, text_column),
            Wanted("label", "label_column", LABEL, label_column, needed=labeled),
        ]
        rows = read_table(path, wanted, bad)
    return _labeled(rows, tokenize, bad, labeled=labeled)


def read_pairs(
    path: FilePath,
    *,
    tokenize: Tokenize,
    first_column: Column = None,
    second_column: Column = None,
    label_column: Column = None,
    labeled: bool = True,
    bad: BadLines,
) -> Iterator[Labeled]:
    """Pairs of texts with a label, out of TSV (any extension), CSV or JSON lines.

    The columns of SICK, SNLI, MultiNLI and of the tasks of GLUE are found by their names.
    Pairs of SNLI whose label is "-" are left out and counted in `bad.undecided`.
    """
    wanted = [
        Wanted("first text", "text_column", FIRST, first_column),
        Wanted("second text", "second_column", SECOND, second_column),
        Wanted("label", "label_column", LABEL, label_column, needed=labeled),
    ]
    for where, (first, second, label) in read_table(path, wanted, bad):
        if labeled and label == NO_AGREEMENT:
            bad.undecided += 1
            continue
        yield from _example(where, [first, second], label, tokenize, bad, labeled=labeled)


def read_parallel(
    source_path: FilePath,
    target_path: FilePath | None,
    *,
    tokenize: Tokenize,
    target_tokenize: Tokenize | None = None,
    bad: BadLines,
) -> Iterator[Translated]:
    """Lines of two files that belong together; without a second file, sources alone."""
    if target_path is None:
        for number, text in filled_lines(source_path, bad):
            yield from _translated(place(source_path, number), text, None, tokenize, None, bad)
        return
    counts = [0, 0]
    for source, target in zip_longest(decoded_lines(source_path), decoded_lines(target_path)):
        counts[0] += source is not None
        counts[1] += target is not None
        if source is None or target is None:
            continue  # only to count on
        where, target_where = place(source_path, source[0]), place(target_path, target[0])
        if source[2] or target[2]:
            bad(where if source[2] else target_where, source[2] or target[2])
            continue
        yield from _translated(
            where, source[1], target[1], tokenize, target_tokenize or tokenize, bad
        )
    if counts[0] != counts[1]:
        raise ElmokitError(
            f"{name_of(source_path)} has {counts[0]:,} lines and {name_of(target_path)} has "
            f"{counts[1]:,}: they do not belong together"
        )


def read_summaries(
    path: FilePath,
    *,
    tokenize: Tokenize,
    target_tokenize: Tokenize | None = None,
    text_column: Column = None,
    summary_column: Column = None,
    labeled: bool = True,
    bad: BadLines,
) -> Iterator[Translated]:
    """Texts with their summaries, out of JSON lines, TSV or CSV; without them, also a text a line.

    A field of JSON may be a dotted path, such as translation.en.
    """
    if not labeled and is_text_file(path, is_table=text_column is not None, labeled=False):
        yield from read_parallel(path, None, tokenize=tokenize, bad=bad)
        return
    wanted = [Wanted("text", "text_column", SOURCE, text_column)]
    if labeled:
        wanted.append(Wanted("summary", "label_column", SUMMARY, summary_column))
    for where, (text, *rest) in read_table(path, wanted, bad):
        after = (target_tokenize or tokenize) if labeled else None
        yield from _translated(where, text, rest[0] if rest else None, tokenize, after, bad)


def is_text_file(path: FilePath, *, is_table: bool, labeled: bool) -> bool:
    """Whether a file is one of lines, not of columns.

    Columns that a user gave make it a table, unless it is one to predict for and has no tabs: then
    they were given for the training data.
    """
    if kind_of(path) != "text":
        return False
    if not is_table or (not labeled and os.fspath(path) == STANDARD_INPUT):
        return True
    _, text, _ = next(decoded_lines(path), (0, "", ""))
    return not labeled and "\t" not in text


def _label_text(path: FilePath, bad: BadLines) -> Iterator[tuple[str, list[Value]]]:
    """Lines of which the first word is the label."""
    for number, line in filled_lines(path, bad):
        before_tab, tab, _ = line.partition("\t")
        label, *rest = line.split(None, 1)
        if not rest:
            bad(place(path, number), f"the line has nothing behind its label {label!r}")
        elif tab and label != before_tab.strip():
            bad(
                place(path, number),
                "the label is the first word, and before the tab there are several: labels with "
                "spaces need a .tsv, .csv or .jsonl file",
            )
        else:
            yield place(path, number), [rest[0], label]


def _plain_text(path: FilePath, bad: BadLines) -> Iterator[tuple[str, list[Value]]]:
    for number, line in filled_lines(path, bad):
        yield place(path, number), [line, None]


def _labeled(
    rows: Iterator[tuple[str, list[Value]]], tokenize: Tokenize, bad: BadLines, *, labeled: bool
) -> Iterator[Labeled]:
    for where, (text, label) in rows:
        yield from _example(where, [text], label, tokenize, bad, labeled=labeled)


def _example(
    where: str,
    values: list[Value],
    value: Value,
    tokenize: Tokenize,
    bad: BadLines,
    *,
    labeled: bool,
) -> Iterator[Labeled]:
    """The example, or none if something of it is missing."""
    texts = tuple(words(text, tokenize) for text in values)
    label = " ".join(value.split()) if isinstance(value, str) else ""
    if not all(texts):
        which = "the text" if len(texts) == 1 else f"the {'second' if texts[0] else 'first'} text"
        bad(where, f"{which} is empty")
    elif labeled and not label:
        bad(where, "the label is a list" if isinstance(value, list) else "the label is missing")
    else:
        yield Labeled(texts, where, label if labeled else None)


def _translated(
    where: str,
    text: Value,
    reference: Value,
    tokenize: Tokenize,
    target_tokenize: Tokenize | None,
    bad: BadLines,
) -> Iterator[Translated]:
    """The example, or none if something of it is missing."""
    tokens = words(text, tokenize)
    target = words(reference, target_tokenize) if target_tokenize else None
    if not tokens:
        bad(where, "the text is empty")
    elif target is not None and not target:
        bad(where, "the target is empty")
    elif target is None:
        yield Translated((tokens,), where, None, None)
    else:
        written = " ".join(reference) if isinstance(reference, list) else reference
        yield Translated((tokens,), where, target, (written or "").strip())


def words(value: Value, tokenize: Tokenize) -> Tokens:
    """The tokens of a text, which may be a list of them already."""
    if isinstance(value, list):
        return tuple(word for word in value if word)
    return tuple(tokenize(value)) if value else ()
