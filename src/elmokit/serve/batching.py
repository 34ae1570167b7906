"""The queue of a model: sentences are read together, and others begin as soon as some are done.

    requests ─► jobs ─► in turn, a share of each ─► rows of bounded tokens ─► one thread, by parts

There is no timer: a lone request starts at once, and under load more sentences are read together by
themselves. A sentence has the same vectors whatever stands beside it, so that is invisible to
clients. The thread reads a few tokens of each sentence at a time (see `model.fast.rows`): a short
one need not wait for a long one, and while the thread reads, the requests are parsed that will take
the places of those that are done. Jobs take turns with a small share of their sentences, so that a
large request does not hold up a small one, and many small ones do not keep a large one from ever
being done.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from elmokit.embed import Sentence
from elmokit.layers import combine, layer_weights
from elmokit.serve.limits import Overloaded
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmokit.text.readers import WINDOW_TOKENS

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.embed import Embedder
    from elmokit.layers import Layers
    from elmokit.model.fast.rows import Row, Rows

TURNS = 32  # in which a job is about done, however many sentences it has and however many wait
STEPS = 24  # tokens of each sentence that are read before others may begin
HELD = 8  # times the tokens that are read at once may belong to sentences that have begun
QUIET = 10  # rounds of the event loop without a new request before the thread begins to read
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
    sizes: Sequence[int]
    """Number of tokens of each part, at least 1."""
    future: asyncio.Future[list[T]]
    results: dict[int, T] = field(default_factory=dict)
    error: Exception | None = None
    started: int = 0

    def __post_init__(self) -> None:
        self.parts = len(self.sizes)  # sentences, or the call
        self.tokens = sum(self.sizes)  # of the parts that have not been started


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
            batch_tokens: Tokens that are read at once (default: those of the model's own batches).
                More would hardly be faster, and large jobs would fill them: new jobs wait until
                these have been read.
            on_batch: Called whenever tokens have been read, with their requests, number and
                seconds.
        """
        self.elmo, self.on_batch = elmo, on_batch
        self.max_waiting, self.max_seconds = max_waiting, max_seconds
        self.batch_tokens = batch_tokens or elmo.batch_tokens
        self.waiting: deque[Job[Any]] = deque()
        self.waiting_tokens = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # in which it works; None if idle
        self._rows: Rows | None = None
        self._reading: dict[Row, Part] = {}  # Between two parts nobody but `_take` looks at it.
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
        """Return `finish(sentence, index)` of each tokenized sentence, read beside others."""
        if not sentences:
            return []
        sizes = [len(sentence) + 1 for sentence in sentences]
        future = asyncio.get_running_loop().create_future()
        return await self._submit(Job(sentences, layers, boundaries, finish, None, sizes, future))

    async def call(self, function: Callable[[], T], tokens: int) -> T:
        """Return the result of a function that runs in the model's thread, alone.

        Args:
            function: The function.
            tokens: About as many tokens as it would take as long to embed.
        """
        future = asyncio.get_running_loop().create_future()
        job = Job[T]((), "all", False, lambda *_: function(), function, [max(tokens, 1)], future)
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
        """Wait for what is being read and end the thread; the next job would start it again."""
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
        """Take parts from the jobs in turn, as many as there is room for beside those in work."""
        parts: list[Part] = []
        held = sum(job.sizes[part] for job, part in self._reading.values())
        tokens = sum(min(STEPS, len(row.vectors) - row.read) for row in self._reading)
        while self.waiting and tokens < self.batch_tokens and held < HELD * self.batch_tokens:
            job = self.waiting.popleft()
            end = min(job.started + math.ceil(job.parts / TURNS), job.parts)
            while job.started < end and tokens < self.batch_tokens:
                size = job.sizes[job.started]
                parts.append((job, job.started))
                tokens += size if job.call else min(STEPS, size)
                held += size
                job.started += 1
                job.tokens -= size
                self.waiting_tokens -= size
            if job.started < job.parts:
                self.waiting.append(job)
        return parts

    def _start(self) -> None:
        """Let the thread read on, if anybody waits."""
        parts = self._take()
        self._loop = asyncio.get_running_loop() if parts or self._reading else None
        if self._loop is not None:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, "elmokit-model")
            running = self._loop.run_in_executor(self._executor, self._compute, parts)
            running.add_done_callback(lambda done: self._finish(done.result()))

    def _finish(self, jobs: Sequence[Job[Any]]) -> None:
        """Hand out results, then let the thread read on."""
        for job in jobs:
            if job.future.done():
                continue
            if job.error is not None:
                self._forget(job)
                job.future.set_exception(job.error)
            elif len(job.results) == job.parts:
                job.future.set_result([job.results[part] for part in range(job.parts)])
        self._start_when_quiet(QUIET, len(self.waiting))

    def _start_when_quiet(self, rounds: int, waiting: int) -> None:
        """Start when the event loop has read all requests that are there."""
        if len(self.waiting) != waiting:
            rounds = QUIET
        if rounds == 0:
            self._start()
            return
        again = asyncio.get_running_loop().call_soon
        again(self._start_when_quiet, rounds - 1, len(self.waiting))

    # ------------------------------------------------------------------ in the thread of the model
    def _compute(self, parts: list[Part]) -> list[Job[Any]]:
        """Begin with these parts and read on; return the jobs of all that is in work."""
        begin = time.perf_counter()
        jobs = {id(job): job for job, _ in [*self._reading.values(), *parts]}
        tokens = 0
        together: dict[bool, list[Part]] = {False: [], True: []}
        for job, part in parts:
            if job.future.done() or job.error is not None:
                continue
            if job.call or len(job.sentences[part]) > WINDOW_TOKENS:
                tokens += self._compute_alone(job, part)
            else:
                together[job.boundaries].append((job, part))
        with torch.inference_mode():
            for framed, own in together.items():
                self._begin(framed, own)
            tokens += self._read()
        seconds = time.perf_counter() - begin
        if tokens and seconds > 0:
            self.speed += 0.2 * (tokens / seconds - self.speed)
        self.on_batch(len(jobs), tokens, seconds)
        return list(jobs.values())

    def _compute_alone(self, job: Job[Any], part: int) -> int:
        """Compute a function or a very long sentence; return the tokens of the latter."""
        try:
            if job.call:
                job.results[part] = job.call()
                return 0
            texts = [job.sentences[part]]
            (sentence,) = self.elmo.stream(texts, job.layers, boundaries=job.boundaries)
            job.results[part] = job.finish(sentence, part)
        except Exception as error:
            job.error = error
            return 0
        return len(job.sentences[part])

    def _begin(self, framed: bool, parts: list[Part]) -> None:
        """Begin to read sentences, or those with boundaries; if that fails, each job's alone."""
        if not parts:
            return
        texts = [job.sentences[part] for job, part in parts]
        engine = self.elmo.engine
        try:
            self.elmo.warn_if_foreign(texts)
            if framed:
                texts = [[BEGIN_SENTENCE, *text, END_SENTENCE] for text in texts]
            with engine.lock:
                lengths = [len(text) for text in texts]
                vectors = torch.split(engine.token_vectors(texts), lengths)
                if self._rows is None or not self._reading:
                    self._rows = engine.rows()
            rows = self._rows.add(vectors, framed=framed)
        except Exception as error:
            jobs = {id(job): job for job, _ in parts}
            if len(jobs) == 1:
                parts[0][0].error = error
                return
            for key in jobs:
                self._begin(framed, [(job, part) for job, part in parts if id(job) == key])
        else:
            self._reading.update(zip(rows, parts, strict=True))

    def _read(self) -> int:
        """Read a part of each sentence and keep the results of those that are done."""
        rows = self._rows
        gone = [row for row, (job, _) in self._reading.items() if job.future.done() or job.error]
        for row in gone:
            del self._reading[row]
        if rows is None or not self._reading:
            return 0
        if gone:
            rows.keep(self._reading)
        try:
            before = sum(row.read for row in self._reading)
            done = rows.read(STEPS)
            tokens = sum(row.read for row in self._reading) - before
        except Exception as error:
            for job, _ in self._reading.values():
                job.error = error
            self._reading.clear()
            return 0
        for row in done:
            job, part = self._reading.pop(row)
            try:
                job.results[part] = job.finish(self._sentence(job, part, row), part)
            except Exception as error:
                job.error = error
        return tokens

    def _sentence(self, job: Job[Any], part: int, row: Row) -> Sentence:
        """Return the chosen layers of a sentence that has been read."""
        tokens = list(job.sentences[part])
        if job.boundaries:
            tokens = [BEGIN_SENTENCE, *tokens, END_SENTENCE]
        weights = layer_weights(job.layers, self.elmo.config.num_layers)
        return Sentence(tokens, combine(row.layers, weights).cpu().numpy())
