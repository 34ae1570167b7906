"""Archives with a model inside, unpacked to a temporary folder with every member checked.

Only regular files are unpacked. A member whose path leaves the folder, a link or a device is
refused, and so is an archive with more data than a model of its size can have.
"""

from __future__ import annotations

import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from elmokit.errors import UnsupportedFormat, explained
from elmokit.io.paths import check_regular

SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar", ".tar.xz", ".tar.bz2")
MAX_BYTES = 16 << 30
# Weights barely compress, so an archive may unpack to 64 MB or to 20 times its own size.
MIN_LIMIT, MAX_RATIO = 64 << 20, 20
MAX_FILES = 10_000
MAX_HEADER = 1 << 20  # bytes of an extended tar header, such as a long name


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack an archive to a temporary folder that is deleted when the block ends."""
    check_regular(path)
    with tempfile.TemporaryDirectory(prefix="elmokit-") as temporary:
        folder = Path(temporary)
        damaged = f"{path} is not an archive that can be read"
        encrypted = f"{path} is encrypted or uses an unsupported compression method"
        # zipfile and tarfile raise many kinds for damaged files.
        with (
            explained(damaged, Exception, raising=UnsupportedFormat),
            explained(encrypted, RuntimeError, raising=UnsupportedFormat, reason=False),
        ):
            _unpack_zip(path, folder) if zipfile.is_zipfile(path) else _unpack_tar(path, folder)
        yield folder


def _unpack_zip(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        _check_total(path, [member.file_size for member in members])
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise NotImplementedError  # The other methods do not bound the memory they need.
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
                raise UnsupportedFormat(f"{path}: {member.filename!r} is a link or a device")
            member.filename = _safe_name(path, member.filename)
            target = Path(archive.extract(member, folder))  # reads at most file_size bytes
            if target.stat().st_size != member.file_size:
                raise UnsupportedFormat(f"{path}: {member.filename!r} is shorter than declared")


class _Member(tarfile.TarInfo):
    """A tar member that refuses a long header before tarfile reads it into memory."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        plain = self.type in (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE)
        if not plain and self.size > MAX_HEADER:
            raise tarfile.ReadError("a header is too long")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def _unpack_tar(path: Path, folder: Path) -> None:
    with tarfile.open(path, tarinfo=_Member) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in 3.11.0 to 3.11.3
        sizes: list[int] = []
        for member in archive:
            if member.isdir():
                continue
            if not member.isfile() or member.issparse():
                raise UnsupportedFormat(f"{path}: {member.name!r} is a link or a device")
            sizes.append(member.size)
            _check_total(path, sizes)
            member.name = _safe_name(path, member.name)
            archive.extract(member, folder)
        # Read to the end, where gzip and xz have their checksums: tar itself has none.
        while archive.fileobj and (block := archive.fileobj.read(1 << 20)):
            sizes[-1:] = [sum(sizes[-1:]) + len(block)]
            _check_total(path, sizes)


def _check_total(path: Path, sizes: list[int]) -> None:
    limit = min(MAX_BYTES, max(MIN_LIMIT, MAX_RATIO * path.stat().st_size))
    if len(sizes) > MAX_FILES or sum(sizes) > limit:
        raise UnsupportedFormat(f"{path} unpacks to more than a model can be; it was not unpacked")


def _safe_name(path: Path, name: str) -> str:
    """Return a member's name with forward slashes; raise if it is not below the folder."""
    # The libraries would strip a leading slash or a drive silently, and only those of this system.
    posix = PurePosixPath(name.replace("\\", "/"))
    if posix.is_absolute() or ".." in posix.parts or ":" in name or "\0" in name:
        raise UnsupportedFormat(f"{path}: the member {name!r} would be written outside its folder")
    return str(posix)
