"""Archives: models inside are found, malicious archives are refused."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference import make_reference
from tiny import complaint

import elmokit
from elmokit.errors import ElmokitError, UnsupportedFormat
from elmokit.formats import native
from elmokit.formats.containers import archive
from elmokit.formats.detect import read_checkpoint

TARS = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz", ".tar.bz2": "w:bz2"}
KINDS = [".zip", *TARS]


@pytest.fixture
def contents(tmp_path: Path) -> dict[str, bytes]:
    """A model's files by the names they have in an archive, in a subfolder."""
    make_reference().save(tmp_path / "source")
    return {f"elmo/{path.name}": path.read_bytes() for path in (tmp_path / "source").iterdir()}


def pack(path: Path, members: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in members.items():
                file.writestr(name, content)
        return path
    mode = next(mode for kind, mode in TARS.items() if path.name.endswith(kind))
    with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


# ---------------------------------------------------------------------- valid archives
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_in_a_subfolder_of_an_archive_is_found(
    tmp_path: Path, contents: dict[str, bytes], kind: str
) -> None:
    path = pack(tmp_path / f"model{kind}", {"README.txt": b"hello", **contents})
    result = read_checkpoint(path)
    assert result.source == str(path)
    expected = make_reference().stored["char_embed"]
    np.testing.assert_array_equal(result.tensors["token_encoder.characters"], expected)


def test_a_loaded_archive_gives_the_vectors_and_leaves_no_files(
    tmp_path: Path, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    elmo = elmokit.load(pack(tmp_path / "model.zip", contents))
    result = elmo.embed_tokens(["the", "bank"]).layers
    np.testing.assert_allclose(result, make_reference().embed(["the", "bank"]), atol=1e-5)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_native_model_in_an_archive_is_found(tmp_path: Path, contents: dict[str, bytes]) -> None:
    source = read_checkpoint(pack(tmp_path / "bilm.zip", contents))
    native.write(source, tmp_path / "native")
    members = {f"a/b/{path.name}": path.read_bytes() for path in (tmp_path / "native").iterdir()}
    result = read_checkpoint(pack(tmp_path / "native.tgz", members))
    assert result.format == "native"
    assert result.fingerprint() == source.fingerprint()


def test_what_macos_adds_to_an_archive_is_not_a_model(
    tmp_path: Path, contents: dict[str, bytes]
) -> None:
    extra = {"__MACOSX/elmo/._weights.hdf5": b"\0", "elmo/._weights.hdf5": b"\0"}
    assert read_checkpoint(pack(tmp_path / "model.zip", contents | extra)).config.num_layers == 2


# ---------------------------------------------------------------------- malicious archives
BAD_NAMES = ["../evil.txt", "elmo/../../evil.txt", "/tmp/evil.txt", "..\\evil.txt", "C:\\evil.txt",
             "C:/evil.txt", "//server/share/evil.txt", "a/b/../../../evil.txt"]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("kind", [".zip", ".tar.gz"])
def test_a_member_that_would_leave_its_folder_is_refused_with_its_name(
    tmp_path: Path, contents: dict[str, bytes], kind: str, name: str
) -> None:
    path = pack(tmp_path / f"model{kind}", contents | {name: b"evil"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ElmokitError, match="would be written outside its folder") as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "evil.txt" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def tar_member(kind: bytes) -> Callable[[tarfile.TarFile], None]:
    def add(file: tarfile.TarFile) -> None:
        member = tarfile.TarInfo("elmo/trick")
        member.type, member.linkname = kind, "/etc/passwd"
        file.addfile(member)

    return add


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "model.tar"
    with tarfile.open(path, "w") as file:
        tar_member(kind)(file)
    with pytest.raises(ElmokitError, match=r"model\.tar: 'elmo/trick' is a link or a device"):
        read_checkpoint(path)


def test_a_link_that_a_later_file_would_follow_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    with tarfile.open(path, "w") as file:
        member = tarfile.TarInfo("elmo")
        member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path)
        file.addfile(member)
        through = tarfile.TarInfo("elmo/evil.txt")
        through.size = 4
        file.addfile(through, io.BytesIO(b"evil"))
    with pytest.raises(ElmokitError, match="'elmo' is a link"):
        read_checkpoint(path)
    assert not (tmp_path / "evil.txt").exists()


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_in_a_zip_are_refused(
    tmp_path: Path, contents: dict[str, bytes], mode: int
) -> None:
    path = pack(tmp_path / "model.zip", contents)
    with zipfile.ZipFile(path, "a") as file:
        member = zipfile.ZipInfo("elmo/trick")
        member.external_attr = (mode | 0o644) << 16
        file.writestr(member, "/etc/passwd")
    with pytest.raises(ElmokitError, match=r"model\.zip: 'elmo/trick' is a link or a device"):
        read_checkpoint(path)


@pytest.mark.parametrize("kind", [".zip", ".tar.gz"])
def test_more_data_than_a_model_can_have_is_not_unpacked(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack(tmp_path / f"bomb{kind}", {"weights.hdf5": bytes(1 << 20)})
    assert path.stat().st_size < 1 << 13
    written: list[str] = []
    monkeypatch.setattr(archive, "MAX_BYTES", 1 << 19)
    for kind_of_archive in (zipfile.ZipFile, tarfile.TarFile):
        monkeypatch.setattr(kind_of_archive, "extract", lambda *_, **__: written.append("a member"))
    with pytest.raises(ElmokitError, match=r"bomb.* unpacks to more than a model can be"):
        read_checkpoint(path)
    assert written == []


@pytest.mark.parametrize("kind", [".zip", ".tar.gz"])
def test_more_data_than_an_archive_of_its_size_can_have_is_not_unpacked(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack(tmp_path / f"zeros{kind}", {"weights.hdf5": bytes(1 << 20)})
    monkeypatch.setattr(archive, "MIN_LIMIT", 1 << 19)
    with pytest.raises(ElmokitError, match=r"zeros.* unpacks to more than a model can be"):
        read_checkpoint(path)


def test_what_is_packed_behind_the_end_of_a_tar_is_bounded_too(
    tmp_path: Path, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack(tmp_path / "model.tar.gz", contents)
    path.write_bytes(path.read_bytes() + gzip.compress(bytes(1 << 22)))
    assert read_checkpoint(path).config.num_layers == 2
    monkeypatch.setattr(archive, "MIN_LIMIT", 1 << 20)
    assert "unpacks to more than a model can be" in complaint(lambda: read_checkpoint(path))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_name_of_any_length_in_a_tar_is_not_read(tmp_path: Path, kind: bytes) -> None:
    """It would be in memory as a whole, and a few bytes of gzip stand for many."""
    member = tarfile.TarInfo("long")
    member.type, member.size = kind, 1 << 30
    with gzip.open(tmp_path / "model.tar.gz", "wb", compresslevel=1) as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.write(b"x" * (1 << 23))
    tracemalloc.start()
    try:
        message = complaint(lambda: read_checkpoint(tmp_path / "model.tar.gz"))
        assert "model.tar.gz is not an archive that can be read: " in message
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_with_a_rare_compression_method_is_refused(
    tmp_path: Path, contents: dict[str, bytes], method: int
) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w", method) as file:
        for name, content in contents.items():
            file.writestr(name, content)
    message = complaint(lambda: read_checkpoint(tmp_path / "model.zip"))
    assert message == f"{tmp_path}/model.zip is encrypted or uses an unsupported compression method"


def test_a_sparse_file_in_a_tar_is_refused(tmp_path: Path) -> None:
    """A few bytes that stand for as many zeros as they say."""
    header = bytearray(tarfile.TarInfo("weights.hdf5").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"00000000000\0" * 2  # where there is data, and how much
    header[483:495] = b"77777777777\0"  # 8 GB in all
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    (tmp_path / "model.tar").write_bytes(bytes(header) + bytes(1024))
    assert "is a link or a device" in complaint(lambda: read_checkpoint(tmp_path / "model.tar"))


@pytest.mark.parametrize("kind", [".zip", ".tar.gz"])
def test_more_files_than_a_model_can_have_are_not_unpacked(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_FILES", 20)
    path = pack(tmp_path / f"many{kind}", {f"{i}.txt": b"" for i in range(21)})
    with pytest.raises(ElmokitError, match=r"many.* unpacks to more than a model can be"):
        read_checkpoint(path)


@pytest.mark.parametrize("kind", [".zip", ".tar.gz"])
def test_backslashes_separate_folders_also_here(
    tmp_path: Path, contents: dict[str, bytes], kind: str
) -> None:
    members = {f"a\\{name}": content for name, content in contents.items()}
    assert read_checkpoint(pack(tmp_path / f"model{kind}", members)).format == "bilm"


def test_links_inside_the_archive_are_refused_too(tmp_path: Path) -> None:
    """Only regular files are unpacked, though tarfile's filter would accept these."""
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        with tarfile.open(tmp_path / "model.tar", "w") as file:
            file.addfile(tarfile.TarInfo("elmo/a"), io.BytesIO(b""))
            member = tarfile.TarInfo("elmo/trick")
            member.type, member.linkname = kind, "a" if kind == tarfile.SYMTYPE else "elmo/a"
            file.addfile(member)
        with pytest.raises(UnsupportedFormat, match=r"'elmo/trick' is a link or a device"):
            read_checkpoint(tmp_path / "model.tar")


def test_a_file_without_permissions_in_a_tar_is_read(
    tmp_path: Path, contents: dict[str, bytes]
) -> None:
    with tarfile.open(tmp_path / "model.tar", "w") as file:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0
            file.addfile(member, io.BytesIO(content))
    assert read_checkpoint(tmp_path / "model.tar").format == "bilm"


def test_a_zip_member_shorter_than_declared_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "model.zip", {"a.txt": bytes(5000)})
    content = path.read_bytes().replace((5000).to_bytes(4, "little"), (5001).to_bytes(4, "little"))
    path.write_bytes(content)
    with pytest.raises(UnsupportedFormat, match=r"'a.txt' is shorter than declared"):
        read_checkpoint(path)


def test_a_member_larger_than_it_says_is_refused(
    tmp_path: Path, contents: dict[str, bytes]
) -> None:
    path = pack(tmp_path / "model.zip", {"a.txt": bytes(5000)})
    content = bytearray(path.read_bytes())
    for start in range(len(content) - 4):  # the size is stored twice
        if content[start : start + 4] == (5000).to_bytes(4, "little"):
            content[start : start + 4] = (50).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(ElmokitError, match=r"model\.zip"):
        read_checkpoint(path)


def test_an_encrypted_archive_is_reported(tmp_path: Path, contents: dict[str, bytes]) -> None:
    path = pack(tmp_path / "model.zip", contents)
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(signature)
        while start >= 0:
            content[start + offset] |= 1
            start = content.find(signature, start + 1)
    path.write_bytes(content)
    with pytest.raises(ElmokitError, match=r"model\.zip is encrypted"):
        read_checkpoint(path)


# ---------------------------------------------------------------------- damaged archives
@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_archive_is_refused_wherever_it_ends(
    tmp_path: Path, contents: dict[str, bytes], kind: str
) -> None:
    path = pack(tmp_path / f"model{kind}", contents)
    whole = path.read_bytes()
    for part in range(8):
        path.write_bytes(whole[: len(whole) * part // 8])
        sentence = complaint(lambda: read_checkpoint(path))
        assert str(path) in sentence


@pytest.mark.parametrize("kind", [".zip", ".tar.gz", ".tar.xz", ".tar.bz2"])
def test_a_changed_byte_in_a_packed_archive_does_not_go_unnoticed(
    tmp_path: Path, contents: dict[str, bytes], kind: str
) -> None:
    path = pack(tmp_path / f"model{kind}", contents)
    whole, random = path.read_bytes(), np.random.default_rng(0)
    expected = read_checkpoint(path).fingerprint()
    refused = 0
    for _ in range(25):
        content = bytearray(whole)
        content[random.integers(len(content))] ^= 1 << random.integers(8)
        path.write_bytes(content)
        sentence = complaint(lambda: read_checkpoint(path))
        assert sentence == "" or str(path) in sentence
        refused += sentence != ""
        if not sentence:  # it was in a name or a date
            assert read_checkpoint(path).fingerprint() == expected
    assert refused > 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_file_with_an_archives_name_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"model{kind}").write_text("hello, this is no archive\n" * 50)
    with pytest.raises(ElmokitError, match=f"model{kind} is not an archive that can be read"):
        read_checkpoint(tmp_path / f"model{kind}")


def test_an_archive_with_no_model_or_with_two_is_reported(
    tmp_path: Path, contents: dict[str, bytes]
) -> None:
    with pytest.raises(ElmokitError, match=r"none\.zip does not contain a model"):
        read_checkpoint(pack(tmp_path / "none.zip", {"a.txt": b"a"}))
    with pytest.raises(ElmokitError, match=r"empty\.zip does not contain a model"):
        read_checkpoint(pack(tmp_path / "empty.zip", {}))
    twice = contents | {name.replace("elmo", "other"): x for name, x in contents.items()}
    with pytest.raises(ElmokitError, match=r"two\.tar contains several models"):
        read_checkpoint(pack(tmp_path / "two.tar", twice))


def test_an_error_inside_names_the_archive_and_not_a_temporary_folder(
    tmp_path: Path, contents: dict[str, bytes]
) -> None:
    path = pack(tmp_path / "model.zip", contents | {"elmo/options.json": b"{"})
    sentence = complaint(lambda: read_checkpoint(path))
    assert sentence.startswith(f"{path}/elmo/options.json is not valid JSON")
    broken = contents | {"elmo/weights.hdf5": contents["elmo/weights.hdf5"][:5000]}
    path = pack(tmp_path / "broken.tar.gz", broken)
    assert complaint(lambda: read_checkpoint(path)).startswith(f"{path}/elmo/weights.hdf5 is not")
