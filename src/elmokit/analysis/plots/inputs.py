"""Read what `elmokit plot` draws: uses of words, and the first words of a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from elmokit.analysis.plots.maps import MIN_USES
from elmokit.analysis.sampling import find_uses, read_with_progress, sample
from elmokit.analysis.uses import Use, read_uses
from elmokit.errors import ElmokitError
from elmokit.io.paths import is_file
from elmokit.text.readers import kind_of, read_sentences
from elmokit.text.tokenize import split_sentences
from elmokit.text.tokenize import tokenizer as find_tokenizer

MAX_MAPS = 12  # words of one figure
MAX_TEXT = 1000  # words of a text
SEED = 1


def read_table_uses(path: str, words: list[str] | None, max_uses: int) -> list[Use]:
    """Return the first uses of each word in a table, of all words or of some."""
    uses: dict[str, list[Use]] = {}
    for use in read_uses(path):
        if len(uses.setdefault(use.lemma, [])) < max_uses:
            uses[use.lemma].append(use)
    if not uses:
        raise ElmokitError(f"{path} has no uses of words")
    for word in words or ():
        _check_count(path, word, len(uses.get(word, [])))
    frequent = [word for word in uses if len(uses[word]) >= MIN_USES]
    if not frequent:
        word = next(iter(uses))
        _check_count(path, word, len(uses[word]))
    if words is None and len(frequent) > MAX_MAPS:
        raise ElmokitError(
            f"{path} has {len(frequent)} words, and a figure has room for {MAX_MAPS}: name some "
            "with --words"
        )
    return [use for word in words or frequent for use in uses[word]]


def _check_count(path: str, word: str, count: int) -> None:
    """Raise if a word has too few uses for a map."""
    if count < MIN_USES:
        uses = {0: "no use", 1: "only one use"}.get(count, f"only {count} uses")
        raise ElmokitError(f"{path} has {uses} of {word!r}, and a map needs at least {MIN_USES}")


def sample_text_uses(
    path: str, word: str, max_uses: int, *, tokenizer: str, quiet: bool = True
) -> list[Use]:
    """Return a random sample of the uses of a word in a text without senses."""
    lines = read_with_progress(path, quiet=quiet, tokenizer=tokenizer)
    tokens = find_tokenizer(tokenizer)(word)
    uses, _ = sample(find_uses((line.tokens for line in lines), tokens), max_uses, SEED)
    _check_count(path, word, len(uses))
    return uses


def read_text(text: str, tokenizer: str) -> Iterator[list[str]]:
    """Yield the tokenized sentences of a file, or of the text itself if it is not a file name."""
    looks_like_file = re.fullmatch(r"\S+\.\w{1,7}|\S*[/\\]\S*", text) is not None
    if text == "-" or looks_like_file or is_file(Path(text)):
        is_running = kind_of(text) in ("text", "jsonl")
        lines = read_sentences(text, tokenizer=tokenizer, split=is_running)
        return (line.tokens for line in lines if line.tokens)
    tokenize = find_tokenizer(tokenizer)
    return (tokens for sentence in split_sentences(text) if (tokens := tokenize(sentence)))


def first_words(sentences: Iterable[list[str]]) -> tuple[list[list[str]], bool]:
    """Return the sentences up to MAX_TEXT words, and whether there were more."""
    kept: list[list[str]] = []
    left = MAX_TEXT
    for tokens in sentences:
        if len(tokens) > left:
            return [*kept, tokens[:left]] if left else kept, True
        kept.append(tokens)
        left -= len(tokens)
    if not kept:
        raise ElmokitError("the text has no words")
    return kept, False
