"""Raw text to an encoded corpus on disk: the first step of pretraining.

A folder of memory-mapped arrays. Every distinct word of the text is a type, with `<S>`, `</S>` and
`<UNK>` first and the others by decreasing count; so the vocabulary of a softmax is a prefix of the
types, while the char-CNN still reads the actual word.

    types.bytes, types.offsets        the words in UTF-8, one after the other
    types.counts                      how often each occurs in the training part
    train.tokens, train.offsets       type ids of all sentences, and where each sentence starts
    heldout.tokens, heldout.offsets   the same for the held-out part
    manifest.json                     what it was made from
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from elmokit.errors import ElmokitError, plural
from elmokit.io.atomic import atomic_folder
from elmokit.io.jsonfile import as_json, read_json
from elmokit.io.paths import find_files
from elmokit.pretrain.sources import Chunk, Paths, Source, Weights, find_sources, tokenized_chunks
from elmokit.text.vocabulary import SPECIAL, UNKNOWN, Vocabulary

VERSION = 1
MANIFEST = "manifest.json"
FILES = (MANIFEST, "types.bytes", "types.offsets", "types.counts", "*.tokens", "*.offsets")
HELDOUT_BLOCK = 100  # Maximum number of consecutive held-out sentences: they have their context.
UNKNOWN_ID = SPECIAL.index(UNKNOWN)
PASS_TOKENS, ID_CHUNK = 1 << 22, 1 << 16  # Tokens and types in memory at a time.
Range = tuple[int, int]


@dataclass(frozen=True)
class Sentences:
    """Encoded sentences, memory-mapped."""

    tokens: NDArray[np.int32]  # type ids of all sentences one after the other: (tokens,)
    offsets: NDArray[np.int64]  # where each sentence starts, and the end: (sentences + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def predictions(self) -> int:
        """Number of predictions in one direction: words and sentence ends."""
        return int(self.offsets[-1]) + len(self)

    @classmethod
    def open(cls, folder: Path, name: str) -> Sentences:
        tokens = _mapped(folder / f"{name}.tokens", np.int32)
        return cls(tokens, _mapped(folder / f"{name}.offsets", np.int64))


class Types:
    """The distinct words of a corpus by id, read from disk when they are needed."""

    def __init__(self, folder: Path) -> None:
        self._bytes = _mapped(folder / "types.bytes", np.uint8)
        self._offsets = _mapped(folder / "types.offsets", np.int64)
        self.counts = _mapped(folder / "types.counts", np.int64)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def words(self, ids: NDArray[Any]) -> list[str]:
        starts, ends = self._offsets[ids], self._offsets[ids + 1]
        view = memoryview(self._bytes)  # type: ignore[arg-type]
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return [str(view[start:end], "utf-8") for start, end in spans]

    def ids_in(self, vocabulary: Vocabulary) -> NDArray[np.int32]:
        """Return the id of each type in a vocabulary: (types,)."""
        chunks = np.split(np.arange(len(self)), range(ID_CHUNK, len(self), ID_CHUNK))
        return np.concatenate([vocabulary.encode(self.words(chunk)) for chunk in chunks])

    def frequent(self, *, min_count: int = 3, size: int | None = None) -> list[str]:
        """Return the words that occur `min_count` times or more, at most `size` of them."""
        counts = self.counts[len(SPECIAL) :]  # They decrease.
        end = len(SPECIAL) + int(np.searchsorted(-counts, -max(min_count, 1), side="right"))
        end = end if size is None else min(end, max(size, len(SPECIAL) + 1))
        return self.words(np.arange(end))


class Corpus:
    """An encoded corpus in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_json(folder / MANIFEST)
        # Name, weight and size of each weighted source; empty if there are no weights.
        self.sources: list[dict[str, Any]] = self.manifest["sources"]
        self.types = Types(folder)
        self.train = Sentences.open(folder, "train")
        self.heldout = Sentences.open(folder, "heldout")


def prepare(
    corpus: Paths | Weights,
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
    """Encode a corpus into `folder`, or open what is there if it was made from the same text.

    See `PretrainSettings` for options of the same name. `as_written` reads `<unk>` as a word like
    any other, not as `<UNK>`. `keep` raises if the text has changed instead of encoding it again.
    """
    if not 0 <= valid_fraction < 1:
        raise ElmokitError(f"valid_fraction must be at least 0 and below 1, not {valid_fraction}")
    old = read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else None
    sources, heldout_files = find_sources(corpus), [] if valid is None else find_files(valid)
    parts = {"corpus": [file for s in sources for file in s.files], "valid": heldout_files}
    known = {(part, e["name"]): e for part in parts for e in (old or {}).get(part, [])}
    is_weighted = any(source.weight != 1 for source in sources)
    described = [{"name": s.name, "weight": s.weight, "files": len(s.files)} for s in sources]
    requested: dict[str, Any] = {
        "version": VERSION,
        "tokenizer": tokenizer,
        "as_written": as_written,
        "valid_fraction": 0.0 if heldout_files else valid_fraction,
        "sources": described if is_weighted else [],
    }
    for part, files in parts.items():
        requested[part] = [identity(file, known.get((part, file.name))) for file in files]
    if old is not None:
        change = difference(old, requested)
        if change is None:
            return Corpus(folder)
        if keep:
            raise ElmokitError(
                f"{folder} was made from another corpus: {change}; use the same corpus or another "
                "output folder"
            )
    with atomic_folder(folder, replace=FILES) as making:
        _encode(making, sources, heldout_files, requested, workers=workers, quiet=quiet)
    return Corpus(folder)


def identity(path: Path, known: dict[str, object] | None = None) -> dict[str, object]:
    """Return the size and hash of a file; take the hash from `known` if the file is untouched."""
    status = path.stat()
    result = {"name": path.name, "bytes": status.st_size, "changed": status.st_mtime_ns}
    if known and result.items() <= known.items():
        return result | {"hash": known["hash"]}
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return result | {"hash": digest.hexdigest()}


def difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Describe the first difference between two manifests; return None if there is none."""
    for name in ("version", "tokenizer", "as_written", "valid_fraction"):
        if old.get(name) != new[name]:
            was, now = (f"{manifest.get(name)!r:.80}" for manifest in (old, new))
            # The words of a dictionary follow the name of the tokenizer.
            same = f"the dictionary of its {name} has changed"
            return same if was == now else f"its {name} was {was} and is now {now}"
    for part in ("corpus", "valid"):
        before, after = ({e["name"]: e for e in m.get(part, [])} for m in (old, new))
        for name in before.keys() - after.keys():
            return f"{name} is missing"
        for name in after.keys() - before.keys():
            return f"{name} is new"
        for name, entry in before.items():
            if entry["hash"] != after[name]["hash"] or len(old[part]) != len(new[part]):
                return f"the text of {name} has changed"
    weights = [[(s["weight"], s["files"]) for s in m["sources"]] for m in (old, new)]
    if weights[0] != weights[1]:
        shown = [", ".join(f"{w:g}" for w, _ in sources) or "none" for sources in weights]
        return f"the weights of its sources were {shown[0]} and are now {shown[1]}"
    return None


def _encode(
    folder: Path,
    sources: list[Source],
    heldout_files: list[Path],
    manifest: dict[str, Any],
    *,
    workers: int | None,
    quiet: bool,
) -> None:
    if not manifest["sources"]:  # They are all read once, so they are one.
        sources = [Source("the corpus", [file for source in sources for file in source.files])]
    words = {word: index for index, word in enumerate(SPECIAL)}
    # Text that says <unk> means it; nor may text pass for our sentence boundaries.
    words |= {} if manifest["as_written"] else {"<unk>": UNKNOWN_ID}
    size = sum(f.stat().st_size for f in chain(heldout_files, *(s.files for s in sources)))
    with tqdm(total=size, unit="B", unit_scale=True, desc="corpus", disable=quiet) as bar:
        tokenizer = manifest["tokenizer"]
        read = partial(tokenized_chunks, tokenizer=tokenizer, workers=workers, on_bytes=bar.update)
        reserved = dict.fromkeys(words, UNKNOWN_ID)
        sizes = [_append(folder / "all", read(s.files), words, reserved) for s in sources]
        _append(folder / "given", read(heldout_files), words, reserved)
    for source in (source for source, size in zip(sources, sizes, strict=True) if not size):
        raise ElmokitError(f"{source.name} has no sentences in {plural(len(source.files), 'file')}")
    everything, given = Sentences.open(folder, "all"), Sentences.open(folder, "given")
    if heldout_files and not len(given):
        raise ElmokitError(
            f"the held-out text has no sentences in {plural(len(heldout_files), 'file')}"
        )
    train, heldout = split_sources(sizes, manifest["valid_fraction"])
    ranges = list(chain(*train))
    heldout_from = (given, [(0, len(given))]) if heldout_files else (everything, heldout)
    counts = np.zeros(max(words.values()) + 1, np.int64)
    for tokens in _passes(everything, ranges):
        counts += np.bincount(tokens, minlength=len(counts))
    final = _write_types(folder, words, counts)
    _write_final(folder, "train", everything, ranges, final)
    _write_final(folder, "heldout", *heldout_from, final)
    for path in (*folder.glob("all.*"), *folder.glob("given.*")):
        path.unlink()
    for source, part in zip(manifest["sources"], train, strict=False):
        source["train_sentences"] = _count_sentences(part)
        source["train_tokens"] = sum(map(len, _passes(everything, part)))
    metadata = {
        "types": len(final),
        "train_sentences": _count_sentences(ranges),
        "train_tokens": int(counts.sum()),
        "heldout_sentences": _count_sentences(heldout_from[1]),
    }
    (folder / MANIFEST).write_text(as_json({**manifest, **metadata}), encoding="utf-8")


def _count_sentences(ranges: list[Range]) -> int:
    return sum(end - start for start, end in ranges)


def _append(
    path: Path, chunks: Iterator[Chunk], words: dict[str, int], reserved: dict[str, int]
) -> int:
    """Append sentences, with ids in the order in which words first appear; return their number."""
    count = 0
    following = max(words.values()) + 1
    with (
        path.with_suffix(".tokens").open("ab") as tokens,
        path.with_suffix(".offsets").open("ab") as offsets,
    ):
        if not offsets.tell():
            offsets.write(np.zeros(1, np.int64).tobytes())
        for chunk in chunks:
            ids = np.empty(len(chunk.words), np.int32)
            for local, word in enumerate(chunk.words):
                if (index := reserved.get(word)) is None:
                    index = words.setdefault(word, following)
                    following += index == following
                ids[local] = index
            ends = tokens.tell() // ids.itemsize + np.cumsum(chunk.lengths)
            tokens.write(ids[chunk.ids].tobytes())
            offsets.write(ends.astype(np.int64).tobytes())
            count += len(ends)
    return count


def split_sources(sizes: list[int], fraction: float) -> tuple[list[list[Range]], list[Range]]:
    """Return the ranges to train on for each source, and those held out, from their sizes.

    A source that is too small to hold out a fraction of it is trained on as a whole.
    """
    train: list[list[Range]] = []
    heldout: list[Range] = []
    for size, first in zip(sizes, accumulate(sizes, initial=0), strict=False):
        to_train, to_hold_out = split_blocks(size, fraction)
        train.append([(first + a, first + b) for a, b in to_train])
        heldout += [(first + a, first + b) for a, b in to_hold_out]
    if fraction and not heldout:
        raise ElmokitError(
            f"the corpus has {plural(sum(sizes), 'sentence')}, too few to hold out {fraction:.0%} "
            "of them: use more text, a held-out text (valid), or valid_fraction 0"
        )
    return train, heldout


def split_blocks(sentences: int, fraction: float) -> tuple[list[Range], list[Range]]:
    """Return the ranges to train on, and to hold out: every n-th block, none of a short text."""
    block = int(min(max(sentences * fraction // 10, 1), HELDOUT_BLOCK))
    every = max(2, round(1 / fraction)) if fraction else 0
    if not every or sentences <= block * (every - 1):
        return [(0, sentences)], []
    starts = range(0, sentences, block * every)
    middles = range(block * (every - 1), sentences, block * every)
    train = [(start, min(start + block * (every - 1), sentences)) for start in starts]
    return train, [(middle, min(middle + block, sentences)) for middle in middles]


def _passes(sentences: Sentences, ranges: list[Range]) -> Iterator[NDArray[np.int32]]:
    """Yield the tokens of ranges of sentences, a bounded number at a time."""
    for first, last in ranges:
        start, end = int(sentences.offsets[first]), int(sentences.offsets[last])
        for a in range(start, end, PASS_TOKENS):
            yield sentences.tokens[a : min(a + PASS_TOKENS, end)]


def _write_types(
    folder: Path, words: dict[str, int], counts: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Write the types by decreasing count; return the final id of each provisional one."""
    names = [""] * len(counts)
    for word, index in words.items():
        if index != UNKNOWN_ID or word == SPECIAL[UNKNOWN_ID]:
            names[index] = word
    special = len(SPECIAL)
    # Words of equal count are ordered by code points, as their bytes in UTF-8 are.
    order = sorted(range(special, len(names)), key=lambda index: (-counts[index], names[index]))
    ids = np.array([*range(special), *order], np.int64)
    encoded = [names[index].encode() for index in ids.tolist()]
    (folder / "types.bytes").write_bytes(b"".join(encoded))
    np.cumsum([0, *map(len, encoded)], dtype=np.int64).tofile(folder / "types.offsets")
    counts[ids].tofile(folder / "types.counts")
    return np.argsort(ids).astype(np.int32)  # It inverts a permutation.


def _write_final(
    folder: Path, name: str, sentences: Sentences, ranges: list[Range], final: NDArray[np.int32]
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
        return np.zeros(0, dtype)  # An empty file cannot be mapped.
    return np.memmap(path, dtype, "r")
