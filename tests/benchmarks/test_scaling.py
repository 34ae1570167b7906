"""The figures of the page on scaling: FLOPs counted in another way, and tables that are current."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from elmokit.config import BiLMConfig
from elmokit.model.bilm import BiLM

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def scaling() -> Any:
    """The script, which imports others beside it."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("scaling")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_the_tables_on_the_pages_are_current(scaling: Any) -> None:
    for page in scaling.PAGES:
        text = page.read_text(encoding="utf-8")
        assert scaling.filled(text) == text, "run benchmarks/scaling.py --write"


def test_the_flops_of_the_lstms_are_those_that_torch_counts(scaling: Any) -> None:
    config = BiLMConfig(filters=((1, 8),), lstm_dim=48, projection_dim=24)
    model, tokens = BiLM(config).eval(), 30
    weights = [p for name, p in model.named_parameters() if p.dim() == 2 and "_layers" in name]
    assert weights
    with FlopCounterMode(display=False) as counter:
        for weight in weights:  # Each weight multiplies each token once.
            torch.nn.functional.linear(torch.zeros(tokens, weight.shape[1]), weight)
    assert counter.get_total_flops() == tokens * scaling.embedding_flops(config)


def test_a_rate_that_was_measured_is_not_extrapolated(scaling: Any) -> None:
    rate, is_measured = scaling.embedding_rate("small")
    assert is_measured
    assert scaling.cost_cells(rate)[1].partition(" (")[0] == (
        f"{scaling.rounded(1e9 / rate / 3600)} h"
    )
    assert scaling.cost_cells(10_000)[1] == "28 h (2)"  # two machines for a day
    assert not scaling.embedding_rate("tiny")[1]


def test_the_formula_gives_the_flops_of_the_measured_training_run(scaling: Any) -> None:
    row, training = scaling.training_row(), scaling.result("training_speed")["training"]
    work = scaling.pretraining_flops(
        scaling.SHAPES["tiny"], training["samples"], scaling.distinct_share()
    )
    assert work * row["batch"] * training["unroll"] == pytest.approx(row["gflop_per_step"] * 1e9)
    assert 0.1 < scaling.distinct_share() < 1


@pytest.mark.parametrize(("number", "text"), [(0.0134, "0.013"), (27.3, "27"), (27_345, "27,000")])
def test_numbers_have_two_digits(scaling: Any, number: float, text: str) -> None:
    assert scaling.rounded(number) == text
