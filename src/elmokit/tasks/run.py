"""Train a task model from files, use it, and measure it: the same three functions for all tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from elmokit.embed import Embedder, check_device
from elmokit.errors import ElmokitError, plural
from elmokit.formats.detect import lasting_name, own_tokenizer
from elmokit.io.atomic import write_file
from elmokit.io.jsonfile import as_json
from elmokit.io.marker import Command
from elmokit.progress import logger, use_threads
from elmokit.store import LayerStore
from elmokit.tasks.fit import Progress, fit
from elmokit.tasks.folder import VECTORS, TrainedTask, load_elmo, load_task
from elmokit.tasks.layers.embedder import known_words
from elmokit.tasks.report import draw_curves, few_examples, make_report
from elmokit.tasks.settings import RunOptions, Seq2SeqSettings, TaskName, TrainSettings
from elmokit.tasks.splits import Data, read_data
from elmokit.tasks.task import Task, find_task
from elmokit.text.chinese import CHINESE, with_dictionary
from elmokit.training.folder import TRAINING, open_folder
from elmokit.training.optim import count_parameters
from elmokit.training.stopping import stop_signals
from elmokit.vectors.static import table as static

REPORT = "report.json"


@dataclass(frozen=True)
class TrainResult:
    """The outcome of a training run."""

    folder: Path
    """Folder of the model."""
    report: dict[str, Any]
    """What `report.json` has: scores, mixes, settings, and the history of all epochs."""
    stopped_by: int = 0
    """The signal that stopped the run; 0 if it came to its end."""

    @property
    def scores(self) -> dict[str, float]:
        """Dev scores of the best epoch, from 0 to 1."""
        return dict(self.report["dev"])

    @property
    def mixes(self) -> dict[str, dict[str, Any]]:
        """Layer weights and scale of each ELMo mix, at the best epoch."""
        return dict(self.report["mixes"])


@dataclass(frozen=True)
class Sources:
    """Where the vectors of words come from; several runs may share it."""

    vectors: static.StaticVectors | None
    elmo: Embedder | None
    store: LayerStore | None

    @cached_property
    def without_elmo(self) -> Sources:
        return replace(self, elmo=None, store=None)

    @cached_property
    def fingerprints(self) -> dict[str, str | None]:
        """Fingerprints by which a resumed run knows that nothing changed."""
        return {
            "biLM": None if self.elmo is None else self.elmo.fingerprint(),
            "static vectors": None if self.vectors is None else self.vectors.fingerprint(),
        }


@dataclass
class Plan:
    """One training run, from the data to the report."""

    task: Task
    settings: TrainSettings
    data: Data
    options: RunOptions
    sources: Sources | None = None
    """Sources that are loaded already, to be shared by several runs; None to load them."""

    def run(self, folder: Path) -> TrainResult:
        sources = self.sources or self.load()
        trained = self.set_up(folder, sources)
        elmo = f"with ELMo ({trained.elmo_name})" if trained.elmo_name else "without ELMo"
        vectors = "" if trained.vectors is None else f" and {trained.vectors.source}"
        logger.info(
            f"training a {self.task.name} {elmo}{vectors}: {count_parameters(trained.model):,} "
            f"weights, {plural(len(self.data.train), 'training example')}, "
            f"{plural(len(self.data.dev), 'dev example')}"
        )
        fingerprints = {"data": self.data.fingerprint, **sources.fingerprints}

        def keep(progress: Progress) -> None:
            trained.save(folder, make_report(trained, self.data, progress, fingerprints))

        training, quiet = folder / TRAINING, self.options.quiet
        with stop_signals() as stop:
            progress = fit(trained, self.data, training, stop, keep, fingerprints, quiet)
        report = make_report(trained, self.data, progress, fingerprints)
        draw_curves(report, folder / "curves.png")
        write_file(folder / REPORT, [as_json(report)])
        end = f"trained {folder}: epoch {progress.best_epoch} of {progress.epoch} was the best"
        if stop.signal:
            end = f"stopped after epoch {progress.epoch}; run the same command to resume"
        logger.info(end)
        if report["note"]:
            logger.info(report["note"])
        return TrainResult(folder, report, stop.signal)

    def open_folder(self, out: str, command: Command) -> AbstractContextManager[Path]:
        """Create and lock the output folder, which must be apart from all that the run reads."""
        given, target = self.options, getattr(self.settings, "target_elmo", None)
        # Parallel texts are two files with a comma between them.
        files = [given.train, *given.train.split(","), given.dev, *(given.dev or "").split(",")]
        inputs = [*files, given.elmo, given.vectors, given.jieba_dict, target]
        return open_folder(out, command, inputs=inputs)

    def load(self) -> Sources:
        """Load the biLM and the static vectors; compute the layers of all texts if it is frozen."""
        given = self.options
        vectors = None if given.vectors is None else static.read_static_vectors(given.vectors)
        bilm = None if given.elmo is None else load_elmo(given.elmo, given.device)
        store = None
        if bilm is not None and not self.settings.tune_elmo:
            folder = None if given.cache is None else Path(given.cache).expanduser()
            store = LayerStore(bilm, folder=folder, limit_bytes=int(given.cache_gb * 1e9))
            store.prepare(self.data.texts, quiet=given.quiet)
        return Sources(vectors, bilm, store)

    def set_up(self, folder: Path, sources: Sources) -> TrainedTask:
        if self.data.skipped:
            logger.info(self.data.skipped)
        vectors = None
        if sources.vectors is not None:
            if not (folder / VECTORS).exists():
                static.save(sources.vectors, folder / VECTORS)
            vectors = static.load(folder / VECTORS)  # rounded, as prediction will find them
        texts = (text for example in self.data.train for text in example.texts)
        learned, words = self.data.learned, known_words(texts, self.settings)
        elmo, store, name = sources.elmo, sources.store, self.options.elmo
        name = None if name is None else lasting_name(name)
        trained = TrainedTask(self.task, self.settings, learned, words, elmo, name, vectors, store)
        trained.model.to(self.options.device)
        return trained


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


def train(task: TaskName, *, out: str, train_fraction: float = 1.0, **options: Any) -> TrainResult:
    """Train a task model with or without ELMo; the same call resumes a run that was stopped.

    Args:
        task: classifier, tagger, pair, relation, question, coreference, translate or summarize.
        out: Folder of the model, its report, and the checkpoints of the run.
        train_fraction: Fraction of the training data to learn from.
        **options: Fields of `RunOptions`, of which `train`, the file of examples, is required, and
            settings of the task; see elmokit.tasks.settings.
    """
    if not 0 < train_fraction <= 1:
        raise ElmokitError(f"train_fraction must be above 0 and at most 1, not {train_fraction}")
    plan = make_plan(task, options)
    plan.data = plan.data.with_fraction(train_fraction, plan.settings.seed)
    with use_threads(plan.options.threads), plan.open_folder(out, "train") as folder:
        return plan.run(folder)


def make_plan(task: TaskName, options: Mapping[str, Any]) -> Plan:
    """Check the options, which are those of `train`, read the data and return the plan of a run."""
    kind, names = find_task(task), {field.name for field in fields(RunOptions)}
    if "train" not in options:
        raise TypeError("name the file of training examples: train=FILE")
    run = RunOptions(**{name: options[name] for name in options if name in names})
    check_device(run.device)
    own = {name: options[name] for name in options if name not in names}
    if isinstance(own.get("target_elmo"), str):
        own["target_elmo"] = lasting_name(own["target_elmo"])
    own |= choose_tokenizers(kind, run, own)
    settings = kind.settings.from_options(own).with_word_dim(has_vectors=run.vectors is not None)
    return Plan(kind, settings, read_data(kind, settings, run), run)


def choose_tokenizers(task: Task, run: RunOptions, own: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that name tokenizers: as requested, else those of the biLMs."""
    requested, target_elmo = own.get("tokenizer"), own.get("target_elmo")
    of_text = requested or ("elmokit" if run.elmo is None else own_tokenizer(run.elmo))
    chosen = {"tokenizer": of_text}
    if issubclass(task.settings, Seq2SeqSettings):
        default = "elmokit" if task.name == "translate" else of_text
        target = own_tokenizer(target_elmo) if isinstance(target_elmo, str) else default
        chosen["target_tokenizer"] = own.get("target_tokenizer") or requested or target
    if run.jieba_dict is not None:
        chinese = [name for name, value in chosen.items() if str(value).startswith(CHINESE)]
        for name in chinese or chosen:
            chosen[name] = with_dictionary(str(chosen[name]), run.jieba_dict)
    return chosen


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
        examples = trained.read(input, labeled=False, skip_bad=skip_bad)
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
    """Measure a trained task model on a file with answers; the options are as for `predict`."""
    with use_threads(threads):
        trained = load_task(model, elmo=elmo, device=device)
        examples = trained.read(test, labeled=True, skip_bad=skip_bad)
        scores = trained.score(examples, quiet=quiet)
    return Scores(model, test, len(examples), scores)
