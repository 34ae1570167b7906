"""Static word vectors beside ELMo: one vector per word, independent of its context.

    GloVe, word2vec, fastText .vec ─► StaticVectors ─► rows of tokens, h = [x; ELMo]

Text is slow to parse (see `reader.py`), so a large file is parsed once and kept as a memory map in
the cache folder (see `cache.py`). A task model has its own copy: `save` and `load`.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tqdm.auto import tqdm

from elmokit.errors import ElmokitError, located, plural
from elmokit.formats.native import read_lines, read_tensors, stored_as, write_lines
from elmokit.io.atomic import atomic_folder
from elmokit.io.lines import FilePath, name_of
from elmokit.io.paths import cache_folder, is_file
from elmokit.progress import logger
from elmokit.text.readers import total_bytes
from elmokit.vectors.static.cache import Table, WordRows, read_cached
from elmokit.vectors.static.reader import read_rows

LARGE_BYTES = 8 << 20  # Larger files are cached and have a progress bar.
BLOCK_ROWS = 10_000
WORDS, VECTORS = "words.txt", "vectors.safetensors"
REPEATED = "that are repeated (the first one counts)"
QUOTES = str.maketrans("‘’‚“”„", "'''\"\"\"")


@dataclass(frozen=True, eq=False)
class StaticVectors:
    """Words and their vectors."""

    words: list[str]
    vectors: Table
    """One row per word, memory-mapped if the file is large: (words, dim)."""
    source: str = "memory"
    """Name of the file, for messages."""
    digit: str | None = None
    """The character that replaces every digit in the words, "#" or "0"; "" if none does. None
    detects it from the words."""

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.words):
            raise ElmokitError(
                f"{self.source} has {len(self.words)} words but vectors of the shape "
                f"{list(self.vectors.shape)}"
            )
        if self.digit is None:
            object.__setattr__(self, "digit", _digit(self.words))

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.vectors.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"StaticVectors({self.source}: {len(self):,} words, {self.dim} columns)"

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word; of repeated words the first."""
        last = len(self.words) - 1
        return {word: last - i for i, word in enumerate(reversed(self.words))}

    def row(self, word: str) -> int | None:
        """Return the row of a word or of the closest form of it, None if there is none.

        These are tried in order: the word; the word in lower case; both with full-width letters,
        ligatures and curly quotes normalized; all of these with every digit replaced by "#" or
        "0", if the file does so.
        """
        index = self.index
        if word in index:
            return index[word]
        return next((index[form] for form in self._forms(word) if form in index), None)

    def _forms(self, word: str) -> Iterator[str]:
        forms = [word, word.lower()]
        if not word.isascii():
            plain = unicodedata.normalize("NFKC", word).translate(QUOTES)
            forms += [plain, plain.lower()]
        yield from forms[1:]
        if self.digit:
            yield from (re.sub(r"\d", self.digit, form) for form in forms)

    def rows(self, tokens: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of tokens, -1 where a word is unknown: (tokens,)."""
        rows = (self.row(token) for token in tokens)
        return np.fromiter((-1 if row is None else row for row in rows), np.int64, len(tokens))

    def most_similar(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """Return the `k` words whose vectors have the largest cosine with that of a word."""
        own = self.row(word)
        if own is None:
            raise ElmokitError(f"{self.source} has no vector of {word!r}")
        cosines = []
        for start in range(0, len(self), BLOCK_ROWS):
            block = np.asarray(self.vectors[start : start + BLOCK_ROWS], np.float32)  # (n, dim)
            lengths = np.linalg.norm(block, axis=1) * np.linalg.norm(self.vectors[own])
            cosines.append(block @ self.vectors[own] / np.maximum(lengths, 1e-12))
        scores = np.concatenate(cosines)  # (words,)
        best = [row for row in np.argsort(-scores, kind="stable")[: k + 1] if row != own]
        return [(self.words[row], float(scores[row])) for row in best[:k]]

    def fingerprint(self) -> str:
        """Return a hash of all words and vectors."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps([self.dim, self.digit, self.words]).encode())
        for start in range(0, len(self), BLOCK_ROWS):
            block = self.vectors[start : start + BLOCK_ROWS]
            digest.update(np.ascontiguousarray(block, "<f4").data)
        return digest.hexdigest()


def _digit(words: Sequence[str]) -> str:
    """Return what a file writes for every digit, as in "####" or "0000" for a year, or ""."""
    text = "\n".join(words)
    if re.search(r"^##+$", text, re.M):
        return "#"
    return "0" if re.search(r"^00+$", text, re.M) and not re.search("[1-9]", text) else ""


# ---------------------------------------------------------------------- reading
def read_static_vectors(
    path: FilePath, *, limit: int | None = 400_000, cache: Path | None = None, quiet: bool = False
) -> StaticVectors:
    """Read word vectors: GloVe, word2vec as text or binary, fastText .vec; also .gz, .xz, .zst.

    Bytes that are not UTF-8 become U+FFFD. Only the first `limit` words are read, the frequent
    ones. `cache` keeps them as a memory map (default: the user's cache folder for large files).
    """
    if limit is not None and limit < 1:
        raise ElmokitError(f"limit must be at least 1, not {limit}")
    file, name = Path(path), name_of(path)
    is_large = is_file(file) and file.stat().st_size >= LARGE_BYTES
    parse = partial(_distinct_words, path, limit, quiet or not is_large)
    folder = cache or (cache_folder("vectors") if is_large else None)
    notes: Counter[str] = Counter()
    rows = None
    if folder is not None and is_file(file):
        rows = read_cached(file, limit, folder, parse, notes)
    if rows is None:
        parts = list(parse(notes))
        words = [word for more, _ in parts for word in more]
        rows = words, np.concatenate([table for _, table in parts])
    for problem, n in notes.items():
        logger.warning(f"{name} has {plural(n, 'word')} {problem}")
    return StaticVectors(*rows, name)


def _distinct_words(
    path: FilePath, limit: int | None, quiet: bool, notes: Counter[str]
) -> Iterator[WordRows]:
    """Yield the distinct words of a file up to a limit, and count what was left out in `notes`."""
    seen: set[str] = set()
    size, name = total_bytes(path), Path(path).name
    with tqdm(total=size, unit="B", unit_scale=True, desc=name, disable=quiet) as bar:
        for raw, table in read_rows(path, on_bytes=bar.update):
            words, kept = [], []
            for i, encoded in enumerate(raw):
                word = encoded.decode(errors="replace")
                if "\ufffd" in word and word.encode() != encoded:
                    notes["that are not UTF-8 (invalid bytes read as U+FFFD)"] += 1
                if word in seen or not word:
                    notes[REPEATED if word else "without text"] += 1
                    continue
                seen.add(word)
                words.append(word)
                kept.append(i)
                if len(seen) == limit:
                    break
            yield words, table if len(kept) == len(raw) else table[kept]
            if len(seen) == limit:
                break
    if not seen:
        raise ElmokitError(f"{name_of(path)} has no word vectors in it")


# ---------------------------------------------------------------------- in a task model's folder
def save(
    vectors: StaticVectors, folder: Path, *, dtype: Literal["float16", "float32"] = "float16"
) -> None:
    """Write a folder with `words.txt` and `vectors.safetensors`, atomically."""
    stored = stored_as(dtype, vectors.vectors, vectors.source)
    metadata = {"source": Path(vectors.source).name, "digit": vectors.digit or ""}
    with atomic_folder(folder, replace=(WORDS, VECTORS)) as temporary:
        write_lines(temporary / WORDS, vectors.words)
        save_file({"vectors": stored}, temporary / VECTORS, metadata=metadata)


def load(folder: Path) -> StaticVectors:
    """Load what `save` has written."""
    tensors, metadata = read_tensors(folder / VECTORS)
    vectors = tensors.get("vectors")
    if vectors is None or not np.isfinite(vectors).all():
        raise ElmokitError(f"{folder / VECTORS} lacks 'vectors' that are finite numbers")
    words = read_lines(folder / WORDS)
    with located(folder, raising=ElmokitError):
        source = metadata.get("source", str(folder))
        return StaticVectors(words, vectors, source, metadata.get("digit"))
