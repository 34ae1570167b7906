"""The queue of a model: whoever waits while a batch runs forms the next one.

    requests ─► jobs ─► in turn, a share of each ─► batch of bounded tokens ─► one thread

There is no timer: a lone request starts at once, and under load batches grow by themselves. A
sentence has the same vectors whatever stands beside it, so batching is invisible to clients. Jobs
take turns with a small share of their sentences, so that a large request does not hold up a small
one, and many small ones do not keep a large one from ever being done.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from elmokit.serve.limits import Overloaded

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.embed import Embedder, Sentence
    from elmokit.layers import Layers

TURNS = 32  # in which a job is about done, however many sentences it has and however many wait
QUIET = 10  # rounds of the event loop without a new request before the next batch starts
MAX_WAIT = 60  # seconds; longer waits are not announced

T = TypeVar("T")
Finish: TypeAlias = "Callable[[Sentence, int], T]"
"""Makes the result of a sentence, given with its index, in the thread of the model."""


@dataclass(eq=False)
class Job(Generic[T]):
    """What one request wants of a model: vectors of sentences, or a function that runs alone."""

    sentences: Sequence[Sequence[str]]
    layers: Layers
    boundaries: bool
    finish: Finish[T]
    call: Callable[[], Any] | None
    tokens: int
    """Number of tokens of the parts that have not been started."""
    future: asyncio.Future[list[T]]
    results: dict[int, T] = field(default_factory=dict)
    error: Exception | None = None
    started: int = 0

    @property
    def parts(self) -> int:
        """Number of parts: sentences, or the call."""
        return 1 if self.call else len(self.sentences)

    @property
    def key(self) -> str:
        """What jobs must have in common to be computed together."""
        return f"call {id(self)}" if self.call else f"{self.layers} {self.boundaries}"

    def size(self, part: int) -> int:
        """Return the number of tokens of a part, at least 1."""
        return self.tokens if self.call else len(self.sentences[part]) + 1


Part = tuple[Job[Any], int]


class Batcher:
    """The thread of a model, and the jobs that wait for it."""

    def __init__(
        self,
        elmo: Embedder,
        *,
        max_waiting: int,
        max_seconds: float = math.inf,
        batch_tokens: int | None = None,
        on_batch: Callable[[int, int, float], None] = lambda requests, tokens, seconds: None,
    ) -> None:
        """Take a model; its thread starts with the first job.

        Args:
            elmo: The model.
            max_waiting: Maximum number of tokens that wait; more are refused.
            max_seconds: Maximum time that the queue may take. What could not be answered in time
                is refused at once: jobs that share the model and all come too late help nobody.
            batch_tokens: Tokens of a batch (default: those of the model's own batches). Larger
                ones are hardly faster, and they would be filled by large jobs: new jobs wait until
                a batch is done.
            on_batch: Called after each batch with its requests, tokens and seconds.
        """
        self.elmo, self.on_batch = elmo, on_batch
        self.max_waiting, self.max_seconds = max_waiting, max_seconds
        self.batch_tokens = batch_tokens or elmo.batch_tokens
        self.waiting: deque[Job[Any]] = deque()
        self.waiting_tokens = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # which runs batches; None if idle
        self.speed = 1000.0  # tokens a second; measured by and by
        self._executor: ThreadPoolExecutor | None = None

    async def embed(
        self,
        sentences: Sequence[Sequence[str]],
        finish: Finish[T],
        layers: Layers = "all",
        *,
        boundaries: bool = False,
    ) -> list[T]:
        """Return `finish(sentence, index)` of each tokenized sentence, batched with others'."""
        if not sentences:
            return []
        tokens = sum(len(sentence) + 1 for sentence in sentences)
        future = asyncio.get_running_loop().create_future()
        return await self._submit(Job(sentences, layers, boundaries, finish, None, tokens, future))

    async def call(self, function: Callable[[], T], tokens: int) -> T:
        """Return the result of a function that runs in the model's thread, between batches.

        Args:
            function: The function.
            tokens: About as many tokens as it would take as long to embed.
        """
        future = asyncio.get_running_loop().create_future()
        job = Job[T]((), "all", False, lambda *_: function(), function, max(tokens, 1), future)
        (result,) = await self._submit(job)
        return result

    async def _submit(self, job: Job[T]) -> list[T]:
        limit = min(self.max_waiting, self.speed * self.max_seconds)
        if self.waiting_tokens and self.waiting_tokens + job.tokens > limit:
            raise Overloaded(self.seconds_to_wait())
        self.waiting.append(job)
        self.waiting_tokens += job.tokens
        if self._loop is not asyncio.get_running_loop():
            self._start()
        try:
            return await job.future
        finally:
            self._forget(job)  # of a client that went away, or whose time is over

    def seconds_to_wait(self) -> int:
        """Estimate how long the queue takes."""
        return max(1, min(MAX_WAIT, math.ceil(self.waiting_tokens / self.speed)))

    def close(self) -> None:
        """Wait for the batch that runs and end the thread; the next job would start it again."""
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None

    # ------------------------------------------------------------------ inside
    def _forget(self, job: Job[Any]) -> None:
        """Drop the parts of a job that have not been started."""
        if job in self.waiting:
            self.waiting.remove(job)
            self.waiting_tokens -= job.tokens

    def _take(self) -> list[Part]:
        """Take parts from the jobs in turn, up to the tokens of a batch."""
        parts: list[Part] = []
        tokens = 0
        while self.waiting and tokens < self.batch_tokens:
            job = self.waiting.popleft()
            end = min(job.started + math.ceil(job.parts / TURNS), job.parts)
            while job.started < end and tokens < self.batch_tokens:
                size = job.size(job.started)
                parts.append((job, job.started))
                tokens += size
                job.started += 1
                job.tokens -= size
                self.waiting_tokens -= size
            if job.started < job.parts:
                self.waiting.append(job)
        return parts

    def _start(self) -> None:
        """Start the next batch, if anybody waits."""
        parts = self._take()
        self._loop = asyncio.get_running_loop() if parts else None
        if self._loop is not None:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, "elmokit-model")
            running = self._loop.run_in_executor(self._executor, self._compute, parts)
            running.add_done_callback(lambda _: self._finish(parts))

    def _finish(self, parts: list[Part]) -> None:
        """Hand out results, then start the next batch."""
        for job in {id(job): job for job, _ in parts}.values():
            if job.future.done():
                continue
            if job.error is not None:
                self._forget(job)
                job.future.set_exception(job.error)
            elif len(job.results) == job.parts:
                job.future.set_result([job.results[part] for part in range(job.parts)])
        self._start_when_quiet(QUIET, len(self.waiting))

    def _start_when_quiet(self, rounds: int, waiting: int) -> None:
        """Start the next batch when the event loop has read all requests that are there.

        Those who were answered just now often ask again at once; without this they would miss the
        next batch, and batches would be small, or full of what is left of large jobs.
        """
        if len(self.waiting) != waiting:
            rounds = QUIET
        if rounds == 0:
            self._start()
            return
        again = asyncio.get_running_loop().call_soon
        again(self._start_when_quiet, rounds - 1, len(self.waiting))

    def _compute(self, parts: list[Part]) -> None:
        """Compute a batch; in the thread of the model."""
        begin = time.perf_counter()
        tokens = sum(len(job.sentences[part]) + 1 for job, part in parts if not job.call)
        order = sorted(parts, key=lambda part: part[0].key)
        for _, group in groupby(order, key=lambda part: part[0].key):
            self._compute_group(list(group))
        seconds = time.perf_counter() - begin
        if tokens and seconds > 0:
            self.speed += 0.2 * (tokens / seconds - self.speed)
        self.on_batch(len({id(job) for job, _ in parts}), tokens, seconds)

    def _compute_group(self, parts: list[Part]) -> None:
        """Compute parts that have the layers in common; if they fail, each job alone."""
        parts = [(job, part) for job, part in parts if not job.future.done() and job.error is None]
        if not parts:
            return
        first = parts[0][0]
        try:
            if first.call:
                first.results[0] = first.call()
                return
            texts = [job.sentences[part] for job, part in parts]
            stream = self.elmo.stream(texts, first.layers, boundaries=first.boundaries)
            for (job, part), sentence in zip(parts, stream, strict=True):
                job.results[part] = job.finish(sentence, part)
        except Exception as error:
            if all(job is first for job, _ in parts):
                first.error = error
                return
            for _, own in groupby(sorted(parts, key=lambda p: id(p[0])), key=lambda p: id(p[0])):
                self._compute_group(list(own))
