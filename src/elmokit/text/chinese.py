r"""Segment Chinese text with jieba, and the dictionaries that users add to it.

A tokenizer is a string, in options and in files alike. The words of a user dictionary follow the
name, one per line: "chinese\n云计算\n李小福 2 nr". So what records a tokenizer records its words.
"""

from __future__ import annotations

import logging
import re
import warnings
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from elmokit.errors import ElmokitError, require
from elmokit.io.jsonfile import read_text
from elmokit.io.lines import FilePath

CHINESE = "chinese"
MAX_DICTIONARY_BYTES = 16 << 20
MAX_LOADED = 4  # dictionaries in memory
# A word, its frequency and its part of speech, as in the files of jieba. For a word of frequency 0
# jieba would change the segmentation of all dictionaries.
ENTRY = re.compile(r"(\S{1,100})(?:[ \t]+([1-9][0-9]{0,8}))?(?:[ \t]+([a-zA-Z]{1,20}))?")


def segment_chinese(text: str, words: str = "") -> list[str]:
    """Split Chinese text, which has no spaces between words, with jieba and a user dictionary."""
    segment = _segmenter(words) if words else _jieba()
    return [str(word) for word in segment.cut(text) if not word.isspace()]


def with_dictionary(tokenizer: str, path: FilePath | None) -> str:
    """Return a tokenizer with the words of a dictionary file in place of any that it has."""
    if path is None:
        return tokenizer
    name = tokenizer.partition("\n")[0]
    if name != CHINESE:
        raise ElmokitError(
            f"a dictionary for jieba needs the tokenizer {CHINESE!r}, not {name!r}: choose it with "
            f"--tokenizer {CHINESE}"
        )
    return f"{name}\n{read_dictionary(Path(path).expanduser())}"


def read_dictionary(path: Path) -> str:
    """Return the entries of a dictionary file, one per line; raise if one is malformed."""
    text = read_text(path, max_bytes=MAX_DICTIONARY_BYTES).removeprefix("\ufeff")
    lines = [(i, line) for i, raw in enumerate(text.split("\n"), start=1) if (line := raw.strip())]
    for i, line in lines:
        _entry(line, f"{path}:{i}: ")
    if not lines:
        raise ElmokitError(f"the dictionary {path} has no words")
    return "\n".join(line for _, line in lines)


def _entry(line: str, where: str = "") -> tuple[str | Any, ...]:
    entry = ENTRY.fullmatch(line)
    if entry is None:
        raise ElmokitError(
            f"{where}an entry of a dictionary for jieba is a word, or a word with a frequency and "
            f"a part of speech, such as '云计算 5 n', not {line[:60]!r}"
        )
    return entry.groups()


@cache
def _jieba() -> ModuleType:
    with warnings.catch_warnings():  # Newer Pythons warn about its syntax.
        warnings.simplefilter("ignore")
        jieba = require("jieba", extra="chinese", purpose="Segmenting Chinese text")
    jieba.setLogLevel(logging.ERROR)
    return jieba


@lru_cache(MAX_LOADED)
def _segmenter(words: str) -> Any:
    """Return a segmenter of its own: jieba's functions share one, which must not change."""
    segmenter = _jieba().Tokenizer()
    for line in words.split("\n"):
        segmenter.add_word(*_entry(line))
    return segmenter
