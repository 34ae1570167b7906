"""Vectors as npz, the same bytes for the same vectors.

"0", "1", …     an array per sentence; or "vectors", one of all if they are pooled
tokens          a JSON list per sentence

The names of a shard of an input begin at the index of its first sentence.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from elmokit.vectors.shards import Sentences, Vectors, VectorShards, write_npy_header


def write_npz(shards: VectorShards, file: io.BufferedRandom) -> None:
    """Write what `numpy.savez` would, but one array after the other."""
    with zipfile.ZipFile(file, "w") as archive:
        if shards.pooled:
            shape, dtype = shards.shape_and_dtype()
            with new_member(archive, "vectors") as member:
                write_npy_header(member, (len(shards), *shape), dtype)
                for i in range(len(shards)):
                    member.write(np.ascontiguousarray(shards[i][1]).data)
        else:
            for i in range(len(shards)):
                with new_member(archive, str(shards.start + i)) as member:
                    vectors = np.ascontiguousarray(shards[i][1])
                    np.lib.format.write_array(member, vectors, allow_pickle=False)
        # The tokens are compressed: all strings of an array are as wide as the longest.
        width = max((len(json.dumps(shards[i][0])) for i in range(len(shards))), default=1)
        with new_member(archive, "tokens", zipfile.ZIP_DEFLATED) as member:
            write_npy_header(member, (len(shards),), np.dtype(f"<U{width}"))
            for i in range(len(shards)):
                member.write(json.dumps(shards[i][0]).ljust(width, "\0").encode("utf-32-le"))


def new_member(archive: zipfile.ZipFile, name: str, compression: int = zipfile.ZIP_STORED) -> Any:
    """Open a new array in the archive, dated 1980 so that output is reproducible."""
    info = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
    info.compress_type = compression
    return archive.open(info, "w", force_zip64=True)


def read_npz(path: Path) -> Sentences:
    """Yield the sentences of an npz file, reading `tokens` in step with the vectors."""
    with zipfile.ZipFile(path) as archive, archive.open("tokens.npy") as member:
        texts = (json.loads(str(text)) for text in read_npy_rows(member))
        first = archive.namelist()[0].removesuffix(".npy")
        if first == "vectors":
            with archive.open("vectors.npy") as vectors:
                for i, (tokens, row) in enumerate(zip(texts, read_npy_rows(vectors), strict=True)):
                    yield i, tokens, row
            return
        start = int(first) if first.isdecimal() else 0  # not 0 in a shard of an input
        for i, tokens in enumerate(texts, start):
            with archive.open(f"{i}.npy") as array:
                yield i, tokens, np.lib.format.read_array(array, allow_pickle=False)


def read_npy_rows(file: IO[bytes]) -> Iterator[Vectors]:
    """Yield the rows of the array in an .npy file that is open for reading."""
    np.lib.format.read_magic(file)
    (length, *shape), _, dtype = np.lib.format.read_array_header_1_0(file)
    row_bytes = dtype.itemsize * math.prod(shape)
    for _ in range(length):
        yield np.frombuffer(file.read(row_bytes), dtype).reshape(shape)
