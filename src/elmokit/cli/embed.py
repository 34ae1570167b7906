"""`elmokit embed INPUT OUTPUT`: the vectors of a file of any size, in bounded memory.

Sentences are read, embedded and written window by window; each window is a part that is safe on
the disk before the next begins. A run that was stopped goes on with `--resume` to the same bytes:
the windows do not depend on where it was stopped, and skipped ones still fill the word cache.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from elmokit.errors import ElmokitError
from elmokit.progress import check_threads, use_threads
from elmokit.text.readers import Line, read_sentences, total_bytes

# Nothing here is imported for type checkers alone: jsonargparse would import it, torch and all.

MOST_TOKENS = 4_000_000  # of a sentence; its tokens are in memory together, if not its vectors


def embed(
    input: str,
    output: str,
    *,
    model: str = "shipped",
    layers: str = "all",
    pooling: str | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    precision: Literal["float32", "float16", "int8"] = "float32",
    tokenizer: Literal["elmokit", "whitespace", "chinese"] | None = None,
    kind: Literal["auto", "text", "jsonl", "conll", "conllu"] = "auto",
    split: bool = False,
    field: str = "text",
    column: int | None = None,
    errors: Literal["strict", "replace"] = "strict",
    format: Literal["auto", "hdf5", "npz", "parquet", "npy"] = "auto",
    batch_tokens: int = 2048,
    batch_size: int | None = None,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
) -> None:
    """Write the contextual vectors of every sentence of a file.

    Args:
        input: a text file (.txt, .jsonl, .conll, .conllu; also .gz, .xz, .zst), or - for standard
            input.
        output: vectors.h5, .npz, .parquet, or a folder .npy of shards for memory-mapped use.
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        layers: all, top, average, an index from 0, or weights separated by commas.
        pooling: one vector a sentence instead of one a token: mean, max, min, sum, first, last
            or ends.
        dtype: of the vectors in the output.
        precision: of the weights while computing; float16 and int8 are faster.
        tokenizer: whitespace for text that is tokenized already; if not given, chinese for a model
            that was trained with it, and else elmokit.
        kind: what the input is; by its extension if auto.
        split: the input is running text, to be split into sentences.
        field: the JSONL field with the text.
        column: the CoNLL column with the words.
        errors: what to do with bytes that are not UTF-8.
        format: of the output; by its extension if auto.
        batch_tokens: tokens of a batch, about.
        batch_size: sentences of a batch, at most.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        resume: go on with a run that was stopped.
        overwrite: replace the output if it exists.
        quiet: no progress and no summary.
    """
    from elmokit.formats.detect import own_tokenizer
    from elmokit.loading import load

    check_threads(threads)
    started = time.perf_counter()
    read: list[int] = []  # bytes of the input since the bar moved
    splitting = tokenizer or own_tokenizer(model)
    lines = read_sentences(
        input,
        kind=kind,
        tokenizer=splitting,
        split=split,
        field=field,
        column=column,
        errors=errors,
        on_warning=_warn,
        on_bytes=read.append,
    )
    lines = chain([next(lines)], lines)  # trouble with the input is told before torch loads
    from elmokit.io.atomic import locked
    from elmokit.layers import POOLINGS, layer_weights
    from elmokit.vectors.writer import VectorWriter

    if pooling is not None and pooling not in POOLINGS:
        raise ElmokitError(f"pooling may be {', '.join(POOLINGS)}, not {pooling!r}")
    elmo = load(model, precision=precision, device=device, batch_tokens=batch_tokens)
    wanted = parse_layers(layers)
    settings = {
        "input": input_identity(input),
        "model": elmo.fingerprint(),
        "layers": layers,
        "pooling": pooling,
        "dtype": dtype,
        "precision": precision,
        "tokenizer": splitting,
        "kind": kind,
        "split": split,
        "field": field,
        "column": column,
        "batch_tokens": batch_tokens,
        "batch_size": batch_size,
    }
    writer = VectorWriter(
        output,
        settings,
        format=None if format == "auto" else format,
        pooled=pooling is not None,
        squeeze=len(layer_weights(wanted, elmo.config.num_layers)) == 1,
        resume=resume,
        overwrite=overwrite,
    )
    progress = tqdm(total=total_bytes(input), unit="B", unit_scale=True, disable=quiet)
    with use_threads(threads), locked(writer.folder), writer, progress as bar:
        if writer.finished:
            lines = iter(())
        tokens = sentences = 0
        since = time.perf_counter()
        for window in elmo.windows(whole_lines(lines), kept=elmo.config.num_layers + 1):
            first, sentences = sentences, sentences + len(window)
            if first < writer.done:  # written before the run was stopped
                if not writer.holds(first, window):
                    raise _other_input(input, output)
                elmo.warm(window)
                since = time.perf_counter()
            else:
                found = elmo.stream(window, wanted, batch_size=batch_size, dtype=dtype)
                writer.write(list(found if pooling is None else pooled(found, pooling)))
                tokens += sum(map(len, window))
                speed = tokens / (time.perf_counter() - since)
                bar.set_postfix_str(f"{speed:,.0f} tokens/s", refresh=False)
            bar.update(sum(read))
            read.clear()
        if sentences < writer.done and not writer.finished:
            raise _other_input(input, output)
        bar.set_description("finishing")
        writer.finish()
    if not quiet:
        seconds = time.perf_counter() - started
        print(
            f"{output}: {writer.done:,} sentences; {tokens:,} tokens embedded in {seconds:.1f} s",
            file=sys.stderr,
        )


def whole_lines(lines: Iterable[Line]) -> Iterator[list[str]]:
    """The tokens of each line, one that came in pieces put together; long ones are told of."""
    from elmokit.embed import MAX_TOKENS

    tokens: list[str] = []
    for line in lines:
        tokens = tokens + line.tokens if tokens else line.tokens
        if len(tokens) > MOST_TOKENS:
            raise ElmokitError(
                f"sentence {line.number} has more than {MOST_TOKENS:,} tokens: break its line "
                "into several, or take it as running text with --split"
            )
        if line.continues:
            continue
        if len(tokens) > MAX_TOKENS:
            _warn(
                f"sentence {line.number} has {len(tokens):,} tokens: the model reads it in "
                f"windows of {MAX_TOKENS:,}"
            )
        yield tokens
        tokens = []


def pooled(sentences: Iterable[Any], pooling: str) -> Iterator[Any]:
    """The same Sentences with one vector each: layers (K, dim)."""
    from elmokit.embed import Sentence
    from elmokit.layers import pool

    for sentence in sentences:
        yield Sentence(sentence.tokens, pool(sentence.layers, pooling))  # type: ignore[arg-type]


def parse_layers(layers: str) -> Any:
    """The `--layers` option: a word, an index, or weights separated by commas."""
    if "," not in layers:
        return layers
    try:
        return [float(weight) for weight in layers.split(",")]
    except ValueError:
        raise ElmokitError(f"layers are weights separated by commas, not {layers!r}") from None


def input_identity(path: str) -> dict[str, Any]:
    """What tells one input from another without reading all of it."""
    file = Path(path)
    if path == "-" or not file.is_file():  # what is read from a pipe is gone
        return {"name": "a pipe"}
    with file.open("rb") as stream:
        start = hashlib.blake2b(stream.read(1 << 20), digest_size=16).hexdigest()
    return {"bytes": file.stat().st_size, "start": start}


def _warn(text: str) -> None:
    tqdm.write(f"elmokit: {text}", file=sys.stderr)


def _other_input(input: str, output: str) -> ElmokitError:
    return ElmokitError(
        f"{input} is not the input that the unfinished run of {output} was begun with: go on "
        "with the same one, or start again with --overwrite"
    )
