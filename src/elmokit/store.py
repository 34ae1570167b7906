"""Cache the layers of a frozen biLM on disk, computed once for all epochs and runs.

    texts ─► prepare: biLM, float16 ─► records on disk ─► layers: a padded batch, float32

Texts that are not stored, because the limit is reached or the disk is full, are computed each time
and rounded to float16 as well, so that a model sees the same numbers.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from elmokit.embed import Embedder
from elmokit.errors import reason_of
from elmokit.io.paths import cache_folder
from elmokit.io.records import MAX_VALUE_BYTES, OVERHEAD_BYTES, Records
from elmokit.model.bilm import BiLMOutput, weights_version
from elmokit.progress import logger
from elmokit.text.indexers import refuse_strings

FILE = "elmokit-layers.sqlite"
VERSION = 1  # Records of another version are not found.
COMMIT_BYTES = 64 << 20  # written at once; a kill loses at most this much
STREAM_BYTES = 64 << 20  # layers that `stream` holds at once


class LayerStore:
    """The layers of texts, computed by a frozen biLM or read from its records on disk."""

    def __init__(
        self, elmo: Embedder, *, folder: Path | None = None, limit_bytes: int = 8 << 30
    ) -> None:
        """Open the store of a model in `folder` (default: in ELMOKIT_CACHE or ~/.cache/elmokit).

        All models share a database of at most `limit_bytes`; the least recently used are evicted.
        """
        self.elmo, self.limit_bytes = elmo, limit_bytes
        self.folder = folder or cache_folder("layers")
        self._open()

    def __reduce__(self) -> Any:
        """Copy the settings only: the files are opened again."""
        new = partial(LayerStore, folder=self.folder, limit_bytes=self.limit_bytes)
        return new, (self.elmo,)

    def _open(self) -> None:
        self._weights = weights_version(self.elmo.model)
        self._token_bytes = 2 * (self.elmo.config.num_layers + 1) * self.elmo.dim
        self._records: Records | None = None
        self._storing, self._warned_full = True, False
        if self.folder is None:
            self._stop_storing("there is no home folder; set ELMOKIT_CACHE to another one")
            return
        try:
            self._records = Records(self.folder / FILE, _model_key(self.elmo))
        except (OSError, sqlite3.Error) as error:
            self._stop_storing(reason_of(error))

    def _check_weights(self) -> None:
        if self._weights != weights_version(self.elmo.model):
            self._open()

    def _stop_storing(self, reason: str) -> None:
        self._storing = False
        logger.warning(
            f"cannot store layers of the biLM in {self.folder or 'a cache'} ({reason}): they are "
            "computed each time"
        )

    def __len__(self) -> int:
        """Return the number of texts of this model that are stored."""
        return 0 if self._records is None else len(self._records)

    def __contains__(self, text: Sequence[str]) -> bool:
        return self._records is not None and _key(text) in self._records

    # ------------------------------------------------------------------ storing
    def prepare(self, texts: Iterable[Sequence[str]], *, quiet: bool = False) -> int:
        """Compute and store the layers of texts that are not stored yet; return their number."""
        self._check_weights()
        if not self._storing or self._records is None:
            return 0
        missing: dict[bytes, Sequence[str]] = {}
        for text in texts:
            refuse_strings([text])
            if 0 < len(text) * self._token_bytes <= MAX_VALUE_BYTES:
                missing.setdefault(_key(text), text)
        missing = {key: text for key, text in missing.items() if key not in self._records}
        if not missing:
            return 0
        try:
            fitting = self._fitting(missing, self._records)
            tokens = sum(map(len, fitting.values()))
            look: Any = {"unit": " tokens", "unit_scale": True, "disable": quiet or not fitting}
            with tqdm(total=tokens, desc="ELMo", **look) as bar:
                self._compute(fitting, self._records, bar)
        except sqlite3.Error as error:  # It is read-only, for example, or the disk is full.
            self._stop_storing(reason_of(error))
            return 0
        return len(fitting)

    def _fitting(
        self, missing: dict[bytes, Sequence[str]], records: Records
    ) -> dict[bytes, Sequence[str]]:
        """Return the first texts, as many as the limit allows."""
        sizes = [len(text) * self._token_bytes + OVERHEAD_BYTES for text in missing.values()]
        room = records.make_room(sum(sizes), self.limit_bytes)
        fitting = sum(end <= room for end in accumulate(sizes))
        if fitting < len(missing) and not self._warned_full:
            self._warned_full = True
            logger.warning(
                f"the layers of {len(missing) - fitting:,} of {len(missing):,} texts do not fit "
                f"into {self.folder}, which may hold {self.limit_bytes / 2**30:.2g} GB: they are "
                "computed each time"
            )
        return dict(islice(missing.items(), fitting))

    def _compute(self, texts: dict[bytes, Sequence[str]], records: Records, bar: tqdm[Any]) -> None:
        size, batch = 0, dict[bytes, bytes]()
        sentences = self.elmo.stream(texts.values(), "all", dtype="float16")
        for key, sentence in zip(texts, sentences, strict=True):
            batch[key] = np.ascontiguousarray(sentence.layers, "<f2").tobytes()
            size += len(batch[key])
            bar.update(len(sentence.tokens))
            if size >= COMMIT_BYTES:
                records.append(batch)
                size, batch = 0, {}
        records.append(batch)

    # ------------------------------------------------------------------ reading
    def layers(self, texts: Sequence[Sequence[str]]) -> BiLMOutput:
        """Return all layers of texts, padded, on elmo's device: (L + 1, texts, tokens, dim)."""
        refuse_strings(texts)
        self._check_weights()
        lengths = torch.tensor([len(text) for text in texts], dtype=torch.long)
        max_length = int(lengths.max()) if len(texts) else 0
        shape = (self.elmo.config.num_layers + 1, len(texts), max_length, self.elmo.dim)
        padded = torch.zeros(shape, dtype=torch.float16)  # (L + 1, texts, tokens, dim)
        array = padded.numpy()  # shares its memory
        for i, layers in enumerate(self._find(texts)):
            array[:, i, : layers.shape[1]] = layers
        device = self.elmo.device
        return BiLMOutput(padded.to(device).float(), lengths.to(device))

    def stream(self, texts: Iterable[Sequence[str]]) -> Iterator[NDArray[np.float16]]:
        """Yield, and store, the layers of any number of texts, (L + 1, tokens, dim) each."""
        some: list[Sequence[str]] = []
        tokens = 0
        for text in texts:
            some.append(text)
            tokens += len(text) + 1  # + 1, so that empty texts count too
            if tokens * self._token_bytes >= STREAM_BYTES:
                self.prepare(some, quiet=True)
                yield from self._find(some)
                some, tokens = [], 0
        self.prepare(some, quiet=True)
        yield from self._find(some)

    def _find(self, texts: Sequence[Sequence[str]]) -> list[NDArray[np.float16]]:
        """Return the layers of each text, (L + 1, tokens, dim), stored or computed."""
        result: dict[bytes, NDArray[np.float16]] = {}
        missing: dict[bytes, Sequence[str]] = {}
        keys = [_key(text) for text in texts]
        for key, text in zip(keys, texts, strict=True):
            shape = (self.elmo.config.num_layers + 1, len(text), self.elmo.dim)
            value = b"" if self._records is None or not len(text) else self._records.get(key)
            if len(value or b"") == len(text) * self._token_bytes:
                result[key] = np.frombuffer(value or b"", "<f2").reshape(shape)
            else:
                missing[key] = text
        computed = self.elmo.stream(missing.values(), "all", dtype="float16")
        for key, sentence in zip(missing, computed, strict=True):
            result[key] = sentence.layers
        return [result[key] for key in keys]


def _model_key(elmo: Embedder) -> str:
    """Return a name for everything but the text that decides its layers."""
    digest = hashlib.blake2b(f"{VERSION} {elmo.precision}\n".encode(), digest_size=4)
    if elmo.config.token_encoder == "words" and elmo.vocabulary is not None:
        digest.update("\n".join(elmo.vocabulary.words).encode("utf-8", "surrogatepass"))
    return f"{elmo.fingerprint()}-{digest.hexdigest()}"


def _key(text: Sequence[str]) -> bytes:
    """Return a hash of the tokens and of their lengths."""
    lengths = np.fromiter(map(len, text), np.uint32, len(text))
    digest = hashlib.blake2b(lengths.tobytes(), digest_size=16)
    digest.update("".join(text).encode("utf-8", "surrogatepass"))
    return digest.digest()
