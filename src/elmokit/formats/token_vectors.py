"""Token vectors that bilm-tf cached (`dump_token_embeddings`): an HDF5 file with `embedding` alone.

    token_vectors.hdf5           `embedding`, a row for each word, perhaps after one for padding
    vocab.txt                    the words
    weights.hdf5, options.json   the model they were computed with, of which the layers are read

Together they are a model on words: the vectors of one file, the `RNN_…` of the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.errors import ElmokitError
from elmokit.formats import bilm
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.containers.hdf5 import open_hdf5, read_dataset, shapes_of
from elmokit.formats.weight_map import Array, Shape, read_rows
from elmokit.io.jsonfile import read_json

if TYPE_CHECKING:
    import h5py


def read(table: h5py.File, shape: Shape, path: Path) -> Checkpoint:
    """Read the open file of a table of this shape, and the layers of the weights beside it."""
    weights = _layers_beside(path)
    options_file = bilm.find_options(weights)
    options = read_json(options_file)
    with open_hdf5(weights) as file:

        def fetch(name: str) -> Array:
            if name == bilm.TABLE:
                return read_dataset(table, name, path)
            return read_dataset(file, name, weights)

        found = shapes_of(file, weights)
        shapes = {name: found[name] for name in found if name.startswith("RNN_")}
        shapes[bilm.TABLE] = shape
        on_words = {name: value for name, value in options.items() if name != "char_cnn"}
        config = bilm.config_of(on_words, shapes, options_file)
        where = f"{path} with {weights.name}"
        tensors = read_rows(bilm.rows(config), shapes, fetch, where, kind="dataset")
    vocabulary = bilm.vocabulary_of(bilm.find_vocabulary(path.parent), config)
    metadata = {"options": options, "layers_from": weights.name}
    return bilm.without_padding(
        Checkpoint(config, tensors, vocabulary, metadata, str(path), "bilm")
    )


def _layers_beside(table: Path) -> Path:
    """The file beside a table of token vectors that has the layers of the model."""
    beside = sorted(file for s in bilm.SUFFIXES for file in table.parent.glob(f"[!.]*{s}"))
    found = [path for path in beside if path != table and _has_layers(path)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(file.name for file in found)
        raise ElmokitError(f"{table} has token vectors only: which of {names} has its layers?")
    raise ElmokitError(f"{table} has token vectors only: no weights of the layers lie beside it")


def _has_layers(path: Path) -> bool:
    with open_hdf5(path) as file:
        try:
            return "RNN_0" in file
        except (OSError, RuntimeError, KeyError, ValueError):
            return False
