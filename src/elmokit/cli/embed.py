"""`elmokit embed INPUT OUTPUT`: write the vectors of a file."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from elmokit.cli.options import FileOrDash, Flag, ModelOptions, TextOptions, WriteOptions
from elmokit.errors import plural

INPUT = Parameter(group=Group("Input", sort_key=1))
OUTPUT = Parameter(group=Group("Output", sort_key=2))
SPEED = Parameter(group=Group("Speed", sort_key=9))


def embed(
    input: FileOrDash,
    output: str,
    /,
    *,
    text: Annotated[TextOptions, INPUT] = TextOptions(),
    layers: Annotated[str, OUTPUT] = "all",
    pooling: Annotated[
        Literal["mean", "max", "min", "sum", "first", "last", "ends"] | None, OUTPUT
    ] = None,
    normalize: Annotated[Flag, OUTPUT] = False,
    dtype: Annotated[Literal["float32", "float16"], OUTPUT] = "float32",
    format: Annotated[Literal["auto", "hdf5", "npz", "parquet", "npy"], OUTPUT] = "auto",
    columns: Annotated[str, OUTPUT] = "id,tokens",
    id_field: Annotated[str | None, INPUT] = None,
    resume: Annotated[Flag, OUTPUT] = False,
    writing: Annotated[WriteOptions, OUTPUT] = WriteOptions(),
    options: ModelOptions = ModelOptions(),
    precision: Annotated[Literal["float32", "float16", "int8"], SPEED] = "float32",
    batch_tokens: Annotated[int, SPEED] = 2048,
    batch_size: Annotated[int | None, SPEED] = None,
) -> None:
    """Write the contextual vectors of every sentence of a file.

    Args:
        input: Text file (.txt, .jsonl, .conll, .conllu; also .gz, .xz, .zst), or - for standard
            input.
        output: File to write (.h5, .npz, .parquet), or a folder .npy of memory-mapped shards.
        layers: Layers to write: all, top, average, an index from 0, or comma-separated weights.
        pooling: Write one vector per sentence, pooled from its tokens (default: one per token).
        normalize: Scale every vector to length 1; zero vectors stay zero.
        dtype: Data type of the vectors.
        format: Format of the output; auto means by its extension.
        columns: Columns of Parquet beside the vectors: some of id, text and tokens,
            comma-separated.
        id_field: JSONL field of the column id of Parquet (default: the sentences are numbered).
        resume: Continue a run that was stopped.
        precision: Precision of the weights; float16 and int8 are faster for models as large as the
            original, float16 is slower for small ones.
        batch_tokens: Approximate number of tokens per batch.
        batch_size: Maximum number of sentences per batch (default: no maximum).
    """
    given = {**locals(), **asdict(text), **asdict(options)}
    if options.jieba_dict is not None:
        given["tokenizer"] = options.tokenizer_name()
    from elmokit.embed_file import EmbedOptions, embed_file

    result = embed_file(
        input,
        output,
        EmbedOptions(**{field.name: given[field.name] for field in fields(EmbedOptions)}),
        model=options.model,
        device=options.device,
        threads=options.threads,
        format=None if format == "auto" else format,
        errors=text.errors,
        resume=resume,
        **asdict(writing),
    )
    if not writing.quiet:
        tokens = f"{plural(result.tokens, 'token')} embedded in {result.seconds:.1f} s"
        print(f"{output}: {plural(result.sentences, 'sentence')}; {tokens}", file=sys.stderr)
