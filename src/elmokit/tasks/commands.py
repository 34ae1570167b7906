"""`elmokit train`, `predict` and `score`: task models from files, for all tasks alike."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.errors import ElmokitError
from elmokit.formats.detect import SHIPPED
from elmokit.formats.files import locked
from elmokit.pretrain.stopping import stop_signals
from elmokit.pretrain.train import use_threads
from elmokit.tasks.data import BadLines
from elmokit.tasks.encoder import known_words
from elmokit.tasks.fit import Progress, fit
from elmokit.tasks.folder import CONFIG, VECTORS, TrainedTask, build, load_elmo, load_task
from elmokit.tasks.report import draw_curves, make_report, mixes_table, scores_table
from elmokit.tasks.settings import Settings
from elmokit.tasks.task import Task, TaskName, find_task

if TYPE_CHECKING:
    from elmokit.embed import Embedder
    from elmokit.formats.static import StaticVectors
    from elmokit.tasks.store import LayerStore


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


@dataclass(frozen=True)
class Data:
    """Examples to learn from and examples to measure by."""

    train: list[Any]
    dev: list[Any]
    facts: dict[str, Any]
    """What the training examples fix, such as the labels."""
    bad: str
    """What was left out, in a sentence; empty if nothing was."""

    def with_part(self, part: float, seed: int) -> Data:
        """The same with some of the training examples, chosen by a seed."""
        if part == 1:
            return self
        count = max(1, round(part * len(self.train)))
        chosen = np.random.default_rng([seed, 7]).permutation(len(self.train))[:count]
        return replace(self, train=[self.train[number] for number in sorted(chosen)])

    @property
    def texts(self) -> Iterator[Sequence[str]]:
        """All texts that get vectors."""
        return (text for example in [*self.train, *self.dev] for text in example.texts)

    def fingerprint(self) -> str:
        """A hash of all examples, wherever they were read from."""
        total = hashlib.sha256()
        for examples in (self.train, self.dev):
            for example in examples:
                values = {k: v for k, v in vars(example).items() if k != "where"}
                total.update(repr(values).encode("utf-8", "surrogatepass"))
            total.update(b"|")
        return total.hexdigest()[:16]


def read_data(
    task: Task,
    settings: Settings,
    train: str,
    dev: str | None,
    *,
    dev_fraction: float = 0.1,
    skip_bad: bool = False,
) -> Data:
    """Read the examples; without dev data, every so many-th example is set apart."""
    bad = BadLines(skip=skip_bad)
    examples = list(task.read(train, settings, bad, True))
    if dev is None:
        order = np.random.default_rng(0).permutation(len(examples))
        apart = set(order[: max(1, round(dev_fraction * len(examples)))].tolist())
        held = [example for number, example in enumerate(examples) if number in apart]
        examples = [example for number, example in enumerate(examples) if number not in apart]
    else:
        held = list(task.read(dev, settings, bad, True))
    facts = task.learn(examples, settings)
    held = with_known_answers(held, facts, bad)
    for name, found in ((train, examples), (dev or train, held)):
        if not found:
            raise ElmokitError(f"{name} has no examples")
    return Data(examples, held, facts, bad.summary())


def with_known_answers(examples: list[Any], facts: dict[str, Any], bad: BadLines) -> list[Any]:
    """The examples whose labels or tags the training data has; the others are bad lines."""
    kept = []
    for example in examples:
        answers = getattr(example, "tags", None) or [getattr(example, "label", None)]
        known = facts.get("tags") or facts.get("labels")
        unknown = [a for a in answers if known and a is not None and a not in known]
        if unknown:
            bad(example.where, f"{unknown[0]!r} does not stand in the training data")
        else:
            kept.append(example)
    return kept


@dataclass(frozen=True)
class Sources:
    """What the vectors of words come from; several runs may share it."""

    vectors: StaticVectors | None
    elmo: Embedder | None
    store: LayerStore | None

    @cached_property
    def fingerprints(self) -> dict[str, str | None]:
        """By which a run knows, when it goes on, that nothing changed."""
        return {
            "biLM": None if self.elmo is None else self.elmo.fingerprint(),
            "static vectors": None if self.vectors is None else self.vectors.fingerprint(),
        }


@dataclass
class Plan:
    """One training run, from the data to the report."""

    task: Task
    settings: Settings
    data: Data
    elmo: str | None
    vectors: str | None = None
    cache: str | None = None
    cache_bytes: int = 8_000_000_000
    device: str = "cpu"
    quiet: bool = False
    sources: Sources | None = None
    """Loaded already, to be shared by several runs; None to load what is named."""

    def run(self, folder: Path) -> int:
        """Set up, train, save, report; gives the exit code."""
        sources = self.sources or self.load()
        trained = self.set_up(folder, sources)
        self.say(what_is_trained(trained, self.data))
        same = {"data": self.data.fingerprint(), **sources.fingerprints}

        def keep(progress: Progress) -> None:
            trained.save(folder, make_report(trained, self.data, progress, same))

        with stop_signals() as stop:
            progress = fit(
                self.task,
                trained.model,
                self.data.train,
                self.data.dev,
                self.settings,
                folder / "training",
                stop=stop,
                keep=keep,
                same=same,
                quiet=self.quiet,
            )
        report = make_report(trained, self.data, progress, same)
        self.finish(folder, report, stopped=bool(stop.signal))
        return 128 + stop.signal if stop.signal else 0

    def load(self) -> Sources:
        """The biLM and the static vectors; the layers of all texts, if the biLM is frozen."""
        from elmokit.formats import static
        from elmokit.tasks.store import LayerStore

        vectors = None if self.vectors is None else static.read_vectors(self.vectors)
        bilm = None if self.elmo is None else load_elmo(self.elmo, self.device)
        store = None
        if bilm is not None and not self.settings.tune_elmo:
            place = None if self.cache is None else Path(self.cache).expanduser()
            store = LayerStore(bilm, folder=place, limit_bytes=self.cache_bytes)
            store.prepare(self.data.texts, quiet=self.quiet)
        return Sources(vectors, bilm, store)

    def set_up(self, folder: Path, sources: Sources) -> TrainedTask:
        """The model with everything around it."""
        from elmokit.formats import static

        if self.data.bad:
            self.say(self.data.bad)
        vectors = None
        if sources.vectors is not None:
            if not (folder / VECTORS).exists():
                static.save(sources.vectors, folder / VECTORS)
            vectors = static.load(folder / VECTORS)  # rounded, as prediction will find them
        texts = (text for example in self.data.train for text in example.texts)
        trained = build(
            self.task,
            self.settings,
            self.data.facts,
            known_words(texts, self.settings),
            elmo=sources.elmo,
            elmo_name=self.elmo,
            vectors=vectors,
            store=sources.store,
        )
        trained.model.to(self.device)
        return trained

    def finish(self, folder: Path, report: dict[str, Any], *, stopped: bool) -> None:
        """Write the picture and the report, and say how it went."""
        draw_curves(report, folder / "curves.png")
        text = json.dumps(report, indent=2, ensure_ascii=False)
        write_whole(folder / "report.json", [text + "\n"])
        epoch, best = report["epochs"], report["best_epoch"]
        if stopped:
            self.say(f"stopped after epoch {epoch}; the same command goes on from there")
            return
        if not self.quiet:
            print(scores_table(report["dev"]))
            print(mixes_table(report["mixes"]), end="")
        self.say(f"{folder} is trained: epoch {best} of {epoch} was best")

    def say(self, text: str) -> None:
        """A sentence for the user."""
        if not self.quiet:
            print(f"elmokit: {text}", file=sys.stderr)


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
        examples = read_examples(trained, input, labelled=False, skip_bad=skip_bad, quiet=quiet)
        found = trained.predict(examples, quiet=quiet)
        pieces = trained.task.write(examples, found)
        if output == "-":
            sys.stdout.writelines(pieces)
        else:
            write_whole(Path(output).expanduser().absolute(), pieces)
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
        examples = read_examples(trained, test, labelled=True, skip_bad=skip_bad, quiet=quiet)
        scores = trained.score(examples, quiet=quiet)
    print(scores_table(scores))
    if json_out is not None:
        result = {"model": model, "test": test, "examples": len(examples), "scores": scores}
        write_whole(Path(json_out).expanduser().absolute(), [json.dumps(result, indent=2) + "\n"])
    return 0


def read_examples(
    trained: TrainedTask, path: str, *, labelled: bool, skip_bad: bool, quiet: bool = False
) -> list[Any]:
    """The examples of a file for a trained model."""
    bad = BadLines(skip=skip_bad)
    examples = list(trained.task.read(path, trained.settings, bad, labelled))
    if labelled:
        examples = with_known_answers(examples, trained.facts, bad)
    if (left_out := bad.summary()) and not quiet:
        print(f"elmokit: {left_out}", file=sys.stderr)
    if not examples:
        raise ElmokitError(f"{path} has no examples")
    return examples


def what_is_trained(trained: TrainedTask, data: Data) -> str:
    """A sentence for the beginning of a run."""
    weights = sum(p.numel() for p in trained.model.parameters() if p.requires_grad)
    beside = f"with ELMo ({trained.elmo_name})" if trained.elmo_name else "without ELMo"
    vectors = "" if trained.vectors is None else f" and {trained.vectors.source}"
    return (
        f"a {trained.task.name} {beside}{vectors}, {weights:,} weights to train, "
        f"{len(data.train):,} examples and {len(data.dev):,} to measure by"
    )


@contextmanager
def open_folder(folder: Path) -> Iterator[Path]:
    """The output folder for this run alone; one with another model is refused."""
    training = folder / "training"
    if (folder / CONFIG).exists() and not training.is_dir():
        raise ElmokitError(f"{folder} holds a model already: choose another folder")
    try:
        training.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ElmokitError(f"cannot write into {folder}: {error.strerror}") from None
    with locked(training):
        try:
            yield folder
        finally:
            with suppress(OSError):  # they are not empty, as after most runs
                training.rmdir()
                folder.rmdir()


def write_whole(path: Path, pieces: Any) -> None:
    """Write a text file that appears whole or not at all."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise ElmokitError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.writelines(pieces)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
