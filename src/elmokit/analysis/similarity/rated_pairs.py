"""Pairs of words or sentences that people have compared: SCWS, WiC, and tables of sentences.

file ─► Pair: two uses and what people say of them
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.analysis.uses import Use
from elmokit.data.labeled import FIRST, SECOND, BadLines
from elmokit.data.lines import place
from elmokit.data.tables import Wanted, read_table
from elmokit.errors import ElmokitError
from elmokit.io.lines import FilePath, name_of, read_lines
from elmokit.text.readers import Tokenize

if TYPE_CHECKING:
    from typing import TypeAlias

    Rows: TypeAlias = "Iterator[tuple[str, str]]"

KINDS = ("scws", "wic", "sentences")
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
    """A rating; of WiC 1 for the same sense and 0 for another."""


def kind_of_pairs(path: FilePath) -> str:
    """What a file is by its first line: "scws", "wic" or "sentences"."""
    _, text = next(_filled(path, "replace"), ("", ""))
    cells = text.split("\t")
    if len(cells) == 5 and POSITIONS.fullmatch(cells[2].strip()):
        return "wic"
    if len(cells) >= 8 and MARKED.search(cells[5]) and MARKED.search(cells[6]):
        return "scws"
    return "sentences"


def _filled(path: FilePath, errors: str) -> Rows:
    """The lines that are not blank, each with its place."""
    for piece in read_lines(path, errors=errors):
        if not piece.ended:
            raise ElmokitError(f"{place(path, piece.line)}: the line is too long")
        if piece.text.strip():
            yield place(path, piece.line), piece.text


def _some(path: FilePath, pairs: list[Pair]) -> list[Pair]:
    if len(pairs) < 2:
        raise ElmokitError(f"{name_of(path)} has {len(pairs) or 'no'} pairs: there must be two")
    return pairs


# ---------------------------------------------------------------------- SCWS
def read_scws(path: FilePath, tokenize: Tokenize, *, errors: str = "strict") -> list[Pair]:
    """Stanford's contextual word similarities: words marked with <b> in a context, and ratings.

    The columns are id, word, part of speech, word, part of speech, context, context, the average
    rating, and single ratings, which are not read.
    """
    pairs = []
    for where, text in _filled(path, errors):
        cells = text.split("\t")
        if len(cells) < 8:
            raise ElmokitError(
                f"{where}: the line has {len(cells)} columns; the average rating is in column 8"
            )
        first, second = (_context(where, cell, tokenize) for cell in cells[5:7])
        pairs.append(Pair(first, second, _number(where, cells[7])))
    return _some(path, pairs)


def _context(where: str, text: str, tokenize: Tokenize) -> Use:
    found = MARKED.search(text)
    if found is None or not found[1].strip():
        raise ElmokitError(f"{where}: no word of the context stands between <b> and </b>")
    before, after = MARKED.sub(r"\1", text[: found.start()]), text[found.end() :]
    parts = [tokenize(part) for part in (before, found[1], MARKED.sub(r"\1", after))]
    start = len(parts[0])
    end = start + len(parts[1])
    return Use((*parts[0], *parts[1], *parts[2]), start, end, " ".join(parts[1]).lower())


def _number(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value or abs(value) == float("inf"):
        raise ElmokitError(f"{where}: {text.strip()!r} is no number")
    return value


# ---------------------------------------------------------------------- WiC
def read_wic(path: FilePath, gold: FilePath | None = None, *, errors: str = "strict") -> list[Pair]:
    """Word in Context: does a word have the same sense in two sentences?

    The columns are the word, its part of speech, the positions in both sentences as "2-5", and
    the sentences, tokenized with spaces. `gold` has a line with T or F for each; if not given, it
    is looked for beside the file: dev.gold.txt for dev.data.txt.
    """
    answers = _answers(gold or _gold_beside(path), errors)
    pairs = []
    for where, text in _filled(path, errors):
        cells = text.split("\t")
        numbers = POSITIONS.fullmatch(cells[2].strip()) if len(cells) == 5 else None
        if numbers is None:
            raise ElmokitError(
                f"{where}: there must be a word, its part of speech, positions such as 2-5 and two "
                "sentences, with tabs between them"
            )
        answer = next(answers, None)
        if answer is None:
            raise ElmokitError(f"{where}: the gold file has no line for it")
        first, second = (
            _use_at(where, cells[0], sentence, int(number))
            for sentence, number in zip(cells[3:], numbers.groups(), strict=True)
        )
        pairs.append(Pair(first, second, answer))
    if next(answers, None) is not None:
        raise ElmokitError(f"{name_of(path)} has {len(pairs)} pairs, and its gold file more")
    return _some(path, pairs)


def _use_at(where: str, word: str, sentence: str, position: int) -> Use:
    tokens = tuple(sentence.split())
    if position >= len(tokens):
        raise ElmokitError(f"{where}: the sentence has {len(tokens)} tokens, none at {position}")
    return Use(tokens, position, position + 1, word.lower())


def _gold_beside(path: FilePath) -> Path:
    beside = Path(str(path).replace(".data.", ".gold."))
    if beside == Path(path) or not beside.is_file():
        raise ElmokitError(
            f"{name_of(path)} needs its answers: name the file with a line T or F for each pair "
            "with --gold (of a training file with --train-gold)"
        )
    return beside


def _answers(path: FilePath, errors: str) -> Iterator[float]:
    for where, text in _filled(path, errors):
        letter = text.strip().upper()[:1]
        if letter not in ("T", "F"):
            raise ElmokitError(f"{where}: the answer must be T or F, not {text.strip()!r}")
        yield float(letter == "T")


# ---------------------------------------------------------------------- sentences
def read_sentence_pairs(
    path: FilePath,
    tokenize: Tokenize,
    *,
    first_column: str | None = None,
    second_column: str | None = None,
    score_column: str | None = None,
) -> list[Pair]:
    """Two sentences and a number, out of TSV (any extension), CSV or JSON lines.

    Columns are names or numbers from 1, -1 for the last. Those of SICK and of STS in GLUE are found
    by their names; of three columns without names the number is the last one.
    """
    wanted = [
        Wanted("first sentence", "--first-column", FIRST, first_column),
        Wanted("second sentence", "--second-column", SECOND, second_column),
        Wanted("score", "--score-column", SCORE, score_column),
    ]
    pairs = []
    for where, (*texts, score) in read_table(path, wanted, BadLines()):
        first, second = (_whole(where, text, tokenize) for text in texts)
        pairs.append(Pair(first, second, _number(where, str(score))))
    return _some(path, pairs)


def _whole(where: str, text: object, tokenize: Callable[[str], list[str]]) -> Use:
    tokens = tuple(text) if isinstance(text, list) else tuple(tokenize(str(text or "")))
    if not tokens:
        raise ElmokitError(f"{where}: a sentence is empty")
    return Use(tokens, 0, len(tokens), "")
