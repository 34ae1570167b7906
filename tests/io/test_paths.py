"""Names that no file can have, names that lead elsewhere, and what is not a file."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from tiny import complaint

import elmokit
from elmokit.conversion import convert
from elmokit.data.columns import read_tagged
from elmokit.data.labeled import BadLines, Reading, read_labeled
from elmokit.embed_file import embed_file
from elmokit.errors import MissingFile, UnsupportedFormat
from elmokit.io.jsonfile import read_json, read_text, read_yaml
from elmokit.io.paths import (
    check_output,
    check_regular,
    file_inside,
    find_files,
    is_inside,
    is_special,
)
from elmokit.io.resumable import check_unused
from elmokit.text.readers import read_sentences
from elmokit.text.vocabulary import Vocabulary
from elmokit.vectors.static.table import read_static_vectors
from elmokit.vectors.writer import VectorWriter

LONG = ["x" * 300, f"{'x' * 300}/y", f"folder/{'ü' * 200}.txt", "x" * 5000]


@pytest.mark.parametrize("name", LONG)
def test_a_name_that_is_too_long_is_a_sentence_everywhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "in.txt").write_text("a b\n")
    reading = Reading(str.split, BadLines())
    assert complaint(lambda: list(read_sentences(name)))
    assert complaint(lambda: find_files(name))
    assert complaint(lambda: Vocabulary.read(Path(name)))
    assert complaint(lambda: read_static_vectors(name))
    assert complaint(lambda: list(read_labeled(name, reading)))
    assert complaint(lambda: list(read_tagged(name, reading)))
    assert complaint(lambda: list(elmokit.read_vectors(name)))
    assert complaint(lambda: read_json(Path(name)))
    assert complaint(lambda: read_text(Path(name)))
    assert complaint(lambda: read_yaml(name))
    assert complaint(lambda: convert(name, "out"))
    assert complaint(lambda: convert("english", name))
    assert complaint(lambda: elmokit.simple_elmo.ElmoModel().load(name))
    assert complaint(lambda: elmokit.allennlp.ElmoEmbedder(name, name))
    assert complaint(lambda: elmokit.hub.load(name))
    assert complaint(lambda: VectorWriter(f"{name}.npy", {}))
    assert complaint(lambda: embed_file("in.txt", f"{name}.h5"))
    assert complaint(lambda: embed_file(name, "out.h5"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "in.txt"]


def test_a_link_to_a_file_is_inside_its_folder_and_a_link_to_a_folder_is_not(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for path in (folder / "sub" / "a", tmp_path / "outside", folder / "b"):
        path.write_text("x")
    (folder / "blob").symlink_to(tmp_path / "outside")
    (folder / "up").symlink_to(tmp_path)
    for name in ("sub/a", "blob", "sub/../b", str(folder / "b")):
        assert file_inside(folder, name) == folder / name
    assert file_inside(folder, "../outside", "b") == folder / "b"
    for name in ("../outside", "up/outside", str(tmp_path / "outside"), "sub/../../outside"):
        with pytest.raises(UnsupportedFormat, match="names a file outside of it"):
            file_inside(folder, name)
    for name in ("", "nothing", "sub", "x" * 300, "a\0b", "../nothing"):
        assert file_inside(folder, name) is None
    assert is_inside(folder, folder)
    assert is_inside(folder / "up" / "model" / "b", folder)
    assert not is_inside(tmp_path, folder)
    assert not is_inside("a\0b", folder)


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="there is no /dev/stdout")  # noqa: PTH110
def test_the_standard_output_is_not_a_file_that_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "devices").symlink_to("/dev")
    for name in ("/dev/stdout", "/dev/fd/1", str(tmp_path / "devices" / "stdout"), "/dev/null"):
        for check in (check_output, partial(check_unused, resume=False)):
            said = complaint(partial(check, Path(name), overwrite=True))
            assert f"{name} is not a regular file" in said
    assert not is_special(tmp_path / "out")
    assert not is_special("/dev/shm/out")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_only_a_file_that_ends_is_regular(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "link"):
        check_regular(tmp_path / name)
    for name in ("nothing", "x" * 300):
        check_regular(tmp_path / name, missing_ok=True)
        with pytest.raises(MissingFile, match="there is no file"):
            check_regular(tmp_path / name)
    for path in (tmp_path / "zero", tmp_path / "pipe", tmp_path):
        for read in (check_regular, read_json, read_text):
            with pytest.raises(UnsupportedFormat, match="not a regular file"):
                read(path)
