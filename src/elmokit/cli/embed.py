"""`elmokit embed INPUT OUTPUT`: write the vectors of a file."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from elmokit.cli.options import FileOrDash, Flag, ModelOptions, TextOptions, WriteOptions
from elmokit.errors import ElmokitError, plural
from elmokit.io.paths import check_no_input

INPUT = Parameter(group=Group("Input", sort_key=1))
OUTPUT = Parameter(group=Group("Output", sort_key=2))
SPEED = Parameter(group=Group("Speed", sort_key=9))


def embed(
    input: FileOrDash,
    output: str,
    /,
    *,
    text: Annotated[TextOptions, INPUT] = TextOptions(),
    shard: Annotated[str | None, INPUT] = None,
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
    workers: Annotated[int | None, SPEED] = None,
    engine: Annotated[Literal["local", "ray"], SPEED] = "local",
) -> None:
    """Write the contextual vectors of every sentence of a file.

    Args:
        input: Text file (.txt, .jsonl, .conll, .conllu; also .gz, .xz, .zst), or - for standard
            input.
        output: File to write (.h5, .npz, .parquet), or a folder .npy of memory-mapped shards.
        shard: Embed only this share of the sentences, such as 1/4, 2/4, 3/4 or 4/4, for jobs that
            run side by side.
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
        workers: Number of processes that embed side by side, each with its share of the threads
            (default: 1; of the engine ray: one per CPU, but for one, or per GPU).
        engine: What runs the processes; ray embeds Parquet files into a folder, on a cluster if
            RAY_ADDRESS names one, and takes paths such as s3://bucket/*.parquet.
    """
    given = {**locals(), **asdict(text), **asdict(options)}
    check_no_input(output, options.inputs)
    if options.jieba_dict is not None:
        given["tokenizer"] = options.tokenizer_name()
    from elmokit.embed_file import EmbedOptions, embed_file

    chosen = EmbedOptions(**{field.name: given[field.name] for field in fields(EmbedOptions)})
    run: Any = {"model": options.model, "device": options.device, "resume": resume}
    run |= asdict(writing)
    if engine == "ray":
        if options.threads is not None:
            raise ElmokitError("--threads is for one machine: an actor of the engine ray has one")
        if format not in ("auto", "parquet"):
            raise ElmokitError(f"the engine ray writes Parquet files, not --format {format}")
        if text.errors != "strict":
            raise ElmokitError("--errors is for text files: the engine ray reads Parquet files")
        from elmokit.integrations.ray import embed_with_ray

        rows = embed_with_ray(input, output, chosen, workers=workers, **run)
        size, new, seconds = plural(rows.rows, "row"), plural(rows.new_rows, "row"), rows.seconds
    else:
        run |= {"threads": options.threads, "workers": 1 if workers is None else workers}
        run |= {"format": None if format == "auto" else format, "errors": text.errors}
        result = embed_file(input, output, chosen, **run)
        size, new = plural(result.sentences, "sentence"), plural(result.tokens, "token")
        seconds = result.seconds
    if not writing.quiet:
        print(f"{output}: {size}; {new} embedded in {seconds:.1f} s", file=sys.stderr)
