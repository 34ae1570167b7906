"""Processes that share a long computation: each builds a function once and calls it task by task.

    with Workers(4, build, *arguments) as workers:      # build(*arguments) returns the function
        workers.send(workers.idle[0], task)             # function(*task) in that process
        worker, result = workers.receive()

The processes are spawned, so that the threads and locks of this one do not matter. They end with
it, however it ends: after an error, Ctrl-C, SIGTERM or kill -9.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import BufferingHandler
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from elmokit.errors import ElmokitError

logger = logging.getLogger("elmokit")

MAX_WORKERS = 4096
SECONDS_TO_END = 10.0
MAX_MESSAGES = 10_000  # of one task; more than that are dropped


class WorkerTraceback(Exception):
    """The traceback of an error in a worker, shown as the cause of the error."""


class Workers:
    """Processes that wait for tasks, each with one task at a time."""

    _context = multiprocessing.get_context("spawn")

    def __init__(self, count: int, build: Callable[..., Callable[..., Any]], *arguments: Any):
        self._count, self._start = count, (build, arguments)
        self._processes: list[Any] = []
        self._connections: list[Any] = []
        self._messages: set[str] = set()
        self._handler: Any = None
        self.idle: list[int] = []
        """Indices of the workers that have no task."""

    def __len__(self) -> int:
        return self._count

    def __enter__(self) -> Workers:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._handler = signal.signal(signal.SIGTERM, self._end_by_signal)
        try:
            with _no_interrupts():
                for _ in range(self._count):
                    self._start_one()
        except BaseException:
            self.__exit__()
            raise
        self.idle = list(range(self._count))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)

    def send(self, worker: int, task: tuple[Any, ...]) -> None:
        """Give a task to an idle worker."""
        self.idle.remove(worker)
        try:
            self._connections[worker].send(task)
        except OSError:  # It has ended, perhaps with an error that waits to be received.
            self._receive_from(worker)
            raise self._ended(worker) from None

    def receive(self) -> tuple[int, Any]:
        """Wait for a worker to finish its task; return its index and the result."""
        busy = [self._connections[worker] for worker in range(len(self)) if worker not in self.idle]
        if not busy:
            raise ValueError("all workers are idle")
        return self._receive_from(self._connections.index(wait(busy)[0]))

    def _receive_from(self, worker: int) -> tuple[int, Any]:
        try:
            result, error, text, messages = self._connections[worker].recv()
        except (EOFError, OSError):
            raise self._ended(worker) from None
        for level, message in messages:
            if message not in self._messages:  # Each worker says the same of the model.
                self._messages.add(message)
                logger.log(level, "%s", message)
        if error is not None:
            raise error from WorkerTraceback(text)
        self.idle.append(worker)
        return worker, result

    def _ended(self, worker: int) -> ElmokitError:
        process = self._processes[worker]
        process.join(SECONDS_TO_END)
        code = process.exitcode
        how = f"was killed by signal {-code}" if (code or 0) < 0 else f"ended with exit code {code}"
        return ElmokitError(
            f"worker process {process.pid} {how}, perhaps because memory ran out: what is written "
            "so far is kept; continue with --resume, or with fewer workers"
        )

    def _start_one(self) -> None:
        ours, theirs = self._context.Pipe()
        # Daemons are also ended if this process exits without leaving the block.
        process = self._context.Process(target=_serve, args=(theirs, *self._start), daemon=True)
        process.start()
        theirs.close()  # Otherwise the end of the worker would not close the connection.
        self._processes.append(process)
        self._connections.append(ours)

    def _stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(SECONDS_TO_END)
            if process.is_alive():
                process.kill()
                process.join()
        for connection in self._connections:
            connection.close()

    def _end_by_signal(self, signum: int, _: FrameType | None) -> None:
        """End the workers, then this process as if it had not caught the signal."""
        self._stop()
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C in the terminal does not reach: this process ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows: see `_serve`.
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_workers(workers: int) -> None:
    """Raise if `workers` is less than 1, or more than any machine can run."""
    if not 1 <= workers <= MAX_WORKERS:
        raise ElmokitError(f"workers must be between 1 and {MAX_WORKERS}, not {workers}")


# ---------------------------------------------------------------------- in the worker
def _serve(
    connection: Connection, build: Callable[..., Callable[..., Any]], arguments: tuple[Any, ...]
) -> None:
    """Build the function, then call it for each task until the other process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logged = BufferingHandler(MAX_MESSAGES)
    logger.addHandler(logged)

    def send(result: Any, error: Exception | None = None, text: str = "") -> None:
        messages = [(record.levelno, record.getMessage()) for record in logged.buffer]
        logged.flush()
        connection.send((result, error, text, messages))

    try:
        call = build(*arguments)
        while True:
            try:
                task = connection.recv()
            except EOFError:
                return
            send(call(*task))
    except Exception as error:
        text = traceback.format_exc()
        with suppress(EOFError, OSError):  # The other process may be gone already.
            send(None, _portable(error), text)
            while True:  # Stay until it has read that.
                connection.recv()


def _portable(error: Exception) -> Exception:
    """Return an error, or its text if it does not survive a pickle."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _end_with_parent() -> None:
    """End this process at once when the one that started it has ended, even by kill -9."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
