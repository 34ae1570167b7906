"""Make static word vectors out of contextual ones: the mean of all uses of a word in a corpus.

    corpus ─► counts ─► which words ─► windows ─► biLM ─► sums of one layer ─► word2vec file

The corpus is read twice, to count and to embed. The sums are saved every minute: a run that was
stopped resumes to the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from elmokit.analysis.sampling import Corpus
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.io import resumable
from elmokit.io.atomic import atomic_file, locked
from elmokit.io.lines import FilePath, name_of
from elmokit.io.resumable import ResumableFolder, explain_disk_errors
from elmokit.layers import Layers, layer_weights, parse_layers
from elmokit.vectors.static.writer import check_name, is_writable, write_static_vectors

STATE, ASSEMBLED = "state.npz", "assembled.tmp"
SAVED = ("words", "counts", "uses", "done", "digest")
SAVE_SECONDS = 60.0


@dataclass(frozen=True)
class StaticResult:
    """What `average_uses` has written."""

    output: Path
    words: int
    dim: int
    """Number of columns."""
    uses: int
    """Number of uses that were averaged."""


def average_uses(
    elmo: Embedder,
    corpus: Corpus,
    output: FilePath,
    *,
    layer: str = "1",
    vocabulary: Collection[str] | None = None,
    min_count: int = 5,
    max_words: int = 100_000,
    resume: bool = False,
    overwrite: bool = False,
) -> StaticResult:
    """Write the mean vector of each word of a corpus, as a file of word2vec.

    The most frequent word comes first. Words with white space in them are left out.

    Args:
        elmo: The model.
        corpus: The corpus; it decides whether words are lower-cased.
        output: File to write: text, or binary if it ends in .bin; also .gz.
        layer: Layer of the vectors: an index from 0, "top", "average", or comma-separated weights.
            Layer 0 has half of the columns, because its two halves are the same.
        vocabulary: Words to keep (default: all that are frequent enough).
        min_count: Minimum number of uses of a word.
        max_words: Maximum number of words; the most frequent ones are kept.
        resume: Resume a run that was stopped.
        overwrite: Replace the output if it exists.
    """
    layers = parse_layers(layer)
    weights = layer_weights(layers, elmo.config.num_layers)
    if len(weights) != 1 or min_count < 1 or max_words < 1:
        raise ElmokitError("layer must name one layer, and min_count and max_words be 1 or more")
    dim = elmo.dim if weights[0, 1:].any() else elmo.dim // 2
    chosen = None if vocabulary is None else sorted({corpus.fold(word) for word in vocabulary})
    settings = {
        "corpus": resumable.input_identity(corpus.path),
        **corpus.reading,
        "lowercase": corpus.fold is str.lower,
        "model": elmo.fingerprint(),
        "layer": weights[0].tolist(),
        "vocabulary": None if chosen is None else _hash([chosen]).hexdigest(),
        "min_count": min_count,
        "max_words": max_words,
    }
    sums = UseSums(output, settings, resume=resume, overwrite=overwrite)
    with locked(sums.folder), sums:
        if not sums.words:
            counts = choose_words(corpus, chosen, min_count, max_words)
            sums.words, sums.counts = list(counts), list(counts.values())
            sums.sums = np.zeros((len(counts), dim))
            sums.save()
        add_uses(elmo, corpus, sums, layers)
        sums.finish()
    return StaticResult(Path(output), len(sums.words), dim, sums.uses)


def add_uses(elmo: Embedder, corpus: Corpus, sums: UseSums, layers: Layers) -> None:
    """Add the uses of a corpus that are not in the sums yet."""
    index = {word: row for row, word in enumerate(sums.words)}
    sentences = corpus.sentences(quiet=True)
    texts = (text for text in sentences if any(corpus.fold(token) in index for token in text))
    end, digest, saved = 0, _hash([]), time.monotonic()
    total = sum(sums.counts)
    options: Any = {"initial": sums.uses, "unit": " uses", "unit_scale": True}
    bar = tqdm(total=total, desc="averaging", disable=corpus.quiet, **options)
    for window in elmo.windows(texts):
        end += len(window)
        digest.update(json.dumps(window).encode())
        if end <= sums.done:  # added before the run was stopped
            elmo.skip(window)
        else:
            for sentence in elmo.stream(window, layers):
                rows = [index.get(corpus.fold(token), -1) for token in sentence.tokens]
                bar.update(sums.add(sentence.vectors, rows))
        if end == sums.done and digest.hexdigest() != sums.digest:
            raise resumable.other_input(name_of(corpus.path), sums.out)
        if end > sums.done:
            sums.done, sums.digest = end, digest.hexdigest()
            if time.monotonic() - saved >= SAVE_SECONDS:
                sums.save()
                saved = time.monotonic()
    bar.close()
    if end < sums.done or sums.uses != total:
        raise resumable.other_input(name_of(corpus.path), sums.out)


def choose_words(
    corpus: Corpus, vocabulary: Collection[str] | None, min_count: int, max_words: int
) -> dict[str, int]:
    """Return the words of a corpus that are kept and their counts, the most frequent first."""
    counts = corpus.counts()
    known = counts if vocabulary is None else {word: counts[word] for word in vocabulary}
    frequent = [(w, n) for w, n in known.items() if n >= min_count and is_writable(w)]
    if not frequent:
        which = "no word" if vocabulary is None else "none of the words"
        raise ElmokitError(
            f"{which} occurs {min_count} times in {name_of(corpus.path)}: lower --min-count"
        )
    return dict(sorted(frequent, key=lambda pair: (-pair[1], pair[0]))[:max_words])


class UseSums(ResumableFolder):
    """The sums of an unfinished run, in one file beside its output."""

    KIND = "a file of word vectors"
    FILES = (STATE, f"{STATE}.tmp", ASSEMBLED)

    def __init__(
        self, out: FilePath, settings: dict[str, Any], *, resume: bool, overwrite: bool
    ) -> None:
        check_name(Path(out))
        self.words: list[str] = []
        self.counts: list[int] = []
        self.sums: NDArray[np.float64] = np.zeros((0, 0))  # of the vectors so far: (words, dim)
        self.uses = self.done = 0  # uses so far, and sentences that have one
        self.digest = ""  # of these sentences
        super().__init__(Path(out), settings, resume=resume, overwrite=overwrite)

    def _is_run(self, parts: Path) -> bool:
        with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(parts / STATE) as state:
            return {"sums.npy", "metadata.npy"} <= set(state.namelist())
        return True

    def _is_replaceable(self, out: Path) -> bool:
        return out.is_file()

    def _is_empty(self) -> bool:
        return not self.words

    def _resume(self) -> None:
        if not (self.folder / STATE).is_file():  # killed while it counted
            return
        try:
            with (
                (self.folder / STATE).open("rb") as file,  # np.load leaves a damaged one open.
                np.load(file, allow_pickle=False) as state,
            ):
                saved = json.loads(str(state["metadata"]))
                self.sums = state["sums"]
            for name in SAVED:
                setattr(self, name, saved[name])
            settings = saved["settings"]
        except (ValueError, LookupError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise resumable.damaged(self.folder, f"{STATE}: {error}") from None
        resumable.check_settings(self.folder, settings, self.settings)

    def add(self, vectors: NDArray[np.float32], rows: Sequence[int]) -> int:
        """Add vectors (tokens, dim) to the rows of their words, -1 for none; return how many."""
        words = np.array(rows)
        kept = words >= 0  # (tokens,)
        np.add.at(self.sums, words[kept], vectors[kept, : self.sums.shape[1]])
        self.uses += int(kept.sum())
        return int(kept.sum())

    def save(self) -> None:
        """Write the state of the run: when this returns, it is safe on the disk."""
        metadata = json.dumps({name: getattr(self, name) for name in (*SAVED, "settings")})
        temporary = self.folder / f"{STATE}.tmp"
        with (
            explain_disk_errors(self.out),
            atomic_file(self.folder / STATE, temporary=temporary) as file,
        ):
            np.savez(file, sums=self.sums, metadata=np.array(metadata))

    def finish(self) -> None:
        means = (self.sums / np.array(self.counts)[:, None]).astype(np.float32)
        with explain_disk_errors(self.out):
            write_static_vectors(self.out, self.words, means, temporary=self.folder / ASSEMBLED)
            self._remove(self.folder)


def _hash(content: Sequence[Any]) -> Any:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16)
