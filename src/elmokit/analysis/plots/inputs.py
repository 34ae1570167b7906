"""From files to what `elmokit plot` draws: uses of words, and the first words of a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from elmokit.analysis.plots.maps import FEWEST_USES
from elmokit.analysis.senses.induce import find_uses, sample_uses
from elmokit.analysis.uses import Use, read_uses
from elmokit.errors import ElmokitError
from elmokit.io.lines import name_of
from elmokit.io.paths import is_file
from elmokit.text.readers import kind_of, read_sentences, total_bytes
from elmokit.text.tokenize import split_sentences
from elmokit.text.tokenize import tokenizer as find_tokenizer

MOST_WORDS = 12  # maps of one figure
MOST_TEXT = 1000  # words of a text
SEED = 1


# ---------------------------------------------------------------------- uses
def table_uses(path: str, words: list[str] | None, limit: int) -> list[Use]:
    """The uses in a table, of all words or of some."""
    found: dict[str, list[Use]] = {}
    for use in read_uses(path):
        if len(found.setdefault(use.lemma, [])) < limit:
            found[use.lemma].append(use)
    if not found:
        raise ElmokitError(f"{path} has no uses of words")
    for word in words or ():
        if len(found.get(word, [])) < FEWEST_USES:
            raise ElmokitError(too_few(path, word, len(found.get(word, []))))
    many = [word for word, uses in found.items() if len(uses) >= FEWEST_USES]
    if not many:
        word = next(iter(found))
        raise ElmokitError(too_few(path, word, len(found[word])))
    if words is None and len(many) > MOST_WORDS:
        raise ElmokitError(
            f"{path} has {len(many)} words, and a figure has room for {MOST_WORDS}: name some with "
            "--word"
        )
    return [use for word in words or many for use in found[word]]


def too_few(path: str, word: str, count: int) -> str:
    """The sentence about a word that has too few uses for a map."""
    number = {0: "no use", 1: "only one use"}.get(count, f"only {count} uses")
    return f"{path} has {number} of {word!r}, and a map needs at least {FEWEST_USES}"


def text_uses(path: str, word: str, limit: int, *, tokenizer: str, quiet: bool = True) -> list[Use]:
    """Uses of a word in a text that says nothing of senses, each as likely as any other."""
    with tqdm(
        total=total_bytes(path), unit="B", unit_scale=True, desc=name_of(path), disable=quiet
    ) as bar:

        def moved(count: int) -> None:
            bar.update(count)

        lines = read_sentences(path, tokenizer=tokenizer, on_bytes=moved)
        found = find_uses((line.tokens for line in lines), find_tokenizer(tokenizer)(word))
        uses, _ = sample_uses(found, limit, SEED)
    if len(uses) < FEWEST_USES:
        raise ElmokitError(too_few(path, word, len(uses)))
    return uses


# ---------------------------------------------------------------------- text
def text_sentences(text: str, tokenizer: str) -> Iterator[list[str]]:
    """The tokenized sentences of a file, or of a text that is given itself."""
    looks_like_file = re.fullmatch(r"\S+\.\w{1,7}|\S*[/\\]\S*", text) is not None
    if text == "-" or looks_like_file or is_file(Path(text)):
        running = kind_of(text) in ("text", "jsonl")
        lines = read_sentences(text, tokenizer=tokenizer, split=running)
        return (line.tokens for line in lines if line.tokens)
    split = find_tokenizer(tokenizer)
    return (tokens for sentence in split_sentences(text) if (tokens := split(sentence)))


def first_words(sentences: Iterable[list[str]]) -> tuple[list[list[str]], bool]:
    """The sentences up to the last word there is room for, and whether there were more."""
    found: list[list[str]] = []
    room = MOST_TEXT
    for tokens in sentences:
        if len(tokens) > room:
            return [*found, tokens[:room]] if room else found, True
        found.append(tokens)
        room -= len(tokens)
    if not found:
        raise ElmokitError("the text has no words")
    return found, False
