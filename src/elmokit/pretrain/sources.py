"""The sources of a corpus: their files, and the sentences of these, tokenized on all cores.

One process cuts the lines of the files into chunks where no sentence is cut; the others find their
sentences and tokens. Chunks stay in order: the result is the same for any number of processes.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.io.lines import OnBytes, Piece, read_lines
from elmokit.io.paths import find_files
from elmokit.text.readers import WORD_COLUMN, Form, is_wrapped, kind_of, sentences_of
from elmokit.text.tokenize import tokenizer as tokenizer_named

CHUNK_CHARACTERS = 1 << 20
INLINE_BYTES = 4 << 20  # A smaller corpus is not worth starting processes for.
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Weights = Mapping[str, float]


@dataclass(frozen=True)
class Source:
    """Files of a corpus that are read equally often."""

    name: str
    files: list[Path]
    weight: float = 1.0
    """How often an epoch reads them."""


def find_sources(corpus: Paths | Weights) -> list[Source]:
    """Return one source for each weighted pattern, or a single one for patterns without weights."""
    if not isinstance(corpus, Mapping):
        return [Source("the corpus", find_files(corpus))]
    sources: list[Source] = []
    for pattern, weight in corpus.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
            raise ElmokitError(
                f"the weight of {pattern!r} must be a number above 0, not {weight!r}"
            )
        files = find_files(pattern)
        if twice := {file for source in sources for file in source.files}.intersection(files):
            raise ElmokitError(f"{min(twice)} is in two sources: let each file match one pattern")
        sources.append(Source("/".join(Path(pattern).parts[-2:]), files, float(weight)))
    if not sources:
        raise ElmokitError("no corpus was given: name files, globs or folders")
    return sources


@dataclass(frozen=True)
class Chunk:
    """Consecutive sentences, as ids of the chunk's own words."""

    words: list[str]
    ids: NDArray[np.int32]  # word ids of the sentences one after the other: (tokens,)
    lengths: NDArray[np.int64]  # number of tokens of each sentence: (sentences,)


def tokenized_chunks(
    files: Sequence[Path], *, tokenizer: str, workers: int | None, on_bytes: OnBytes
) -> Iterator[Chunk]:
    """Yield the sentences of files in order, tokenized here or, if they are large, by `workers`."""
    tokenizer_named(tokenizer)  # Report a wrong name here, not in another process.
    tasks = (
        (pieces, str(file), tokenizer)
        for file in files
        for pieces in chunks_of_lines(file, split=tokenizer != "whitespace", on_bytes=on_bytes)
    )
    size = sum(file.stat().st_size for file in files)
    workers = (os.cpu_count() or 1) if workers is None else workers
    if workers < 2 or size < INLINE_BYTES:
        yield from (tokenize_chunk(*task) for task in tasks)
        return
    # With fork, a script that calls us without `if __name__ == "__main__"` works too.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting: deque[Future[Chunk]] = deque()
        try:
            for task in tasks:
                with warnings.catch_warnings():
                    # Python 3.12 warns about forking beside threads; the children use no locks.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    waiting.append(pool.submit(tokenize_chunk, *task))
                if len(waiting) > 2 * workers:  # This bounds the memory.
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise ElmokitError(
                "a process that tokenized the corpus was killed, perhaps because it ran out of "
                "memory: try fewer workers"
            ) from None
        finally:
            for future in waiting:
                future.cancel()


def chunks_of_lines(
    path: Path, *, split: bool, on_bytes: OnBytes = lambda _: None
) -> Iterator[list[Piece]]:
    """Cut a file into chunks of lines, never inside a line or a paragraph."""
    kind = kind_of(path)
    chunk: list[Piece] = []
    characters = 0
    for piece in read_lines(path, on_bytes=on_bytes):
        if characters > CHUNK_CHARACTERS and _may_cut(chunk[-1], piece.text, kind, split):
            yield chunk
            chunk, characters = [], 0
        chunk.append(piece)
        characters += len(piece.text) + 1
    if chunk:
        yield chunk


def _may_cut(before: Piece, following: str, kind: str, split: bool) -> bool:
    text, following = before.text.strip(), following.strip()
    if not before.ended:
        return False
    if kind in WORD_COLUMN:
        return not text
    is_running = kind != "jsonl" and split and text and following
    return not (is_running and is_wrapped(text, following))


def tokenize_chunk(pieces: list[Piece], name: str, tokenizer: str) -> Chunk:
    """Find the sentences and tokens of lines; leave out empty sentences."""
    kind, tokenize = kind_of(name), tokenizer_named(tokenizer)
    # Words in columns are sentences already.
    split = tokenizer != "whitespace" and kind not in WORD_COLUMN
    known: dict[str, int] = {}
    ids: list[int] = []
    lengths: list[int] = []
    for sentence in sentences_of(pieces, name, Form(kind, split), tokenize):
        tokens = sentence.tokens
        if kind == "jsonl":  # Strings may have line breaks, which would split a word in vocab.txt.
            tokens = [part for token in tokens for part in token.split()]
        if tokens:
            ids.extend(known.setdefault(token, len(known)) for token in tokens)
            lengths.append(len(tokens))
    # There may be lone surrogates.
    words = [word.encode("utf-8", "replace").decode() for word in known]
    return Chunk(words, np.array(ids, np.int32), np.array(lengths, np.int64))
