"""Write vectors part by part, then assemble the parts into one HDF5, npz, Parquet or npy output.

    sentences ─► parts in OUT.parts/ (shards.py) ─► OUT in its format (hdf5.py, npz.py, parquet.py)

The finished folder of parts is itself the output of the format npy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from elmokit.errors import ElmokitError, require
from elmokit.io.atomic import atomic_file
from elmokit.io.jsonfile import write_json
from elmokit.io.resumable import ResumableFolder, check_settings, explain_disk_errors
from elmokit.vectors import shards
from elmokit.vectors.hdf5 import write_hdf5
from elmokit.vectors.npz import write_npz
from elmokit.vectors.parquet import write_parquet
from elmokit.vectors.shards import Columns, EmbeddedSentence, VectorShards, Window

SUFFIXES = {"h5": "hdf5", "hdf5": "hdf5", "npz": "npz", "parquet": "parquet", "npy": "npy"}
ASSEMBLERS = {"hdf5": write_hdf5, "npz": write_npz, "parquet": write_parquet}
MAX_PART_VALUES = 2**31 - 1  # Parquet counts the values of a row group in 32 bits.
FINISHED = "finished_sentences"  # Added to the settings when the output has its final name.


class VectorWriter(ResumableFolder):
    """Writes vectors so that a run killed at any moment can be resumed.

    `settings` say what the vectors are made of. `pooled`: a sentence has layers (K, dim), not
    (K, tokens, dim). `squeeze`: K is 1 and the output leaves that axis out. `start` is the index of
    the first sentence in its input, if these are a shard of it.
    """

    KIND = "an output of this format"
    FILES = shards.OUR_FILES
    FIELDS: ClassVar = {shards.SETTINGS: "pooled", shards.INDEX: "firsts"}

    def __init__(
        self,
        out: str | Path,
        settings: Mapping[str, Any],
        *,
        format: str | None = None,
        pooled: bool = False,
        squeeze: bool = False,
        start: int = 0,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.format = output_format(out, format)
        self.pooled, self.squeeze, self.start = pooled, squeeze, start
        self.done = 0
        """Number of sentences that need not be embedded again."""
        self.finished = False
        """Whether the output is in place, so that only parts are left to delete."""
        self._firsts: list[int] = []  # index of the first sentence of each part
        self._kind: tuple[int, int, str] | None = None  # (K, dim, dtype) of every sentence
        form = {"format": self.format, "pooled": pooled, "squeeze": squeeze, "start": start}
        super().__init__(out, {**settings, **form}, resume=resume, overwrite=overwrite)

    def holds(self, window: Window) -> bool:
        """Tell whether these sentences are a part."""
        if window.first not in self._firsts:
            return False
        index = self._firsts.index(window.first)
        return shards.open_part(self.folder, index, pooled=self.pooled).window == window

    def write(self, sentences: Sequence[EmbeddedSentence], columns: Columns | None = None) -> None:
        """Commit the next sentences as one part: when this returns, they are safe on the disk.

        `columns` are the "id" and "text" of each sentence, for Parquet.
        """
        if not sentences:
            return
        if self.finished:
            raise ValueError(f"{self.out} is finished with {self.done} sentences")
        for sentence in sentences:
            self._check_kind(sentence)
        self.rows.write(self.parts, self.done, sentences)
        tokens = [list(sentence.tokens) for sentence in sentences]
        self.commit(Window(self.done, tokens, columns or {}))

    @property
    def parts(self) -> int:
        """Number of parts that are committed, and the index of the next one."""
        return len(self._firsts)

    @property
    def rows(self) -> RowWriter:
        """What writes the vectors of a part, in this process or in another one."""
        return RowWriter(self.out, self.folder, self.format, self.pooled)

    def commit(self, window: Window) -> None:
        """Commit the next part, whose vectors are written already."""
        with explain_disk_errors(self.out):
            shards.commit_part(self.folder, self.parts, window, pooled=self.pooled)
        self._firsts.append(window.first)
        self.done += len(window.tokens)

    def finish(self) -> Path:
        """Put the complete output under its final name and delete the parts."""
        with explain_disk_errors(self.out):
            if not self.finished:
                form = {"pooled": self.pooled, "squeeze": self.squeeze, "start": self.start}
                index = {"sentences": self.done, "firsts": self._firsts, **form}
                write_json(self.folder / shards.INDEX, index)
            if self.format == "npy":
                self._publish()
                return self.out
            if not self.finished:
                with atomic_file(self.out, temporary=self.folder / shards.ASSEMBLED) as file:
                    ASSEMBLERS[self.format](VectorShards(self.folder), file)
                self.finished = True
                write_json(self.folder / shards.SETTINGS, {**self.settings, FINISHED: self.done})
            shards.remove_parts(self.folder)
        return self.out

    # ------------------------------------------------------------------ resuming
    def _is_replaceable(self, out: Path) -> bool:
        if self.format != "npy":
            return out.is_file()
        with suppress(ElmokitError):
            return len(VectorShards(out)) >= 0
        return False

    def _is_empty(self) -> bool:
        return self.done == 0

    def _remove(self, folder: Path) -> None:
        shards.remove_parts(folder)

    def _start(self) -> None:
        write_json(self.folder / shards.SETTINGS, self.settings)

    def _resume(self) -> None:
        saved = shards.read_settings(self.folder)
        if saved is None:  # killed between creating the folder and writing the settings
            self._start()
            return
        finished = saved.pop(FINISHED, None)
        check_settings(self.folder, saved, self.settings)
        if finished is not None and self.out.exists():  # killed while deleting the parts
            self.done, self.finished = finished, True
        elif finished is not None:  # the output was removed, and some parts may be deleted
            self._begin()
        else:
            for part in shards.committed_parts(self.folder, pooled=self.pooled):
                self._firsts.append(part.window.first)
                self.done += len(part)
                self._kind = part.array.shape[0], part.array.shape[2], part.array.dtype.name

    # ------------------------------------------------------------------ checks
    def _check_kind(self, sentence: EmbeddedSentence) -> None:
        layers, K = sentence.layers, len(sentence.layers)
        shape = (K,) if self.pooled else (K, len(sentence.tokens))
        kind = K, layers.shape[-1], layers.dtype.name
        expected = self._kind or kind
        if layers.shape[:-1] != shape or kind != expected or (self.squeeze and K != 1):
            raise ValueError(f"layers {layers.shape} {layers.dtype}, not {shape} of {expected}")
        if kind[2] not in ("float16", "float32"):
            raise ValueError(f"layers must be float16 or float32, not {kind[2]}")
        self._kind = kind


@dataclass(frozen=True)
class RowWriter:
    """Writes the vectors of parts; other processes get a copy of it."""

    out: Path
    folder: Path
    format: str
    pooled: bool

    def write(self, index: int, first: int, sentences: Sequence[EmbeddedSentence]) -> None:
        """Write the vectors of the part `index`, whose first sentence has the index `first`."""
        is_large = sum(sentence.layers.size for sentence in sentences) > MAX_PART_VALUES
        if is_large and self.format == "parquet":
            if len(sentences) > 1:
                limit = f"at most {MAX_PART_VALUES} values"
                raise ValueError(f"a part holds {limit}: write smaller ones")
            raise ElmokitError(
                f"sentence {first} of {len(sentences[0].tokens):,} tokens is too long for Parquet: "
                "write .h5 or .npy, or fewer layers"
            )
        with explain_disk_errors(self.out):
            shards.write_rows(self.folder, index, sentences, pooled=self.pooled)


def output_format(out: str | Path, format: str | None) -> str:
    """Return the format named `format`, or else the one that the extension of `out` means."""
    extension = "npy" if str(out).endswith("/") else Path(out).suffix[1:]
    chosen = SUFFIXES.get((format or extension).lower())
    if chosen is None or not Path(out).name:
        raise ElmokitError(
            f"the format of {str(out)!r} is unknown ({format or extension or 'no extension'}): end "
            "the name in .h5, .hdf5, .npz, .parquet or .npy (a folder), or give a format"
        )
    if chosen == "parquet":  # Check now, not after hours of embedding.
        require("pyarrow", extra="parquet", purpose="Parquet output")
    return chosen
