"""One training run of a task: load what the vectors come from, set up, train, save, report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import ElmokitError
from elmokit.formats.detect import lasting_name
from elmokit.io.atomic import locked, write_file
from elmokit.tasks.fit import Progress, fit
from elmokit.tasks.folder import CONFIG, VECTORS, TrainedTask, build, load_elmo
from elmokit.tasks.layers.embedder import known_words
from elmokit.tasks.report import draw_curves, make_report, mixes_table, scores_table
from elmokit.tasks.settings import Settings
from elmokit.tasks.splits import Data
from elmokit.tasks.task import Task
from elmokit.training.stopping import stop_signals

if TYPE_CHECKING:
    from elmokit.embed import Embedder
    from elmokit.store import LayerStore
    from elmokit.vectors.static.table import StaticVectors


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
        from elmokit.store import LayerStore
        from elmokit.vectors.static import table as static

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
        from elmokit.vectors.static import table as static

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
            elmo_name=None if self.elmo is None else lasting_name(self.elmo),
            vectors=vectors,
            store=sources.store,
        )
        trained.model.to(self.device)
        return trained

    def finish(self, folder: Path, report: dict[str, Any], *, stopped: bool) -> None:
        """Write the picture and the report, and say how it went."""
        draw_curves(report, folder / "curves.png")
        text = json.dumps(report, indent=2, ensure_ascii=False)
        write_file(folder / "report.json", [text + "\n"])
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
