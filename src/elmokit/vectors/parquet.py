"""Vectors as Parquet: a row per sentence, with columns of a type that is taken as vectors.

id                 index of the sentence in the input, from 0, or its own id
text, tokens       on request, as the id
vector             a list of fixed size if the sentence is pooled, else one such list per token
layer_0, layer_1   the same of each layer, instead of `vector`, if layers are kept apart
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import ElmokitError, require
from elmokit.text.unicode import replace_surrogates
from elmokit.vectors.shards import Columns, Sentences, Vectors, VectorShards, read_settings

COLUMNS = ("id", "text", "tokens")
DEFAULT_COLUMNS = "id,tokens"


def parse_columns(columns: str) -> list[str]:
    """Return the names in a list such as "id,text", in the order of the file."""
    names = columns.split(",")
    if unknown := next((name for name in names if name not in COLUMNS), None):
        raise ElmokitError(f"columns are some of {','.join(COLUMNS)}, not {unknown!r}")
    return [name for name in COLUMNS if name in names]


def write_parquet(shards: VectorShards, file: io.BufferedRandom) -> None:
    """Write a row group per part, and the settings as metadata of the schema."""
    pyarrow = require("pyarrow", extra="parquet", purpose="Parquet output")
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Parquet output")
    shape, dtype = shards.shape_and_dtype()
    kind = pyarrow.list_(pyarrow.from_numpy_dtype(dtype), max(1, shape[-1]))
    kind = kind if shards.pooled else pyarrow.list_(kind)
    layers = ["vector"] if shards.squeeze else [f"layer_{k}" for k in range(shape[0])]
    settings = read_settings(shards.path) or {}
    kinds = {
        "id": pyarrow.int64() if settings.get("id_field") is None else pyarrow.string(),
        "text": pyarrow.string(),
        "tokens": pyarrow.list_(pyarrow.string()),
        **dict.fromkeys(layers, kind),
    }
    names = [*parse_columns(settings.get("columns", DEFAULT_COLUMNS)), *layers]
    metadata = {"elmokit": json.dumps(settings)}
    schema = pyarrow.schema([(name, kinds[name]) for name in names], metadata=metadata)
    # Vectors hardly ever repeat, so a dictionary and statistics of them would be useless.
    options = {"use_dictionary": False, "write_statistics": ["id"]}
    with parquet.ParquetWriter(file, schema, **options) as writer:
        for part, span in enumerate(shards.spans()):
            columns = _columns(shards, span, shards.columns(part), schema, pyarrow)
            writer.write_table(pyarrow.table(columns, schema=schema), row_group_size=len(span))


def _columns(
    shards: VectorShards, span: range, known: Columns, schema: Any, pyarrow: Any
) -> dict[str, Any]:
    """Return the columns of the sentences in `span`."""
    rows = [shards[i] for i in span]
    columns: dict[str, Any] = {
        "id": [shards.start + i for i in span],
        "tokens": [[replace_surrogates(token) for token in tokens] for tokens, _ in rows],
    }
    for name, values in known.items():
        columns[name] = [None if value is None else replace_surrogates(value) for value in values]
    columns = {name: columns[name] for name in schema.names if name in COLUMNS}
    offsets = np.cumsum([0, *(len(tokens) for tokens, _ in rows)], dtype=np.int32)
    for k, name in enumerate(name for name in schema.names if name not in COLUMNS):
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
        metadata = file.schema_arrow.metadata or {}
        # The index of the first sentence is not 0 if this is a shard of an input.
        index = int(json.loads(metadata.get(b"elmokit", b"{}")).get("start", 0))
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            names = [name for name in table.column_names if name not in COLUMNS]
            by_layer = [_vectors(table[name].combine_chunks()) for name in names]
            tokens = table["tokens"].to_pylist() if "tokens" in table.column_names else None
            for row in range(len(table)):
                vectors = [vectors[row] for vectors in by_layer]
                array = vectors[0] if names == ["vector"] else np.stack(vectors)
                yield index, None if tokens is None else tokens[row], array
                index += 1


def _vectors(column: Any) -> list[Vectors]:
    """Return the vectors of each row: (dim,) if they are pooled, else (tokens, dim)."""
    pooled = hasattr(column.type, "list_size")
    fixed = column if pooled else column.flatten()
    flat = fixed.flatten().to_numpy(zero_copy_only=False)
    matrix = flat.reshape(len(fixed), fixed.type.list_size)
    if pooled:
        return list(matrix)
    return np.split(matrix, np.cumsum(column.value_lengths().to_numpy())[:-1])
