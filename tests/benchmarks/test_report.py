"""The page of measurements shows every result, and is current."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import pytest
from documents import ROOT

BENCHMARKS = ROOT / "benchmarks"
OTHER_PAGES = {"tasks"}  # which tasks.py writes into tasks.md
RESULTS = sorted((BENCHMARKS / "results").glob("*.json"))
RESULTS = [path for path in RESULTS if path.stem not in OTHER_PAGES]


@pytest.fixture(scope="module")
def report() -> Any:
    """The script."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("report")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_result_has_a_section(report: Any, path: Any) -> None:
    sections = {report.result_name(section): section for section in report.SECTIONS}
    section = sections[path.stem](json.loads(path.read_text(encoding="utf-8")))
    assert section.startswith("## ")
    assert section.endswith("\n")


def test_the_page_is_current(report: Any) -> None:
    page = (BENCHMARKS / "results" / "README.md").read_text(encoding="utf-8")
    assert page == report.render(), "run benchmarks/report.py"


def test_a_campaign_that_was_not_finished_is_shown(report: Any) -> None:
    kills = {"embed": {"points": 7, "trials": 9, "killed": 8, "faults": ["x"]}}
    failed = {"faults": ["exit code 2"]}
    shown = report.reliability({"max_points": 3, "kills": {**kills, "train": failed}})
    assert "| embed | 7 | 8 |" in shown
    assert "| train |  |  |" in shown
    assert "Faults in all of this: 2." in shown
    assert "Faults in all of this: 0." in report.reliability({})


def test_the_times_of_one_sentence_are_shown(report: Any) -> None:
    row = {"model": "english", "threads": 1, "cold_p50": 5.0, "cold_p99": 9.25}
    row |= {"warm_p50": 3.125, "warm_p99": 4.0, "python_share": 0.25}
    machine = dict.fromkeys(("processor", "cores", "instructions", "python", "torch"), "x")
    shown = report.latency({"machine": machine, "sentences": 300, "rows": [row]})
    assert "| `english` | 1 | 5.00 (9.25) | 3.12 (4.00) | 25% |" in shown
