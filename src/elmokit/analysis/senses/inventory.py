"""Senses as the average vectors of their uses, and the sense that a new use is nearest to.

    sense-tagged text ─► Inventory, a folder ─► scores of the senses that a use may have

INVENTORY/config.json           the biLM's name and fingerprint, what was learned, how it was made
INVENTORY/senses.tsv            lemma, part of speech, sense, uses: a line a sense
INVENTORY/vectors.safetensors   senses (senses, L + 1, dim), mean (L + 1, dim), both float32
"""

from __future__ import annotations

import json
from collections.abc import KeysView
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.senses.mix import Mix, cosines_to
from elmokit.analysis.uses import Array, layer_names
from elmokit.errors import ElmokitError
from elmokit.io.atomic import atomic_folder
from elmokit.io.jsonfile import read_json, read_text

if TYPE_CHECKING:
    from elmokit.store import LayerStore

FORMAT = "elmokit senses 1"
CONFIG, SENSES, VECTORS = "config.json", "senses.tsv", "vectors.safetensors"
COLUMNS = "lemma\tpos\tsense\tuses"
MIX, WITH_FREQUENCY = "mix", "mix + frequency"

Word = tuple[str, str]
"""A lemma and its part of speech."""


def method_names(layers: int) -> list[str]:
    """The ways to choose a sense: by layers 0..L, their average, and the two mixes."""
    return [*layer_names(layers), MIX, WITH_FREQUENCY]


@dataclass
class Inventory:
    """The senses of words, each with the average of its uses in every layer."""

    words: dict[Word, slice]
    """Where the senses of a lemma and part of speech stand, the most frequent first."""
    senses: list[str]
    counts: NDArray[np.int64]
    vectors: Array
    """(senses, L + 1, dim)"""
    mean: Array
    """Of all tokens of the training text: (L + 1, dim)."""
    centred: bool
    """Whether the mean is taken off before vectors are compared."""
    mixes: dict[str, Mix]
    model: str
    fingerprint: str
    facts: dict[str, Any] = field(default_factory=dict)
    """How it was made."""

    def __post_init__(self) -> None:
        self._of_lemma: dict[str, list[slice]] = {}
        for (lemma, _), rows in self.words.items():
            self._of_lemma.setdefault(lemma, []).append(rows)

    @property
    def lemmas(self) -> KeysView[str]:
        """All lemmas."""
        return self._of_lemma.keys()

    @property
    def longest_word(self) -> int:
        """Tokens of the longest lemma."""
        return max((len(lemma.replace("_", " ").split()) for lemma in self.lemmas), default=1)

    @property
    def layers(self) -> int:
        """L: the layers above the tokens."""
        return int(self.vectors.shape[1]) - 1

    @property
    def methods(self) -> list[str]:
        """The ways to choose a sense, in the order of `scores`."""
        return method_names(self.layers)

    def rows(self, lemma: str, pos: str = "") -> NDArray[np.intp]:
        """The senses of a word, by their numbers; without a part of speech those of all of them.

        The most frequent comes first.
        """
        whole = self.words.get((lemma, pos))
        found = [whole] if whole is not None else [] if pos else self._of_lemma.get(lemma, [])
        numbers = np.array([row for part in found for row in range(part.start, part.stop)], np.intp)
        return numbers[np.argsort(-self.counts[numbers], kind="stable")]

    def scores(self, rows: NDArray[np.intp], vector: Array) -> Array:
        """How well senses fit a use with the vector (L + 1, dim): (methods, senses)."""
        mean = self.mean if self.centred else np.zeros_like(self.mean)
        cosines = cosines_to(self.vectors[rows], vector, mean)
        counts = self.counts[rows]
        mixed = [self.mixes[name].scores(cosines, counts) for name in (MIX, WITH_FREQUENCY)]
        return np.concatenate([cosines, np.stack(mixed)])

    def check_model(self, store: LayerStore, name: str) -> None:
        """Refuse another biLM than the one whose vectors these are."""
        if store.elmo.fingerprint() != self.fingerprint:
            raise ElmokitError(
                f"the senses were built with another model ({self.model}) than {name}: name the "
                "right one with --model, or build them again"
            )

    # ------------------------------------------------------------------ on disk
    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the inventory as a folder, which appears whole or not at all."""
        from safetensors.numpy import save_file

        config = {
            "format": FORMAT,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "centred": self.centred,
            "mixes": {
                name: {"shares": mix.shares, "scale": mix.scale, "frequency": mix.frequency}
                for name, mix in self.mixes.items()
            },
            "facts": self.facts,
        }
        lines = [
            f"{lemma}\t{pos}\t{self.senses[row]}\t{self.counts[row]}\n"
            for (lemma, pos), rows in self.words.items()
            for row in range(rows.start, rows.stop)
        ]
        with atomic_folder(check_replaced(Path(folder), overwrite), overwrite=overwrite) as making:
            text = json.dumps(config, indent=1, ensure_ascii=False) + "\n"
            (making / CONFIG).write_bytes(text.encode())
            (making / SENSES).write_bytes("".join([f"{COLUMNS}\n", *lines]).encode())
            save_file({"senses": self.vectors, "mean": self.mean}, making / VECTORS)


def check_replaced(folder: Path, overwrite: bool) -> Path:
    """Say before the work that a folder is in the way; only another inventory is replaced."""
    if folder.exists() and not overwrite:
        raise ElmokitError(f"{folder} exists already; remove it or replace it with --overwrite")
    if folder.exists() and not (folder / SENSES).is_file():
        raise ElmokitError(f"{folder} holds no senses; it is not replaced")
    if not folder.absolute().parent.is_dir():
        raise ElmokitError(f"there is no folder {folder.absolute().parent} to write it into")
    return folder


def load_inventory(folder: str | Path) -> Inventory:
    """An inventory from its folder."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file() or not (folder / SENSES).is_file():
        raise ElmokitError(f"there are no senses in {folder}: elmokit senses build makes them")
    config = read_json(folder / CONFIG)
    if config.get("format") != FORMAT:
        raise ElmokitError(f"{folder} holds no senses that this version can read")
    words, senses, counts = _read_senses(folder / SENSES)
    vectors, mean = _read_vectors(folder / VECTORS, len(senses))
    try:
        mixes = {
            name: Mix(tuple(mix["shares"]), float(mix["scale"]), float(mix["frequency"]))
            for name, mix in config["mixes"].items()
        }
        if any(len(mixes[name].shares) != vectors.shape[1] for name in (MIX, WITH_FREQUENCY)):
            raise ValueError("the mixes are of other layers")
        return Inventory(
            words,
            senses,
            np.array(counts, np.int64),
            vectors,
            mean,
            bool(config["centred"]),
            mixes,
            str(config["model"]),
            str(config["fingerprint"]),
            dict(config["facts"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ElmokitError(f"{folder / CONFIG} is damaged: {error}") from None


def _read_senses(path: Path) -> tuple[dict[Word, slice], list[str], list[int]]:
    words: dict[Word, slice] = {}
    senses: list[str] = []
    counts: list[int] = []
    first, *lines = read_text(path).removesuffix("\n").split("\n")
    if first != COLUMNS:
        raise ElmokitError(f"{path} does not begin with the names of its columns")
    for number, line in enumerate(lines):
        cells = line.split("\t")
        if len(cells) != 4 or not cells[3].isdecimal() or int(cells[3]) < 1:
            raise ElmokitError(f"{path}, line {number + 2}: the line is damaged")
        word = (cells[0], cells[1])
        rows = words.get(word, slice(number, number))
        if rows.stop != number:
            raise ElmokitError(f"{path}, line {number + 2}: the word stands elsewhere too")
        words[word] = slice(rows.start, number + 1)
        senses.append(cells[2])
        counts.append(int(cells[3]))
    return words, senses, counts


def _read_vectors(path: Path, senses: int) -> tuple[Array, Array]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(path)
        vectors, mean = tensors["senses"], tensors["mean"]
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ElmokitError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    fits = vectors.ndim == 3 and len(vectors) == senses and mean.shape == vectors.shape[1:]
    if not fits or {vectors.dtype, mean.dtype} != {np.dtype(np.float32)}:
        raise ElmokitError(f"{path} is damaged: its vectors do not fit the list of senses")
    return vectors, mean
