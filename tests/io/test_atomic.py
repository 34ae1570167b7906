"""Files and folders that are replaced as a whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.errors import ElmokitError
from elmokit.io.atomic import atomic_file, atomic_folder, replace_folder, write_file


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
        with atomic_folder(folder, overwrite=True) as temporary:
            (temporary / content).touch()
    assert (names_in(tmp_path), names_in(folder)) == (["folder"], ["new"])
    with pytest.raises(ElmokitError, match="folder already exists"), atomic_folder(folder):
        pass
    with pytest.raises(ValueError, match="bad"), atomic_folder(folder, overwrite=True):
        raise ValueError("bad")
    assert (names_in(tmp_path), names_in(folder)) == (["folder"], ["new"])


def test_the_old_folder_is_put_back_if_the_new_one_cannot_be_renamed(tmp_path: Path) -> None:
    target, aside = tmp_path / "target", tmp_path / "aside"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "missing", target, aside=aside, remove=pytest.fail)
    assert (names_in(tmp_path), names_in(target)) == (["target"], ["old"])
