"""What every request passes: what is left of one that is ended."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from elmokit.serve import gate as module
from elmokit.serve.gate import ABORT, CHUNK, Gate
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


class Call:
    """A request to a gate, and what it has been sent."""

    def __init__(self, *, length: int = 2) -> None:
        self.arrived, self.sent, self.aborted = asyncio.Event(), list[Any](), list[bool]()
        headers = [(b"content-length", str(length).encode())]
        abort = {ABORT: {"call": lambda: self.aborted.append(True)}}
        self.scope = {
            "type": "http", "path": "/embed", "method": "POST", "headers": headers,
            "extensions": abort,
        }  # fmt: skip

    async def receive(self) -> dict[str, Any]:
        await self.arrived.wait()
        self.arrived.clear()
        return {"type": "http.request", "body": b"{}"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])


async def answer_ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"{}"})


def test_who_sends_a_body_slowly_does_not_keep_others_out() -> None:
    async def main() -> None:
        gate = Gate(answer_ok, answers=Answers(Limits(max_queue=1)), metrics=Metrics())
        slow, quick = Call(), Call()
        waiting = asyncio.ensure_future(gate(slow.scope, slow.receive, slow.send))
        await asyncio.sleep(0)
        quick.arrived.set()
        await gate(quick.scope, quick.receive, quick.send)
        assert quick.status == 200
        slow.arrived.set()
        await waiting
        assert slow.status == 200
        assert gate.requests == 0

    asyncio.run(main())


def test_who_has_sent_a_body_before_the_queue_was_full_is_refused_after_it() -> None:
    free = asyncio.Event()

    async def route(scope: Any, receive: Any, send: Any) -> None:
        await free.wait()
        await answer_ok(scope, receive, send)

    async def main() -> None:
        gate = Gate(route, answers=Answers(Limits(max_queue=1)), metrics=Metrics())
        first, second = Call(), Call()
        asked = [asyncio.ensure_future(gate(c.scope, c.receive, c.send)) for c in (first, second)]
        await asyncio.sleep(0)
        first.arrived.set()
        second.arrived.set()
        await asyncio.wait(asked, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert second.status == 429
        free.set()
        await asyncio.gather(*asked)
        assert first.status == 200
        assert (gate.requests, gate.bytes) == (0, 0)

    asyncio.run(main())


@pytest.mark.parametrize(("length", "ends"), [(2, False), (CHUNK + 1, True)])
def test_a_refusal_ends_the_connection_only_if_much_of_a_body_may_come(
    length: int, ends: bool
) -> None:
    gate = Gate(answer_ok, answers=Answers(Limits(max_queue=0)), metrics=Metrics())

    async def main() -> Call:
        call = Call(length=length)
        await gate(call.scope, call.receive, call.send)
        return call

    call = asyncio.run(main())
    assert call.status == 429
    assert ((b"connection", b"close") in call.sent[0]["headers"]) == ends


def test_who_reads_nothing_more_of_an_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALLED", 0.05)

    class Stalled(Call):
        async def send(self, message: Any) -> None:
            await super().send(message)
            if len(self.sent) == 3:  # the headers and two chunks
                await asyncio.Event().wait()

    async def route(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": bytes(4 * CHUNK)})

    async def main() -> None:
        gate = Gate(route, answers=Answers(Limits(timeout=3600)), metrics=Metrics())
        call = Stalled()
        call.arrived.set()
        await asyncio.wait_for(gate(call.scope, call.receive, call.send), 30)
        assert len(call.sent) == 3
        assert call.aborted == [True]
        assert gate.requests == 0

    asyncio.run(main())
