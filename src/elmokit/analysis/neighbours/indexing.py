"""Write an index of words in their sentences: streamed, in bounded memory, resumable.

    sentences ─► windows ─► biLM ─► one layer, minus the mean, unit length, float16 ─► files

After each window index.json is replaced; it says how much of each file is safe. A run that is
resumed truncates the files to that and continues to the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from elmokit.analysis.geometry import Array, unit
from elmokit.analysis.neighbours import index as disk
from elmokit.analysis.neighbours.index import Index
from elmokit.embed import Embedder, Sentence
from elmokit.errors import ElmokitError
from elmokit.io import resumable
from elmokit.io.atomic import locked
from elmokit.io.jsonfile import write_json
from elmokit.io.resumable import ResumableFolder, explain_disk_errors
from elmokit.layers import layer_index, layer_weights

ATOMIC = (disk.METADATA, disk.GRAPHS, "graph-[0-9]*.usearch")  # NAME.tmp, then renamed


def index_uses(
    elmo: Embedder,
    sentences: Iterable[Sequence[str]],
    out: str | Path,
    *,
    layer: str | int = "top",
    words: Collection[str] | None = None,
    settings: dict[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_tokens: Callable[[int], None] = lambda _: None,
    finish: Callable[[Index], None] = lambda _: None,
) -> Index:
    """Write an index of the uses of words in some sentences.

    The mean that is subtracted is that of the first window, about 38,000 tokens with 256 columns.

    Args:
        elmo: The model.
        sentences: Tokenized sentences; empty ones are skipped.
        out: Folder to write.
        layer: Layer of the vectors: "top", "average" or a number from 0.
        words: Index only these words, in upper or lower case, and their sentences (default: all).
        settings: What else must be the same in a run that is resumed, such as the corpus.
        resume: Resume a run that was stopped.
        overwrite: Replace an index.
        on_tokens: Called after each window with the number of tokens that were embedded.
        finish: Called with the index before it gets its name.
    """
    num_layers = elmo.config.num_layers
    index = layer_index(layer, num_layers)
    selector: str | int = index if index <= num_layers else "average"
    weights = layer_weights(selector, num_layers)[0]  # (L + 1,)
    chosen = None if words is None else {word.lower() for word in words}
    listed = None if chosen is None else sorted(chosen)
    own = {"fingerprint": elmo.fingerprint(), "layer": selector, "words": listed}
    writer = IndexWriter(out, own | (settings or {}), elmo.dim, resume=resume, overwrite=overwrite)
    with locked(writer.folder), writer:
        first = 0
        texts = (
            list(tokens)
            for tokens in (() if writer.metadata["complete"] else sentences)
            if tokens and (chosen is None or any(token.lower() in chosen for token in tokens))
        )
        for window in elmo.windows(texts, kept=num_layers + 1):
            if first < writer.index.num_sentences:  # written before the run was stopped
                writer.check(first, window)
                elmo.skip(window)
                on_tokens(0)
            else:
                writer.write(elmo.stream(window), weights, chosen)
                on_tokens(sum(map(len, window)))
            first += len(window)
        if not writer.metadata["complete"] and first < writer.index.num_sentences:
            raise resumable.other_input("the corpus", out)
        if not writer.index.num_sentences and words is None:
            raise ElmokitError("the corpus has no tokens, so there is nothing to index")
        if not writer.index.num_sentences:
            raise ElmokitError(f"none of the words {', '.join(words or ())} occurs in the corpus")
        writer.complete(finish)
    return disk.open_index(out)


class IndexWriter(ResumableFolder):
    """An unfinished index: a folder beside `out` whose files grow window by window."""

    KIND = "an index of neighbours"
    FIELDS: ClassVar = {disk.METADATA: "sizes"}
    FILES = (*disk.FILES, *ATOMIC, *(f"{name}.tmp" for name in ATOMIC))

    def __init__(
        self, out: str | Path, settings: dict[str, Any], dim: int, *, resume: bool, overwrite: bool
    ) -> None:
        self.metadata: dict[str, Any] = {"version": disk.VERSION, "complete": False, "dim": dim}
        self.metadata["sizes"] = dict.fromkeys(disk.FILES, 0)
        self.word_ids: dict[str, int] = {}
        self.means: Array | None = None
        super().__init__(out, settings, resume=resume, overwrite=overwrite)

    @property
    def index(self) -> Index:
        """What is committed, as an index."""
        return Index(self.folder, self.metadata)

    def _is_replaceable(self, out: Path) -> bool:
        with suppress(ElmokitError):
            return bool(disk.read_metadata(out))
        return False

    def _is_empty(self) -> bool:
        return not self.index.num_sentences

    def _start(self) -> None:
        for name in disk.FILES:
            (self.folder / name).touch()
        self._write_metadata(settings=self.settings)

    def _resume(self) -> None:
        if not (self.folder / disk.METADATA).is_file():  # killed before it was written
            self._begin()
            return
        saved = disk.read_metadata(self.folder)
        resumable.check_settings(self.folder, saved["settings"], self.settings)
        for name, size in saved["sizes"].items():
            path = self.folder / name
            if path.is_symlink():  # Its target would be written to.
                raise resumable.damaged(self.folder, f"{name} is a link")
            if not path.is_file() or path.stat().st_size < size:
                raise resumable.damaged(self.folder, f"{name} is too short")
            os.truncate(path, size)
        self.metadata = saved
        self.word_ids = {word: i for i, word in enumerate(self.index.words)}
        self.means = self.index.means if self.index.num_sentences else None

    def check(self, first: int, window: Sequence[Sequence[str]]) -> None:
        """Raise if the sentences that were written from index `first` on are not these."""
        starts = np.fromfile(self.folder / disk.STARTS, "<u8", 1, offset=8 * first)
        with (self.folder / disk.SENTENCES).open("rb") as file:
            file.seek(int(starts[0]))
            if any(file.readline() != _line(tokens) for tokens in window):
                raise resumable.other_input("the corpus", self.out)

    def write(self, window: Iterable[Sentence], weights: Array, words: set[str] | None) -> None:
        """Add the sentences of a window; when this returns, they are safely on disk."""
        sentences = list(window)
        added: dict[str, list[bytes]] = {name: [] for name in disk.FILES}
        if self.means is None:
            self.means = _means(sentences, weights)
            added[disk.MEANS].append(self.means.astype("<f4").tobytes())
        end = self.metadata["sizes"][disk.SENTENCES]
        for i, sentence in enumerate(sentences, self.index.num_sentences):
            line = _line(sentence.tokens)
            added[disk.SENTENCES].append(line)
            added[disk.STARTS].append(end.to_bytes(8, "little"))
            end += len(line)
            new, positions = [], []
            for position, word in enumerate(sentence.tokens):
                if word not in self.word_ids:
                    self.word_ids[word] = len(self.word_ids)
                    added[disk.WORDS].append(_line(word))
                    new.append(position)
                if words is None or word.lower() in words:
                    positions.append(position)
            uses = [(self.word_ids[sentence.tokens[p]], i, p) for p in positions]
            added[disk.USES].append(np.array(uses, "<u4").tobytes())
            static = unit(sentence.layers[0, new] - self.means[0])  # (new words, dim)
            added[disk.STATIC].append(static.astype("<f2").tobytes())
            layer = np.tensordot(weights, sentence.layers, 1)  # (tokens, dim)
            vectors = unit(layer[positions] - self.means[1])  # (uses, dim)
            added[disk.VECTORS].append(vectors.astype("<f2").tobytes())
        self._commit(added)

    def _commit(self, added: dict[str, list[bytes]]) -> None:
        sizes = dict(self.metadata["sizes"])
        with explain_disk_errors(self.out):
            for name, pieces in added.items():
                with (self.folder / name).open("ab") as file:
                    file.writelines(pieces)
                    file.flush()
                    os.fsync(file.fileno())
                    sizes[name] = file.tell()
            self._write_metadata(sizes=sizes)

    def _write_metadata(self, **changes: Any) -> None:
        metadata = {**self.metadata, **changes}
        write_json(self.folder / disk.METADATA, metadata)
        self.metadata = metadata

    def complete(self, finish: Callable[[Index], None]) -> None:
        """Record that all windows are written, call `finish`, and give the folder its name."""
        with explain_disk_errors(self.out):
            self._write_metadata(complete=True)
        finish(self.index)
        with explain_disk_errors(self.out):
            self._publish()


def _line(content: str | Sequence[str]) -> bytes:
    return json.dumps(content).encode("ascii") + b"\n"


def _means(sentences: Sequence[Sentence], weights: Array) -> Array:
    """Return the means over all tokens of layer 0 and of the layer of the uses: (2, dim)."""
    total = np.zeros((2, sentences[0].layers.shape[2]))
    for sentence in sentences:
        total[0] += sentence.layers[0].sum(axis=0, dtype=np.float64)
        total[1] += np.tensordot(weights, sentence.layers, 1).sum(axis=0, dtype=np.float64)
    return (total / sum(len(sentence.tokens) for sentence in sentences)).astype(np.float32)
