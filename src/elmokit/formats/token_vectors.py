"""Token vectors that bilm-tf cached (`dump_token_embeddings`): an HDF5 file with `embedding` alone.

    token_vectors.hdf5           `embedding`, a row for each word, perhaps after one for padding
    vocab.txt                    the words
    weights.hdf5, options.json   the model that computed them; only its LSTM layers are read

Together they are a model on words: the token vectors of one file, the `RNN_…` of the other.
"""

from __future__ import annotations

from pathlib import Path

from elmokit.errors import MissingFile, UnsupportedFormat
from elmokit.formats import bilm
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.containers.hdf5 import open_hdf5, read_dataset, shapes_of
from elmokit.formats.weight_map import Array, read_rows
from elmokit.io.jsonfile import read_json


def is_table(path: Path) -> bool:
    """Tell whether an HDF5 file has token vectors and nothing else."""
    with open_hdf5(path) as file:
        return set(shapes_of(file)) == {bilm.TABLE}


def read(path: Path) -> Checkpoint:
    """Read a table of token vectors, and the layers from the weights file beside it."""
    weights = _layers_beside(path)
    options_file = bilm.find_options(weights)
    options = read_json(options_file)
    with open_hdf5(path) as table, open_hdf5(weights) as file:

        def fetch(name: str) -> Array:
            return read_dataset(table if name == bilm.TABLE else file, name)

        layers = {n: shape for n, shape in shapes_of(file).items() if n.startswith("RNN_")}
        shapes = layers | shapes_of(table)
        on_words = {name: value for name, value in options.items() if name != "char_cnn"}
        config = bilm.config_of(on_words, shapes, options_file)
        where = f"{path} with {weights.name}"
        tensors = read_rows(bilm.rows(config), shapes, fetch, where, kind="dataset")
    vocabulary = bilm.vocabulary_of(bilm.find_vocabulary(path.parent), config)
    metadata = {"options": options, "layers_from": weights.name}
    checkpoint = Checkpoint(config, tensors, vocabulary, metadata, str(path), "bilm")
    return bilm.without_padding(checkpoint)


def _layers_beside(table: Path) -> Path:
    """Return the weights file beside a table of token vectors."""
    beside = sorted(file for s in bilm.SUFFIXES for file in table.parent.glob(f"[!.]*{s}"))
    matches = [path for path in beside if path != table and _has_layers(path)]
    if len(matches) == 1:
        return matches[0]
    only = f"{table} has token vectors only"
    if not matches:
        raise MissingFile(f"{only}: put the weights file of its model beside it")
    names = ", ".join(file.name for file in matches)
    raise UnsupportedFormat(f"{only}, and several files beside it have layers: {names}; keep one")


def _has_layers(path: Path) -> bool:
    with open_hdf5(path) as file:
        try:
            return "RNN_0" in file
        except (OSError, RuntimeError, KeyError, ValueError):
            return False
