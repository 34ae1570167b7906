"""Archives with a model inside: unpacked into a temporary folder, every path checked.

Only plain files are taken. A member that would leave the folder, a link or a device is refused,
and so is more data than a model can have, or than an archive of this size can have of one.
"""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from elmokit.errors import ElmokitError, reason_of

SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar", ".tar.xz", ".tar.bz2")
LARGEST = 16 << 30
SMALL, MOST_PACKED = 64 << 20, 20  # weights hardly compress
MOST_FILES = 10_000
LONGEST_HEADER = 1 << 20  # bytes of a name in a tar


def is_archive(path: Path) -> bool:
    """Whether a name looks like an archive's."""
    return path.name.lower().endswith(SUFFIXES)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The archive's contents in a temporary folder, for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="elmokit-") as temporary:
        folder = Path(temporary)
        try:
            _unpack_zip(path, folder) if zipfile.is_zipfile(path) else _unpack_tar(path, folder)
        except FileNotFoundError:
            raise ElmokitError(f"there is no file {path}") from None
        except ElmokitError:
            raise
        except (RuntimeError, NotImplementedError):
            raise ElmokitError(f"{path} is encrypted or packed in an unknown way") from None
        except Exception as error:  # zipfile and tarfile have many, for damage of many kinds
            raise ElmokitError(
                f"{path} is not an archive that can be read: {reason_of(error)}"
            ) from None
        yield folder


def _unpack_zip(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if not m.filename.endswith("/")]
        _check_total(path, [member.file_size for member in members])
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise NotImplementedError  # others may take memory as they like
            if (member.external_attr >> 16) & 0o170000 not in (0, 0o100000):
                raise ElmokitError(f"{path}: {member.filename!r} is a link or a device")
            with archive.open(member) as source:
                _copy(path, source, _target(path, folder, member.filename), member.file_size)


class _Member(tarfile.TarInfo):
    """A member of a tar whose name does not have to be read to be found too long."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        plain = self.type in (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE)
        if not plain and self.size > LONGEST_HEADER:
            raise tarfile.ReadError("a header is too long")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def _unpack_tar(path: Path, folder: Path) -> None:
    with tarfile.open(path, tarinfo=_Member) as archive:
        sizes: list[int] = []
        for member in archive:
            if member.isdir():
                continue
            if not member.isfile() or member.issparse():
                raise ElmokitError(f"{path}: {member.name!r} is a link or a device")
            sizes.append(member.size)
            _check_total(path, sizes)
            source = archive.extractfile(member)
            assert source is not None
            with source:
                _copy(path, source, _target(path, folder, member.name), member.size)
        # To the end, where a packed file has its checksum: a tar has none of its own.
        while archive.fileobj and (block := archive.fileobj.read(1 << 20)):
            sizes[-1:] = [sum(sizes[-1:]) + len(block)]
            _check_total(path, sizes)


def _check_total(path: Path, sizes: list[int]) -> None:
    most = min(LARGEST, max(SMALL, MOST_PACKED * path.stat().st_size))
    if len(sizes) > MOST_FILES or sum(sizes) > most:
        raise ElmokitError(f"{path} unpacks to more than a model can be; it was not unpacked")


def _target(path: Path, folder: Path, name: str) -> Path:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in name or "\0" in name:
        raise ElmokitError(f"{path}: the member {name!r} would be written outside its folder")
    target = folder / parts
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _copy(path: Path, source: IO[bytes], target: Path, size: int) -> None:
    """Copy, but never more than was declared."""
    with target.open("wb") as file:
        left = size
        while block := source.read(min(1 << 20, left)):
            file.write(block)
            left -= len(block)
    if target.stat().st_size != size:
        raise ElmokitError(f"{path}: the member {target.name!r} is shorter than the archive says")
