"""Processes that share a computation: results, errors, and that none of them is left behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from children import HANGS

from elmokit.errors import ElmokitError
from elmokit.workers import Workers, WorkerTraceback, check_workers


def python_workers(count: int) -> Workers:
    """Workers that evaluate the expressions they are sent."""
    return Workers(count, partial, eval)


def is_running(process: int) -> bool:
    """Tell whether a process exists that has not ended; a zombie has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(processes: list[int]) -> list[int]:
    """Return those of the processes that are still there after some time."""
    end = time.monotonic() + HANGS
    while (left := [p for p in processes if is_running(p)]) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def test_each_worker_computes_what_it_is_sent() -> None:
    with python_workers(2) as workers:
        assert workers.idle == [0, 1]
        workers.send(1, ("6 * 7",))
        workers.send(0, ("__import__('os').getpid()",))
        assert workers.idle == []
        results = dict(workers.receive() for _ in range(2))
        assert results[1] == 42
        assert results[0] != os.getpid()
        assert sorted(workers.idle) == [0, 1]
    assert not wait_until_gone([results[0]])


def test_an_error_in_a_worker_is_raised_here_with_its_traceback() -> None:
    with python_workers(1) as workers:
        workers.send(0, ("1 / 0",))
        with pytest.raises(ZeroDivisionError) as raised:
            workers.receive()
    assert isinstance(raised.value.__cause__, WorkerTraceback)
    assert "<string>" in str(raised.value.__cause__)


def test_a_worker_that_cannot_begin_says_why() -> None:
    with Workers(1, partial, "x") as workers:
        workers.idle.clear()  # as if it had a task
        with pytest.raises(TypeError, match="must be callable"):
            workers.receive()


def test_messages_are_logged_here_once(caplog: pytest.LogCaptureFixture) -> None:
    log = "__import__('logging').getLogger('elmokit').warning('a %s', 'sign')"
    with python_workers(2) as workers, caplog.at_level(logging.WARNING, "elmokit"):
        for worker in (0, 1):
            workers.send(worker, (log,))
        for _ in range(2):
            workers.receive()
    assert caplog.messages == ["a sign"]


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("__import__('os').kill(__import__('os').getpid(), 9)", "was killed by signal 9"),
        ("__import__('os')._exit(3)", "ended with exit code 3"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_a_worker_that_dies_is_one_sentence(end: str, how: str) -> None:
    with python_workers(1) as workers:
        workers.send(0, (end,))
        with pytest.raises(ElmokitError, match=rf"^worker process \d+ {how}, .* with --resume"):
            workers.receive()


def test_the_number_of_workers_is_checked() -> None:
    check_workers(2)
    with pytest.raises(ElmokitError, match="workers must be between 1 and 4096, not 0"):
        check_workers(0)


GONE = """
from functools import partial
from multiprocessing import Pipe
from elmokit.workers import _serve

ours, theirs = Pipe()
ours.send(("6 * 7",))
ours.close()
_serve(theirs, partial, (eval,))
"""


def test_a_worker_whose_result_nobody_waits_for_ends_silently() -> None:
    child = subprocess.run([sys.executable, "-c", GONE], capture_output=True, text=True)
    assert (child.returncode, child.stderr) == (0, "")


SLEEP = """
import sys
from functools import partial
from elmokit.workers import Workers

if __name__ == "__main__":
    with Workers(2, partial, eval) as workers:
        for worker in (0, 1):
            workers.send(worker, ("__import__('os').getpid()",))
        print(*(workers.receive()[1] for _ in range(2)), flush=True)
        for worker in (0, 1):
            workers.send(worker, ("__import__('time').sleep(6000)",))
        workers.receive()
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")
@pytest.mark.parametrize(
    ("name", "code"), [("SIGINT", (1, -2)), ("SIGTERM", (-15,)), ("SIGKILL", (-9,))]
)
def test_no_worker_outlives_the_process_that_started_it(
    tmp_path: Path, name: str, code: tuple[int, ...]
) -> None:
    script = tmp_path / "sleep.py"
    script.write_text(SLEEP)
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        processes = [int(process) for process in child.stdout.readline().split()]
        assert len(processes) == 2
        assert all(map(is_running, processes))
        if name == "SIGINT":  # A terminal sends it to all processes of the command.
            os.killpg(child.pid, signal.SIGINT)
        else:
            child.send_signal(getattr(signal, name))
        _, err = child.communicate(timeout=HANGS)
    assert child.returncode in code, err
    assert err.count("Traceback") == (name == "SIGINT")
    assert not wait_until_gone(processes)
