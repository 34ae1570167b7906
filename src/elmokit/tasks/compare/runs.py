"""The runs of a comparison: which there are, their commands, what is left of them on the disk."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import ElmokitError
from elmokit.io.atomic import atomic_folder
from elmokit.io.jsonfile import read_json
from elmokit.tasks.folder import VECTORS

if TYPE_CHECKING:
    from elmokit.tasks.compare.conditions import Condition, Rows
    from elmokit.tasks.settings import Settings

REPORT = "report.json"


@dataclass(frozen=True)
class Run:
    """A condition with a seed, on so many per cent of the training data."""

    condition: Condition
    seed: int
    percent: float = 100.0

    @property
    def name(self) -> str:
        """Of its folder."""
        part = "" if self.percent == 100 else f"-part{self.percent:g}"
        return f"{self.condition.name}{part}-seed{self.seed}"


def all_runs(
    tables: dict[str, Rows], curve: Rows, seeds: Sequence[int], percents: Sequence[float]
) -> list[Run]:
    """Every run once; those of a seed come together, so that tables are whole early."""

    def of(seed: int) -> Iterator[Run]:
        for rows in tables.values():
            yield from (Run(condition, seed) for condition in rows.values())
        for percent in percents:
            yield from (Run(condition, seed, percent) for condition in curve.values())

    found = {run.name: run for seed in seeds for run in of(seed)}
    return list(found.values())


def command_line(verb: str, task: str, options: dict[str, Any]) -> str:
    """A command as a shell takes it."""
    words = ["elmokit", verb, task]
    for name, value in options.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--no-{dashed}")
        else:
            words += [f"--{dashed}", str(value)]
    return shlex.join(words)


def complete_report(place: Path) -> dict[str, Any] | None:
    """The report of a run that came to its end; None if there is none."""
    if not (place / REPORT).is_file():
        return None
    report = read_json(place / REPORT)
    return report if report.get("complete") else None


def what_changed(report: dict[str, Any], settings: Settings, same: dict[str, Any]) -> str | None:
    """How a run that is complete differs from what is asked for now; None if it does not."""
    for field in fields(settings):
        before = report["settings"].get(field.name, field.default)
        now = getattr(settings, field.name)
        if before != now:
            return f"{field.name} was {before!r} and is now {now!r}"
    changed = [name for name, value in same.items() if report["same"].get(name) != value]
    return f"the {changed[0]} changed" if changed else None


def seconds_left(
    runs: list[Run], seconds: dict[Run, float], *, train: int, dev: int
) -> float | None:
    """How long the runs that are not done may take, by what others took with and without ELMo."""

    def work(run: Run) -> float:  # an example costs about three times as much to learn from
        return 3 * train * run.percent / 100 + dev

    rates: dict[bool, list[float]] = {True: [], False: []}
    for run, took in seconds.items():
        rates[run.condition.with_elmo].append(took / work(run))
    every = rates[True] + rates[False]
    if not every:
        return None
    total = 0.0
    for run in runs:
        if run not in seconds:
            known = rates[run.condition.with_elmo] or every
            total += work(run) * sum(known) / len(known)
    return total


def link_vectors(source: Path, place: Path) -> None:
    """Give a run the static vectors of another without a copy, where the disk can do that."""
    if (source / VECTORS).is_dir() and not (place / VECTORS).exists():
        with suppress(OSError, ElmokitError), atomic_folder(place / VECTORS) as making:
            for file in (source / VECTORS).iterdir():
                os.link(file, making / file.name)


def remove_states(place: Path) -> None:
    """Free the disk of what a run needed to go on."""
    shutil.rmtree(place / "training", ignore_errors=True)
