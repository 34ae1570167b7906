"""One training run of a task: load the sources of the vectors, set up, train, save, report."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.formats.detect import lasting_name
from elmokit.io.atomic import write_file
from elmokit.progress import counted
from elmokit.tasks.fit import Progress, fit
from elmokit.tasks.folder import VECTORS, TrainedTask, build, load_elmo
from elmokit.tasks.layers.embedder import known_words
from elmokit.tasks.report import draw_curves, make_report
from elmokit.training.folder import TRAINING
from elmokit.training.optim import count_parameters
from elmokit.training.stopping import stop_signals

if TYPE_CHECKING:
    from elmokit.embed import Embedder
    from elmokit.store import LayerStore
    from elmokit.tasks.settings import TrainSettings
    from elmokit.tasks.splits import Data
    from elmokit.tasks.task import Task
    from elmokit.vectors.static.table import StaticVectors

REPORT = "report.json"
log = logging.getLogger("elmokit")


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

    vectors: StaticVectors | None
    elmo: Embedder | None
    store: LayerStore | None

    @cached_property
    def without_elmo(self) -> Sources:
        """The same sources for runs without ELMo."""
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
    elmo: str | None
    vectors: str | None = None
    cache: str | None = None
    cache_bytes: int = 8_000_000_000
    device: str = "cpu"
    quiet: bool = False
    inputs: Sequence[str | None] = ()
    """Paths of what the run reads."""
    sources: Sources | None = None
    """Sources that are loaded already, to be shared by several runs; None to load them."""

    def run(self, folder: Path) -> TrainResult:
        """Set up, train, save and report."""
        sources = self.sources or self.load()
        trained = self.set_up(folder, sources)
        log.info(describe_run(trained, self.data))
        fingerprints = {"data": self.data.fingerprint(), **sources.fingerprints}

        def keep(progress: Progress) -> None:
            trained.save(folder, make_report(trained, self.data, progress, fingerprints))

        with stop_signals() as stop:
            training = folder / TRAINING
            progress = fit(trained, self.data, training, stop, keep, fingerprints, self.quiet)
        report = make_report(trained, self.data, progress, fingerprints)
        draw_curves(report, folder / "curves.png")
        text = json.dumps(report, indent=2, ensure_ascii=False)
        write_file(folder / REPORT, [text + "\n"])
        if stop.signal:
            log.info(f"stopped after epoch {progress.epoch}; run the same command to resume")
        else:
            best = f"epoch {progress.best_epoch} of {progress.epoch}"
            log.info(f"trained {folder}: {best} was the best")
            if report["note"]:
                log.info(report["note"])
        return TrainResult(folder, report, stop.signal)

    def load(self) -> Sources:
        """Load the biLM and the static vectors; compute the layers of all texts if it is frozen."""
        from elmokit.store import LayerStore
        from elmokit.vectors.static import table as static

        vectors = None if self.vectors is None else static.read_static_vectors(self.vectors)
        bilm = None if self.elmo is None else load_elmo(self.elmo, self.device)
        store = None
        if bilm is not None and not self.settings.tune_elmo:
            folder = None if self.cache is None else Path(self.cache).expanduser()
            store = LayerStore(bilm, folder=folder, limit_bytes=self.cache_bytes)
            store.prepare(self.data.texts, quiet=self.quiet)
        return Sources(vectors, bilm, store)

    def set_up(self, folder: Path, sources: Sources) -> TrainedTask:
        """Build the model with everything that belongs to it."""
        from elmokit.vectors.static import table as static

        if self.data.skipped:
            log.info(self.data.skipped)
        vectors = None
        if sources.vectors is not None:
            if not (folder / VECTORS).exists():
                static.save(sources.vectors, folder / VECTORS)
            vectors = static.load(folder / VECTORS)  # rounded, as prediction will find them
        texts = (text for example in self.data.train for text in example.texts)
        words, learned = known_words(texts, self.settings), self.data.learned
        name = None if self.elmo is None else lasting_name(self.elmo)
        elmo, store = sources.elmo, sources.store
        trained = build(self.task, self.settings, learned, words, elmo, name, vectors, store)
        trained.model.to(self.device)
        return trained


def describe_run(trained: TrainedTask, data: Data) -> str:
    """Describe in a sentence what is about to be trained."""
    elmo = f"with ELMo ({trained.elmo_name})" if trained.elmo_name else "without ELMo"
    vectors = "" if trained.vectors is None else f" and {trained.vectors.source}"
    return (
        f"training a {trained.task.name} {elmo}{vectors}: {count_parameters(trained.model):,} "
        f"weights, {counted(len(data.train), 'training example')}, "
        f"{counted(len(data.dev), 'dev example')}"
    )
