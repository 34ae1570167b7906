"""Vectors reach the disk whole, whoever is killed and however full it is."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vector_files import (
    NAMES,
    SETTINGS,
    TEXTS,
    begin,
    content_of,
    parts_of,
    run_python,
    sentences,
    write,
)

from elmokit.errors import ElmokitError
from elmokit.vectors import hdf5
from elmokit.vectors.shards import VectorShards
from elmokit.vectors.writer import VectorWriter


class Killed(BaseException):
    """Stands for SIGKILL: nothing that handles errors may catch it."""


@pytest.fixture
def kill_before(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], list[str]]:
    """Raise Killed instead of the n-th thing that changes the disk; returns what was done."""
    steps: list[str] = []
    limit: list[int | None] = [None]

    def watched(owner: Any, name: str, real: Callable[..., Any]) -> None:
        def step(*arguments: Any, **options: Any) -> Any:
            if limit[0] is not None and len(steps) >= limit[0]:
                raise Killed
            steps.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, step)

    watched(os, "fsync", os.fsync)
    for name in ("replace", "rename", "unlink", "rmdir", "mkdir"):
        watched(Path, name, getattr(Path, name))

    def arm(last_step: int | None) -> list[str]:
        steps.clear()
        limit[0] = last_step
        return steps

    return arm


@pytest.mark.parametrize("name", NAMES)
def test_a_run_killed_at_any_step_resumes_to_the_same_bytes(
    tmp_path: Path, name: str, kill_before: Callable[[int | None], list[str]]
) -> None:
    steps = kill_before(None)
    in_one_go = content_of(write(tmp_path / name))
    number_of_steps = len(steps)
    renames = [step for step, what in enumerate(steps) if what in ("replace", "rename")]
    assert len(renames) >= 8  # settings, three parts of two files, and the output
    for step in renames:  # the content before its name, and the name before what follows
        assert (steps[step - 1], steps[step + 1 : step + 2]) == ("fsync", ["fsync"])
    for step in range(number_of_steps):
        out = tmp_path / f"killed-{step}" / name
        kill_before(None)
        out.parent.mkdir()
        kill_before(step)
        with pytest.raises(Killed):
            write(out)
        kill_before(None)
        assert not out.exists() or content_of(out) == in_one_go
        if not out.exists() or parts_of(out).exists():
            write(out, resume=True)
        assert content_of(out) == in_one_go
        assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("name", NAMES)
def test_replacing_an_output_killed_at_any_step_keeps_the_old_or_the_new(
    tmp_path: Path, name: str, kill_before: Callable[[int | None], list[str]]
) -> None:
    kill_before(None)
    old = content_of(write(tmp_path / f"old-{name}", sentences()[:3]))
    new = content_of(write(tmp_path / f"new-{name}"))
    out = tmp_path / "here" / name
    step = 0
    while True:
        kill_before(None)
        out.parent.mkdir()
        write(out, sentences()[:3])
        kill_before(step)
        try:
            write(out, overwrite=True)
        except Killed:
            kill_before(None)
        else:
            break
        # A folder cannot replace another in one step: in between, the old one is beside it.
        standing = out if out.exists() else next(out.parent.glob(f".{name}.*.elmokit.old"))
        assert content_of(standing) in (old, new)
        if parts_of(out).exists():
            write(out, resume=True)
            assert list(out.parent.iterdir()) == [out]
            assert content_of(out) == new
        for path in sorted(out.parent.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        out.parent.rmdir()
        step += 1
    assert step > 20
    assert content_of(out) == new


KILL_AT_RANDOM = """
import os, random, shutil, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from vector_files import NAMES, content_of, parts_of, sentences, write
import h5py, pyarrow.parquet  # before forking, so that a child starts writing at once

random.seed(1)
content = sentences(dim=2000) * 5

def write_and_kill(out, seconds):
    child = os.fork()
    if child == 0:
        write(out, content, resume=True)
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL

def kill_until_finished(out):
    kills = 0
    while kills < 3 or not out.exists() or parts_of(out).exists():
        if out.exists() and not parts_of(out).exists():  # It was faster than the kills: again.
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        # Longer after the tenth kill, for what cannot be done in pieces: assembling.
        kills += write_and_kill(out, random.uniform(0, 0.02 if kills < 10 else 0.02 * kills))
        assert not out.exists() or content_of(out) == in_one_go
        assert kills < 100
    return kills

folder = Path(sys.argv[2])
for name in NAMES:
    in_one_go = content_of(write(folder / ("whole-" + name), content))
    print(kill_until_finished(folder / name))
    assert content_of(folder / name) == in_one_go
assert len(list(folder.iterdir())) == 2 * len(NAMES)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_process_killed_at_random_moments_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    helpers = str(Path(__file__).parents[1] / "helpers")
    done = run_python([sys.executable, "-c", KILL_AT_RANDOM, helpers, str(tmp_path)])
    assert done.returncode == 0, done.stderr
    assert all(int(kills) >= 3 for kills in done.stdout.split()), done.stdout


def test_a_resumed_run_says_how_many_sentences_are_done(tmp_path: Path) -> None:
    out = tmp_path / "vectors.h5"
    assert VectorWriter(out, SETTINGS, resume=True).done == 0
    begin_again = VectorWriter(out, SETTINGS, resume=True)
    begin_again.write(sentences()[:5])
    assert begin_again.done == 5
    assert VectorWriter(out, SETTINGS, resume=True).done == 5


def test_what_an_interruption_left_over_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "vectors.npy"
    begin(out)
    leftovers = ["part-000002.npy", "part-000002.json.tmp", "assembled.tmp"]
    for name in leftovers:
        (parts_of(out) / name).write_bytes(b"half")
    VectorWriter(out, SETTINGS, resume=True)
    assert not any((parts_of(out) / name).exists() for name in leftovers)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("option", ["resume", "overwrite"])
def test_a_folder_of_parts_with_files_of_a_user_is_refused(
    tmp_path: Path, name: str, option: str
) -> None:
    out = tmp_path / name
    begin(out)
    (parts_of(out) / "notes.tmp").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ElmokitError, match=r"other files are in it \(notes.tmp\)"):
        VectorWriter(out, SETTINGS, resume=option == "resume", overwrite=option == "overwrite")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("option", ["resume", "overwrite"])
@pytest.mark.parametrize("name", ["settings.json", "index.json"])
def test_a_folder_of_parts_with_the_json_of_a_user_is_kept(
    tmp_path: Path, name: str, option: str
) -> None:
    out = tmp_path / "vectors.h5"
    parts_of(out).mkdir()
    (parts_of(out) / name).write_text('{"pages": []}')
    with pytest.raises(ElmokitError, match="is not an unfinished run, so it is kept"):
        VectorWriter(out, SETTINGS, resume=option == "resume", overwrite=option == "overwrite")
    assert (parts_of(out) / name).read_text() == '{"pages": []}'


@pytest.mark.parametrize(
    "name", ["settings.json.tmp", "part-000002.npy.tmp", "part-000002.json.tmp", "assembled.tmp"]
)
def test_nothing_is_written_through_a_planted_link(tmp_path: Path, name: str) -> None:
    out, mine = tmp_path / "vectors.h5", tmp_path / "mine"
    mine.write_text("years of work")
    begin(out)
    (parts_of(out) / name).symlink_to(mine)
    write(out, resume=True)
    assert mine.read_text() == "years of work"
    assert content_of(out) == content_of(write(tmp_path / "other.h5"))


@pytest.mark.parametrize("option", ["resume", "overwrite"])
def test_nothing_is_deleted_through_a_linked_folder_of_parts(tmp_path: Path, option: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "settings.json").write_text("{}")
    out = tmp_path / "vectors.h5"
    parts_of(out).symlink_to(tmp_path / "mine")
    with pytest.raises(ElmokitError, match="is a link, so it is not replaced"):
        VectorWriter(out, SETTINGS, resume=option == "resume", overwrite=option == "overwrite")
    assert (tmp_path / "mine" / "settings.json").read_text() == "{}"


def test_a_folder_with_an_index_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    site = tmp_path / "site.npy"
    site.mkdir()
    (site / "index.json").write_text('{"pages": []}')
    with pytest.raises(ElmokitError, match="is not an output of this format"):
        VectorWriter(site, SETTINGS, overwrite=True)
    (site / "page.html").write_text("mine")
    with pytest.raises(ElmokitError, match=r"other files are in it \(page.html\)"):
        VectorWriter(site, SETTINGS, overwrite=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "index.json", "page.html", "site.npy",
    ]  # fmt: skip


def test_dropping_an_unfinished_run_killed_at_any_step_leaves_a_sound_one(
    tmp_path: Path, kill_before: Callable[[int | None], list[str]]
) -> None:
    for step in range(5):  # two parts of two files each
        out = tmp_path / f"{step}.h5"
        kill_before(None)
        begin(out)
        kill_before(step)
        with pytest.raises(Killed):
            VectorWriter(out, {"other": "settings"}, overwrite=True)
        kill_before(None)
        assert VectorWriter(out, SETTINGS, resume=True).done == (6, 3, 0, 0, 0)[step]


def test_nothing_is_embedded_again_when_only_the_parts_were_left_to_delete(
    tmp_path: Path, kill_before: Callable[[int | None], list[str]]
) -> None:
    out = tmp_path / "vectors.h5"
    steps = kill_before(None)
    write(out)
    deleting = steps.index("unlink") + 2
    out.unlink()
    kill_before(deleting)
    with pytest.raises(Killed):
        write(out)
    kill_before(None)
    writer = VectorWriter(out, SETTINGS, resume=True)
    assert writer.done == len(TEXTS)
    writer.finish()
    assert list(tmp_path.iterdir()) == [out]


# The disk


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported_and_the_parts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    in_one_go = content_of(write(tmp_path / f"whole-{name}"))
    out = tmp_path / name
    begin(out)
    writer = VectorWriter(out, SETTINGS, resume=True)

    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ElmokitError, match=r"disk is full.*are kept.*--resume"):
            writer.write(sentences()[6:])
        with pytest.raises(ElmokitError, match=r"disk is full.*are kept.*--resume"):
            writer.finish()
    assert not list(tmp_path.rglob("*.tmp"))
    assert not out.exists()
    assert content_of(write(out, resume=True)) == in_one_go


class FailingFile(io.FileIO):
    """A file on a disk that is full before a given write."""

    writes_left = 1_000_000

    def write(self, content: Any) -> int:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content)


def test_hdf5_tells_every_write_that_failed(tmp_path: Path) -> None:
    shards = VectorShards(write(tmp_path / "vectors.npy"))

    def assemble(writes: int) -> FailingFile:
        raw = FailingFile(tmp_path / "vectors.h5", "w+")
        raw.writes_left = writes
        with io.BufferedRandom(raw) as file:
            hdf5.write_hdf5(shards, file)
        return raw

    needed = 1_000_000 - assemble(1_000_000).writes_left
    assert needed > len(TEXTS)
    for writes in range(needed):
        with pytest.raises(OSError, match="No space left"):
            assemble(writes)


FILL_THE_DISK = """
import gc, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from elmokit.errors import ElmokitError
from vector_files import NAMES, content_of, sentences, write

small, folder = Path(sys.argv[2]), Path(sys.argv[3])
content = sentences(dim=1250) * 8
ballast = small / "ballast"
disk = os.statvfs(small)

def fails(out, space):
    gc.collect()  # a deleted file that is still mapped keeps its space
    free = os.statvfs(small).f_bavail * disk.f_frsize
    ballast.write_bytes(bytes(min(free, disk.f_blocks * disk.f_frsize - space)))
    try:
        write(out, content, resume=True)
    except ElmokitError as error:
        assert "disk is full" in str(error) and "--resume" in str(error), error
        assert not out.exists()
        return True
    finally:
        ballast.unlink()
    return False

for name in NAMES:
    out, in_one_go = small / name, content_of(write(folder / name, content))
    size = sum(map(len, in_one_go.values())) if out.suffix == ".npy" else len(in_one_go)
    # Shares of the space that the output alone takes; assembling needs it twice.
    shares = (0.02, 0.3, 0.8, 1.1, 1.5, 1.9, 2.5)
    print(sum(not out.exists() and fails(out, int(share * size)) for share in shares))
    assert content_of(out) == in_one_go
    assert list(small.iterdir()) == [out]
    [path.unlink() for path in [*out.glob("*"), out] if not path.is_dir()]
    out.is_dir() and out.rmdir()
"""


def run_on_a_small_disk(disk: Path, options: str, script: str, *arguments: str) -> str:
    """Run Python where `disk` is a file system of its own, which nobody else sees."""
    disk.mkdir()
    mount = f'mount -t tmpfs -o {options} none "$0" && echo mounted && exec "$@"'
    command = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", mount, str(disk)]
    helpers = str(Path(__file__).parents[1] / "helpers")
    try:
        done = run_python([*command, sys.executable, "-c", script, helpers, str(disk), *arguments])
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if not done.stdout.startswith("mounted"):
        pytest.skip("mounting a file system is not allowed here")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.removeprefix("mounted\n")


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small tmpfs")
def test_a_disk_that_is_really_full_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    output = run_on_a_small_disk(tmp_path / "small", "size=9m", FILL_THE_DISK, str(tmp_path))
    failures = dict(zip(NAMES, map(int, output.split()), strict=True))
    shards = failures.pop("vectors.npy")  # the parts themselves, no second copy
    assert 3 <= shards < 5 <= min(failures.values()), (shards, failures)


READ_ONLY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from elmokit.errors import ElmokitError
from elmokit.vectors.writer import VectorWriter
from vector_files import SETTINGS

try:
    VectorWriter(Path(sys.argv[2]) / "vectors.h5", SETTINGS)
except ElmokitError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small tmpfs")
def test_a_read_only_directory_is_reported(tmp_path: Path) -> None:
    output = run_on_a_small_disk(tmp_path / "fixed", "ro", READ_ONLY)
    assert "vectors.h5: its folder does not allow it" in output
