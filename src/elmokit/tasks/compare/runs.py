"""The runs of a comparison: their list, their commands, and their files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from elmokit.errors import ElmokitError
from elmokit.io.atomic import atomic_folder
from elmokit.tasks.folder import VECTORS

if TYPE_CHECKING:
    from elmokit.tasks.compare.conditions import Condition, Rows


@dataclass(frozen=True)
class Run:
    """A condition with a seed, on a percentage of the training data."""

    condition: Condition
    seed: int
    percent: float = 100.0

    @property
    def name(self) -> str:
        """Name of its folder."""
        part = "" if self.percent == 100 else f"-part{self.percent:g}"
        return f"{self.condition.name}{part}-seed{self.seed}"


def all_runs(
    tables: dict[str, Rows], curve: Rows, seeds: Sequence[int], percents: Sequence[float]
) -> list[Run]:
    """Return every run once, seed by seed, so that tables are complete early."""

    def of(seed: int) -> Iterator[Run]:
        for rows in tables.values():
            yield from (Run(condition, seed) for condition in rows.values())
        for percent in percents:
            yield from (Run(condition, seed, percent) for condition in curve.values())

    runs = {run.name: run for seed in seeds for run in of(seed)}
    return list(runs.values())


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


def seconds_left(
    runs: list[Run], seconds: dict[Run, float], *, train: int, dev: int
) -> float | None:
    """Estimate the time of the remaining runs from that of others with and without ELMo."""

    def work(run: Run) -> float:  # Learning costs about three times as much as predicting.
        return 3 * train * run.percent / 100 + dev

    rates: dict[bool, list[float]] = {True: [], False: []}
    for run, took in seconds.items():
        rates[run.condition.with_elmo].append(took / work(run))
    every = rates[True] + rates[False]
    if not every:
        return None
    left = [run for run in runs if run not in seconds]
    return sum(work(run) * fmean(rates[run.condition.with_elmo] or every) for run in left)


def link_vectors(source: Path, folder: Path) -> None:
    """Link the static vectors of another run instead of copying them, where the disk can."""
    if (source / VECTORS).is_dir() and not (folder / VECTORS).exists():
        with suppress(OSError, ElmokitError), atomic_folder(folder / VECTORS) as making:
            for file in (source / VECTORS).iterdir():
                os.link(file, making / file.name)
