"""Vectors as HDF5 in AllenNLP's layout.

    "0", "1", …           a dataset per sentence; or "vectors", one of all if they are pooled
    sentence_to_index     JSON object: sentence -> index of its first occurrence

The names of a shard of an input begin at the index of its first sentence. Sentences are written one
by one, to bound the memory, and without timestamps: the same vectors give the same bytes.
"""

from __future__ import annotations

import io
import json
import signal
import threading
from functools import partial
from pathlib import Path

import numpy as np

from elmokit.progress import logger
from elmokit.text.unicode import replace_surrogates
from elmokit.vectors.shards import Sentences, VectorShards

MAX_SENTENCE_INDEX_BYTES = 256 << 20  # The index is built in memory.


def write_hdf5(shards: VectorShards, file: io.BufferedRandom) -> None:
    """Write the oldest version of HDF5, which every reader supports."""
    import h5py

    index = _sentence_index(shards)
    with DeferredErrors(file.raw) as deferred, h5py.File(deferred, "w", libver="earliest") as hdf5:
        add = partial(hdf5.create_dataset, track_times=False)
        if shards.pooled:
            shape, dtype = shards.shape_and_dtype()
            vectors = add("vectors", (len(shards), *shape), dtype)
            for span in shards.spans():
                vectors[span.start : span.stop] = np.stack([shards[i][1] for i in span])
                deferred.check()
        else:
            for i in range(len(shards)):
                add(str(shards.start + i), data=shards[i][1])
                deferred.check()
        if index is not None:
            add("sentence_to_index", (1,), h5py.string_dtype())[0] = index


class DeferredErrors:
    """A file for h5py that keeps a failed write, or a Ctrl-C, to itself until `check`.

    HDF5 does not survive a write that fails: closing the file then ends the process with a
    segmentation fault. A KeyboardInterrupt would be raised in such a write, or where h5py loses it.
    """

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._error: BaseException | None = None
        self._defers_interrupt = False
        self.seek, self.tell, self.flush = file.seek, file.tell, file.flush
        self.read, self.readinto = file.read, file.readinto

    def __enter__(self) -> DeferredErrors:
        is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_default and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._interrupt)
            self._defers_interrupt = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._defers_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.check()

    def _interrupt(self, *_: object) -> None:
        self._error = KeyboardInterrupt()

    def write(self, content: bytes) -> int:
        """Write all of `content`, unless a write has failed before."""
        rest = memoryview(content).cast("B")
        try:
            while rest and self._error is None:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._error = error
        return len(content)

    def truncate(self, size: int) -> int:
        """Set the size of the file, unless a write has failed before."""
        try:
            if self._error is None:
                self._file.truncate(size)
        except OSError as error:
            self._error = error
        return size

    def check(self) -> None:
        """Raise the error that was deferred."""
        if self._error is not None:
            raise self._error


def _sentence_index(shards: VectorShards) -> str | None:
    """Return the JSON of `sentence_to_index`, None if the text is too large for it."""
    indices: dict[str, str] = {}
    size = 0
    start = 0 if shards.pooled else shards.start  # An index of pooled vectors is a row.
    for i in range(len(shards)):
        sentence = replace_surrogates(" ".join(shards[i][0]))
        if sentence not in indices:
            indices[sentence] = str(start + i)
            size += len(sentence.encode())
        if size > MAX_SENTENCE_INDEX_BYTES:
            limit = f"{MAX_SENTENCE_INDEX_BYTES >> 20} MB"
            logger.warning("sentence_to_index is left out because the text is over %s", limit)
            return None
    return json.dumps(indices)


def read_hdf5(path: Path) -> Sentences:
    """Yield the sentences of an HDF5 file, which AllenNLP may have written."""
    import h5py

    with h5py.File(path, "r") as hdf5:
        index = json.loads(hdf5["sentence_to_index"][0]) if "sentence_to_index" in hdf5 else {}
        texts = {int(i): sentence for sentence, i in index.items()}
        pooled, keys = "vectors" in hdf5, sorted(int(key) for key in hdf5 if key.isdecimal())
        rows = enumerate(hdf5["vectors"]) if pooled else ((i, hdf5[str(i)][()]) for i in keys)
        for i, vectors in rows:
            # Tokens are joined by spaces; an empty sentence has none.
            tokens = (texts[i].split(" ") if texts[i] else []) if i in texts else None
            # A token with a space in it looks like two: return None rather than wrong tokens.
            is_known = pooled or (tokens is not None and len(tokens) == vectors.shape[-2])
            yield i, tokens if is_known else None, vectors
