"""Making an index of words in their sentences: streamed, in bounded memory, resumed if stopped.

    sentences ─► windows ─► biLM ─► one layer, mean off, length 1, float16 ─► files that only grow

After each window index.json is replaced: it says how much of each file is safe. A run that was
stopped cuts the files back to that and goes on to the same bytes, since neither the windows nor
the mean depend on where it was stopped. The folder gets its name when all is done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.analysis.neighbours.index import (
    ABOUT,
    FILES,
    MEANS,
    SENTENCES,
    STARTS,
    STATIC,
    USES,
    VECTORS,
    VERSION,
    WORDS,
    Index,
    open_index,
    read_about,
)
from elmokit.analysis.uses import Array, unit
from elmokit.errors import ElmokitError
from elmokit.io.atomic import locked
from elmokit.io.jsonfile import write_json
from elmokit.io.resumable import ResumableFolder, check_settings, damaged, explain_disk_errors
from elmokit.layers import layer_index, layer_weights

if TYPE_CHECKING:
    from elmokit.embed import Embedder, Sentence

GRAPHS = "graph*"  # what approximate.py adds to an index


def build_index(
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

    The mean that is taken off is that of the first window, some ten thousand tokens.

    Args:
        elmo: the biLM.
        sentences: tokenized; empty ones are passed over.
        out: the folder to write.
        layer: "top", "average" or a number from 0.
        words: only uses of these, and only sentences that have one; upper and lower case alike.
        settings: what else decides the vectors, such as the corpus: a run goes on only with the
            same.
        resume: go on with a run that was stopped.
        overwrite: replace an index.
        on_tokens: is told after each window how many tokens were embedded for it.
        finish: what remains to be done with the index before it gets its name.
    """
    num_layers = elmo.config.num_layers
    index = layer_index(layer, num_layers)
    selector = "average" if index > num_layers else index
    weights = layer_weights(selector, num_layers)[0]  # (num_layers + 1,)
    wanted = None if words is None else {word.lower() for word in words}
    own = {
        "fingerprint": elmo.fingerprint(),
        "layer": selector,
        "words": None if wanted is None else sorted(wanted),
    }
    writer = IndexWriter(
        out, {**own, **(settings or {})}, elmo.dim, resume=resume, overwrite=overwrite
    )
    with locked(writer.folder), writer:
        first = 0
        chosen = () if writer.whole else with_words(sentences, wanted)
        for window in elmo.windows(chosen, kept=elmo.config.num_layers + 1):
            if first < writer.sentences:  # written before the run was stopped
                writer.check(first, window)
                elmo.warm(window)
                on_tokens(0)
            else:
                writer.write(elmo.stream(window), weights, wanted)
                on_tokens(sum(map(len, window)))
            first += len(window)
        if not writer.whole and first < writer.sentences:
            raise writer.other_input()
        if not writer.sentences:
            raise ElmokitError(_nothing(words))
        writer.close()
        finish(Index(writer.folder, writer.about))
        writer.rename()
    return open_index(out)


def with_words(
    sentences: Iterable[Sequence[str]], wanted: Collection[str] | None
) -> Iterator[list[str]]:
    """The sentences that have a token, and one of the words if any are wanted."""
    for tokens in sentences:
        if tokens and (wanted is None or any(token.lower() in wanted for token in tokens)):
            yield list(tokens)


def _nothing(words: Collection[str] | None) -> str:
    if words is None:
        return "the corpus has no tokens, so there is nothing to index"
    return f"none of the words {', '.join(words)} stands in the corpus"


class IndexWriter(ResumableFolder):
    """An unfinished index: a folder beside `out` whose files grow window by window."""

    KIND = "index of neighbours"

    def __init__(
        self,
        out: str | Path,
        settings: dict[str, Any],
        dim: int,
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.about: dict[str, Any] = {
            "version": VERSION,
            "whole": False,
            "dim": dim,
            "sizes": dict.fromkeys(FILES, 0),
        }
        self.numbers: dict[str, int] = {}  # of the distinct words
        self.means: Array | None = None
        super().__init__(out, settings, resume=resume, overwrite=overwrite)

    def __enter__(self) -> IndexWriter:
        return self

    @property
    def whole(self) -> bool:
        """Whether all windows are written."""
        return bool(self.about["whole"])

    @property
    def sentences(self) -> int:
        """Number of sentences that are committed."""
        return int(self.about["sizes"][STARTS]) // 8

    # ------------------------------------------------------------------ resuming
    def _is_replaceable(self, out: Path) -> bool:
        return out.is_dir() and ((out / ABOUT).is_file() or not any(out.iterdir()))

    def _is_empty(self) -> bool:
        return not self.sentences

    def _remove(self, folder: Path) -> None:
        remove(folder)

    def _start(self) -> None:
        for name in FILES:
            (self.folder / name).touch()
        self.about["settings"] = self.settings
        write_json(self.folder / ABOUT, self.about)

    def _resume(self) -> None:
        if not (self.folder / ABOUT).is_file():  # killed before the first files were written
            self._begin()
            return
        saved = read_about(self.folder)
        check_settings(self.folder, saved["settings"], self.settings)
        for name, size in saved["sizes"].items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size < size:
                raise damaged(self.folder, f"{name} is too short")
            os.truncate(path, size)
        self.about = saved
        before = Index(self.folder, saved)
        self.numbers = {word: number for number, word in enumerate(before.words)}
        self.means = before.means if self.sentences else None

    # ------------------------------------------------------------------ windows
    def check(self, first: int, window: Sequence[Sequence[str]]) -> None:
        """Refuse to go on if the sentences from the number `first` on are not these."""
        starts = np.fromfile(self.folder / STARTS, "<u8", 1, offset=8 * first)
        with (self.folder / SENTENCES).open("rb") as file:
            file.seek(int(starts[0]))
            if any(file.readline() != _line(tokens) for tokens in window):
                raise self.other_input()

    def other_input(self) -> ElmokitError:
        """The error for a corpus that is not the one of the run that was stopped."""
        return ElmokitError(
            f"the corpus is not the one that {self.folder} was started with: resume with the same "
            "one, or start again with --overwrite"
        )

    def write(
        self, window: Iterable[Sentence], weights: Array, wanted: Collection[str] | None
    ) -> None:
        """Add the sentences of a window: when this returns, they are safe."""
        sentences = list(window)
        if self.means is None:
            self.means = _means(sentences, weights)
        added: dict[str, list[bytes]] = {name: [] for name in FILES}
        if not self.sentences:
            added[MEANS].append(self.means.astype("<f4").tobytes())
        end = self.about["sizes"][SENTENCES]
        for number, sentence in enumerate(sentences, self.sentences):
            line = _line(sentence.tokens)
            added[SENTENCES].append(line)
            added[STARTS].append(end.to_bytes(8, "little"))
            end += len(line)
            self._add_words(sentence, added)
            self._add_uses(number, sentence, weights, wanted, added)
        self._commit(added)

    def _add_words(self, sentence: Sentence, added: dict[str, list[bytes]]) -> None:
        """The words that are new, and their vectors in layer 0."""
        assert self.means is not None
        new = []
        for place, word in enumerate(sentence.tokens):
            if word not in self.numbers:
                self.numbers[word] = len(self.numbers)
                added[WORDS].append(_line(word))
                new.append(place)
        static = unit(sentence.layers[0, new] - self.means[0])
        added[STATIC].append(static.astype("<f2").tobytes())

    def _add_uses(
        self,
        number: int,
        sentence: Sentence,
        weights: Array,
        wanted: Collection[str] | None,
        added: dict[str, list[bytes]],
    ) -> None:
        """The words of a sentence that are wanted, and their vectors."""
        assert self.means is not None
        places = [
            place
            for place, word in enumerate(sentence.tokens)
            if wanted is None or word.lower() in wanted
        ]
        vectors = _layer(sentence, weights)[places]
        added[VECTORS].append(unit(vectors - self.means[1]).astype("<f2").tobytes())
        uses = [(self.numbers[sentence.tokens[place]], number, place) for place in places]
        added[USES].append(np.array(uses, "<u4").tobytes())

    def _commit(self, added: dict[str, list[bytes]]) -> None:
        sizes = dict(self.about["sizes"])
        with explain_disk_errors(self.out):
            for name, pieces in added.items():
                with (self.folder / name).open("ab") as file:
                    file.writelines(pieces)
                    file.flush()
                    os.fsync(file.fileno())
                    sizes[name] = file.tell()
            about = {**self.about, "sizes": sizes}
            write_json(self.folder / ABOUT, about)
        self.about = about

    # ------------------------------------------------------------------ the end
    def close(self) -> None:
        """Note that all windows are written."""
        self.about["whole"] = True
        with explain_disk_errors(self.out):
            write_json(self.folder / ABOUT, self.about)

    def rename(self) -> None:
        """Put the index under its name."""
        with explain_disk_errors(self.out):
            self._publish()


def remove(folder: Path) -> None:
    """Delete the index files only; leave anything else in the folder."""
    names = (ABOUT, f"{ABOUT}.tmp", *FILES)
    for path in [*(folder / name for name in names), *folder.glob(GRAPHS)]:
        path.unlink(missing_ok=True)
    folder.rmdir()


def _line(content: str | Sequence[str]) -> bytes:
    """A word or the tokens of a sentence as a line of JSON, in ASCII."""
    return json.dumps(content).encode("ascii") + b"\n"


def _layer(sentence: Sentence, weights: Array) -> Array:
    """One layer of a sentence, or the average: (tokens, dim)."""
    return np.tensordot(weights, sentence.layers, 1)


def _means(sentences: Sequence[Sentence], weights: Array) -> Array:
    """The mean over all tokens of layer 0, and of the layer of the uses: (2, dim)."""
    total = np.zeros((2, sentences[0].layers.shape[2]))
    for sentence in sentences:
        total[0] += sentence.layers[0].sum(axis=0, dtype=np.float64)
        total[1] += _layer(sentence, weights).sum(axis=0, dtype=np.float64)
    tokens = sum(len(sentence.tokens) for sentence in sentences)
    return (total / tokens).astype(np.float32)
