"""`elmokit embed` is killed or stopped by signals, and resumes to the same bytes."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from children import HANGS, Child
from embed_command import Run, content_of, long_text, names_in, python

import elmokit.cli.embed
import elmokit.embed
import elmokit.embed_file
from elmokit.cli.main import main
from elmokit.vectors import hdf5

# Runs the command again and again in processes that are forked after the slow imports.
KILL_AT_RANDOM = """
import os, random, signal, sys, time
from pathlib import Path
import elmokit.embed, elmokit.formats.detect, h5py, safetensors
from elmokit.cli.main import main
from elmokit.io.resumable import parts_folder
from elmokit.vectors.shards import ASSEMBLED, INDEX

elmokit.embed.WINDOW_BYTES = 1 << 15  # 26 parts
model, names = sys.argv[1], sys.argv[2:]
random.seed(1)
assert main(["embed", "missing", "missing.h5"]) == 2  # imports the rest

def run(out, moment):
    child = os.fork()
    if child == 0:
        options = ["--tokenizer=whitespace", "--batch-tokens=32", "--resume", "--quiet"]
        os._exit(main(["embed", "text.txt", str(out), "--model", model, *options]))
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if moment():
            time.sleep(random.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.001)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL

def parts_done(out):
    return len(list(parts_folder(out).glob("part-*.json")))

def content_of(out):
    if out.is_dir():
        return {path.name: path.read_bytes() for path in out.iterdir()}
    return out.read_bytes()

for name in names:
    whole, out = Path("whole-" + name), Path(name)
    assert not run(whole, lambda: False)
    in_one_go = content_of(whole)
    parts = parts_folder(out)
    early = late = 0
    while not out.exists() or parts.exists():
        if early < 4:
            enough = parts_done(out) + random.randint(0, 3)
            early += run(out, lambda: parts_done(out) >= enough)
        elif late < 2:
            for file in (INDEX, ASSEMBLED):
                (parts / file).unlink(missing_ok=True)
            late += run(out, lambda: (parts / INDEX).exists())
        else:
            run(out, lambda: False)
        assert not out.exists() or content_of(out) == in_one_go
    print(early, late)
    assert content_of(out) == in_one_go
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_run_killed_at_random_moments_resumes_to_the_same_bytes(
    folder: Path, model: Path
) -> None:
    (folder / "text.txt").write_text(long_text(1000), encoding="utf-8")
    names = ["vectors.h5", "vectors.npy"]
    done = python("-c", KILL_AT_RANDOM, str(model), *names, cwd=folder)
    assert done.returncode == 0, done.stderr
    kills = [[int(i) for i in row.split()] for row in done.stdout.splitlines()]
    assert all(early >= 3 for early, _ in kills)
    assert kills[0][1] >= 1  # HDF5 takes its time to be put together
    assert names_in(folder) == sorted(["text.txt", *names, *("whole-" + name for name in names)])


OPTIONS = ["--batch-tokens=64", "--tokenizer=whitespace", "--threads=1"]
SMALL_WINDOWS = "import elmokit.embed; elmokit.embed.WINDOW_BYTES = 1 << 15"  # 65 parts


@pytest.fixture
def long_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a text of many parts, here and in child processes that begin with SMALL_WINDOWS."""
    (folder / "text.txt").write_text(long_text(2500), encoding="utf-8")
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 15)


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a run of that text writes that nobody stops."""
    folder = tmp_path_factory.mktemp("whole")
    text, out = folder / "text.txt", folder / "vectors.h5"
    text.write_text(long_text(2500), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 15)
        assert main(["embed", str(text), str(out), *OPTIONS, f"--model={model}", "--quiet"]) == 0
    return out.read_bytes()


def start(model: Path, *options: str, before: str = "") -> Child:
    """Start the run in a process of its own, and wait until it has written three parts."""
    arguments = ["embed", "text.txt", "vectors.h5", *OPTIONS, f"--model={model}", "--quiet"]
    child = Child([*arguments, *options], before=f"{SMALL_WINDOWS}\n{before}")
    while child.poll() is None and not Path("vectors.h5.parts/part-000002.json").exists():
        time.sleep(0.001)
    return child


@pytest.mark.usefixtures("long_run")
@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
@pytest.mark.parametrize(
    ("stop", "code", "said"),
    [(signal.SIGINT, 130, "elmokit: interrupted.\n"), (signal.SIGTERM, -signal.SIGTERM, "")],
)
def test_a_run_stopped_by_a_signal_can_go_on(
    folder: Path,
    model: Path,
    embed: Run,
    whole: bytes,
    stop: signal.Signals,
    code: int,
    said: str,
) -> None:
    child = start(model)
    child.send_signal(stop)
    assert child.finish() == (code, said)
    assert names_in(folder) == ["text.txt", "vectors.h5.parts"]

    embed("text.txt", "vectors.h5", *OPTIONS, "--resume")
    assert content_of(Path("vectors.h5")) == whole
    assert names_in(folder) == ["text.txt", "vectors.h5"]


@pytest.mark.usefixtures("long_run")
@pytest.mark.skipif(os.name == "nt", reason="there are no locks")
def test_an_output_takes_one_run_at_a_time(model: Path, embed: Run, whole: bytes) -> None:
    child = start(model, "--resume")
    child.send_signal(signal.SIGSTOP)  # the first is at work, and stays so
    Path("vectors.h5.parts/part-000099.npy").touch()  # as if it were half through one
    before = names_in(Path("vectors.h5.parts"))
    try:
        for option in ("--resume", "--overwrite"):
            assert embed("text.txt", "vectors.h5", *OPTIONS, option, code=2) == (
                "elmokit: error: another process is writing to vectors.h5.parts: wait until it "
                "ends, or choose another output\n"
            )
            assert names_in(Path("vectors.h5.parts")) == before
    finally:
        child.kill()
        child.finish()
    embed("text.txt", "vectors.h5", *OPTIONS, "--resume")
    assert content_of(Path("vectors.h5")) == whole


class ControlC:
    """Arrives where Python loses what is raised, as in the callbacks of h5py."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_control_c_while_hdf5_is_written_is_neither_lost_nor_harmful(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed("text.txt", "whole.h5")
    real = hdf5.DeferredErrors.write
    for writes in (0, 1, 5, 10, 15):
        left = iter(range(writes))

        def write(shield: Any, content: bytes, left: Any = left) -> int:
            if next(left, None) is None:
                ControlC()
            return real(shield, content)

        with monkeypatch.context() as patch:
            patch.setattr(hdf5.DeferredErrors, "write", write)
            said = embed("text.txt", "vectors.h5", "--overwrite", code=130)
        assert said == "elmokit: interrupted.\n"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert names_in(Path()) == ["text.txt", "vectors.h5.parts", "whole.h5"]
    embed("text.txt", "vectors.h5", "--resume")
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))


def has_ended(process: int) -> bool:
    """Tell whether a process is gone, or only waits for its parent to notice."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.slow
@pytest.mark.usefixtures("long_run")
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")
@pytest.mark.parametrize(
    ("victim", "signum", "code", "said"),
    [
        ("worker", signal.SIGKILL, 2, r"elmokit: error: worker process \d+ was killed by signal 9"),
        ("all", signal.SIGINT, 130, r"elmokit: interrupted.\n"),
        ("main", signal.SIGTERM, -signal.SIGTERM, r"$"),
        ("main", signal.SIGKILL, -signal.SIGKILL, r"$"),
    ],
)
def test_a_run_of_workers_is_stopped_as_a_whole_and_resumes_to_the_same_bytes(
    folder: Path,
    model: Path,
    embed: Run,
    whole: bytes,
    victim: str,
    signum: signal.Signals,
    code: int,
    said: str,
) -> None:
    child = start(model, "--workers=2", before="import os; os.setsid()")
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    processes = [int(process) for process in children]
    workers = [p for p in processes if b"spawn_main" in Path(f"/proc/{p}/cmdline").read_bytes()]
    assert len(workers) == 2
    if victim == "all":  # as a terminal does
        os.killpg(child.pid, signum)
    else:
        os.kill(workers[0] if victim == "worker" else child.pid, signum)
    result, err = child.finish()
    assert result == code, err
    assert re.match(said, err), err
    assert err.count("\n") <= 1
    end = time.monotonic() + HANGS
    while not all(map(has_ended, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    assert all(map(has_ended, processes))
    assert names_in(folder) == ["text.txt", "vectors.h5.parts"]

    embed("text.txt", "vectors.h5", *OPTIONS, "--resume")
    assert content_of(Path("vectors.h5")) == whole
