"""The conditions of a comparison, in the tables of the ELMo paper, and the runs they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any

from elmokit.errors import ElmokitError
from elmokit.tasks.settings import TrainSettings

WITHOUT, WITH = "without ELMo", "with ELMo"
TABLES = ("layers", "placement", "elmo")
ELMO_FIELDS = "layers placement l2 elmo_dropout layer_norm tune_elmo elmo_lr target_elmo".split()
PENALTIES = (1.0, 0.001)  # l2 of a mix close to the average, and of a free one


@dataclass(frozen=True)
class Condition:
    """One way to give a task model its vectors."""

    name: str
    """The same for the same model, in whichever table it is."""
    settings: TrainSettings
    with_elmo: bool


@dataclass(frozen=True)
class Run:
    """A condition with a seed, on a percentage of the training data."""

    condition: Condition
    seed: int
    percent: float = 100.0

    @property
    def name(self) -> str:
        part = "" if self.percent == 100 else f"-part{self.percent:g}"
        return f"{self.condition.name}{part}-seed{self.seed}"


# The rows of a table by their labels; a condition may be in several tables.
Rows = dict[str, Condition]
Tables = dict[str, Rows]


def make_tables(names: Sequence[str], settings: TrainSettings, top: int) -> Tables:
    """Return the tables of these names; `top` is the index of the biLM's last layer."""
    if settings.layers.isdigit() and int(settings.layers) > top:
        raise ElmokitError(f"there is no layer {settings.layers}: choose from 0 to {top}")
    notes = {0: " (tokens)", top: " (top)"}
    # The settings that each row changes.
    layers = {f"layer {i}{notes.get(i, '')}": {"layers": str(i)} for i in range(top + 1)}
    mixes = {f"mix of all, λ = {l2:g}": {"layers": "all", "l2": l2} for l2 in PENALTIES}
    tables: dict[str, dict[str, dict[str, Any]]] = {
        "layers": {**layers, "average of all": {"layers": "average"}, **mixes},
        "placement": {name: {"placement": name} for name in ("input", "output", "both")},
        "elmo": {WITH: {}},
    }
    without = Condition("baseline", _with_defaults(settings, ELMO_FIELDS), False)
    return {
        name: {
            WITHOUT: without,
            **{row: with_elmo(settings, top, **changes) for row, changes in tables[name].items()},
        }
        for name in names
    }


def with_elmo(settings: TrainSettings, top: int, **changes: Any) -> Condition:
    """Return a model with ELMo; its name has what makes it different."""
    own = replace(settings, **changes)
    if own.layers == str(top):
        own = replace(own, layers="top")
    if own.layers == "all":
        layers = f"all-l2-{own.l2:g}"
    else:
        layers = f"layer{own.layers}" if own.layers.isdigit() else own.layers
        own = _with_defaults(own, ("l2",))  # There are no weights to penalize.
    return Condition(f"elmo-{own.placement}-{layers}", own, True)


def _with_defaults(settings: TrainSettings, names: Sequence[str]) -> TrainSettings:
    own: dict[str, Any] = {f.name: f.default for f in fields(settings) if f.name in names}
    return replace(settings, **own)


def check_list(
    vary: Sequence[str], seeds: Sequence[int], percents: Sequence[float]
) -> tuple[list[str], list[int], list[float]]:
    """Return tables, seeds and sorted percentages, each once; raise if one is invalid."""
    for name in vary:
        if name not in TABLES:
            raise ElmokitError(f"vary must be one of {', '.join(TABLES)}, not {name!r}")
    if bad_seeds := [seed for seed in seeds if seed < 0]:
        raise ElmokitError(f"seeds must be whole numbers from 0, not {bad_seeds[0]}")
    if outside := [percent for percent in percents if not 0 < percent <= 100]:
        raise ElmokitError(
            f"sample_efficiency takes percentages above 0 and up to 100, not {outside[0]:g}"
        )
    if not vary or not seeds:
        raise ElmokitError("a comparison needs at least one table to vary and one seed")
    return list(dict.fromkeys(vary)), list(dict.fromkeys(seeds)), sorted(set(map(float, percents)))


def all_runs(tables: Tables, curve: Rows, seeds: list[int], percents: list[float]) -> list[Run]:
    """Return every run once, seed by seed, so that tables are complete early."""
    parts = [(100.0, rows) for rows in tables.values()] + [(part, curve) for part in percents]
    runs = [Run(c, seed, part) for seed in seeds for part, rows in parts for c in rows.values()]
    return list({run.name: run for run in runs}.values())


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
