"""Embed a file of any size into a file of vectors, in bounded memory.

    sentences ─► windows ─► Embedder ─► parts on the disk ─► output in its format

Each window is a part that is safe on the disk before the next begins. A run that was stopped
resumes to the same bytes, and any number of workers or shards writes them: windows are always the
same, and those that are skipped, or embedded elsewhere, still fill the word cache. So that little
has to be skipped, each section of the input begins with a new window and an empty cache.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count, groupby, islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tqdm.auto import tqdm

from elmokit.errors import ElmokitError, plural
from elmokit.formats.detect import own_tokenizer
from elmokit.io.atomic import locked
from elmokit.io.lines import FilePath, name_of
from elmokit.io.resumable import check_unused, input_identity, other_input
from elmokit.layers import Pooling, check_pooling, layer_weights, parse_layers, pool_and_scale
from elmokit.loading import load
from elmokit.progress import TokenRate, check_threads, set_threads, use_threads
from elmokit.text.readers import Line, count_sentences, join_lines, read_sentences, total_bytes
from elmokit.vectors.parquet import DEFAULT_COLUMNS, parse_columns
from elmokit.vectors.shards import Columns, EmbeddedSentence, Window
from elmokit.vectors.shared import Piece, SharedParts
from elmokit.vectors.writer import RowWriter, VectorWriter, output_format
from elmokit.workers import Workers, check_workers

if TYPE_CHECKING:
    from elmokit.embed import Embedder

SECTION = 65_536  # sentences; encoding their words again costs about 1% of embedding them


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
    shard: str | None = None
    """Share of the input to embed, such as "1/4" for the first quarter; None for all of it."""


@dataclass(frozen=True)
class EmbedResult:
    """What `embed_file` has written."""

    output: Path
    sentences: int
    """Number of sentences in the output."""
    tokens: int
    """Number of tokens that this run has embedded."""
    seconds: float


def embed_file(
    input: FilePath,
    output: FilePath,
    options: EmbedOptions | None = None,
    *,
    model: str = "english",
    device: str = "cpu",
    threads: int | None = None,
    workers: int = 1,
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
        workers: Number of processes that share the threads; a script that calls this with more
            than one needs `if __name__ == "__main__":`.
        format: Format of the output: hdf5, npz, parquet or npy; None for that of its extension.
        errors: What to do with bytes that are not UTF-8: "strict" or "replace".
        resume: Continue a run that was stopped.
        overwrite: Replace the output if it exists.
        quiet: Show no progress bar.
    """
    options = options or EmbedOptions()
    check_unused(Path(output), resume=resume, overwrite=overwrite, inputs=(input, model))
    check_threads(threads)
    check_workers(workers)
    if options.pooling is not None:
        check_pooling(options.pooling)
    is_parquet = output_format(os.fspath(output), format) == "parquet"
    if (options.id_field or "text" in parse_columns(options.columns)) and not is_parquet:
        raise ElmokitError("ids and texts are columns of Parquet: write a file .parquet")
    start = time.perf_counter()
    consumed: list[int] = []  # bytes of the input since the bar moved
    tokenizer = options.tokenizer or own_tokenizer(model)
    names = ("kind", "split", "field", "id_field", "column")
    reading: Any = {name: getattr(options, name) for name in names} | {"errors": errors}
    first, end = shard_of(input, options.shard, **reading)
    section = first // SECTION * SECTION
    lines = read_sentences(
        input, tokenizer=tokenizer, start=section, on_bytes=consumed.append, **reading
    )
    # Read one line now so that input errors surface before torch is imported.
    lines = chain([next(lines)], lines)
    elmo = load(
        model, precision=options.precision, device=device, batch_tokens=options.batch_tokens
    )
    weights = layer_weights(parse_layers(options.layers), elmo.config.num_layers)
    settings = {"input": input_identity(input), "model": elmo.fingerprint(), **asdict(options)}
    settings["tokenizer"] = tokenizer
    writer = VectorWriter(
        os.fspath(output),
        settings,
        format=format,
        pooled=options.pooling is not None,
        squeeze=len(weights) == 1,
        start=first,
        resume=resume,
        overwrite=overwrite,
    )
    import torch

    pieces = _pieces(elmo, lines, options, first, end)
    progress = tqdm(total=total_bytes(input), unit="B", unit_scale=True, disable=quiet)
    with use_threads(threads), locked(writer.folder), writer, progress as bar:
        rate = TokenRate(bar, consumed)
        if not writer.finished and workers == 1:
            _write_pieces(pieces, writer, PartsHere(elmo, writer, options), input, rate)
        elif not writer.finished:
            own_threads = max(1, torch.get_num_threads() // workers)
            own = (model, device, options, writer.rows, own_threads)
            with Workers(workers, embed_pieces, *own) as processes:
                _write_pieces(pieces, writer, SharedParts(processes, writer), input, rate)
        bar.set_description("finishing")
        writer.finish()
    return EmbedResult(writer.out, writer.done, rate.tokens, time.perf_counter() - start)


def shard_of(input: FilePath, shard: str | None, **reading: Any) -> tuple[int, int | None]:
    """Return the first sentence of a shard such as "1/4" and its end, None if all is embedded."""
    if shard is None:
        return 0, None
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ElmokitError(f"a shard is written 1/4, 2/4, 3/4 or 4/4, for 4 of them, not {shard!r}")
    if total_bytes(input) is None:
        raise ElmokitError(f"a shard needs a file, because {name_of(input)} cannot be read twice")
    index, count = int(match[1]), int(match[2])
    sentences = count_sentences(input, **reading)
    if sentences < count:
        raise ElmokitError(
            f"{name_of(input)} has only {plural(sentences, 'sentence')}, too few for {count} shards"
        )
    return sentences * (index - 1) // count, sentences * index // count


def _pieces(
    elmo: Embedder, lines: Iterable[Line], options: EmbedOptions, first: int, end: int | None
) -> Iterator[Piece]:
    """Yield what is embedded together, from the section of sentence `first` up to sentence `end`.

    A shard embeds the windows that one run embeds, at its ends with sentences of other shards.
    """
    position = first // SECTION * SECTION
    sentences = zip(count(position), join_lines(lines), strict=False)
    for _, section in groupby(sentences, lambda numbered: numbered[0] // SECTION):
        is_fresh = True
        texts, sources = tee(line for _, line in section)
        for tokens in elmo.windows(
            (line.tokens for line in texts), kept=elmo.config.num_layers + 1
        ):
            start = min(max(first - position, 0), len(tokens))
            kept = slice(start, len(tokens) if end is None else max(end - position, start))
            columns = _columns(list(islice(sources, len(tokens)))[kept], options)
            window = Window(position + start - first, tokens[kept], columns)
            yield Piece(is_fresh, tokens, kept, window)
            is_fresh = False
            position += len(tokens)
            if end is not None and position >= end:
                return


def _columns(lines: Sequence[Line], options: EmbedOptions) -> Columns:
    columns: Columns = {} if options.id_field is None else {"id": [line.id for line in lines]}
    if "text" in parse_columns(options.columns):
        columns["text"] = [
            " ".join(line.tokens) if line.text is None else line.text for line in lines
        ]
    return columns


def _write_pieces(
    pieces: Iterable[Piece],
    writer: VectorWriter,
    parts: PartsHere | SharedParts,
    input: FilePath,
    rate: TokenRate,
) -> None:
    sentences, done = 0, writer.done
    for piece in pieces:
        window = piece.window
        sentences += len(window.tokens)
        if not window.tokens:  # of the shards before
            parts.skip(piece)
        elif window.first < done:  # written before the run was stopped
            if not writer.holds(window):
                raise other_input(os.fspath(input), writer.out)
            parts.skip(piece)
            rate.advance(0)
        else:
            parts.write(piece)
            rate.advance(sum(map(len, window.tokens)))
    if sentences < done:
        raise other_input(os.fspath(input), writer.out)
    parts.finish()


class PartsHere:
    """Embeds pieces in this process; `SharedParts` does so in others."""

    def __init__(self, elmo: Embedder, writer: VectorWriter, options: EmbedOptions) -> None:
        self.elmo, self.writer, self.options = elmo, writer, options

    def skip(self, piece: Piece) -> None:
        self.elmo.skip(piece.tokens, forget=piece.is_fresh)

    def write(self, piece: Piece) -> None:
        self.writer.write(_embed_piece(self.elmo, piece, self.options), piece.window.columns)

    def finish(self) -> None:
        """Return when all parts are committed."""


def embed_pieces(
    model: str, device: str, options: EmbedOptions, rows: RowWriter, threads: int
) -> Callable[..., int | None]:
    """Load a model in a worker process; return the function that embeds and writes its pieces."""
    set_threads(threads)
    elmo = load(
        model, precision=options.precision, device=device, batch_tokens=options.batch_tokens
    )

    def embed(words: list[tuple[bool, list[str]]], part: tuple[int, Piece] | None) -> int | None:
        for is_fresh, words_of_piece in words:
            elmo.skip([words_of_piece], forget=is_fresh)
        if part is None:
            return None
        index, piece = part
        rows.write(index, piece.window.first, _embed_piece(elmo, piece, options))
        return index

    return embed


def _embed_piece(elmo: Embedder, piece: Piece, options: EmbedOptions) -> list[EmbeddedSentence]:
    """Return the sentences that are kept with the layers that are asked for."""
    if piece.is_fresh:
        elmo.skip([], forget=True)
    layers = parse_layers(options.layers)
    embedded = elmo.stream(piece.tokens, layers, batch_size=options.batch_size, dtype=options.dtype)
    return [
        EmbeddedSentence(
            sentence.tokens,
            pool_and_scale(sentence.layers, options.pooling, normalize=options.normalize),
        )
        for sentence in islice(embedded, piece.kept.start, piece.kept.stop)
    ]
