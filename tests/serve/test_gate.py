"""What every request passes: what is left of one that is ended."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from elmokit.serve.gate import Gate
from elmokit.serve.limits import Answers, Limits
from elmokit.serve.metrics import Metrics


class Answer:
    """Something large."""


def test_an_answer_that_nobody_reads_is_freed_when_its_time_is_over() -> None:
    left: list[weakref.ref[Answer]] = []

    async def route(scope: Any, receive: Any, send: Any) -> None:
        answer = Answer()
        left.append(weakref.ref(answer))
        await send({"type": "http.response.start", "status": 200})
        await asyncio.Event().wait()

    async def receive() -> dict[str, Any]:
        if left:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"{}"}

    async def send(_: Any) -> None:
        pass

    scope = {"type": "http", "path": "/embed", "method": "POST", "headers": []}
    gate = Gate(route, answers=Answers(Limits(timeout=0.1)), metrics=Metrics())

    async def ask() -> list[Answer | None]:
        await gate(scope, receive, send)
        await asyncio.sleep(0)
        return [answer() for answer in left]

    gc.disable()
    try:
        assert asyncio.run(ask()) == [None]
    finally:
        gc.enable()
