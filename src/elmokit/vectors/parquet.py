"""Vectors as Parquet: a row per sentence, with columns of a type that is taken as vectors.

index, tokens      index of the sentence in the input, from 0, and its tokens
vector             a list of fixed size if the sentence is pooled, else one such list per token
layer_0, layer_1   the same of each layer, instead of `vector`, if layers are kept apart
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import require
from elmokit.vectors.shards import (
    Sentences,
    Vectors,
    VectorShards,
    read_settings,
    replace_surrogates,
)


def write_parquet(shards: VectorShards, file: io.BufferedRandom) -> None:
    """Write a row group per part, and the settings as metadata of the schema."""
    pyarrow = require("pyarrow", extra="parquet", purpose="Parquet output")
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Parquet output")
    shape, dtype = shards.shape_and_dtype()
    kind = pyarrow.list_(pyarrow.from_numpy_dtype(dtype), max(1, shape[-1]))
    kind = kind if shards.pooled else pyarrow.list_(kind)
    layers = ["vector"] if shards.squeeze else [f"layer_{k}" for k in range(shape[0])]
    columns = {"index": pyarrow.int64(), "tokens": pyarrow.list_(pyarrow.string())}
    columns |= dict.fromkeys(layers, kind)
    metadata = {"elmokit": json.dumps(read_settings(shards.path))}
    schema = pyarrow.schema(list(columns.items()), metadata=metadata)
    # Vectors hardly ever repeat, so a dictionary and statistics of them would be useless.
    options = {"use_dictionary": False, "write_statistics": ["index"]}
    with parquet.ParquetWriter(file, schema, **options) as writer:
        for span in shards.spans():
            table = pyarrow.table(_columns(shards, span, schema, pyarrow), schema=schema)
            writer.write_table(table, row_group_size=len(span))


def _columns(shards: VectorShards, span: range, schema: Any, pyarrow: Any) -> dict[str, Any]:
    """Return the columns of the sentences in `span`."""
    rows = [shards[i] for i in span]
    columns: dict[str, Any] = {
        "index": [shards.start + i for i in span],
        "tokens": [[replace_surrogates(token) for token in tokens] for tokens, _ in rows],
    }
    offsets = np.cumsum([0, *(len(tokens) for tokens, _ in rows)], dtype=np.int32)
    for k, name in enumerate(schema.names[2:]):
        layer = (vectors if shards.squeeze else vectors[k] for _, vectors in rows)
        flat = pyarrow.array(np.concatenate([vectors.reshape(-1) for vectors in layer]))
        kind = schema.field(name).type
        fixed = kind if shards.pooled else kind.value_type
        vectors = pyarrow.FixedSizeListArray.from_arrays(flat, type=fixed)
        columns[name] = (
            vectors if shards.pooled else pyarrow.ListArray.from_arrays(offsets, vectors)
        )
    return columns


def read_parquet(path: Path) -> Sentences:
    """Yield the sentences of a Parquet file, with one row group in memory at a time."""
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Parquet input")
    with parquet.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            indices, tokens, *layers = (column.combine_chunks() for column in table.columns)
            by_layer = [_vectors(column) for column in layers]
            is_single = table.column_names[2] == "vector"
            for row, (index, words) in enumerate(zip(indices, tokens, strict=True)):
                vectors = [vectors[row] for vectors in by_layer]
                yield index.as_py(), words.as_py(), vectors[0] if is_single else np.stack(vectors)


def _vectors(column: Any) -> list[Vectors]:
    """Return the vectors of each row: (dim,) if they are pooled, else (tokens, dim)."""
    pooled = hasattr(column.type, "list_size")
    fixed = column if pooled else column.flatten()
    flat = fixed.flatten().to_numpy(zero_copy_only=False)
    matrix = flat.reshape(len(fixed), fixed.type.list_size)
    if pooled:
        return list(matrix)
    return np.split(matrix, np.cumsum(column.value_lengths().to_numpy())[:-1])
