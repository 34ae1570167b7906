"""Embed a file of any size into a file of vectors, in bounded memory.

    sentences ─► windows ─► Embedder ─► parts on the disk ─► output in its format

Each window is a part that is safe on the disk before the next begins. A run that was stopped
resumes to the same bytes: the windows do not depend on where it was stopped, and skipped ones still
fill the word cache.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from tqdm import tqdm

from elmokit.errors import ElmokitError
from elmokit.io.atomic import locked
from elmokit.io.lines import FilePath
from elmokit.io.resumable import check_unused, input_identity, other_input
from elmokit.layers import Pooling, check_pooling, layer_weights, parse_layers, pool, unit
from elmokit.progress import check_threads, use_threads
from elmokit.text.readers import Line, join_lines, read_sentences, total_bytes
from elmokit.vectors.parquet import DEFAULT_COLUMNS, parse_columns
from elmokit.vectors.shards import Columns, EmbeddedSentence, Vectors
from elmokit.vectors.writer import VectorWriter, output_format

if TYPE_CHECKING:
    from elmokit.embed import Embedder


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """The options that decide the vectors: a run is resumed only with the same ones."""

    layers: str = "all"
    """Layer selector: see `elmokit.layers.parse_layers`."""
    pooling: Pooling | None = None
    """How to pool the tokens of a sentence; None keeps a vector per token."""
    normalize: bool = False
    """Whether to scale every vector to length 1; zero vectors stay zero."""
    columns: str = DEFAULT_COLUMNS
    """Columns of Parquet beside the vectors: some of id, text and tokens, with commas between."""
    dtype: Literal["float32", "float16"] = "float32"
    """Data type of the output: float32 or float16."""
    precision: Literal["float32", "float16", "int8"] = "float32"
    """Precision of the weights: float32, float16 or int8."""
    tokenizer: str | None = None
    """Tokenizer of running text; None is the model's own."""
    kind: str = "auto"
    """Kind of the input: auto, text, jsonl, conll or conllu."""
    split: bool = False
    """Whether the input is running text, to be split into sentences."""
    field: str = "text"
    """JSONL field of the text."""
    id_field: str | None = None
    """JSONL field of the column id; None numbers the sentences from 0."""
    column: int | None = None
    """CoNLL column of the words."""
    batch_tokens: int = 2048
    """Approximate number of tokens per batch."""
    batch_size: int | None = None
    """Maximum number of sentences per batch."""


@dataclass(frozen=True)
class EmbedResult:
    """What `embed_file` has written."""

    output: Path
    sentences: int
    """Number of sentences in the output."""
    tokens: int
    """Number of tokens that this run has embedded."""
    seconds: float


class EmbeddedLine(NamedTuple):
    """A sentence as it is written."""

    tokens: Sequence[str]
    layers: Vectors
    """Layers (K, tokens, dim), or (K, dim) if they are pooled."""


def embed_file(
    input: FilePath,
    output: FilePath,
    options: EmbedOptions | None = None,
    *,
    model: str = "shipped",
    device: str = "cpu",
    threads: int | None = None,
    format: str | None = None,
    errors: str = "strict",
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = True,
) -> EmbedResult:
    """Write the contextual vectors of every sentence of a file.

    Args:
        input: A text file, also compressed (see `read_sentences`), or "-" for standard input.
        output: The file or folder to write.
        options: What decides the vectors.
        model: A model folder, weights file, archive or Hub name.
        device: Device to compute on.
        threads: Number of threads; None for all cores.
        format: Format of the output: hdf5, npz, parquet or npy; None for that of its extension.
        errors: What to do with bytes that are not UTF-8: "strict" or "replace".
        resume: Continue a run that was stopped.
        overwrite: Replace the output if it exists.
        quiet: Show no progress bar.
    """
    from elmokit.formats.detect import own_tokenizer
    from elmokit.loading import load

    options = options or EmbedOptions()
    inputs = (os.fspath(input), model)
    check_unused(Path(output), resume=resume, overwrite=overwrite, inputs=inputs)
    check_threads(threads)
    if options.pooling is not None:
        check_pooling(options.pooling)
    is_parquet = output_format(os.fspath(output), format) == "parquet"
    if (options.id_field or "text" in parse_columns(options.columns)) and not is_parquet:
        raise ElmokitError("ids and texts are columns of Parquet: write a file .parquet")
    start = time.perf_counter()
    consumed: list[int] = []  # bytes of the input since the bar moved
    tokenizer = options.tokenizer or own_tokenizer(model)
    lines = read_sentences(
        input,
        kind=options.kind,
        tokenizer=tokenizer,
        split=options.split,
        field=options.field,
        id_field=options.id_field,
        column=options.column,
        errors=errors,
        on_bytes=consumed.append,
    )
    # Read one line now so that input errors surface before torch is imported.
    lines = chain([next(lines)], lines)
    elmo = load(
        model, precision=options.precision, device=device, batch_tokens=options.batch_tokens
    )
    weights = layer_weights(parse_layers(options.layers), elmo.config.num_layers)
    settings = {
        "input": input_identity(input),
        "model": elmo.fingerprint(),
        **asdict(options),
        "tokenizer": tokenizer,
    }
    writer = VectorWriter(
        os.fspath(output),
        settings,
        format=format,
        pooled=options.pooling is not None,
        squeeze=len(weights) == 1,
        resume=resume,
        overwrite=overwrite,
    )
    progress = tqdm(total=total_bytes(input), unit="B", unit_scale=True, disable=quiet)
    with use_threads(threads), locked(writer.folder), writer, progress as bar:
        tokens = _write_windows(elmo, lines, writer, options, input, bar, consumed)
        bar.set_description("finishing")
        writer.finish()
    return EmbedResult(writer.out, writer.done, tokens, time.perf_counter() - start)


def _write_windows(
    elmo: Embedder,
    lines: Iterable[Line],
    writer: VectorWriter,
    options: EmbedOptions,
    input: FilePath,
    bar: tqdm[Any],
    consumed: list[int],
) -> int:
    """Embed and write the windows that are not written yet; return the number of their tokens."""
    if writer.finished:
        return 0
    sentences = tokens = 0
    start = time.perf_counter()
    texts, sources = tee(join_lines(lines))
    for window in elmo.windows((line.tokens for line in texts), kept=elmo.config.num_layers + 1):
        columns = _columns(list(islice(sources, len(window))), options)
        first, sentences = sentences, sentences + len(window)
        if first < writer.done:  # written before the run was stopped
            if not writer.holds(first, window):
                raise other_input(os.fspath(input), writer.out)
            elmo.skip(window)
            start = time.perf_counter()
        else:
            writer.write(list(_embed_window(elmo, window, options)), columns)
            tokens += sum(map(len, window))
            speed = tokens / (time.perf_counter() - start)
            bar.set_postfix_str(f"{speed:,.0f} tokens/s", refresh=False)
        bar.update(sum(consumed))
        consumed.clear()
    if sentences < writer.done:
        raise other_input(os.fspath(input), writer.out)
    return tokens


def _columns(lines: Sequence[Line], options: EmbedOptions) -> Columns:
    """Return what the output has of the lines themselves."""
    columns: Columns = {} if options.id_field is None else {"id": [line.id for line in lines]}
    if "text" in parse_columns(options.columns):
        columns["text"] = [
            " ".join(line.tokens) if line.text is None else line.text for line in lines
        ]
    return columns


def _embed_window(
    elmo: Embedder, window: Sequence[Sequence[str]], options: EmbedOptions
) -> Iterator[EmbeddedSentence]:
    """Yield the sentences of a window with the layers that are asked for."""
    layers = parse_layers(options.layers)
    for sentence in elmo.stream(window, layers, batch_size=options.batch_size, dtype=options.dtype):
        array = sentence.layers
        if options.pooling is not None:
            array = pool(array, options.pooling)
        if options.normalize:
            array = unit(array.astype(np.float32)).astype(array.dtype)
        yield EmbeddedLine(sentence.tokens, array)
