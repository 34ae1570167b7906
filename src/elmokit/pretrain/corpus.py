"""Raw text to an encoded corpus on the disk: the first step of pretraining.

A folder of memory-mapped arrays. Every distinct word of the text is a type, with `<S>`, `</S>` and
`<UNK>` first and the others by falling count; so the words a softmax predicts are the first types,
cut by count or number, while the char-CNN still reads the real word.

    types.bytes, types.offsets        the words in UTF-8, one after the other
    types.counts                      how often each stands in the part for training
    train.tokens, train.offsets       type ids of all sentences, and where each sentence starts
    heldout.tokens, heldout.offsets   the same for the part that is held out
    manifest.json                     what it was made from
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from elmokit.errors import ElmokitError
from elmokit.io.atomic import atomic_folder
from elmokit.io.jsonfile import read_json
from elmokit.io.paths import find_files
from elmokit.pretrain.sources import Chunk, identity, tokenized_chunks
from elmokit.text.vocabulary import SPECIAL, UNKNOWN

VERSION = 1
MANIFEST = "manifest.json"
HELDOUT_BLOCK = 100  # sentences held out in a row, so that they have their context
UNKNOWN_ID = SPECIAL.index(UNKNOWN)
PASS_TOKENS = 1 << 22  # tokens in memory at a time
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Sentences:
    """Encoded sentences, memory-mapped."""

    tokens: NDArray[np.int32]
    """Type ids of all sentences one after the other: (tokens,)."""
    offsets: NDArray[np.int64]
    """Where each sentence starts, and the end: (sentences + 1,)."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def open(cls, folder: Path, name: str) -> Sentences:
        """Map `name`.tokens and `name`.offsets."""
        return cls(
            _mapped(folder / f"{name}.tokens", np.int32),
            _mapped(folder / f"{name}.offsets", np.int64),
        )


class Types:
    """The distinct words of a corpus, by id, read from the disk as they are needed."""

    def __init__(self, folder: Path) -> None:
        self._bytes = _mapped(folder / "types.bytes", np.uint8)
        self._offsets = _mapped(folder / "types.offsets", np.int64)
        self.counts = _mapped(folder / "types.counts", np.int64)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def words(self, ids: NDArray[Any]) -> list[str]:
        """The words of some ids."""
        starts, ends = self._offsets[ids], self._offsets[ids + 1]
        view = memoryview(self._bytes)  # type: ignore[arg-type]
        return [
            str(view[a:b], "utf-8") for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
        ]

    def first(self, number: int) -> list[str]:
        """The words with ids below `number`: the vocabulary of a softmax."""
        return self.words(np.arange(number))

    def cut(self, *, min_count: int = 3, size: int | None = None) -> int:
        """How many of the first types are a vocabulary: seen `min_count` times, at most `size`."""
        counts = self.counts[len(SPECIAL) :]  # falling
        frequent = len(SPECIAL) + int(np.searchsorted(-counts, -max(min_count, 1), side="right"))
        return frequent if size is None else min(frequent, max(size, len(SPECIAL) + 1))


class Corpus:
    """An encoded corpus in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_json(folder / MANIFEST)
        self.types = Types(folder)
        self.train = Sentences.open(folder, "train")
        self.heldout = Sentences.open(folder, "heldout")


def prepare(
    corpus: Paths,
    folder: Path,
    *,
    valid: Paths | None = None,
    valid_fraction: float = 0.01,
    tokenizer: str = "elmokit",
    workers: int | None = None,
    as_written: bool = False,
    keep: bool = False,
    quiet: bool = False,
) -> Corpus:
    """Encode a corpus into `folder`, or open what is there if it was made from the same.

    Args:
        corpus: files, globs or folders of text, also .gz, .xz, .zst.
        folder: where the encoded corpus lies.
        valid: text to hold out; else a fraction of the corpus is.
        valid_fraction: of the sentences, held out in blocks spread over the corpus.
        tokenizer: "elmokit" or "chinese" for running text, "whitespace" for text that is
            tokenized with a sentence a line.
        workers: processes that tokenize; all cores if not given. The result is the same.
        as_written: `<unk>` is a word like any other; else it is read as `<UNK>`.
        keep: something depends on what is there: refuse other text instead of encoding it anew.
        quiet: no progress bar.
    """
    if not 0 <= valid_fraction < 1:
        raise ElmokitError(f"valid_fraction must be at least 0 and below 1, not {valid_fraction}")
    old = read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else None
    files, heldout_files = find_files(corpus), [] if valid is None else find_files(valid)
    wanted = {
        "version": VERSION,
        "tokenizer": tokenizer,
        "as_written": as_written,
        "valid_fraction": 0.0 if heldout_files else valid_fraction,
        "corpus": _identities(files, old, "corpus"),
        "valid": _identities(heldout_files, old, "valid"),
    }
    if old is not None:
        change = difference(old, wanted)
        if change is None:
            return Corpus(folder)
        if keep:
            raise ElmokitError(
                f"{folder} was made from another corpus: {change}; give what it was made from "
                "or another output folder"
            )
    with atomic_folder(folder, overwrite=True) as making:
        _encode(making, files, heldout_files, wanted, workers=workers, quiet=quiet)
    return Corpus(folder)


def _identities(files: list[Path], old: dict[str, Any] | None, part: str) -> list[dict[str, Any]]:
    known = {entry["name"]: entry for entry in (old or {}).get(part, [])}
    return [identity(file, known.get(file.name)) for file in files]


def difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """The first thing in which two manifests differ, in words; None if they are the same."""
    old = {"as_written": False, **old}  # older ones do not say
    for name in ("version", "tokenizer", "as_written", "valid_fraction"):
        if old.get(name) != new[name]:
            return f"its {name} was {old.get(name)!r} and is now {new[name]!r}"
    for part in ("corpus", "valid"):
        before, after = ({e["name"]: e for e in m.get(part, [])} for m in (old, new))
        for name in before.keys() - after.keys():
            return f"{name} is missing"
        for name in after.keys() - before.keys():
            return f"{name} is new"
        for name, entry in before.items():
            if entry["hash"] != after[name]["hash"] or len(old[part]) != len(new[part]):
                return f"the text of {name} has changed"
    return None


def _encode(
    folder: Path,
    files: list[Path],
    heldout_files: list[Path],
    manifest: dict[str, Any],
    *,
    workers: int | None,
    quiet: bool,
) -> None:
    words = {word: number for number, word in enumerate(SPECIAL)}
    # Text that says <unk> means it; nor may text pass for our sentence boundaries.
    words |= {} if manifest["as_written"] else {"<unk>": UNKNOWN_ID}
    reserved = dict.fromkeys(words, UNKNOWN_ID)
    size = sum(file.stat().st_size for file in files + heldout_files)
    with tqdm(total=size, unit="B", unit_scale=True, desc="corpus", disable=quiet) as bar:

        def count(read: int) -> None:
            bar.update(read)

        for part, sources in (("all", files), ("given", heldout_files)):
            chunks = tokenized_chunks(
                sources, tokenizer=manifest["tokenizer"], workers=workers, on_bytes=count
            )
            _write_provisional(folder, part, chunks, words, reserved)
    everything, given = Sentences.open(folder, "all"), Sentences.open(folder, "given")
    if not len(everything):
        raise ElmokitError(f"the corpus has no sentences ({len(files)} file(s) were read)")
    block, every = heldout_blocks(len(everything), manifest["valid_fraction"])
    if heldout_files:
        train, heldout = [(0, len(everything))], [(0, len(given))]
        parts = {"train": (everything, train), "heldout": (given, heldout)}
    else:
        train, heldout = split_blocks(len(everything), block, every)
        parts = {"train": (everything, train), "heldout": (everything, heldout)}
    counts = np.zeros(max(words.values()) + 1, np.int64)
    for tokens in _passes(everything, train):
        counts += np.bincount(tokens, minlength=len(counts))
    final = _write_types(folder, words, counts)
    for name, (sentences, ranges) in parts.items():
        _write_final(folder, name, sentences, ranges, final)
    for name in ("all", "given"):
        (folder / f"{name}.tokens").unlink()
        (folder / f"{name}.offsets").unlink()
    facts = {
        "types": len(final),
        "train_sentences": sum(b - a for a, b in train),
        "train_tokens": int(counts.sum()),
        "heldout_sentences": sum(b - a for a, b in heldout),
    }
    text = json.dumps({**manifest, **facts}, indent=2, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _write_provisional(
    folder: Path,
    name: str,
    chunks: Iterator[Chunk],
    words: dict[str, int],
    reserved: dict[str, int],
) -> None:
    """Write sentences with ids in the order in which their words first appear."""
    end = 0
    with (
        (folder / f"{name}.tokens").open("wb") as tokens,
        (folder / f"{name}.offsets").open("wb") as offsets,
    ):
        offsets.write(np.zeros(1, np.int64).tobytes())
        following = max(words.values()) + 1
        for chunk in chunks:
            places = np.empty(len(chunk.words), np.int32)
            for local, word in enumerate(chunk.words):
                place = reserved.get(word)
                if place is None:
                    place = words.setdefault(word, following)
                    following += place == following
                places[local] = place
            tokens.write(places[chunk.ids].tobytes())
            ends = end + np.cumsum(chunk.lengths)
            offsets.write(ends.astype(np.int64).tobytes())
            end = int(ends[-1]) if len(ends) else end


def heldout_blocks(sentences: int, fraction: float) -> tuple[int, int]:
    """How many sentences a block has, and which blocks are held out: every so many-th."""
    if fraction == 0:
        return HELDOUT_BLOCK, 0
    block = int(min(max(sentences * fraction // 10, 1), HELDOUT_BLOCK))
    every = max(2, round(1 / fraction))
    if sentences <= block * (every - 1):
        raise ElmokitError(
            f"the corpus has {sentences} sentence(s), too few to hold out {fraction:.0%} of them: "
            "give more text, a held-out text (valid), or valid_fraction 0"
        )
    return block, every


def split_blocks(
    sentences: int, block: int, every: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The ranges of sentences to train on and to hold out; no range is empty."""
    if every == 0:
        return [(0, sentences)], []
    period = block * every
    train, heldout = [], []
    for start in range(0, sentences, period):
        middle, end = min(start + period - block, sentences), min(start + period, sentences)
        train.append((start, middle))
        if middle < end:
            heldout.append((middle, end))
    return train, heldout


def _passes(sentences: Sentences, ranges: list[tuple[int, int]]) -> Iterator[NDArray[np.int32]]:
    """The tokens of some ranges of sentences, a bounded number at a time."""
    for first, last in ranges:
        start, end = int(sentences.offsets[first]), int(sentences.offsets[last])
        for a in range(start, end, PASS_TOKENS):
            yield sentences.tokens[a : min(a + PASS_TOKENS, end)]


def _write_types(
    folder: Path, words: dict[str, int], counts: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Write the types by falling count and give the final id of each provisional one."""
    names = [""] * len(counts)
    for word, number in words.items():
        if number != UNKNOWN_ID or word == SPECIAL[UNKNOWN_ID]:
            names[number] = word
    special = len(SPECIAL)
    # equal counts in the order of their code points, which is that of their bytes in UTF-8
    order = sorted(range(special, len(names)), key=lambda number: (-counts[number], names[number]))
    ids = np.array([*range(special), *order], np.int64)
    final = np.empty(len(ids), np.int32)
    final[ids] = np.arange(len(ids), dtype=np.int32)
    encoded = [names[number].encode() for number in ids.tolist()]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    (folder / "types.bytes").write_bytes(b"".join(encoded))
    np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64).tofile(folder / "types.offsets")
    counts[ids].tofile(folder / "types.counts")
    return final


def _write_final(
    folder: Path,
    name: str,
    sentences: Sentences,
    ranges: list[tuple[int, int]],
    final: NDArray[np.int32],
) -> None:
    with (folder / f"{name}.tokens").open("wb") as stream:
        for tokens in _passes(sentences, ranges):
            stream.write(final[tokens].tobytes())
    with (folder / f"{name}.offsets").open("wb") as stream:
        stream.write(np.zeros(1, np.int64).tobytes())
        shift = 0
        for first, last in ranges:
            offsets = sentences.offsets[first : last + 1]
            stream.write((offsets[1:] - (offsets[0] - shift)).astype(np.int64).tobytes())
            shift += int(offsets[-1] - offsets[0])


def _mapped(path: Path, dtype: Any) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype)  # an empty file cannot be mapped
    return np.memmap(path, dtype, "r")
