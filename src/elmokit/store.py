"""The layers of a frozen biLM, computed once and kept on disk for all epochs and runs.

    texts ─► prepare: biLM, float16 ─► records on disk ─► layers: a padded batch, float32

A record is found by the biLM's fingerprint and a hash of the text, so another model or another
text never finds it. Texts that are not kept, because the limit is reached or the disk is full, are
computed each time and rounded to float16 as well, so that a model sees the same numbers.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from elmokit.embed import Embedder
from elmokit.io.lines import Report
from elmokit.io.paths import cache_folder
from elmokit.io.records import KEY_BYTES, LINE, Records, remove_oldest
from elmokit.model.bilm import BiLMOutput, weights_version
from elmokit.text.indexers import refuse_strings

VERSION = 1  # records of another one are not found
COMMIT_BYTES = 64 << 20  # written at once; a kill loses no more
STREAM_BYTES = 64 << 20  # of layers that `stream` holds at once


def warn(text: str) -> None:
    """Say something on standard error, beside a progress bar if there is one."""
    tqdm.write(f"elmokit: {text}", file=sys.stderr)


class LayerStore:
    """What a frozen biLM makes of texts, from the disk where it is kept."""

    def __init__(
        self,
        elmo: Embedder,
        *,
        folder: Path | None = None,
        limit_bytes: int = 8 << 30,
        on_warning: Report = warn,
    ) -> None:
        """Open the store of a model.

        Args:
            elmo: the biLM.
            folder: where the layers of all models are kept; by default in the user's cache
                (`ELMOKIT_CACHE`, or ~/.cache/elmokit).
            limit_bytes: of that folder. The models used longest ago have to go first; texts that
                do not fit are computed each time.
            on_warning: is told in a sentence what cannot be kept.
        """
        self.elmo, self.limit_bytes, self.on_warning = elmo, limit_bytes, on_warning
        self.folder = folder or cache_folder("layers")
        self._open()

    def __getstate__(self) -> dict[str, Any]:
        """What is copied: the files are opened again."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def _open(self) -> None:
        """Find the records of the model as it is now."""
        self._weights = weights_version(self.elmo.model)
        self._token_bytes = 2 * (self.elmo.config.num_layers + 1) * self.elmo.dim
        self._records: Records | None = None
        self._keeping, self._told_full = True, False
        if self.folder is None:
            self._stop_keeping("there is no home folder; ELMOKIT_CACHE may name another place")
            return
        try:
            self._records = Records(self.folder / _model_key(self.elmo))
        except OSError as error:
            self._stop_keeping(error.strerror or str(error))

    def _check_weights(self) -> None:
        if self._weights != weights_version(self.elmo.model):
            self._open()

    def _stop_keeping(self, reason: str) -> None:
        self._keeping = False
        self.on_warning(
            f"no more layers of the biLM can be kept in {self.folder or 'a cache'} ({reason}): "
            "they are computed each time"
        )

    def __len__(self) -> int:
        """Texts of this model that are kept."""
        return 0 if self._records is None else len(self._records)

    def __contains__(self, text: Sequence[str]) -> bool:
        return self._records is not None and _key(text) in self._records

    # ------------------------------------------------------------------ keeping
    def prepare(self, texts: Iterable[Sequence[str]], *, quiet: bool = False) -> int:
        """Compute and keep the layers of texts that are not kept yet; gives their number."""
        self._check_weights()
        missing = self._missing(texts)
        if missing and self._keeping and self._records is not None and not self._records.writable:
            self._stop_keeping("it must not be written to")
        if not missing or not self._keeping:
            return 0
        fitting = self._that_fit(missing)
        if len(fitting) < len(missing) and not self._told_full:
            self._told_full = True
            self.on_warning(
                f"the layers of {len(missing) - len(fitting):,} of {len(missing):,} texts do not "
                f"fit into {self.folder}, which may hold {self.limit_bytes / 2**30:.2g} GB: they "
                "are computed each time"
            )
        tokens = sum(map(len, fitting.values()))
        silent = quiet or not fitting
        bar = tqdm(total=tokens, unit=" tokens", unit_scale=True, desc="ELMo", disable=silent)
        with bar:
            return self._compute(fitting, bar)

    def _missing(self, texts: Iterable[Sequence[str]]) -> dict[bytes, Sequence[str]]:
        """The distinct texts that are not kept."""
        if self._records is not None:
            self._records.refresh()
        missing: dict[bytes, Sequence[str]] = {}
        for text in texts:
            refuse_strings([text])
            if len(text):
                missing.setdefault(_key(text), text)
        if self._records is None:
            return missing
        return {key: text for key, text in missing.items() if key not in self._records}

    def _that_fit(self, missing: dict[bytes, Sequence[str]]) -> dict[bytes, Sequence[str]]:
        """The texts that the limit allows, the first ones first."""
        assert self.folder is not None
        assert self._records is not None
        sizes = [len(text) * self._token_bytes + LINE for text in missing.values()]
        own, limit = self._records.folder, self.limit_bytes
        room = remove_oldest(self.folder, needed=sum(sizes), limit=limit, spare=own)
        fitting = sum(end <= room for end in accumulate(sizes))
        return dict(list(missing.items())[:fitting])

    def _compute(self, texts: dict[bytes, Sequence[str]], bar: tqdm[Any]) -> int:
        """Run the biLM and keep what it gives, some at a time; gives how many were kept."""
        kept = size = 0
        batch: dict[bytes, bytes] = {}
        found = self.elmo.stream(texts.values(), "all", dtype="float16")
        for key, sentence in zip(texts, found, strict=True):
            batch[key] = np.ascontiguousarray(sentence.layers, "<f2").tobytes()
            size += len(batch[key])
            bar.update(len(sentence.tokens))
            if size >= COMMIT_BYTES:
                if not self._append(batch):
                    return kept
                kept, size, batch = kept + len(batch), 0, {}
        return kept + len(batch) if batch and self._append(batch) else kept

    def _append(self, batch: dict[bytes, bytes]) -> bool:
        assert self._records is not None
        try:
            self._records.append(batch)
        except OSError as error:
            self._stop_keeping(error.strerror or str(error))
        return self._keeping

    # ------------------------------------------------------------------ reading
    def layers(self, texts: Sequence[Sequence[str]]) -> BiLMOutput:
        """All layers of tokenized texts, padded: (L + 1, texts, tokens, dim), on elmo's device."""
        refuse_strings(texts)
        self._check_weights()
        lengths = torch.tensor([len(text) for text in texts], dtype=torch.long)
        longest = int(lengths.max()) if len(texts) else 0
        shape = (self.elmo.config.num_layers + 1, len(texts), longest, self.elmo.dim)
        padded = torch.zeros(shape, dtype=torch.float16)
        room = padded.numpy()
        for number, layers in enumerate(self._find(texts)):
            room[:, number, : layers.shape[1]] = layers
        device = self.elmo.device
        return BiLMOutput(padded.to(device).float(), lengths.to(device))

    def stream(self, texts: Iterable[Sequence[str]]) -> Iterator[NDArray[np.float16]]:
        """The layers of each of any number of texts, (L + 1, tokens, dim), in bounded memory.

        Those that are not kept yet are kept on the way.
        """
        some: list[Sequence[str]] = []
        tokens = 0
        for text in texts:
            some.append(text)
            tokens += len(text) + 1  # empty ones count too
            if tokens * self._token_bytes >= STREAM_BYTES:
                self.prepare(some, quiet=True)
                yield from self._find(some)
                some, tokens = [], 0
        self.prepare(some, quiet=True)
        yield from self._find(some)

    def _find(self, texts: Sequence[Sequence[str]]) -> list[NDArray[np.float16]]:
        """The layers of each text, (L + 1, tokens, dim), kept or computed."""
        keys = [_key(text) for text in texts]
        found: dict[bytes, NDArray[np.float16]] = {}
        missing: dict[bytes, Sequence[str]] = {}
        for key, text in zip(keys, texts, strict=True):
            layers = self._kept(key, len(text))
            if layers is None:
                missing[key] = text
            else:
                found[key] = layers
        made = self.elmo.stream(missing.values(), "all", dtype="float16")
        found.update((key, sentence.layers) for key, sentence in zip(missing, made, strict=True))
        return [found[key] for key in keys]

    def _kept(self, key: bytes, tokens: int) -> NDArray[np.float16] | None:
        shape = (self.elmo.config.num_layers + 1, tokens, self.elmo.dim)
        if tokens == 0:
            return np.zeros(shape, np.float16)
        value = None if self._records is None else self._records.get(key)
        if value is None or len(value) != tokens * self._token_bytes:
            return None
        return value.view("<f2").reshape(shape)


def _model_key(elmo: Embedder) -> str:
    """A name for all that decides a text's layers beside the text."""
    digest = hashlib.blake2b(f"{VERSION} {elmo.precision}\n".encode(), digest_size=4)
    if elmo.config.token_encoder == "words" and elmo.vocabulary is not None:
        digest.update("\n".join(elmo.vocabulary.words).encode("utf-8", "surrogatepass"))
    return f"{elmo.fingerprint()}-{digest.hexdigest()}"


def _key(text: Sequence[str]) -> bytes:
    """A hash of the tokens, and of where one ends and the next begins."""
    lengths = np.fromiter(map(len, text), np.uint32, len(text))
    digest = hashlib.blake2b(lengths.tobytes(), digest_size=KEY_BYTES)
    digest.update("".join(text).encode("utf-8", "surrogatepass"))
    return digest.digest()
