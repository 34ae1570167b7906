"""Records outlive a kill at any moment, damage and other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit.io import records
from elmokit.io.records import DATA, INDEX, LINE, Records, remove_oldest


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def content(number: int) -> bytes:
    return bytes([number % 251]) * (1000 + number)


def some(*numbers: int) -> dict[bytes, bytes]:
    return {key(number): content(number) for number in numbers}


def holds(found: Records, *numbers: int) -> bool:
    """Whether exactly these are there, byte by byte."""
    values = [found.get(key(number)) for number in numbers]
    right = [
        v is not None and v.tobytes() == content(n) for v, n in zip(values, numbers, strict=True)
    ]
    return all(right) and len(found) == len(numbers)


def test_what_is_appended_is_found_now_and_later(tmp_path: Path) -> None:
    first = Records(tmp_path / "r")
    assert first.get(key(1)) is None
    first.append(some(1, 2))
    assert holds(first, 1, 2)
    first.append(some(3))
    first.append(some(2, 3))  # are there already
    assert holds(first, 1, 2, 3)
    assert holds(Records(tmp_path / "r"), 1, 2, 3)
    assert (tmp_path / "r" / DATA).stat().st_size == sum(1000 + n for n in (1, 2, 3))


def test_a_second_one_sees_what_the_first_adds(tmp_path: Path) -> None:
    first, second = Records(tmp_path), Records(tmp_path)
    first.append(some(1))
    second.append(some(1, 2))  # without having looked
    assert holds(second, 1, 2)
    first.refresh()
    assert holds(first, 1, 2)


# Dies in the middle of the chosen write, with so many of its bytes on the disk.
DIES = """
import os, signal, sys
from elmokit.io import records

folder, fatal, share = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
whole, done = records.write_at, 0

def write_at(file, position, content):
    global done
    done += 1
    if done == fatal:
        file.seek(position)
        file.write(content[: int(len(content) * share)])
        os.kill(os.getpid(), signal.SIGKILL)
    whole(file, position, content)

records.write_at = write_at
found = records.Records(records.Path(folder))
for number in (1, 2, 3):
    key = number.to_bytes(16, "little")
    found.append({key: bytes([number]) * (1000 + number)})
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("fatal", [1, 2, 3, 4])
def test_a_kill_in_the_middle_of_an_append_loses_that_append_alone(
    fatal: int, share: float, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", DIES, str(tmp_path), str(fatal), str(share)]
    assert subprocess.run(command, timeout=100).returncode == -signal.SIGKILL
    whole = (fatal - 1) // 2 + (fatal % 2 == 0 and share == 1.0)  # writes go data, index, data, …
    found = Records(tmp_path)
    assert holds(found, *range(1, whole + 1))
    found.append(some(1, 2, 3, 4))
    assert holds(found, 1, 2, 3, 4)
    assert holds(Records(tmp_path), 1, 2, 3, 4)


def test_processes_that_append_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    program = """
import sys
from elmokit.io.records import Path, Records
found = Records(Path(sys.argv[1]))
for number in range(int(sys.argv[2]), 60, 2):  # every third is everybody's
    found.append({n.to_bytes(16, "little"): bytes([n]) * (1000 + n) for n in (number, number // 3)})
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen([*command, start]) for start in ("0", "1", "0")]
    assert [process.wait(timeout=100) for process in running] == [0, 0, 0]
    assert holds(Records(tmp_path), *range(60))
    assert (tmp_path / INDEX).stat().st_size == 60 * LINE  # nothing is there twice


def test_damaged_bytes_are_not_given_and_can_be_replaced(tmp_path: Path) -> None:
    Records(tmp_path).append(some(1, 2, 3))
    data = bytearray((tmp_path / DATA).read_bytes())
    data[1500] ^= 1  # in the second
    (tmp_path / DATA).write_bytes(data)
    found = Records(tmp_path)
    assert found.get(key(2)) is None
    assert holds(found, 1, 3)
    found.append(some(2))
    assert holds(found, 1, 3, 2)
    assert holds(Records(tmp_path), 1, 2, 3)


@pytest.mark.parametrize("file", [DATA, INDEX])
def test_files_cut_anywhere_lose_only_what_was_cut(file: str, tmp_path: Path) -> None:
    for cut in (1, 1001, LINE, LINE + 1, 10**6):
        folder = tmp_path / str(cut)
        Records(folder).append(some(1, 2, 3))
        size = (folder / file).stat().st_size
        os.truncate(folder / file, max(0, size - cut))
        found = Records(folder)
        assert len(found) < 3
        assert holds(found, *range(1, len(found) + 1))
        found.append(some(1, 2, 3))
        assert holds(found, 1, 2, 3)
        assert holds(Records(folder), 1, 2, 3)


def test_bytes_that_say_nothing_in_the_index_are_passed_over(tmp_path: Path) -> None:
    Records(tmp_path).append(some(1))
    with (tmp_path / INDEX).open("ab") as file:
        file.write(os.urandom(2 * LINE + 5))
    found = Records(tmp_path)
    assert holds(found, 1)
    found.append(some(2))
    assert holds(Records(tmp_path), 1, 2)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Records(tmp_path)
    found.append(some(1))

    def full(file: object, position: int, content: bytes) -> None:
        file.seek(position)  # type: ignore[attr-defined]
        file.write(content[:500])  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(records, "write_at", full)
        with pytest.raises(OSError, match="No space"):
            found.append(some(2))
    assert (tmp_path / DATA).stat().st_size == 1001  # and gives the space back
    assert holds(found, 1)
    found.append(some(2))
    assert holds(Records(tmp_path), 1, 2)


def test_records_that_were_deleted_serve_those_who_use_them(tmp_path: Path) -> None:
    found = Records(tmp_path / "r")
    found.append(some(1))
    assert remove_oldest(tmp_path, needed=1, limit=1, spare=tmp_path / "other") == 1
    assert not (tmp_path / "r").exists()
    assert holds(found, 1)
    found.append(some(2))  # goes nowhere, but can be read
    assert holds(found, 1, 2)
    assert len(Records(tmp_path / "r")) == 0


def test_the_folders_used_longest_ago_go_first(tmp_path: Path) -> None:
    for number, name in enumerate(["old", "mine", "middle", "new"]):
        Records(tmp_path / name).append(some(1))
        os.utime(tmp_path / name / INDEX, (number, number))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("not ours")
    each = 1001 + LINE
    assert remove_oldest(tmp_path, needed=each, limit=5 * each, spare=tmp_path / "mine") == each
    assert len(list(tmp_path.iterdir())) == 5  # all fit
    room = remove_oldest(tmp_path, needed=each, limit=3 * each, spare=tmp_path / "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "new", "notes"]
    assert room == each
    assert remove_oldest(tmp_path, needed=9 * each, limit=each // 2, spare=tmp_path / "mine") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "notes"]
    Records(tmp_path / "mine")  # opening one makes it the newest
    assert (tmp_path / "mine" / INDEX).stat().st_mtime > 10


def test_a_lock_that_is_never_given_back_is_an_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fcntl")
    found = Records(tmp_path)
    monkeypatch.setattr(records, "PATIENCE", 0.05)
    with records.locked(tmp_path), pytest.raises(OSError, match="another process is writing"):
        found.append(some(1))
    found.append(some(1))
    assert holds(found, 1)
