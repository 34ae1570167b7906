"""Train one task with and without ELMo, under several conditions and with several seeds.

    data, biLM, vectors: read once ─► OUT/runs/NAME-seedN/, one after the other ─► OUT/results.json
                                                                     OUT/table.md, figures

A run is what `train` does. Complete runs are not trained again and stopped runs resume, so the same
call ends with the same results however often it was stopped.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from elmokit.errors import ElmokitError, plural, reason_of
from elmokit.io.atomic import atomic_folder, write_file
from elmokit.io.jsonfile import as_json, read_json
from elmokit.progress import logger, use_threads
from elmokit.tasks.compare import conditions
from elmokit.tasks.compare.conditions import Rows, Run, Tables
from elmokit.tasks.compare.figures import draw_all
from elmokit.tasks.compare.summary import as_markdown, describe_run, summarize
from elmokit.tasks.fit import describe_change
from elmokit.tasks.folder import VECTORS
from elmokit.tasks.run import REPORT, Plan, Sources, TrainResult, make_plan
from elmokit.tasks.settings import RunOptions, TaskName, TrainSettings
from elmokit.training.checkpoint import remove_all
from elmokit.training.folder import TRAINING, open_folder

# What the commands in the results name, besides the settings of a run.
TOKENIZERS = ["tokenizer", "target_tokenizer"]
COMMAND_OPTIONS = "train dev dev_fraction skip_bad elmo vectors device jieba_dict".split()


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison."""

    folder: Path
    """Folder of the results and of all runs."""
    results: dict[str, Any] | None
    """What `results.json` has; None if a signal stopped the runs."""
    stopped_by: int = 0
    """The signal that stopped a run; 0 if all runs came to their end."""

    def table(self) -> str:
        """Return all tables as Markdown."""
        return "" if self.results is None else as_markdown(self.results)


def compare(
    task: TaskName,
    *,
    out: str,
    vary: Sequence[str] = ("layers",),
    seeds: Sequence[int] = (1, 2, 3),
    sample_efficiency: Sequence[float] = (),
    **options: Any,
) -> Comparison:
    """Train one task with and without ELMo in several ways; the same call resumes if stopped.

    Args:
        task: classifier, tagger, pair, relation, question, coreference, translate or summarize.
        out: Folder of the results and of all runs.
        vary: What to compare: layers (each alone, the average, mixes of all), placement (at the
            input, the output, both), elmo (only with and without), or several of them.
        seeds: Seeds of the runs of each condition.
        sample_efficiency: Percentages of the training data to train on, with and without ELMo.
        **options: Options of `elmokit.tasks.train` for all runs.
    """
    vary, seeds, percents = conditions.check_list(vary, seeds, sample_efficiency)
    if options.get("seed", 1) != 1:
        raise ElmokitError("a comparison has several seeds: name them with seeds, not seed")
    plan = make_plan(task, options)
    if plan.data.skipped:
        logger.info(plan.data.skipped)
        plan.data = replace(plan.data, skipped="")  # The runs do not repeat it.
    with use_threads(plan.options.threads):
        # Load what all runs share, but compute no layers yet: there may be nothing left to do.
        plan.sources = replace(plan, data=replace(plan.data, train=[], dev=[])).load()
        assert plan.sources.elmo is not None
        top = plan.sources.elmo.config.num_layers
        tables = conditions.make_tables([*vary, "elmo"], plan.settings, top)
        curve = tables["elmo"]
        tables = {name: tables[name] for name in vary}
        given = {name: options[name] for name in COMMAND_OPTIONS + TOKENIZERS if name in options}
        given["out"] = out
        with plan.open_folder(out, "compare") as folder:
            return Comparer(plan, folder, tables, curve, seeds, percents, given).run()


@dataclass
class Comparer:
    """All runs of a comparison, and their results."""

    plan: Plan
    """A run with ELMo under the given settings, with its sources loaded."""
    folder: Path
    tables: Tables
    curve: Rows
    """Conditions to train on each fraction of the data."""
    seeds: list[int]
    percents: list[float]
    given: dict[str, Any]
    """Options of all runs, for the commands in the results."""

    def run(self) -> Comparison:
        """Train the runs that are not complete, then write results and figures."""
        data = self.plan.data
        runs = conditions.all_runs(self.tables, self.curve, self.seeds, self.percents)
        reports = {run: report for run in runs if (report := self.finished(run))}
        seconds = {run: report["seconds"] for run, report in reports.items()}
        if len(reports) < len(runs) and self.sources.store is not None:
            self.sources.store.prepare(data.texts, quiet=self.plan.options.quiet)
        for i, run in enumerate(runs, start=1):
            if run in reports:
                continue
            left = conditions.seconds_left(runs, seconds, train=len(data.train), dev=len(data.dev))
            more = "" if left is None else f", about {tqdm.format_interval(left)} left"
            logger.info(f"run {i} of {len(runs)}: {run.name}{more}")
            started = time.monotonic()
            result = self.train(run, [*reports])
            if result.stopped_by:
                return Comparison(self.folder, None, result.stopped_by)
            reports[run] = result.report
            seconds[run] = max(result.report["seconds"], time.monotonic() - started)
            self.write(runs, reports)
        results = self.write(runs, reports)
        if not draw_all(results, self.folder):
            logger.info("no figures without matplotlib: pip install 'elmokit[plots]'")
        logger.info(f"compared {plural(len(runs), 'run')} in {self.folder}")
        return Comparison(self.folder, results)

    @cached_property
    def sources(self) -> Sources:
        return self.plan.sources or self.plan.load()

    # ------------------------------------------------------------------ runs
    def folder_of(self, run: Run) -> Path:
        return self.folder / "runs" / run.name

    def plan_of(self, run: Run) -> Plan:
        """Return the plan of a run; a biLM that is trained too is loaded again for it."""
        settings = replace(run.condition.settings, seed=run.seed)
        data = self.plan.data.with_fraction(run.percent / 100, run.seed)
        plan = replace(self.plan, settings=settings, data=data)
        if not run.condition.with_elmo:
            alone = replace(plan.options, elmo=None)
            return replace(plan, options=alone, sources=self.sources.without_elmo)
        return replace(plan, sources=None if settings.tune_elmo else self.sources)

    def train(self, run: Run, done: list[Run]) -> TrainResult:
        folder = self.folder_of(run)
        with open_folder(folder, "train"):
            if done:
                link_vectors(self.folder_of(done[0]), folder)
            result = self.plan_of(run).run(folder)
        if not result.stopped_by:
            remove_all(folder / TRAINING)
        return result

    def finished(self, run: Run) -> dict[str, Any] | None:
        folder, plan = self.folder_of(run), self.plan_of(run)
        report = read_json(folder / REPORT) if (folder / REPORT).is_file() else {}
        if not report.get("complete"):
            return None
        sources = self.sources if run.condition.with_elmo else self.sources.without_elmo
        fingerprints = {"data": plan.data.fingerprint, **sources.fingerprints}
        try:
            change = describe_change(report, plan.settings, fingerprints)
            summarize(self.tables, self.curve, self.percents, [describe_run(run, report, "")])
            float(report["seconds"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ElmokitError(
                f"{folder / REPORT} is damaged ({reason_of(error)}): remove it to train this run "
                "again"
            ) from None
        if change:
            raise ElmokitError(
                f"{folder} was trained differently: {change}; use the old value or another --out"
            )
        remove_all(folder / TRAINING)
        return report

    # ------------------------------------------------------------------ results
    def write(self, runs: list[Run], reports: dict[Run, dict[str, Any]]) -> dict[str, Any]:
        """Write results.json and table.md of the runs that are complete."""
        complete = [run for run in runs if run in reports]
        described = [describe_run(run, reports[run], self.train_command(run)) for run in complete]
        vectors, settings = self.sources.vectors, self.plan.settings
        options: dict[str, Any] = {"vary": list(self.tables), "seeds": self.seeds}
        options["sample_efficiency"] = self.percents or None
        results = {
            "task": self.plan.task.name,
            "metric": next(iter(described[0]["scores"])),
            "complete": len(described) == len(runs),
            "planned": len(runs),
            "command": self.format_command("compare", options, settings),
            "elmo": self.plan.options.elmo,
            "fingerprints": {"data": self.plan.data.fingerprint, **self.sources.fingerprints},
            "vectors": None if vectors is None else vectors.source,
            "train_examples": len(self.plan.data.train),
            "dev_examples": len(self.plan.data.dev),
            "seeds": self.seeds,
            "settings": asdict(settings),
            **summarize(self.tables, self.curve, self.percents, described),
            "runs": described,
        }
        write_file(self.folder / "results.json", [as_json(results)])
        write_file(self.folder / "table.md", [as_markdown(results)])
        return results

    # ------------------------------------------------------------------ commands
    def train_command(self, run: Run) -> str:
        options: dict[str, Any] = {"out": f"{self.given['out']}/runs/{run.name}"}
        if not run.condition.with_elmo:
            options["no_elmo"] = True
        if run.percent != 100:
            options["train_fraction"] = run.percent / 100
        return self.format_command("train", options, replace(run.condition.settings, seed=run.seed))

    def format_command(self, verb: str, options: dict[str, Any], settings: TrainSettings) -> str:
        """Format a command line, omitting options that have their default value."""
        has_vectors = self.plan.options.vectors is not None
        defaults = asdict(self.plan.task.settings().with_word_dim(has_vectors=has_vectors))
        defaults |= {field.name: field.default for field in fields(RunOptions)}
        tokenizers = {name: self.given.get(name) for name in TOKENIZERS}  # as requested
        values = {**self.given, **options, **asdict(settings), **tokenizers}
        changed = {k: v for k, v in values.items() if v is not None and v != defaults.get(k)}
        return command_line(verb, self.plan.task.name, changed)


def command_line(verb: str, task: str, options: dict[str, Any]) -> str:
    """Format a command for a shell."""
    words = ["elmokit", verb, task]
    for name, value in options.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--no-{dashed}")
        elif isinstance(value, list):
            words += [f"--{dashed}", *(x if isinstance(x, str) else f"{x:g}" for x in value)]
        else:
            words += [f"--{dashed}", str(value)]
    return shlex.join(words)


def link_vectors(source: Path, folder: Path) -> None:
    """Link the static vectors of another run instead of copying them, where the disk can."""
    if (source / VECTORS).is_dir() and not (folder / VECTORS).exists():
        with suppress(OSError, ElmokitError), atomic_folder(folder / VECTORS) as making:
            for file in (source / VECTORS).iterdir():
                os.link(file, making / file.name)
