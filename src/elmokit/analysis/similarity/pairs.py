"""Read pairs of words or sentences that people have compared: SCWS, WiC, tables of sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elmokit.analysis.uses import Use, use_at
from elmokit.data.labeled import FIRST, SECOND, BadLines
from elmokit.data.lines import location
from elmokit.data.tables import ColumnSpec, read_table
from elmokit.errors import ElmokitError, plural
from elmokit.io.lines import FilePath, name_of, read_lines
from elmokit.text.readers import Tokenize

Columns = tuple[str | None, str | None, str | None]
MARKED = re.compile(r"<b>(.*?)</b>", re.DOTALL)
POSITIONS = re.compile(r"(\d+)-(\d+)")
SCORE = tuple(
    """relatedness_score similarity_score score similarity relatedness gold_score gold rating
    label is_duplicate quality""".split()
)


@dataclass(frozen=True)
class Pair:
    """Two uses of words, or two whole sentences."""

    first: Use
    second: Use
    gold: float
    """The rating; for WiC 1 for the same sense and 0 for another."""


def detect_kind(path: FilePath) -> str:
    """Return the kind of a file by its first line: "scws", "wic" or "sentences"."""
    _, text = next(_read_filled(path, "replace"), ("", ""))
    cells = text.split("\t")
    if len(cells) == 5 and POSITIONS.fullmatch(cells[2].strip()):
        return "wic"
    if len(cells) >= 8 and MARKED.search(cells[5]) and MARKED.search(cells[6]):
        return "scws"
    return "sentences"


def read_pairs(
    path: FilePath,
    kind: str,
    tokenize: Tokenize,
    *,
    gold: FilePath | None = None,
    errors: str = "strict",
    columns: Columns = (None, None, None),
) -> list[Pair]:
    """Read the pairs of a file.

    Args:
        path: The file, also .gz, .xz, .zst.
        kind: Kind of file: "scws", "wic" or "sentences" (see `detect_kind`).
        tokenize: Function that splits texts into tokens; the texts of WiC are split at spaces.
        gold: Answers to a WiC file (default: dev.gold.txt beside dev.data.txt).
        errors: How to handle bytes of SCWS and WiC that are not UTF-8: "strict" or "replace".
        columns: Names or numbers from 1 of a table's first sentence, second sentence and score.
    """
    if kind == "scws":
        pairs = read_scws(path, tokenize, errors=errors)
    elif kind == "wic":
        pairs = read_wic(path, gold, errors=errors)
    else:
        pairs = read_sentence_pairs(path, tokenize, columns)
    if len(pairs) < 2:
        count = plural(len(pairs), "pair")
        raise ElmokitError(f"{name_of(path)} has {count}: at least 2 are needed")
    return pairs


def _read_filled(path: FilePath, errors: str) -> Iterator[tuple[str, str]]:
    for piece in read_lines(path, errors=errors):
        if not piece.ended:
            raise ElmokitError(f"{location(path, piece.line)}: the line is too long")
        if piece.text.strip():
            yield location(path, piece.line), piece.text


def read_scws(path: FilePath, tokenize: Tokenize, *, errors: str = "strict") -> list[Pair]:
    """Read Stanford's contextual word similarities: id, two words with their parts of speech, two
    contexts in which they are marked with <b>, the average rating, and single ratings.
    """
    pairs = []
    for where, text in _read_filled(path, errors):
        cells = text.split("\t")
        if len(cells) < 8:
            raise ElmokitError(
                f"{where}: the line has {plural(len(cells), 'column')}; the average rating is "
                "in column 8"
            )
        first, second = (_use_in_context(where, cell, tokenize) for cell in cells[5:7])
        pairs.append(Pair(first, second, _parse_number(where, cells[7])))
    return pairs


def _use_in_context(where: str, text: str, tokenize: Tokenize) -> Use:
    match = MARKED.search(text)
    if match is None or not match[1].strip():
        raise ElmokitError(f"{where}: no word of the context is marked with <b> and </b>")
    parts = text[: match.start()], match[1], text[match.end() :]
    before, word, after = (tokenize(MARKED.sub(r"\1", part)) for part in parts)
    start, end = len(before), len(before) + len(word)
    return Use((*before, *word, *after), start, end, " ".join(word).lower())


def _parse_number(where: str, text: str) -> float:
    with suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise ElmokitError(f"{where}: {text.strip()!r} is not a number")


def read_wic(path: FilePath, gold: FilePath | None = None, *, errors: str = "strict") -> list[Pair]:
    """Read Word in Context: does a word have the same sense in two sentences?

    The columns are the word, its part of speech, positions as "2-5" and the tokenized sentences.
    """
    answers = _read_answers(_find_gold(path) if gold is None else gold, errors)
    pairs = []
    for where, text in _read_filled(path, errors):
        cells = text.split("\t")
        positions = POSITIONS.fullmatch(cells[2].strip()) if len(cells) == 5 else None
        if positions is None:
            raise ElmokitError(
                f"{where}: expected a word, its part of speech, positions such as 2-5 and two "
                "sentences, separated by tabs"
            )
        answer = next(answers, None)
        if answer is None:
            raise ElmokitError(f"{where}: the gold file has no line for this pair")
        first, second = (
            use_at(where, sentence, position, cells[0].lower())
            for sentence, position in zip(cells[3:], positions.groups(), strict=True)
        )
        pairs.append(Pair(first, second, answer))
    if next(answers, None) is not None:
        count = plural(len(pairs), "pair")
        raise ElmokitError(f"{name_of(path)} has {count}, but its gold file has more")
    return pairs


def _find_gold(path: FilePath) -> Path:
    gold = Path(str(path).replace(".data.", ".gold."))
    if gold == Path(path) or not gold.is_file():
        raise ElmokitError(
            f"{name_of(path)} needs its answers: name the file with a line T or F for each pair "
            "with --gold (for a training file with --train-gold)"
        )
    return gold


def _read_answers(path: FilePath, errors: str) -> Iterator[float]:
    for where, text in _read_filled(path, errors):
        letter = text.strip().upper()[:1]
        if letter not in ("T", "F"):
            raise ElmokitError(f"{where}: the answer must be T or F, not {text.strip()!r}")
        yield float(letter == "T")


def read_sentence_pairs(
    path: FilePath, tokenize: Tokenize, columns: Columns = (None, None, None)
) -> list[Pair]:
    """Read pairs of sentences with a score from TSV (any extension), CSV or JSON lines."""
    specs = [
        ColumnSpec("first sentence", "--first-column", FIRST, columns[0]),
        ColumnSpec("second sentence", "--second-column", SECOND, columns[1]),
        ColumnSpec("score", "--score-column", SCORE, columns[2]),
    ]
    pairs = []
    for where, (*texts, score) in read_table(path, specs, BadLines()):
        first, second = (_whole_sentence(where, text, tokenize) for text in texts)
        pairs.append(Pair(first, second, _parse_number(where, str(score))))
    return pairs


def _whole_sentence(where: str, text: object, tokenize: Tokenize) -> Use:
    tokens = tuple(text) if isinstance(text, list) else tuple(tokenize(str(text or "")))
    if not tokens:
        raise ElmokitError(f"{where}: a sentence is empty")
    return Use(tokens, 0, len(tokens), "")
