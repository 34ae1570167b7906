"""Pages copy their figures from benchmarks/results."""

from __future__ import annotations

import re

import pytest
from documents import ROOT

RESULTS = ROOT / "benchmarks" / "results"
NOT_MEASURED = {"92.22"}  # the paper's
NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)+(?:e-\d+)?(?![\w.])|(?<=\| )\d+(?= \|)")


@pytest.mark.parametrize("name", ["which.md", "which.zh-CN.md"])
def test_the_figures_of_the_comparison_were_measured(name: str) -> None:
    page = (ROOT / "docs" / "explanation" / name).read_text(encoding="utf-8")
    sections = re.split(r"^##+ ", page, flags=re.M)
    measured = " ".join(path.read_text(encoding="utf-8") for path in RESULTS.glob("*.md"))
    figures = set(NUMBER.findall(sections[3] + sections[4]))  # speed; tasks
    assert len(figures) > 30
    assert figures - set(NUMBER.findall(measured)) - NOT_MEASURED == set()
