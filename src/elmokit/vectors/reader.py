"""Read the vectors that `embed` wrote, whatever their format."""

from __future__ import annotations

import zipfile
from pathlib import Path

from elmokit.errors import ElmokitError, explained
from elmokit.io.paths import check_regular, is_folder
from elmokit.vectors.hdf5 import read_hdf5
from elmokit.vectors.npz import read_npz
from elmokit.vectors.parquet import read_parquet
from elmokit.vectors.shards import Sentences, VectorShards

# What h5py, zipfile, NumPy and pyarrow raise for damaged files and for files of another layout.
READING_ERRORS = (
    *(OSError, ValueError, LookupError, EOFError, RuntimeError, TypeError, AttributeError),
    zipfile.BadZipFile,
)
READERS = {b"\x89HDF": read_hdf5, b"PK\3\4": read_npz, b"PAR1": read_parquet}


def read_vectors(path: str | Path) -> Sentences:
    """Yield index, tokens and vectors of every sentence of an output, one at a time.

    Tokens are None where the file does not have them: HDF5 keeps only the first of equal
    sentences, joined by spaces.
    """
    path = Path(path)
    if is_folder(path):
        shards = VectorShards(path)
        return ((shards.start + i, *shards[i]) for i in range(len(shards)))
    check_regular(path, missing_ok=True)
    with explained(f"cannot read {path}", OSError, ValueError), path.open("rb") as file:
        magic = file.read(4)
    if magic not in READERS:
        raise ElmokitError(f"{path} is not a file of vectors in HDF5, npz or Parquet")
    return _explain_damage(path, READERS[magic](path))


def _explain_damage(path: Path, sentences: Sentences) -> Sentences:
    try:
        yield from sentences
    except READING_ERRORS as error:
        raise ElmokitError(f"{path} is damaged or not a file of vectors: {error}") from error
