"""Generated requests, valid and not, get an answer that OpenAPI declares."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI

schemathesis = pytest.importorskip("schemathesis")
engine = pytest.importorskip("schemathesis.engine")

# What these routes take depends on the text itself (a gap, a mark, how often it has a word) or on
# the kind of a task, which no schema can say: a request may be valid by its schema and be refused.
BY_MEANING = [f"/v1/{name}" for name in ("fill", "neighbours", "predict/{task}", "uses")]
ACCEPTED = ["2xx", "401", "403", "404", "409", "429"]
CONFIG: dict[str, Any] = {
    "seed": 1,
    "generation": {"max-examples": 250, "deterministic": True},
    "phases": {"stateful": {"enabled": False}},
    "checks": {"positive_data_acceptance": {"expected-statuses": ACCEPTED}},
    "operations": [
        {
            "include-path": path,
            "checks": {"positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400"]}},
        }
        for path in BY_MEANING
    ],
}


@pytest.mark.slow
def test_every_generated_request_gets_a_declared_answer(app: FastAPI) -> None:
    config = schemathesis.Config.from_dict(CONFIG)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, config=config)
    scenarios, problems = 0, []
    for event in engine.from_schema(schema).execute():
        name = type(event).__name__
        if name in ("NonFatalError", "FatalError"):
            problems.append(str(vars(event) if hasattr(event, "__dict__") else event))
        if name == "ScenarioFinished":
            scenarios += 1
            for checks in event.recorder.checks.values():
                problems += [str(check) for check in checks if check.status == "failure"]
    assert problems == []
    assert scenarios >= 2 * len(schema.raw_schema["paths"])
