"""Vectors as Parquet: a row per sentence (index, tokens, flat vectors, shape)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import require
from elmokit.vectors.shards import Sentences, VectorShards, read_settings, replace_surrogates


def write_parquet(shards: VectorShards, file: io.BufferedRandom) -> None:
    """Write a row group per part, and the settings as metadata of the schema."""
    pyarrow = require("pyarrow", extra="parquet", purpose="Parquet output")
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Parquet output")
    value_type = pyarrow.from_numpy_dtype(shards.shape_and_dtype()[1])
    columns = {
        "index": pyarrow.int64(),
        "tokens": pyarrow.list_(pyarrow.string()),
        "vectors": pyarrow.list_(value_type),
        "shape": pyarrow.list_(pyarrow.int32()),
    }
    metadata = {"elmokit": json.dumps(read_settings(shards.path))}
    schema = pyarrow.schema(list(columns.items()), metadata=metadata)
    # Vectors hardly ever repeat, so a dictionary and statistics of them would be useless.
    options = {"use_dictionary": False, "write_statistics": ["index"]}
    with parquet.ParquetWriter(file, schema, **options) as writer:
        for span in shards.spans():
            table = pyarrow.table(columns_of(shards, span, pyarrow), schema=schema)
            writer.write_table(table, row_group_size=len(span))


def columns_of(shards: VectorShards, span: range, pyarrow: Any) -> dict[str, Any]:
    """Return the columns of the sentences in `span`."""
    rows = [shards[i] for i in span]
    flat = np.concatenate([vectors.reshape(-1) for _, vectors in rows])
    offsets = np.cumsum([0, *(vectors.size for _, vectors in rows)], dtype=np.int32)
    return {
        "index": list(span),
        "tokens": [[replace_surrogates(token) for token in tokens] for tokens, _ in rows],
        "vectors": pyarrow.ListArray.from_arrays(offsets, pyarrow.array(flat)),
        "shape": [list(vectors.shape) for _, vectors in rows],
    }


def read_parquet(path: Path) -> Sentences:
    """Yield the sentences of a Parquet file, with one row group in memory at a time."""
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Parquet input")
    with parquet.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            indices, tokens, shapes = (table[name] for name in ("index", "tokens", "shape"))
            for row, vectors in enumerate(table["vectors"]):
                flat = vectors.values.to_numpy(zero_copy_only=False)
                yield indices[row].as_py(), tokens[row].as_py(), flat.reshape(shapes[row].as_py())
