"""Records outlive a kill at any moment, damage and other processes."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import HANGS

from elmokit.io import records
from elmokit.io.records import OVERHEAD_BYTES, Records


def key(i: int) -> bytes:
    return i.to_bytes(16, "little")


def content(i: int) -> bytes:
    return bytes([i % 251]) * (10_000 + i)


def some(*numbers: int) -> dict[bytes, bytes]:
    return {key(i): content(i) for i in numbers}


def holds(result: Records, *numbers: int) -> bool:
    """Whether exactly these are there, byte by byte."""
    return all(result.get(key(i)) == content(i) for i in numbers) and len(result) == len(numbers)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "records.sqlite"


def test_what_is_appended_is_found_now_and_later(path: Path) -> None:
    first = Records(path, "a")
    assert first.get(key(1)) is None
    first.append(some(1, 2))
    assert holds(first, 1, 2)
    first.append(some(3))
    first.append(some(2, 3))  # are there already
    assert key(2) in first
    assert key(4) not in first
    assert holds(first, 1, 2, 3)
    assert holds(Records(path, "a"), 1, 2, 3)
    assert holds(Records(path, "b"))


def test_a_second_one_sees_what_the_first_adds(path: Path) -> None:
    first, second = Records(path, "a"), Records(path, "a")
    first.append(some(1))
    second.append(some(1, 2))
    assert holds(second, 1, 2)
    assert holds(first, 1, 2)


APPENDS = """
import sys
from pathlib import Path
from elmokit.io.records import Records
result = Records(Path(sys.argv[1]), "a")
for i in range(int(sys.argv[2]), 60, 2):  # every third is everybody's
    result.append({n.to_bytes(16, "little"): bytes([n]) * (10_000 + n) for n in (i, i // 3)})
    print(i, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_kill_at_any_moment_loses_at_most_the_last_append(path: Path) -> None:
    randomness = random.Random(1)
    for _ in range(12):
        command = [sys.executable, "-c", APPENDS, str(path), "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(randomness.uniform(0, 0.05))
            process.kill()
            done = [int(line) for line in process.stdout.read().split()]
        result = Records(path, "a")
        assert all(result.get(key(i)) == content(i) for i in done)
        result.append(some(*range(60)))
        assert holds(result, *range(60))
        path.unlink()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_kill_in_the_middle_of_an_append_leaves_none_of_it(path: Path) -> None:
    Records(path, "a").append(some(1))
    program = (
        "import os, signal, sys; from pathlib import Path; from elmokit.io.records import Records\n"
        "class Deadly(dict):\n"
        "    def items(self):\n"
        "        yield bytes(16), bytes(50_000_000)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "result = Records(Path(sys.argv[1]), 'a')\n"
        "database = result._database; database.execute('PRAGMA cache_size = 10')\n"
        "database.execute('BEGIN IMMEDIATE')\n"
        "database.executemany('INSERT INTO records VALUES (?, ?, 0, ?)',"
        " (('a', *item) for item in Deadly().items()))"
    )
    command = [sys.executable, "-c", program, str(path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert path.with_name(f"{path.name}-journal").exists()  # It was in the middle.
    result = Records(path, "a")
    assert holds(result, 1)
    result.append(some(2))
    assert holds(Records(path, "a"), 1, 2)


def test_processes_that_append_at_the_same_time_lose_nothing(path: Path) -> None:
    command = [sys.executable, "-c", APPENDS, str(path)]
    running = [
        subprocess.Popen([*command, start], stdout=subprocess.DEVNULL) for start in ("0", "1", "0")
    ]
    assert [process.wait(timeout=HANGS) for process in running] == [0, 0, 0]
    assert holds(Records(path, "a"), *range(60))


def test_damaged_bytes_are_not_returned_and_can_be_replaced(path: Path) -> None:
    Records(path, "a").append(some(1, 2, 3))
    data = bytearray(path.read_bytes())
    data[data.find(bytes([2]) * 3000) + 2000] ^= 1
    path.write_bytes(data)
    result = Records(path, "a")
    assert result.get(key(2)) is None
    assert holds(result, 1, 3)
    result.append(some(2))
    assert holds(Records(path, "a"), 1, 2, 3)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_file_that_is_cut_or_overwritten_anywhere_is_used_again(path: Path, share: float) -> None:
    for harm in ("cut", "overwritten"):
        Records(path, "a").append(some(*range(20)))
        size = path.stat().st_size
        if harm == "cut":
            os.truncate(path, int(share * size))
        else:
            with path.open("r+b") as file:
                file.seek(int(share * size))
                file.write(random.Random(1).randbytes(5000))
        try:
            result = Records(path, "a")
            for i in range(20):
                assert result.get(key(i)) in (None, content(i))
            result.append(some(*range(20)))
        except sqlite3.Error:  # The store of layers then computes them each time.
            pass
        path.unlink()


def test_a_file_that_is_no_database_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"something else " * 1000)
    result = Records(path, "a")
    result.append(some(1))
    assert holds(Records(path, "a"), 1)


def test_a_full_disk_leaves_what_was_there(path: Path) -> None:
    result = Records(path, "a")
    result.append(some(1))
    pages = result._database.execute("PRAGMA page_count").fetchone()[0]
    result._database.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(sqlite3.Error, match="full"):
        result.append(some(2, 3))
    assert holds(result, 1)
    result._database.execute("PRAGMA max_page_count = 100000")
    result.append(some(2))
    assert holds(Records(path, "a"), 1, 2)


def test_the_owners_used_longest_ago_make_room(path: Path) -> None:
    owners = {}
    for name in ("old", "mine", "middle", "new"):
        owners[name] = Records(path, name)
        owners[name].append(some(1))
    mine, each = owners["mine"], 10_001 + OVERHEAD_BYTES
    assert mine.make_room(each, 100 * each) > 90 * each
    assert [len(owner) for owner in owners.values()] == [1, 1, 1, 1]  # all fit
    size = path.stat().st_size
    assert mine.make_room(8000, size) >= 8000
    assert [len(owner) for owner in owners.values()] == [0, 1, 1, 1]
    mine.append({key(2): bytes(8000)})
    assert path.stat().st_size == size  # the space is used again
    assert mine.make_room(9 * each, each // 2) == 0
    assert [len(owner) for owner in owners.values()] == [0, 2, 0, 0]
    owners["new"].append(some(5))  # whose records were deleted meanwhile
    assert holds(owners["new"], 5)
    mine.make_room(9 * each, each // 2)
    assert holds(owners["new"])


def test_a_lock_that_is_never_given_back_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LOCK_TIMEOUT", 0.05)
    one, other = Records(path, "a"), Records(path, "a")
    one._database.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.append(some(1))
    one._database.execute("ROLLBACK")
    other.append(some(1))
    assert holds(one, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_reads_and_writes_by_a_connection_of_its_own(path: Path) -> None:
    records = Records(path, "a")
    records.append(some(1))
    child = os.fork()
    if child == 0:
        good = records.get(key(1)) == content(1)
        records.append(some(2))
        os._exit(0 if good and holds(records, 1, 2) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    records.append(some(3))
    assert holds(records, 1, 2, 3)
