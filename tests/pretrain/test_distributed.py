"""Several processes train as one does: the same numbers, every row once, no one left behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import HANGS, Child
from runs import Options, arguments, pretrain
from safetensors.numpy import load_file

from elmokit.cli.main import main
from elmokit.errors import ElmokitError
from elmokit.pretrain.log import read_log

pytestmark = pytest.mark.slow
Ends = list[tuple[int, str]]

# Python that a process runs first: it notes which rows of which windows are read.
RECORD = """
import json, os, sys
from elmokit.pretrain.windows import Windows
window = Windows.window

def noted(self, epoch, step, rows=slice(None)):
    with open(f"rows-{os.environ['RANK']}.jsonl", "a") as stream:
        note = [self.rows, epoch, step, list(range(self.rows)[rows])]
        stream.write(json.dumps(note) + "\\n")
    return window(self, epoch, step, rows)

Windows.window = noted
"""

# The second process meets an error at its sixth step.
FAIL = """
import os
from elmokit.errors import ElmokitError
from elmokit.pretrain.trainer import Trainer
one_step = Trainer.one_step

def failing(self):
    if os.environ["RANK"] == "1" and self.step == 5:
        raise ElmokitError("the second process is out of luck")
    return one_step(self)

Trainer.one_step = failing
"""

# The second process looks only every three seconds what the others do, as on a busy machine.
SLOW = """
import os
from elmokit.pretrain import distributed

if os.environ["RANK"] == "1":
    distributed.POLL = 3.0
"""


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As torchrun sets it; what the processes note is written into the folder of the test."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def options(options: Options) -> Options:
    """A run of 40 steps."""
    return options | {"max_steps": 40, "workers": 1}


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def start(options: Options, *, world: int = 2, before: str = "") -> list[Child]:
    """The processes of a run, as a launcher starts them."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": str(world)}
    return [
        Child(
            arguments(options),
            before=before,
            env={**address, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world)
    ]


def finish(processes: list[Child]) -> Ends:
    """Exit code and words of each; one that runs for too long is a failure."""
    end = time.monotonic() + HANGS
    try:
        return [each.finish(max(0.1, end - time.monotonic())) for each in processes]
    finally:
        for process in processes:
            process.kill()


def steps_of(options: Options) -> list[int]:
    return [line["step"] for line in read_log(Path(options["out"], "log.jsonl"))]


def wait_for_a_line(options: Options, processes: list[Child]) -> None:
    """Until the log says something, which is after 20 steps."""
    while not steps_of(options):
        assert [process.poll() for process in processes] == [None] * len(processes)
        time.sleep(0.02)


def figures(options: Options) -> dict[str, float]:
    """The losses and held-out perplexities of the log, by step."""
    result: dict[str, float] = {}
    for line in read_log(Path(options["out"], "log.jsonl")):
        values = line.get("heldout") or {"loss": line["loss"]}
        result |= {f"{name} after step {line['step']}": value for name, value in values.items()}
    return result


def weights(options: Options) -> dict[str, np.ndarray[Any, Any]]:
    last = sorted(Path(options["out"], "training").glob("step-*"))[-1]
    tensors = load_file(last / "state.safetensors")
    return {name: value for name, value in tensors.items() if not name.startswith("optimizer")}


def assert_same_run(one: Options, other: Options, tolerance: float = 1e-4) -> None:
    """The same losses, held-out perplexities, weights and LSTM states."""
    assert steps_of(one)[-1] == 40
    result, expected = figures(one), figures(other)
    assert {f"{what} after step 40" for what in ("loss", "forward", "backward")} <= expected.keys()
    for name, value in expected.items():
        assert result[name] == pytest.approx(value, abs=tolerance), name
    tensors = weights(other)
    assert weights(one).keys() == tensors.keys()
    for name, tensor in weights(one).items():
        np.testing.assert_allclose(tensor, tensors[name], rtol=0, atol=tolerance, err_msg=name)


CASES: dict[str, Options] = {
    "plain": {},
    "dropout": {"dropout": 0.3},
    "sampled softmax": {"dropout": 0.3, "softmax": "sampled", "samples": 10, "optimizer": "adamw"},
}


@pytest.mark.parametrize("case", CASES)
def test_two_processes_learn_what_one_learns(case: str, options: Options) -> None:
    alone = options | CASES[case] | {"out": options["out"] + "-alone"}
    together = options | CASES[case]
    processes = start(together)
    assert pretrain(alone).stopped_by == 0
    assert finish(processes) == [(0, ""), (0, "")]
    assert_same_run(together, alone)


def test_every_row_is_read_by_one_process_in_every_step(options: Options, tmp_path: Path) -> None:
    options |= {"batch_size": 12, "accumulate": 2, "max_steps": 7, "eval_every": 5}
    assert finish(start(options, world=3, before=RECORD)) == [(0, "")] * 3
    parts: dict[tuple[int, int, int], list[int]] = {}  # how many rows each has
    rows: dict[tuple[int, int, int], Counter[int]] = {}  # how often each was read
    for rank in range(3):
        notes = (tmp_path / f"rows-{rank}.jsonl").read_text().splitlines()
        for total, epoch, step, read in map(json.loads, notes):
            parts.setdefault((total, epoch, step), []).append(len(read))
            rows.setdefault((total, epoch, step), Counter()).update(read)
    assert {(12, 0, step) for step in range(7)} < rows.keys()
    for (total, epoch, step), times in rows.items():
        held_out = total != 12  # measured after steps 5 and 7
        assert times == dict.fromkeys(range(total), 2 if held_out else 1)
        if not held_out:
            assert parts[total, epoch, step] == [2] * 6  # 3 processes with 2 parts


def test_a_run_of_two_that_was_killed_resumes_to_the_same_result(options: Options) -> None:
    whole = options | {"out": options["out"] + "-whole"}
    assert finish(start(whole)) == [(0, ""), (0, "")]
    processes = start(options)
    wait_for_a_line(options, processes)
    for process in processes:
        process.kill()
    assert [code for code, _ in finish(processes)] == [-signal.SIGKILL] * 2
    assert 40 not in steps_of(options)
    assert finish(start(options)) == [(0, ""), (0, "")]
    assert_same_run(options, whole, tolerance=1e-6)


def test_a_run_resumes_with_another_number_of_processes(options: Options) -> None:
    options |= {"dropout": 0.3}
    whole = options | {"out": options["out"] + "-whole"}
    assert pretrain(whole).stopped_by == 0
    assert finish(start(options | {"max_steps": 15})) == [(0, ""), (0, "")]
    # Half as many processes: as many rows at a time if each reads them in two parts.
    assert pretrain(options | {"max_steps": 25, "accumulate": 2}).stopped_by == 0
    assert finish(start(options)) == [(0, ""), (0, "")]
    assert_same_run(options, whole)


def test_torchrun_starts_the_command(options: Options) -> None:
    options |= {"max_steps": 10}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    address = ["--master-addr", "127.0.0.1", "--master-port", free_port()]
    command = [*launcher, *address, "-m", "elmokit", *arguments(options | {"quiet": False})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("of the softmax, 10 steps by 2 processes\n") == 1
    assert done.stderr.count("is trained: 10 steps") == 1
    missing = arguments(options | {"corpus": "nothing.txt", "out": options["out"] + "-no"})
    command = [*command[: command.index("elmokit") + 1], *missing]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)
    assert done.returncode == 1
    assert done.stderr.count("elmokit: error: ") == 1
    assert "nothing.txt" in done.stderr


# ---- when something goes wrong


def test_a_batch_that_cannot_be_shared_is_one_sentence(options: Options) -> None:
    (first, said), (second, silent) = finish(start(options | {"batch_size": 7}))
    assert (first, second) == (2, 2)
    assert sorted([said, silent]) == [
        "",
        "elmokit: error: a batch of 7 rows cannot be split over 2 processes with 1 part each: make "
        "batch_size a multiple of 2\n",
    ]
    with pytest.raises(ElmokitError, match="make batch_size a multiple of 3"):
        pretrain(options | {"accumulate": 3})


@pytest.mark.parametrize("before", ["", SLOW], ids=["soon", "late"])
def test_when_the_first_fails_before_it_has_the_text_the_others_end(
    options: Options, before: str
) -> None:
    Path(options["corpus"]).write_bytes(b"not \xff UTF-8\n")
    ends = finish(start(options | {"batch_size": 6}, world=3, before=before))
    assert [code for code, _ in ends] == [2, 2, 2]
    assert "is not UTF-8" in ends[0][1]
    assert [said for _, said in ends[1:]] == ["", ""]


def test_when_another_fails_in_the_middle_the_first_ends_too(options: Options) -> None:
    (first, silent), (second, said) = finish(start(options, before=FAIL))
    assert (first, second) == (2, 2)
    assert said == "elmokit: error: the second process is out of luck\n"
    assert silent == ""


def test_when_one_is_killed_the_other_says_that_the_run_can_be_resumed(options: Options) -> None:
    processes = start(options | {"max_steps": 100_000, "epochs": 10_000})
    wait_for_a_line(options, processes)
    processes[1].kill()
    (code, said), _ = finish(processes)
    assert code == 2
    assert said == (
        "elmokit: error: another process of this run has ended early; the same command resumes "
        "the run from the last checkpoint\n"
    )


def test_a_signal_to_one_stops_all_at_the_same_step(options: Options) -> None:
    processes = start(options | {"max_steps": 100_000, "epochs": 10_000, "save_every": 10**6})
    wait_for_a_line(options, processes)
    processes[1].send_signal(signal.SIGTERM)
    assert finish(processes) == [(128 + signal.SIGTERM, "")] * 2
    last = sorted(Path(options["out"], "training").glob("step-*"))[-1]
    assert json.loads((last / "state.json").read_text())["step"] >= steps_of(options)[-1]


def test_a_launcher_that_sets_half_of_the_environment_is_reported(
    options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    assert main(arguments(options)) == 2
    assert capsys.readouterr().err == (
        "elmokit: error: WORLD_SIZE says that 2 processes train together, but RANK is not set: "
        "start them with torchrun\n"
    )
