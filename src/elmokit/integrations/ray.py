"""ELMo in Ray Data: an actor for `map_batches`, and bulk embedding of Parquet files on a cluster.

    dataset.map_batches(Embed, fn_constructor_kwargs={"pooling": "mean"}, batch_format="pyarrow")

    embed_with_ray("s3://bucket/*.parquet", "s3://bucket/vectors/", EmbedOptions(pooling="mean"))

`embed_with_ray` sends the actors blocks of rows by name; they read, embed and write them (see
`blocks.py`). So no vectors pass through Ray's object store, and a pool that takes all CPUs cannot
wait for a task that reads.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from tqdm.auto import tqdm

from elmokit.embed_file import EmbedOptions
from elmokit.errors import ElmokitError, InvalidInput, plural, require
from elmokit.integrations.blocks import (
    BLOCK_ROWS,
    Block,
    BlockFolder,
    find_files,
    identity,
    plan_blocks,
    read_block,
    read_footers,
    write_table,
)
from elmokit.layers import (
    Layers,
    Pooling,
    check_pooling,
    layer_weights,
    parse_layers,
    pool_and_scale,
)
from elmokit.loading import load
from elmokit.model.kernels.linear import Precision
from elmokit.progress import set_threads

TASKS_PER_ACTOR = 8  # More of them balance better, fewer cost less.


class Embed:
    """Adds the vectors of a column of texts to batches of a Ray dataset.

    As an actor it loads the model once and keeps the vectors of words that it has met.
    """

    def __init__(
        self,
        column: str = "text",
        *,
        model: str = "english",
        layers: Layers = "average",
        pooling: Pooling | None = "mean",
        normalize: bool = False,
        dtype: Literal["float32", "float16"] = "float32",
        precision: Precision = "float32",
        tokenizer: str | None = None,
        device: str = "cpu",
        threads: int | None = 1,
        batch_tokens: int = 2048,
        batch_size: int | None = None,
    ) -> None:
        """Load the model.

        Args:
            column: Column of texts: strings, or lists of tokens. A null is an empty text.
            model: What `elmokit.load` takes; every node must be able to read it.
            layers: "top", "average", an index from 0, a weight for each layer, or "all" for a
                column of each.
            pooling: "mean", "max", "min", "sum", "first", "last" or "ends", for one vector per
                text; None for one per token, and a column of the tokens.
            normalize: Scale every vector to length 1; zero vectors stay zero.
            dtype: Data type of the vectors: "float32" or "float16".
            precision: Precision of the weights: "float32", "float16" or "int8".
            tokenizer: Tokenizer of strings (default: the one the model was trained with).
            device: Device to compute on, such as "cpu" or "cuda".
            threads: Number of threads of the actor; None changes nothing.
            batch_tokens: Approximate number of tokens per batch.
            batch_size: Maximum number of sentences per batch.
        """
        if pooling is not None:
            check_pooling(pooling)
        set_threads(threads)
        self.column, self.layers, self.pooling = column, layers, pooling
        self.normalize, self.dtype, self.batch_size = normalize, dtype, batch_size
        self.elmo = load(
            model,
            precision=precision,
            tokenizer=tokenizer,
            device=device,
            batch_tokens=batch_tokens,
        )
        count = len(layer_weights(layers, self.elmo.config.num_layers))
        self.names = ["vector"] if count == 1 else [f"layer_{k}" for k in range(count)]

    def __call__(self, table: Any) -> Any:
        """Return a pyarrow table with its vectors as lists of fixed size.

        Args:
            table: A batch, with batch_format="pyarrow".
        """
        arrow = require("pyarrow", extra="ray", purpose="Embedding tables")
        if self.column not in table.column_names:
            names = ", ".join(table.column_names)
            raise InvalidInput(f"the table has no column {self.column!r}: it has {names}")
        taken = {*self.names, *(() if self.pooling else ("tokens",))} & set(table.column_names)
        if taken - {self.column}:
            raise InvalidInput(f"the table already has a column {min(taken)!r}: rename it")
        texts = [text or "" for text in table.column(self.column).to_pylist()]
        sentences = list(
            self.elmo.stream(texts, self.layers, batch_size=self.batch_size, dtype=self.dtype)
        )
        rows = [pool_and_scale(s.layers, self.pooling, normalize=self.normalize) for s in sentences]
        if self.pooling is None:  # (K, T, dim) of each
            offsets = np.cumsum([0, *(len(s.tokens) for s in sentences)], dtype=np.int32)
            if "tokens" not in table.column_names:
                tokens = arrow.array([s.tokens for s in sentences], arrow.list_(arrow.string()))
                table = table.append_column("tokens", tokens)
        else:
            rows = [row[:, None] for row in rows]  # (K, 1, dim)
        empty = np.zeros((len(self.names), 0, self.elmo.dim), self.dtype)
        for name, layer in zip(self.names, np.concatenate([empty, *rows], axis=1), strict=True):
            flat = arrow.array(layer.reshape(-1))
            vectors = arrow.FixedSizeListArray.from_arrays(flat, self.elmo.dim)
            if self.pooling is None:
                vectors = arrow.ListArray.from_arrays(offsets, vectors)
            table = table.append_column(name, vectors)
        return table


class EmbedBlocks:
    """The actor of `embed_with_ray`: reads blocks, embeds them and writes their output."""

    def __init__(self, folder: BlockFolder, settings: Mapping[str, Any]) -> None:
        self.folder, self.embed = folder, Embed(**settings)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[int]]:
        """Write the blocks that are not there yet; return the number of rows of each."""
        rows = []
        for values in zip(*(batch[name] for name in Block.__annotations__), strict=True):
            index, file, group, start, stop = values
            block = Block(int(index), str(file), int(group), int(start), int(stop))
            if not self.folder.has(block):  # Ray repeats the task of an actor that was killed.
                write_table(self.folder, block, self.embed(read_block(block)))
            rows.append(block.stop - block.start)
        return {"rows": rows}


@dataclass(frozen=True)
class RayResult:
    """What `embed_with_ray` has written."""

    output: str
    rows: int
    """Number of rows in the output."""
    new_rows: int
    """Number of rows that this run has embedded."""
    seconds: float


@dataclass(frozen=True)
class ActorPool:
    """How many actors to start, and what each of them takes."""

    actors: int
    cpus: float
    gpus: float


def actor_pool(resources: Mapping[str, float], *, workers: int | None, gpu: bool) -> ActorPool:
    """Return a pool that leaves one CPU of a cluster to the tasks of a pipeline.

    Actors that take every CPU leave none to the tasks that feed them, and the job waits for ever.

    >>> actor_pool({"CPU": 8.0}, workers=None, gpu=False)
    ActorPool(actors=7, cpus=1.0, gpus=0.0)
    >>> actor_pool({"CPU": 1.0}, workers=None, gpu=False)
    ActorPool(actors=1, cpus=0.5, gpus=0.0)
    >>> actor_pool({"CPU": 8.0, "GPU": 2.0}, workers=None, gpu=True)
    ActorPool(actors=2, cpus=1.0, gpus=1.0)
    """
    cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    if gpu and gpus < 1:
        raise ElmokitError("the Ray cluster has no GPU: start it with one, or use --device cpu")
    most = min(max(1, cpus - 1), gpus) if gpu else max(1, cpus - 1)
    actors = most if workers is None else workers
    if not 1 <= actors <= most:
        raise ElmokitError(
            f"workers must be between 1 and {most}, not {actors}: the Ray cluster has "
            f"{plural(cpus, 'CPU')}, of which one is left free"
            + (f", and {plural(gpus, 'GPU')}" if gpu else "")
        )
    return ActorPool(actors, 1.0 if cpus > 1 else 0.5, 1.0 if gpu else 0.0)


@contextmanager
def connected(ray: Any, workers: int | None) -> Iterator[None]:
    """Use the cluster that RAY_ADDRESS names or this process has joined, or else start one here."""
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address := os.environ.get("RAY_ADDRESS"):
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError) as error:
            raise ElmokitError(
                f"cannot join the Ray cluster {address} of RAY_ADDRESS: {str(error).strip()}"
            ) from None
    else:
        # One more CPU than there are, so that as many actors as cores leave one free.
        cpus = (workers or os.cpu_count() or 1) + 1
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


def embed_with_ray(
    input: str,
    output: str,
    options: EmbedOptions | None = None,
    *,
    model: str = "english",
    device: str = "cpu",
    workers: int | None = None,
    block_rows: int = BLOCK_ROWS,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = True,
) -> RayResult:
    """Embed the rows of Parquet files with the actors of a Ray cluster.

    Args:
        input: Path, pattern or folder of Parquet files, also s3://, gs:// or hdfs://.
        output: Folder to write one Parquet file per block to, also s3://, gs:// or hdfs://. Rows
            keep their columns and get the vectors.
        options: What decides the vectors; `field` is the column of texts.
        model: A model folder, weights file, archive or Hub name that every node can read.
        device: Device to compute on; with "cuda" each actor gets a GPU.
        workers: Number of actors; None for all CPUs but one, or all GPUs.
        block_rows: Maximum number of rows of an output file.
        resume: Continue a run that was stopped.
        overwrite: Replace the output if it exists.
        quiet: Show no progress bar.
    """
    ray = require("ray", extra="ray", purpose="The engine ray")
    require("ray.data", extra="ray", purpose="The engine ray")
    options = options or EmbedOptions()
    check_options(options)
    started = time.perf_counter()
    files = read_footers(find_files(input), options.field)
    blocks = plan_blocks(files, block_rows)
    folder = BlockFolder(output)
    folder.check_apart([file.file for file in files])
    settings = actor_settings(options, model, device)
    elmo = load(model, precision=options.precision)
    layer_weights(parse_layers(options.layers), elmo.config.num_layers)  # Wrong ones raise here.
    run = {**settings, "model": elmo.fingerprint(), "input": identity(files), "rows": block_rows}
    run.pop("device")  # A run may continue on another one.
    folder.begin(run, resume=resume, overwrite=overwrite)
    done = folder.done()
    left = [block for block in blocks if block.index not in done]
    rows, new_rows = (sum(b.stop - b.start for b in each) for each in (blocks, left))
    if left:
        with connected(ray, workers):
            # One actor embeds a few rows faster than many that have to load a model first.
            limit = None if workers is None else min(workers, len(left))
            pool_of_actors = actor_pool(
                ray.cluster_resources(), workers=limit, gpu=device.startswith("cuda")
            )
            with tqdm(total=rows, initial=rows - new_rows, unit="row", disable=quiet) as bar:
                for result in run_blocks(ray, left, pool_of_actors, folder, settings):
                    bar.update(result)
    missing = {block.index for block in blocks} - folder.done()
    if missing:
        raise ElmokitError(
            f"{plural(len(missing), 'block')} of {output} are missing: continue with --resume"
        )
    folder.finish()
    return RayResult(output, rows, new_rows, time.perf_counter() - started)


def check_options(options: EmbedOptions) -> None:
    """Raise if an option is set that only a text file can have."""
    default = EmbedOptions()
    for name in ("kind", "split", "column", "columns", "id_field", "shard"):
        if getattr(options, name) != getattr(default, name):
            raise ElmokitError(
                f"--{name.replace('_', '-')} is for text files: the engine ray reads the texts of "
                "Parquet files from the column that --field names, and keeps the others"
            )
    if options.pooling is not None:
        check_pooling(options.pooling)


def actor_settings(options: EmbedOptions, model: str, device: str) -> dict[str, Any]:
    """Return the arguments of `Embed` for these options."""
    same = ("pooling", "normalize", "dtype", "precision", "tokenizer", "batch_tokens", "batch_size")
    given = asdict(options)
    return {
        "column": options.field,
        "model": model,
        "device": device,
        "layers": parse_layers(options.layers),
        **{name: given[name] for name in same},
    }


def run_blocks(
    ray: Any,
    blocks: list[Block],
    pool_of_actors: ActorPool,
    folder: BlockFolder,
    settings: Mapping[str, Any],
) -> Iterator[int]:
    """Have the actors of a pool embed blocks; yield the number of rows of each that is done."""
    tasks = min(len(blocks), TASKS_PER_ACTOR * pool_of_actors.actors)
    context = ray.data.DataContext.get_current()
    progress_bars, context.enable_progress_bars = context.enable_progress_bars, False
    logger = logging.getLogger("ray.data")  # It describes every run.
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        plan = ray.data.from_items([asdict(block) for block in blocks], override_num_blocks=tasks)
        results = plan.map_batches(
            EmbedBlocks,
            fn_constructor_args=(folder, dict(settings)),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=pool_of_actors.actors),
            num_cpus=pool_of_actors.cpus,
            num_gpus=pool_of_actors.gpus,
        )
        for result in results.iter_rows():
            yield int(result["rows"])
    except ray.exceptions.RayError as error:
        raise explained(error) from error
    finally:
        context.enable_progress_bars = progress_bars
        logger.setLevel(level)


def explained(error: BaseException) -> Exception:
    """Return the error of ours that made a Ray task fail, or else a sentence about Ray's own."""
    cause: Any = error
    while cause is not None:
        if isinstance(cause, ElmokitError):
            return ElmokitError(str(cause).splitlines()[-1])
        cause = getattr(cause, "cause", None) or cause.__cause__
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return ElmokitError(f"Ray failed: {lines[-1]}; continue with --resume")
