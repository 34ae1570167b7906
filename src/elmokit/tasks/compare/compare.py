"""`elmokit compare`: one task trained with and without ELMo, under several conditions and seeds.

    data, biLM, vectors: read once ─► OUT/runs/NAME-seedN/, one after the other ─► OUT/results.json
                                                                     OUT/table.md, figures

A run is what `elmokit train` does. One that is complete is not trained again, one that was stopped
goes on, and so the same command ends with the same results however often it was stopped.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from elmokit.errors import ElmokitError
from elmokit.formats.detect import SHIPPED
from elmokit.io.atomic import locked, write_file
from elmokit.io.jsonfile import read_json
from elmokit.progress import use_threads
from elmokit.tasks.compare.conditions import (
    Rows,
    elmo_rows,
    per_cent_of_data,
    section_name,
    sections,
    seed_number,
    several,
)
from elmokit.tasks.compare.figures import draw_all
from elmokit.tasks.compare.runs import (
    REPORT,
    Run,
    all_runs,
    command_line,
    complete_report,
    link_vectors,
    remove_states,
    seconds_left,
    what_changed,
)
from elmokit.tasks.compare.summary import as_markdown, describe_run, summarize
from elmokit.tasks.plan import Plan, Sources, open_folder
from elmokit.tasks.settings import Settings
from elmokit.tasks.splits import read_data
from elmokit.tasks.task import TaskName, find_task

if TYPE_CHECKING:
    from elmokit.embed import Embedder


def compare(
    task: TaskName,
    *,
    train: str | None = None,
    dev: str | None = None,
    out: str | None = None,
    what: str | list[str] = "layers",
    seeds: str | list[int] = "1,2,3",
    sample_efficiency: str | list[float] | None = None,
    elmo: str = SHIPPED,
    vectors: str | None = None,
    dev_fraction: float = 0.1,
    skip_bad: bool = False,
    cache: str | None = None,
    cache_gb: float = 8.0,
    threads: int | None = None,
    device: str = "cpu",
    quiet: bool = False,
    **options: Any,
) -> int:
    """Train one task with and without ELMo in several ways; the same command goes on if stopped.

    Args:
        task: classifier, tagger, pair, relation, question, coreference, translate or summarize.
        train: examples to learn from; also .gz, .xz, .zst.
        dev: examples to measure by; a part of the training data if not given.
        out: folder of the results and of all runs.
        what: layers (each alone, the average, mixes of all), placement (at the input, the output,
            both), elmo (with and without, no more), or several of them with commas between.
        seeds: of the runs of each condition.
        sample_efficiency: per cents of the training data, such as 1,5,10,50,100, to train with
            and without ELMo on.
        elmo: the biLM, any that elmokit loads; the shipped English model if not given.
        vectors: static word vectors: GloVe, word2vec (text or binary) or fastText .vec.
        dev_fraction: of the training data to measure by, where there is no --dev.
        skip_bad: leave bad lines out and count them, instead of stopping at the first.
        cache: folder for the biLM's vectors, which are computed once; ~/.cache/elmokit by itself.
        cache_gb: size of that folder, at most.
        threads: to compute with; all cores if not given.
        device: cpu or cuda.
        quiet: no progress and no sentences, only the tables.
        **options: how all the models are built and trained; see elmokit.tasks.settings.

    Returns:
        0 when all runs came to their end, else 128 + the signal that stopped one.
    """
    settings = Settings(**options)
    if train is None or out is None:
        raise ElmokitError("name the training data with --train and the folder with --out")
    if not 0 < dev_fraction < 1:
        raise ElmokitError("dev_fraction must be above 0 and below 1")
    if settings.seed != 1:
        raise ElmokitError("a comparison has several seeds: name them with --seeds, not --seed")
    kind = find_task(task)
    settings = settings.completed(kind.defaults, has_vectors=vectors is not None)
    names, numbers = several(what, section_name), several(seeds, seed_number)
    percents = sorted(several(sample_efficiency, per_cent_of_data)) if sample_efficiency else []
    data = read_data(kind, settings, train, dev, dev_fraction=dev_fraction, skip_bad=skip_bad)
    plan = Plan(
        kind,
        settings,
        data,
        elmo=elmo,
        vectors=vectors,
        cache=cache,
        cache_bytes=int(cache_gb * 1e9),
        device=device,
        quiet=quiet,
    )
    given: dict[str, Any] = {
        "train": train,
        "dev": dev,
        "dev_fraction": dev_fraction,
        "skip_bad": skip_bad,
        "elmo": elmo,
        "vectors": vectors,
        "device": device,
        "out": out,
    }
    with use_threads(threads):
        top = load_into(plan).config.num_layers
        tables, curve = sections(names, settings, top), elmo_rows(settings, top)
        with opened(Path(out).expanduser().absolute()) as folder:
            return Comparison(plan, folder, tables, curve, numbers, percents, given).run()


def load_into(plan: Plan) -> Embedder:
    """Load what all runs share; no layers yet, as there may be nothing left to do."""
    if plan.data.bad:
        plan.say(plan.data.bad)
        plan.data = replace(plan.data, bad="")
    plan.sources = replace(plan, data=replace(plan.data, train=[], dev=[])).load()
    assert plan.sources.elmo is not None
    return plan.sources.elmo


@dataclass
class Comparison:
    """All runs of a comparison, and what comes of them."""

    plan: Plan
    """A run with ELMo, as the settings say, with its sources loaded."""
    folder: Path
    tables: dict[str, Rows]
    curve: Rows
    """The conditions to be trained on each part of the data."""
    seeds: list[int]
    percents: list[float]
    given: dict[str, Any]
    """Options of all runs, for the commands that are noted."""

    def run(self) -> int:
        """Train what is left, show the results; gives the exit code."""
        runs = all_runs(self.tables, self.curve, self.seeds, self.percents)
        reports = {run: report for run in runs if (report := self.finished(run))}
        seconds = {run: report["seconds"] for run, report in reports.items()}
        if len(reports) < len(runs) and self.sources.store is not None:
            self.sources.store.prepare(self.plan.data.texts, quiet=self.plan.quiet)
        for number, run in enumerate(runs, start=1):
            if run in reports:
                continue
            self.plan.say(f"run {number} of {len(runs)}: {run.name}{self.left(runs, seconds)}")
            started = time.monotonic()
            code = self.train(run, [*reports])
            if code:
                return code
            reports[run] = read_json(self.place(run) / REPORT)
            seconds[run] = max(reports[run]["seconds"], time.monotonic() - started)
            self.write(runs, reports)
        self.show(self.write(runs, reports))
        return 0

    @cached_property
    def sources(self) -> Sources:
        """What all runs with ELMo share."""
        return self.plan.sources or self.plan.load()

    @cached_property
    def without(self) -> Sources:
        """The same without ELMo."""
        return replace(self.sources, elmo=None, store=None)

    @cached_property
    def fingerprint(self) -> str:
        """Of all the data."""
        return self.plan.data.fingerprint()

    # ------------------------------------------------------------------ runs
    def place(self, run: Run) -> Path:
        """The folder of a run."""
        return self.folder / "runs" / run.name

    def plan_of(self, run: Run) -> Plan:
        """A run as `elmokit train` would do it; a biLM that is trained along is loaded anew."""
        condition, seed = run.condition, run.seed
        tuned = condition.with_elmo and condition.settings.tune_elmo
        return replace(
            self.plan,
            settings=replace(condition.settings, seed=seed),
            data=self.plan.data.with_part(run.percent / 100, seed),
            elmo=self.plan.elmo if condition.with_elmo else None,
            sources=None if tuned else self.sources if condition.with_elmo else self.without,
        )

    def train(self, run: Run, done: list[Run]) -> int:
        """Train a run, or go on with it; gives the exit code."""
        place = self.place(run)
        with open_folder(place), redirect_stdout(sys.stderr):  # only the tables go to the output
            if done:
                link_vectors(self.place(done[0]), place)
            code = self.plan_of(run).run(place)
        if not code:
            remove_states(place)
        return code

    def finished(self, run: Run) -> dict[str, Any] | None:
        """The report of a run that is complete; None if there is something to do."""
        report = complete_report(self.place(run))
        if report is None:
            return None
        plan = self.plan_of(run)
        data = self.fingerprint if run.percent == 100 else plan.data.fingerprint()
        sources = self.sources if run.condition.with_elmo else self.without
        if change := what_changed(report, plan.settings, {"data": data, **sources.fingerprints}):
            raise ElmokitError(
                f"{self.place(run)} was trained otherwise: {change}; "
                "give what it was, or another --out"
            )
        remove_states(self.place(run))
        return report

    def left(self, runs: list[Run], seconds: dict[Run, float]) -> str:
        """How long the rest may take, in words; nothing if nothing is known."""
        dev, train = len(self.plan.data.dev), len(self.plan.data.train)
        left = seconds_left(runs, seconds, train=train, dev=dev)
        return "" if left is None else f", about {tqdm.format_interval(left)} left"

    # ------------------------------------------------------------------ results
    def write(self, runs: list[Run], reports: dict[Run, dict[str, Any]]) -> dict[str, Any]:
        """Write what is known: results.json and table.md."""
        described = [
            describe_run(run, reports[run], f"runs/{run.name}", self.command_of(run))
            for run in runs
            if run in reports
        ]
        vectors = self.sources.vectors
        results = {
            "task": self.plan.task.name,
            "metric": next(iter(described[0]["scores"])),
            "complete": len(described) == len(runs),
            "planned": len(runs),
            "command": self.command(),
            "elmo": self.plan.elmo,
            "fingerprints": {"data": self.fingerprint, **self.sources.fingerprints},
            "vectors": None if vectors is None else vectors.source,
            "train_examples": len(self.plan.data.train),
            "dev_examples": len(self.plan.data.dev),
            "seeds": self.seeds,
            "settings": self.plan.settings.to_dict(),
            **summarize(self.tables, self.curve, self.percents, described),
            "runs": described,
        }
        text = json.dumps(results, indent=2, ensure_ascii=False)
        write_file(self.folder / "results.json", [text + "\n"])
        write_file(self.folder / "table.md", [as_markdown(results)])
        return results

    def show(self, results: dict[str, Any]) -> None:
        """Print the tables, draw the figures."""
        print(as_markdown(results), end="")
        if not draw_all(results, self.folder):
            self.plan.say("there are no figures without matplotlib: pip install 'elmokit[plots]'")
        self.plan.say(f"{len(results['runs'])} runs are compared in {self.folder}")

    # ------------------------------------------------------------------ commands
    def command(self) -> str:
        """The command of the whole comparison."""
        options = {
            "what": ",".join(self.tables),
            "seeds": ",".join(map(str, self.seeds)),
            "sample_efficiency": ",".join(f"{p:g}" for p in self.percents) or None,
        }
        return self.noted("compare", options, self.plan.settings)

    def command_of(self, run: Run) -> str:
        """The command that trains a run alone."""
        options: dict[str, Any] = {"out": f"{self.given['out']}/runs/{run.name}"}
        if not run.condition.with_elmo:
            options |= {"elmo": None, "no_elmo": True}
        if run.percent != 100:
            options["part"] = run.percent / 100
        return self.noted("train", options, replace(run.condition.settings, seed=run.seed))

    def noted(self, verb: str, options: dict[str, Any], settings: Settings) -> str:
        """A command with all options that are not as they are by themselves."""
        has_vectors = self.given["vectors"] is not None
        usual = Settings().completed(self.plan.task.defaults, has_vectors=has_vectors).to_dict()
        usual |= {"elmo": SHIPPED, "dev_fraction": 0.1, "device": "cpu", "skip_bad": False}
        every = {**self.given, **options, **settings.to_dict()}
        changed = {k: v for k, v in every.items() if v is not None and v != usual.get(k)}
        return command_line(verb, self.plan.task.name, changed)


@contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """The folder of a comparison, for this process alone."""
    try:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ElmokitError(f"cannot write into {folder}: {error.strerror}") from None
    with locked(folder / "runs"):
        yield folder
