"""What every request passes before a route sees it: key, limits, time, log and measurements.

The gate reads the body itself, so that a body too large or too slow is refused before anything is
parsed. While a route works it watches the connection: if the client goes away or the time is over,
the route is cancelled, and with it what waits in a model's queue.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.serve.limits import Answers
    from elmokit.serve.metrics import Metrics

Scope: TypeAlias = "MutableMapping[str, Any]"
Message: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Message]]"
Send: TypeAlias = "Callable[[Message], Awaitable[None]]"
App: TypeAlias = "Callable[[Scope, Receive, Send], Awaitable[None]]"

# Answered at once, also under load, and without a key: they have no data of a model.
OPEN = ("/", "/docs", "/openapi.json", "/health")
ABORT = "elmokit.abort"  # what ends the connection, among the extensions of a scope
CLIENT_GONE = 499  # in log and measurements only, as nobody reads the answer
MAX_BODIES = 32  # bodies of the maximum size that may be in memory together
CHUNK = 1 << 17  # bytes of an answer that are handed to the server at once
STALLED = 10  # seconds after which a client that has read nothing more of its answer is left
UNWATCHED = 0.5  # seconds in which a client may go away unnoticed; most answers take less
MAX_LOGGED = 2000  # bytes of a body in the log
SECURITY = [
    (
        b"content-security-policy",
        # blob: is a figure of the explorer on its way to a PNG file.
        b"default-src 'self'; img-src 'self' blob:; object-src 'none'; frame-ancestors 'none'; "
        b"base-uri 'none'; form-action 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
# status: type of an error at OpenAI, and in Text Embeddings Inference
ERROR_TYPES = {
    401: ("authentication_error", "Validation"),
    404: ("not_found_error", "Validation"),
    408: ("timeout_error", "Validation"),
    424: ("server_error", "Backend"),
    429: ("rate_limit_error", "Overloaded"),
    500: ("server_error", "Backend"),
    503: ("server_error", "Unhealthy"),
}

logger = logging.getLogger("elmokit.serve")


def error_body(
    path: str, status: int, message: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Return an error in the shape that the clients of a route read."""
    openai_type, tei_type = ERROR_TYPES.get(status, ("invalid_request_error", "Validation"))
    if path.startswith("/v1/"):
        parts = {"message": message, "type": openai_type, "param": param, "code": code}
        return {"error": parts}
    return {"error": message, "error_type": tei_type}


class Refusal(Exception):
    """A request that is not given to a route."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


@dataclass
class Exchange:
    """A request and what has been sent back so far."""

    path: str
    send: Send
    is_short: bool
    """Whether the body is so small that it has arrived, or is simply passed over."""
    began: float = field(default_factory=time.perf_counter)
    status: int = 0
    body: bytes | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    wrote: float = math.inf
    """Time of the last chunk that was handed to the server."""
    is_complete: bool = False

    async def forward(self, message: Message) -> None:
        """Send a message of a route, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), *SECURITY]
        elif message["type"] == "http.response.body":
            await self._send_body(message.get("body", b""), message.get("more_body", False))
            return
        await self.send(message)

    async def _send_body(self, body: bytes, more_body: bool) -> None:
        """Send a body in chunks, for each of which the server waits until the client has read.

        It would keep one large piece in memory for as long as a client reads slowly or not at all,
        and take the answer for complete.
        """
        for start in range(0, len(body) or 1, CHUNK):
            chunk = body[start : start + CHUNK]
            is_last = start + CHUNK >= len(body)
            self.bytes_out += len(chunk)
            self.wrote = time.perf_counter()
            self.is_complete = is_last and not more_body
            more = not self.is_complete
            await self.send({"type": "http.response.body", "body": chunk, "more_body": more})

    async def refuse(self, refusal: Refusal) -> None:
        """Send an error. The connection ends if there may be much more of a body to come."""
        body = orjson.dumps(error_body(self.path, refusal.status, refusal.message))
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        headers |= refusal.headers
        if refusal.status in (408, 413) or (refusal.status == 429 and not self.is_short):
            headers["connection"] = "close"
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        start = {"type": "http.response.start", "status": refusal.status, "headers": pairs}
        await self.forward(start)
        await self.forward({"type": "http.response.body", "body": body})


class Ending:
    """Ends what the current task does in its block, if the time is over or the client is gone."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.is_late = self.is_gone = False
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._pending: list[asyncio.TimerHandle | asyncio.Task[None]] = []

    def after(self, seconds: float) -> None:
        """End it after a time."""

        def end() -> None:
            self.is_late = True
            self._cancel()

        self._pending.append(self._loop.call_later(seconds, end))

    def when_stalled(self, seconds: float) -> None:
        """End it when the client has read nothing of the answer for a time."""

        def look() -> None:
            left = self.exchange.wrote + seconds - time.perf_counter()
            if left <= 0:
                self.is_late = True
                self._cancel()
            else:
                self._pending.append(self._loop.call_later(min(left, seconds), look))

        self._pending.append(self._loop.call_later(seconds, look))

    def when_gone(self, receive: Receive) -> None:
        """End it when the client is gone; this is watched if the answer takes a while."""

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            if not self.exchange.is_complete:
                self.is_gone = True
                self.exchange.status = CLIENT_GONE
                self._cancel()

        def begin() -> None:
            self._pending.append(self._loop.create_task(watch()))

        self._pending.append(self._loop.call_later(UNWATCHED, begin))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> Ending:
        return self

    def __exit__(self, _: Any, error: BaseException | None, trace: Any) -> bool:
        for pending in self._pending:
            pending.cancel()
        if not isinstance(error, asyncio.CancelledError):
            return False
        # The traceback holds the vectors and the answer, in cycles that are collected late.
        traceback.clear_frames(trace)
        if not (self.is_late or self.is_gone):
            return False
        if self._task is not None and sys.version_info >= (3, 11):
            self._task.uncancel()
        return True


class Gate:
    """What stands before all routes."""

    def __init__(
        self,
        app: App,
        *,
        answers: Answers,
        metrics: Metrics,
        keys: Sequence[str] = (),
        log_texts: bool = False,
    ) -> None:
        self.app, self.answers, self.metrics = app, answers, metrics
        self.limits = answers.limits
        self.keys = [key.encode() for key in keys]
        self.log_texts = log_texts
        self.requests, self.bytes = 0, 0  # in memory now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope["path"], send, is_short=is_short(scope))
        try:
            if scope["path"] in OPEN or scope["path"].startswith("/static/"):
                await self.app(scope, receive, exchange.forward)
                return
            self._check_key(scope)
            self._check_queue()
            try:
                with self.answers.request():
                    await self._serve(scope, receive, exchange)
            finally:
                self.bytes -= exchange.bytes_in
        except Refusal as refusal:
            if exchange.status == 0:
                with suppress(OSError):
                    await exchange.refuse(refusal)
        finally:
            self._record(scope, exchange)

    def _check_key(self, scope: Scope) -> None:
        if not self.keys:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, key = given.partition(b" ")
        # Compare with all keys, so that the time tells nothing about them.
        matches = [hmac.compare_digest(key.strip(), own) for own in self.keys]
        if scheme.lower() != b"bearer" or not any(matches):
            message = "send the key of this service in the header Authorization: Bearer KEY"
            raise Refusal(401, message, {"www-authenticate": "Bearer"})

    def _check_queue(self) -> None:
        if self.requests >= self.limits.max_queue:
            raise busy()

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Have one of the places in the queue; who sends a body slowly takes none meanwhile."""
        self._check_queue()
        self.requests += 1
        self.metrics.in_flight(self.requests)
        try:
            yield
        finally:
            self.requests -= 1
            self.metrics.in_flight(self.requests)

    # ------------------------------------------------------------------ body
    async def _read(self, scope: Scope, receive: Receive, exchange: Exchange) -> bytes:
        """Read the body within the limits of size."""
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self.limits.max_body:
            raise self._too_large()
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                exchange.status = CLIENT_GONE
                raise Refusal(CLIENT_GONE, "")
            chunk = message.get("body", b"")
            exchange.bytes_in += len(chunk)
            self.bytes += len(chunk)
            chunks.append(chunk)
            if exchange.bytes_in > self.limits.max_body:
                raise self._too_large()
            if self.bytes > MAX_BODIES * self.limits.max_body:
                raise busy()
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _too_large(self) -> Refusal:
        size = f"{self.limits.max_body:,}"
        return Refusal(413, f"the body is too large: send at most {size} bytes")

    # ------------------------------------------------------------------ answer
    async def _serve(self, scope: Scope, receive: Receive, exchange: Exchange) -> None:
        """Read and answer a request until that is done, the client is gone, or the time is over.

        All in the task of the server: another one for each request would take as long as a route.
        """
        with Ending(exchange) as ending:
            ending.after(self.limits.timeout)
            exchange.body = await self._read(scope, receive, exchange)
            message: Message = {"type": "http.request", "body": exchange.body, "more_body": False}
            pending = [message]

            async def replay() -> Message:
                if pending:
                    return pending.pop()
                await asyncio.Event().wait()  # The route is cancelled if the client goes away.
                raise AssertionError

            ending.when_gone(receive)
            ending.when_stalled(STALLED)
            with self._place():
                await self.app(scope, replay, exchange.forward)
        if ending.is_late:
            self._give_up(scope, exchange)
            await asyncio.sleep(0)  # The server learns that the connection has ended.

    def _give_up(self, scope: Scope, exchange: Exchange) -> None:
        """End a request whose time is over: its body, its answer, or its reader, is too slow."""
        if exchange.body is None:
            raise Refusal(408, f"the request did not arrive within {self.limits.timeout:g} s")
        if exchange.status == 0:
            raise busy(f"the service could not answer within {self.limits.timeout:g} s")
        exchange.status = CLIENT_GONE
        abort = scope.get("extensions", {}).get(ABORT)
        if abort is not None:  # Otherwise the server would wait until the rest has been read.
            abort["call"]()

    # ------------------------------------------------------------------ log
    def _record(self, scope: Scope, exchange: Exchange) -> None:
        seconds = time.perf_counter() - exchange.began
        route = getattr(scope.get("route"), "path", None) or "other"
        if route == "other" and scope["path"] in OPEN:
            route = scope["path"]
        status = exchange.status or 500
        self.metrics.request(route, scope["method"], status, seconds)
        entry: dict[str, Any] = {
            "event": "request",
            "method": scope["method"],
            "route": route,
            "status": status,
            "seconds": round(seconds, 6),
            "bytes_in": exchange.bytes_in,
            "bytes_out": exchange.bytes_out,
        }
        if self.log_texts:
            entry["body"] = (exchange.body or b"")[:MAX_LOGGED].decode(errors="replace")
        if logger.isEnabledFor(logging.INFO):  # logger.info would look for its caller.
            record = logging.LogRecord(logger.name, logging.INFO, "", 0, "request", (), None)
            record.fields = entry
            logger.handle(record)


def is_short(scope: Scope) -> bool:
    """Tell whether the body of a request is announced to be small, or there is none."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    return b"transfer-encoding" not in headers and length.isdigit() and int(length[:20]) <= CHUNK


def busy(message: str = "the service is busy", seconds: int = 1) -> Refusal:
    """Return the refusal of a request that has to come again later."""
    return Refusal(429, f"{message}: try again in {seconds} s", {"retry-after": str(seconds)})
