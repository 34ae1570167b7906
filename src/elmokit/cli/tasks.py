"""`elmokit train`, `predict` and `score`: task models from files, for all tasks alike."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError
from elmokit.formats.detect import SHIPPED
from elmokit.io.atomic import write_file
from elmokit.progress import use_threads
from elmokit.tasks.folder import load_task
from elmokit.tasks.plan import Plan, open_folder
from elmokit.tasks.report import scores_table
from elmokit.tasks.settings import Settings
from elmokit.tasks.splits import read_data, read_examples
from elmokit.tasks.task import TaskName, find_task


def train(
    task: TaskName,
    *,
    train: str | None = None,
    dev: str | None = None,
    out: str | None = None,
    elmo: str = SHIPPED,
    no_elmo: bool = False,
    vectors: str | None = None,
    dev_fraction: float = 0.1,
    part: float = 1.0,
    skip_bad: bool = False,
    cache: str | None = None,
    cache_gb: float = 8.0,
    threads: int | None = None,
    device: str = "cpu",
    quiet: bool = False,
    **options: Any,
) -> int:
    """Train a task model with or without ELMo; the same command goes on with a stopped run.

    Args:
        task: classifier, tagger, pair, relation, question, coreference, translate or summarize.
        train: examples to learn from; also .gz, .xz, .zst.
        dev: examples that tell when to stop; a part of the training data if not given.
        out: folder of the model, its report and what the run needs to go on.
        elmo: the biLM, any that elmokit loads; the shipped English model if not given.
        no_elmo: train without ELMo, for comparison.
        vectors: static word vectors: GloVe, word2vec (text or binary) or fastText .vec.
        dev_fraction: of the training data to measure by, where there is no --dev.
        part: of the training data to learn from, to see how much a model needs.
        skip_bad: leave bad lines out and count them, instead of stopping at the first.
        cache: folder for the biLM's vectors, which are computed once; ~/.cache/elmokit by itself.
        cache_gb: size of that folder, at most.
        threads: to compute with; all cores if not given.
        device: cpu or cuda.
        quiet: no progress and no sentences.
        **options: how the model is built and trained; see elmokit.tasks.settings.

    Returns:
        0 when the run came to its end, else 128 + the signal that stopped it.
    """
    settings = Settings(**options)
    if train is None or out is None:
        raise ElmokitError("name the training data with --train and the folder with --out")
    if not 0 < part <= 1 or not 0 < dev_fraction < 1:
        raise ElmokitError("part and dev_fraction must be above 0, and at most 1 and below 1")
    kind = find_task(task)
    settings = settings.completed(kind.defaults, has_vectors=vectors is not None)
    data = read_data(kind, settings, train, dev, dev_fraction=dev_fraction, skip_bad=skip_bad)
    data = data.with_part(part, settings.seed)
    plan = Plan(
        kind,
        settings,
        data,
        elmo=None if no_elmo else elmo,
        vectors=vectors,
        cache=cache,
        cache_bytes=int(cache_gb * 1e9),
        device=device,
        quiet=quiet,
    )
    with use_threads(threads), open_folder(Path(out).expanduser().absolute()) as folder:
        return plan.run(folder)


def predict(
    model: str,
    input: str,
    output: str,
    *,
    elmo: str | None = None,
    skip_bad: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    quiet: bool = False,
) -> int:
    """Write what a trained task model says of a file's examples.

    Args:
        model: folder of a task model.
        input: a file like the training data, without or with answers, or plain text a line each.
        output: file to write, in the usual format of the task; - for standard output.
        elmo: the biLM, where it lies elsewhere than in training.
        skip_bad: leave bad lines out and count them, instead of stopping at the first.
        device: cpu or cuda.
        threads: to compute with; all cores if not given.
        quiet: no progress and no sentences.
    """
    with use_threads(threads):
        trained = load_task(model, elmo=elmo, device=device)
        examples = read_examples(
            trained.task, trained.settings, input, skip_bad=skip_bad, quiet=quiet
        )
        found = trained.predict(examples, quiet=quiet)
        pieces = trained.task.write(examples, found)
        if output == "-":
            sys.stdout.writelines(pieces)
        else:
            write_file(Path(output).expanduser().absolute(), pieces)
    return 0


def score(
    model: str,
    test: str,
    *,
    json_out: str | None = None,
    elmo: str | None = None,
    skip_bad: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    quiet: bool = False,
) -> int:
    """Measure a trained task model on examples whose answers are known.

    Args:
        model: folder of a task model.
        test: a file like the training data.
        json_out: file for the scores as JSON.
        elmo: the biLM, where it lies elsewhere than in training.
        skip_bad: leave bad lines out and count them, instead of stopping at the first.
        device: cpu or cuda.
        threads: to compute with; all cores if not given.
        quiet: no progress.
    """
    with use_threads(threads):
        trained = load_task(model, elmo=elmo, device=device)
        examples = read_examples(
            trained.task,
            trained.settings,
            test,
            facts=trained.facts,
            skip_bad=skip_bad,
            quiet=quiet,
        )
        scores = trained.score(examples, quiet=quiet)
    print(scores_table(scores))
    if json_out is not None:
        result = {"model": model, "test": test, "examples": len(examples), "scores": scores}
        write_file(Path(json_out).expanduser().absolute(), [json.dumps(result, indent=2) + "\n"])
    return 0
