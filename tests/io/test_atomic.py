"""Files and folders that are replaced as a whole, or not at all."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit.errors import ElmokitError
from elmokit.io.atomic import (
    atomic_file,
    atomic_folder,
    remove_files,
    remove_leftovers,
    replace_folder,
    write_file,
)
from elmokit.io.jsonfile import read_json, write_json


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_has_the_old_content_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_file(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert (names_in(tmp_path), path.stat().st_mode & 0o777) == (["a.txt"], 0o644)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_file(path):
        raise error
    assert (path.read_text(), names_in(tmp_path)) == ("old", ["a.txt"])


def test_text_is_written_as_utf8_and_bytes_as_they_are(tmp_path: Path) -> None:
    write_file(tmp_path / "a", iter(["naïve\n", "文\n"]))
    assert (tmp_path / "a").read_bytes() == "naïve\n文\n".encode()
    write_file(tmp_path / "a", b"\0\r\n")
    assert (tmp_path / "a").read_bytes() == b"\0\r\n"
    with pytest.raises(ElmokitError, match=r"cannot write .*no/a: No such file"):
        write_file(tmp_path / "no" / "a", b"")


def test_a_folder_is_replaced_only_if_that_is_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for content in ("old", "new"):
        with atomic_folder(folder, replace=("old", "n*")) as temporary:
            (temporary / content).touch()
    assert (names_in(tmp_path), names_in(folder)) == (["folder"], ["new"])
    with pytest.raises(ElmokitError, match="folder already exists"), atomic_folder(folder):
        pass
    with pytest.raises(ValueError, match="bad"), atomic_folder(folder, replace=("new",)):
        raise ValueError("bad")
    assert (names_in(tmp_path), names_in(folder)) == (["folder"], ["new"])


@pytest.mark.parametrize("name", ["thesis.tex", ".git/HEAD", "old/x"])
def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path, name: str) -> None:
    other = tmp_path / "folder" / name
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    with (
        pytest.raises(ElmokitError, match=rf"not replaced.*\({Path(name).parts[0]}\)"),
        atomic_folder(tmp_path / "folder", replace=("old", "new")),
    ):
        pass
    assert (names_in(tmp_path), other.read_text()) == (["folder"], "mine")


def test_nothing_is_replaced_or_deleted_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "old").touch()
    (tmp_path / "folder").symlink_to(tmp_path / "mine")
    with (
        pytest.raises(ElmokitError, match="folder is a link, so it is not replaced"),
        atomic_folder(tmp_path / "folder", replace=("old",)),
    ):
        pass
    remove_files(tmp_path / "folder", ("old",))
    planted = tmp_path / ".a.0123abcd.elmokit"
    planted.symlink_to(tmp_path / "mine" / "old")
    write_file(tmp_path / "a", b"new")
    with atomic_file(tmp_path / "b", temporary=planted) as file:
        file.write(b"new")
    assert (tmp_path / "mine" / "old").read_bytes() == b""
    assert names_in(tmp_path) == ["a", "b", "folder", "mine"]


def test_the_old_folder_is_put_back_if_the_new_one_cannot_be_renamed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "missing", target)
    assert (names_in(tmp_path), names_in(target)) == (["target"], ["old"])


def test_the_next_writer_deletes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    for name in (".a.0123abcd.elmokit", ".b.0123abcd.elmokit", ".a.mine", ".a.txt.elmokit"):
        (tmp_path / name).touch()
    write_file(tmp_path / "a", b"new")
    assert names_in(tmp_path) == [".a.mine", ".a.txt.elmokit", ".b.0123abcd.elmokit", "a"]
    with atomic_file(tmp_path / "c"):  # which is locked
        remove_leftovers(tmp_path)
        assert len(names_in(tmp_path)) == 4
    assert names_in(tmp_path) == [".a.mine", ".a.txt.elmokit", "a", "c"]


def test_temporary_folders_inside_one_another_are_deleted(tmp_path: Path) -> None:
    nested = "..a.0123abcd.elmokit.4567abcd.elmokit"
    for name in (nested, f"{nested}.old"):
        (tmp_path / name).mkdir()
    remove_leftovers(tmp_path, "b")
    assert len(names_in(tmp_path)) == 2
    write_file(tmp_path / "a", b"new")
    assert names_in(tmp_path) == ["a"]


def test_a_folder_whose_replacement_was_killed_gets_its_name_back(tmp_path: Path) -> None:
    aside = tmp_path / ".folder.0123abcd.elmokit.old"
    aside.mkdir()
    (aside / "old").touch()
    remove_leftovers(tmp_path, "folder")
    assert (names_in(tmp_path), names_in(tmp_path / "folder")) == (["folder"], ["old"])


KILLED = """
import os, sys
from pathlib import Path
from elmokit.io import atomic
step, calls = int(sys.argv[1]), 0

def counted(function):
    def wrapper(*arguments, **options):
        global calls
        calls += 1
        if calls == step:
            os._exit(9)
        return function(*arguments, **options)
    return wrapper

for owner, name in ((os, "fsync"), (os, "rename"), (os, "replace"), (os, "unlink"), (os, "mkdir"),
                    (os, "rmdir"), (os, "open")):
    setattr(owner, name, counted(getattr(owner, name)))
with atomic.atomic_folder(Path("folder"), replace=("content",)) as folder:
    (folder / "content").write_text("new")
atomic.write_file(Path("file"), b"new")
"""


def test_a_kill_at_any_step_leaves_the_old_or_the_new_version(tmp_path: Path) -> None:
    for step in range(1, 100):
        folder = tmp_path / str(step)
        (folder / "folder").mkdir(parents=True)
        (folder / "folder" / "content").write_text("old")
        (folder / "file").write_text("old")
        done = subprocess.run([sys.executable, "-c", KILLED, str(step)], cwd=folder).returncode
        remove_leftovers(folder)
        assert names_in(folder) == ["file", "folder"]
        assert (folder / "folder" / "content").read_text() in ("old", "new")
        assert (folder / "file").read_text() in ("old", "new")
        if done == 0:
            break
    assert step > 12
    assert (folder / "file").read_text() == (folder / "folder" / "content").read_text() == "new"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_the_umask_of_the_user_holds(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_file(tmp_path / "a", b"")
        with atomic_folder(tmp_path / "b") as folder:
            (folder / "c").touch(0o644)
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "b", "b/c")]
    assert modes == [0o600, 0o700, 0o600]


def test_names_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    (
        tmp_path / f".{hashlib.blake2b(b'n' * 255, digest_size=16).hexdigest()}.0123abcd.elmokit"
    ).touch()
    write_file(path, b"new")
    assert names_in(tmp_path) == [path.name]


def test_a_planted_link_at_a_temporary_name_is_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("years of work")
    for name in ("a.json", "a.json.tmp"):
        (tmp_path / name).symlink_to(mine)
    write_json(tmp_path / "a.json", {"a": 1})
    assert mine.read_text() == "years of work"
    assert read_json(tmp_path / "a.json") == {"a": 1}
    assert not (tmp_path / "a.json").is_symlink()
