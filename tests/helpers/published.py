"""Models as others published them, written with nothing of elmokit."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import h5py
import numpy as np
from reference import Reference
from tiny import WORDS

META = {
    "id": "217",
    "language": "Norwegian Bokmål",
    "algorithm": {"name": "Embeddings from Language Models (ELMo)", "url": "https://…"},
    "corpus": [{"description": "news", "tokens": 1_000}],
}


def save_token_vectors(reference: Reference, folder: Path, *, padding: bool = False) -> Path:
    """What `dump_token_embeddings` makes of a model on characters; gives its path."""
    reference.save(folder)
    rows = [reference.token_vector(word) for word in WORDS]
    if padding:
        rows.insert(0, np.zeros_like(rows[0]))
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    with h5py.File(folder / "token_vectors.hdf5", "w") as file:
        file["embedding"] = np.array(rows, np.float32)
    return folder / "token_vectors.hdf5"


def save_nlpl(path: Path, folder: Path, *, packed: bool = True) -> Path:
    """A model's folder as the NLPL repository packs it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(folder / "weights.hdf5", "model.hdf5")
        file.write(folder / "options.json", "options.json")
        file.writestr("meta.json", json.dumps(META))
        file.writestr("README", "Norwegian ELMo")
        words = "\n".join(WORDS).encode()
        if packed:
            file.writestr("vocab.txt.gz", gzip.compress(words, mtime=0))
        else:
            file.writestr("vocab.txt", words)
    return path
