"""Train a task model from files, use it, and measure it: the same three functions for all tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import ElmokitError
from elmokit.formats.detect import SHIPPED, lasting_name
from elmokit.io.atomic import write_file
from elmokit.progress import use_threads
from elmokit.tasks.folder import load_task
from elmokit.tasks.plan import Plan, TrainResult
from elmokit.tasks.report import few_examples
from elmokit.tasks.splits import read_data, read_examples
from elmokit.tasks.task import find_task
from elmokit.training.folder import open_folder

if TYPE_CHECKING:
    from elmokit.tasks.task import Task, TaskName


@dataclass(frozen=True)
class Predictions:
    """The predictions of a task model for the examples of a file."""

    task: Task
    examples: Sequence[Any]
    values: Sequence[Any]
    """A prediction for each example, as JSON takes it."""

    def lines(self) -> Iterator[str]:
        """Yield the text of a file of predictions, in the usual format of the task."""
        return self.task.write(self.examples, self.values)

    def write(self, path: str | Path) -> None:
        """Write the predictions to a file, which appears whole or not at all."""
        write_file(Path(path).expanduser().absolute(), self.lines())


@dataclass(frozen=True)
class Scores:
    """The scores of a task model on a test file."""

    model: str
    test: str
    examples: int
    """Number of examples."""
    scores: dict[str, float]
    """Scores from 0 to 1, the main one first."""

    @property
    def note(self) -> str:
        """A sentence about scores that were measured on few examples; empty if they were not."""
        return few_examples(self.scores, self.examples)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON takes them."""
        return {**asdict(self), "note": self.note}


def train(
    task: TaskName,
    *,
    train: str,
    out: str,
    dev: str | None = None,
    elmo: str | None = SHIPPED,
    vectors: str | None = None,
    dev_fraction: float = 0.1,
    train_fraction: float = 1.0,
    skip_bad: bool = False,
    cache: str | None = None,
    cache_gb: float = 8.0,
    threads: int | None = None,
    device: str = "cpu",
    quiet: bool = False,
    **options: Any,
) -> TrainResult:
    """Train a task model with or without ELMo; the same call resumes a run that was stopped.

    Args:
        task: classifier, tagger, pair, relation, question, coreference, translate or summarize.
        train: File of examples to learn from; also .gz, .xz, .zst.
        out: Folder of the model, its report, and the checkpoints of the run.
        dev: File of examples for early stopping (default: a part of the training data).
        elmo: biLM, any that elmokit loads; None to train without ELMo.
        vectors: Static word vectors: GloVe, word2vec (text or binary) or fastText .vec.
        dev_fraction: Fraction of the training data to measure on, without `dev`.
        train_fraction: Fraction of the training data to learn from.
        skip_bad: Skip bad lines and count them, instead of raising at the first.
        cache: Folder of the vectors of a frozen biLM (default: ~/.cache/elmokit).
        cache_gb: Maximum size of that folder.
        threads: Number of threads (default: all cores).
        device: Device to compute on, such as cpu or cuda.
        quiet: Show no progress bars.
        **options: Settings of the task; see elmokit.tasks.settings.
    """
    if not 0 < train_fraction <= 1:
        raise ElmokitError(f"train_fraction must be above 0 and at most 1, not {train_fraction}")
    plan = make_plan(
        task,
        train=train,
        dev=dev,
        dev_fraction=dev_fraction,
        skip_bad=skip_bad,
        elmo=elmo,
        vectors=vectors,
        cache=cache,
        cache_gb=cache_gb,
        device=device,
        quiet=quiet,
        **options,
    )
    plan.data = plan.data.with_fraction(train_fraction, plan.settings.seed)
    with use_threads(threads), open_folder(out, "train", inputs=plan.inputs) as folder:
        return plan.run(folder)


def make_plan(
    task: TaskName,
    *,
    train: str,
    dev: str | None = None,
    elmo: str | None = SHIPPED,
    vectors: str | None = None,
    dev_fraction: float = 0.1,
    skip_bad: bool = False,
    cache: str | None = None,
    cache_gb: float = 8.0,
    device: str = "cpu",
    quiet: bool = False,
    **options: Any,
) -> Plan:
    """Check the options, which are those of `train`, read the data and return the plan of a run."""
    kind, target = find_task(task), options.get("target_elmo")
    if isinstance(target, str):
        options["target_elmo"] = lasting_name(target)
    settings = kind.settings.from_options(options).with_word_dim(has_vectors=vectors is not None)
    if not 0 < dev_fraction < 1:
        raise ElmokitError(f"dev_fraction must be above 0 and below 1, not {dev_fraction}")
    if not 0 <= cache_gb < math.inf:
        raise ElmokitError(f"cache_gb must be at least 0 and finite, not {cache_gb}")
    data = read_data(kind, settings, train, dev, dev_fraction=dev_fraction, skip_bad=skip_bad)
    # Parallel texts are two files with a comma between them.
    inputs = [train, *train.split(","), dev, *(dev or "").split(","), elmo, vectors, target]
    cache_bytes = int(cache_gb * 1e9)
    return Plan(
        kind, settings, data, elmo, vectors, cache, cache_bytes, device, quiet, inputs=inputs
    )


def predict(
    model: str,
    input: str,
    output: str | None = None,
    *,
    elmo: str | None = None,
    skip_bad: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    quiet: bool = False,
) -> Predictions:
    """Predict the answers of a file's examples with a trained task model.

    Args:
        model: Folder of a task model.
        input: File like the training data, with or without answers, or plain text, one per line.
        output: File to write in the usual format of the task (default: none).
        elmo: biLM, if it has moved since training.
        skip_bad: Skip bad lines and count them, instead of raising at the first.
        device: Device to compute on, such as cpu or cuda.
        threads: Number of threads (default: all cores).
        quiet: Show no progress bars.
    """
    with use_threads(threads):
        trained = load_task(model, elmo=elmo, device=device)
        examples = read_examples(trained.task, trained.settings, input, skip_bad=skip_bad)
        values = trained.predict(examples, quiet=quiet)
    predictions = Predictions(trained.task, examples, values)
    if output is not None:
        predictions.write(output)
    return predictions


def score(
    model: str,
    test: str,
    *,
    elmo: str | None = None,
    skip_bad: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    quiet: bool = False,
) -> Scores:
    """Measure a trained task model on examples with known answers.

    Args:
        model: Folder of a task model.
        test: File like the training data.
        elmo: biLM, if it has moved since training.
        skip_bad: Skip bad lines and count them, instead of raising at the first.
        device: Device to compute on, such as cpu or cuda.
        threads: Number of threads (default: all cores).
        quiet: Show no progress bars.
    """
    with use_threads(threads):
        trained = load_task(model, elmo=elmo, device=device)
        examples = read_examples(
            trained.task, trained.settings, test, learned=trained.learned, skip_bad=skip_bad
        )
        scores = trained.score(examples, quiet=quiet)
    return Scores(model, test, len(examples), scores)
