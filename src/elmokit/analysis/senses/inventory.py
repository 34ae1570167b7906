"""Senses as the average vectors of their uses, and the sense that a new use is nearest to.

    sense-tagged text ─► Inventory, a folder ─► scores of the senses that a use may have

INVENTORY/config.json           the biLM's name and fingerprint, the learned mixes, metadata
INVENTORY/senses.tsv            lemma, part of speech, sense, uses: one sense per line
INVENTORY/vectors.safetensors   senses (senses, L + 1, dim), mean (L + 1, dim), both float32

The score of a sense that a use may have is

    score(sense) = scale · Σ_l share_l · cos_l(use, average of the sense) + b · log(its uses)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from elmokit.analysis.geometry import TIE, Array, unit
from elmokit.analysis.uses import with_average
from elmokit.errors import ElmokitError, explained
from elmokit.io.atomic import atomic_folder, check_replaceable
from elmokit.io.jsonfile import read_json, read_text, try_json
from elmokit.io.lines import FilePath
from elmokit.io.paths import check_no_input
from elmokit.layers import layer_names

if TYPE_CHECKING:
    from elmokit.store import LayerStore

FORMAT = "elmokit senses 1"
FILES = CONFIG, SENSES, VECTORS = "config.json", "senses.tsv", "vectors.safetensors"
COUNT = re.compile("[1-9][0-9]{,17}")  # fits in 64 bits
COLUMNS = "lemma\tpos\tsense\tuses"
MIX, WITH_FREQUENCY = "mix", "mix + frequency"

Word = tuple[str, str]
"""A lemma and its part of speech."""


@dataclass(frozen=True)
class Mix:
    """The learned weights of layers and of sense frequency."""

    shares: tuple[float, ...]
    """Weights of layers 0..L; their sum is 1."""
    scale: float
    frequency: float = 0.0
    """b, the weight of a sense's log frequency in the training text; 0 ignores it."""

    def scores(self, cosines: Array, counts: NDArray[np.int64]) -> Array:
        """Return the score of each sense, from its cosines (L + 2, senses) and frequency."""
        mixed = np.array(self.shares, np.float32) @ cosines[: len(self.shares)]  # (senses,)
        return (self.scale * mixed + self.frequency * np.log(counts)).astype(np.float32)


def cosines_to(averages: Array, vector: Array, mean: Array) -> Array:
    """Return cosines of a use (L + 1, dim) and senses (senses, L + 1, dim): (L + 2, senses)."""
    senses = unit(with_average((averages - mean).swapaxes(0, 1)))  # (L + 2, senses, dim)
    use = unit(with_average((vector - mean)[:, None]))[:, 0]  # (L + 2, dim)
    return np.einsum("lsd,ld->ls", senses, use)  # type: ignore[no-any-return]


def nearest(scores: Array) -> int:
    """Return the sense that scores highest; of equals the first, which is the most frequent."""
    return int(np.argmax(scores >= scores.max() - TIE))


@dataclass
class Inventory:
    """The senses of words, each with the average of its uses in every layer."""

    words: dict[Word, slice]
    """Rows of the senses of a lemma and part of speech, the most frequent first."""
    senses: list[str]
    counts: NDArray[np.int64]
    """Number of uses of each sense in the training text: (senses,)."""
    vectors: Array
    """Average vector of each sense: (senses, L + 1, dim)."""
    mean: Array
    """Mean of all tokens of the training text: (L + 1, dim)."""
    centered: bool
    """Whether the mean is subtracted before vectors are compared."""
    mixes: dict[str, Mix]
    """Learned weights of the layers, without and with the frequency of a sense."""
    model: str
    """Name of the model, by which it can be loaded again."""
    fingerprint: str
    """Fingerprint of the model's weights."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """How it was made: `leave_one_out` has the accuracy of each method on `choices` uses."""

    @cached_property
    def lemmas(self) -> dict[str, list[slice]]:
        """Rows of the senses of each lemma, by part of speech."""
        rows: dict[str, list[slice]] = {}
        for (lemma, _), own in self.words.items():
            rows.setdefault(lemma, []).append(own)
        return rows

    @property
    def methods(self) -> list[str]:
        """Methods to choose a sense, in the order of `scores`."""
        return [*layer_names(self.vectors.shape[1] - 1), MIX, WITH_FREQUENCY]

    def rows(self, lemma: str, pos: str = "") -> NDArray[np.intp]:
        """Return the rows of a word's senses, of any part of speech if none is given, by count."""
        own = self.words.get((lemma, pos))
        parts = [own] if own is not None else [] if pos else self.lemmas.get(lemma, [])
        rows = np.array([row for part in parts for row in range(part.start, part.stop)], np.intp)
        return rows[np.argsort(-self.counts[rows], kind="stable")]

    def scores(self, rows: NDArray[np.intp], vector: Array) -> Array:
        """Score the senses of a use with the vector (L + 1, dim): (methods, senses)."""
        mean = self.mean if self.centered else np.zeros_like(self.mean)
        cosines = cosines_to(self.vectors[rows], vector, mean)
        counts = self.counts[rows]
        mixed = [self.mixes[name].scores(cosines, counts) for name in (MIX, WITH_FREQUENCY)]
        return np.concatenate([cosines, np.stack(mixed)])

    def check_model(self, store: LayerStore, name: str) -> None:
        """Raise if `store` has another model than the one the senses were built with."""
        shape = (store.elmo.config.num_layers + 1, store.elmo.dim)
        if store.elmo.fingerprint() != self.fingerprint or self.mean.shape != shape:
            raise ElmokitError(
                f"the senses were built with another model ({self.model}) than {name}: name the "
                "right one with --model, or build the senses again"
            )

    def check_method(self, method: str) -> None:
        """Raise if there is no such method to choose a sense."""
        if method not in self.methods:
            raise ElmokitError(f"method must be one of {', '.join(self.methods)}, not {method!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the number of senses and words, the mixes and the metadata, for JSON."""
        mixes = {name: vars(mix) for name, mix in self.mixes.items()}
        sizes = {"senses": len(self.senses), "words": len(self.words)}
        return {**sizes, "mixes": mixes, **self.metadata}

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the inventory as a folder, which appears complete or not at all."""
        names = ("model", "fingerprint", "centered", "mixes", "metadata")
        config = {"format": FORMAT, **{name: getattr(self, name) for name in names}}
        lines = [
            f"{lemma}\t{pos}\t{self.senses[row]}\t{self.counts[row]}\n"
            for (lemma, pos), rows in self.words.items()
            for row in range(rows.start, rows.stop)
        ]
        check_output_folder(folder, overwrite)
        with atomic_folder(Path(folder), replace=FILES if overwrite else None) as making:
            text = json.dumps(config, indent=1, ensure_ascii=False, default=vars) + "\n"
            (making / CONFIG).write_bytes(text.encode())
            (making / SENSES).write_bytes("".join([f"{COLUMNS}\n", *lines]).encode())
            save_file({"senses": self.vectors, "mean": self.mean}, making / VECTORS)


def check_output_folder(
    folder: str | Path, overwrite: bool, inputs: Iterable[FilePath | None] = ()
) -> None:
    """Raise if an inventory cannot be written to `folder`; only an inventory is overwritten."""
    folder = Path(folder)
    check_no_input(folder, inputs)
    check_replaceable(folder, FILES if overwrite else None)
    # Of this or another version.
    is_inventory = str(try_json(folder / CONFIG).get("format")).startswith("elmokit senses ")
    if folder.is_dir() and any(folder.iterdir()) and not is_inventory:
        raise ElmokitError(f"{folder} is not an inventory of senses, so it is not replaced")
    if not folder.absolute().parent.is_dir():
        raise ElmokitError(f"there is no folder {folder.absolute().parent} to write {folder} to")


def load_inventory(folder: str | Path) -> Inventory:
    """Read an inventory from its folder."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file() or not (folder / SENSES).is_file():
        raise ElmokitError(
            f"there are no senses in {folder}: create them with elmokit senses build"
        )
    config = read_json(folder / CONFIG)
    if config.get("format") != FORMAT:
        raise ElmokitError(f"{folder} was written by another version: build the senses again")
    words, senses, counts = _read_senses(folder / SENSES)
    arrays = np.array(counts, np.int64), *_read_vectors(folder / VECTORS, len(senses))
    damaged = f"{folder / CONFIG} is damaged"
    with explained(damaged, KeyError, TypeError, ValueError, AttributeError):
        mixes = {
            name: Mix(tuple(map(float, m["shares"])), float(m["scale"]), float(m["frequency"]))
            for name, m in config["mixes"].items()
        }
        if any(len(mixes[name].shares) != len(arrays[2]) for name in (MIX, WITH_FREQUENCY)):
            raise ValueError("the mixes have another number of layers")
        names = str(config["model"]), str(config["fingerprint"])
        metadata = dict(config["metadata"])
        return Inventory(words, senses, *arrays, bool(config["centered"]), mixes, *names, metadata)


def _read_senses(path: Path) -> tuple[dict[Word, slice], list[str], list[int]]:
    words: dict[Word, slice] = {}
    senses, counts = [], []
    first, *lines = read_text(path).removesuffix("\n").split("\n")
    if first != COLUMNS:
        raise ElmokitError(f"{path} does not begin with the header {COLUMNS!r}")
    for row, line in enumerate(lines):
        cells = line.split("\t")
        if len(cells) != 4 or not COUNT.fullmatch(cells[3]):
            raise ElmokitError(f"{path}, line {row + 2}: the line is damaged")
        word = (cells[0], cells[1])
        rows = words.get(word, slice(row, row))
        if rows.stop != row:
            raise ElmokitError(f"{path}, line {row + 2}: the word also occurs elsewhere")
        words[word] = slice(rows.start, row + 1)
        senses.append(cells[2])
        counts.append(int(cells[3]))
    return words, senses, counts


def _read_vectors(path: Path, senses: int) -> tuple[Array, Array]:
    with explained(f"{path} cannot be read", SafetensorError, OSError, KeyError, ValueError):
        tensors = load_file(path)
        vectors, mean = tensors["senses"], tensors["mean"]
    fits = vectors.ndim == 3 and len(vectors) == senses and mean.shape == vectors.shape[1:]
    if not fits or {vectors.dtype, mean.dtype} != {np.dtype(np.float32)}:
        raise ElmokitError(f"{path} is damaged: its vectors do not match the list of senses")
    return vectors, mean
