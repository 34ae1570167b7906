"""Parquet files on any file system as blocks of rows, each of which becomes one output file.

    s3://bucket/*.parquet ─► blocks ─► out/part-000000.parquet, out/part-000001.parquet, …

The blocks depend only on the input and have fixed names. An output file appears complete or not at
all, so a run that was stopped anywhere is resumed by the blocks that have no file yet, and every
row is there exactly once, whoever computes it and however often. Paths are those of fsspec:
s3://, gs://, hdfs://, file://, memory:// and local ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import IO, Any

from elmokit.errors import ElmokitError, InvalidInput, MissingFile, reason_of, require
from elmokit.io.resumable import check_settings

BLOCK_ROWS = 4096
SETTINGS, SUCCESS = "_elmokit.json", "_SUCCESS"
PART = re.compile(r"part-(\d{6,})\.parquet")
OURS = re.compile(rf"{PART.pattern}|{re.escape(SETTINGS)}|{SUCCESS}|\..*\.elmokit")
# A file there appears when it is complete, and a rename would copy it.
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss"}
FOOTER_THREADS = 16


@dataclass(frozen=True)
class Block:
    """Rows `start` to `stop` of a row group of a Parquet file."""

    index: int
    file: str
    group: int
    start: int
    stop: int


@dataclass(frozen=True)
class InputFile:
    """A Parquet file and the number of rows of each of its row groups."""

    file: str
    bytes: int
    groups: tuple[int, ...]


def open_url(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a path or URL, and the path on it."""
    fsspec = require("fsspec", extra="ray", purpose="Reading and writing remote files")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError, OSError) as error:
        raise InvalidInput(f"cannot open {url}: {reason_of(error)}") from None
    return system, path


# ---------------------------------------------------------------------- input
def find_files(pattern: str) -> list[str]:
    """Return the Parquet files that a path, pattern or folder names, sorted by name."""
    system, path = open_url(pattern)
    try:
        paths = system.glob(f"{path.rstrip('/')}/*.parquet" if system.isdir(path) else path)
    except OSError as error:
        raise ElmokitError(f"cannot list {pattern}: {reason_of(error)}") from None
    if not paths:
        raise MissingFile(f"there are no Parquet files at {pattern}")
    return sorted(system.unstrip_protocol(path) for path in paths)


def read_footers(files: Sequence[str], column: str) -> list[InputFile]:
    """Read the numbers of rows; raise if a file is not Parquet or lacks the column of texts."""
    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        return list(pool.map(lambda file: _read_footer(file, column), files))


def _read_footer(file: str, column: str) -> InputFile:
    parquet = require("pyarrow.parquet", extra="ray", purpose="Reading Parquet files")
    arrow = require("pyarrow", extra="ray", purpose="Reading Parquet files")
    system, path = open_url(file)
    try:
        with system.open(path, "rb") as stream:
            metadata = parquet.ParquetFile(stream).metadata
            names = metadata.schema.to_arrow_schema().names
            groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    except (OSError, arrow.ArrowException) as error:
        raise ElmokitError(f"{file} is not a Parquet file: {reason_of(error)}") from None
    if column not in names:
        raise InvalidInput(
            f"{file} has no column {column!r}: it has {', '.join(names)}; name one with --field"
        )
    return InputFile(file, int(system.size(path)), groups)


def plan_blocks(files: Sequence[InputFile], block_rows: int = BLOCK_ROWS) -> list[Block]:
    """Cut the rows of all files into blocks of at most `block_rows` rows of one row group."""
    if block_rows < 1:
        raise InvalidInput(f"block_rows must be at least 1, not {block_rows}")
    slices = (
        (file.file, group, start, min(start + block_rows, rows))
        for file in files
        for group, rows in enumerate(file.groups)
        for start in range(0, rows, block_rows)
    )
    return [Block(index, *position) for index, position in enumerate(slices)]


def identity(files: Sequence[InputFile]) -> dict[str, Any]:
    """Return what distinguishes these inputs from others, without reading all of them."""
    text = json.dumps([asdict(file) for file in files])
    return {
        "files": len(files),
        "rows": sum(sum(file.groups) for file in files),
        "hash": hashlib.blake2b(text.encode(), digest_size=16).hexdigest(),
    }


@lru_cache(maxsize=1)  # Blocks of one row group follow one another.
def _read_group(file: str, group: int) -> Any:
    parquet = require("pyarrow.parquet", extra="ray", purpose="Reading Parquet files")
    system, path = open_url(file)
    with system.open(path, "rb") as stream:
        return parquet.ParquetFile(stream).read_row_group(group)


def read_block(block: Block) -> Any:
    """Return the rows of a block as a pyarrow table."""
    table = _read_group(block.file, block.group)
    return table.slice(block.start, block.stop - block.start)


# ---------------------------------------------------------------------- output
@dataclass(frozen=True)
class BlockFolder:
    """The folder of output files, on any file system."""

    url: str

    @cached_property
    def _location(self) -> tuple[Any, str]:
        system, path = open_url(self.url)
        return system, path.rstrip("/")

    def __getstate__(self) -> dict[str, str]:
        return {"url": self.url}  # Other processes open the file system themselves.

    def names(self) -> list[str]:
        """Return the names of the files in the folder; none if there is no folder."""
        system, path = self._location
        system.invalidate_cache()
        try:
            return [entry.rpartition("/")[2] for entry in system.ls(path, detail=False)]
        except FileNotFoundError:
            return []

    def has(self, block: Block) -> bool:
        """Tell whether the output of a block is there."""
        system, path = self._location
        system.invalidate_cache()
        return bool(system.exists(f"{path}/{part_name(block)}"))

    def done(self) -> set[int]:
        """Return the indices of the blocks whose output is there."""
        matches = (PART.fullmatch(name) for name in self.names())
        return {int(match[1]) for match in matches if match}

    def write(self, name: str, write: Callable[[IO[bytes]], None]) -> None:
        """Write a file that appears under its name when it is complete."""
        system, path = self._location
        target = f"{path}/{name}"
        protocols = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
        temporary = f"{path}/.{name}.{secrets.token_hex(4)}.elmokit"
        is_atomic = bool(protocols & OBJECT_STORES)
        with system.open(target if is_atomic else temporary, "wb") as stream:
            write(stream)
        if not is_atomic:
            system.mv(temporary, target)

    def check_apart(self, inputs: Sequence[str]) -> None:
        """Raise if one of the input files is in the folder."""

        def place(url: str) -> tuple[type, str]:
            system, path = open_url(url)
            return type(system), os.path.realpath(path)

        own = {place(f"{self.url.rstrip('/')}/{name}") for name in self.names()}
        for file in inputs if own else ():
            if place(file) in own:
                raise ElmokitError(
                    f"{self.url} would overwrite the input {file}: choose another output"
                )

    def begin(self, settings: Mapping[str, Any], *, resume: bool, overwrite: bool) -> None:
        """Start a run in the folder or resume one; raise if something else is in the way."""
        names = self.names()
        others = sorted(name for name in names if not OURS.fullmatch(name))
        if others:
            raise ElmokitError(
                f"{self.url} has other files in it ({', '.join(others[:3])}): choose a new folder"
            )
        if names and not (resume or overwrite):
            state = "is complete" if SUCCESS in names else "holds an unfinished run"
            how = "" if SUCCESS in names else "continue it with --resume, or "
            raise ElmokitError(f"{self.url} {state}: {how}start again with --overwrite")
        is_complete = SUCCESS in names
        if is_complete and not overwrite:
            raise ElmokitError(f"{self.url} is complete: there is nothing to resume")
        if self.done() and SETTINGS not in names:  # It is written first and deleted last.
            raise ElmokitError(
                f"{self.url} has Parquet files that are not of a run of elmokit ({SETTINGS} is "
                "missing): choose a new folder"
            )
        if is_complete or not resume:
            self._remove(names)
            names = []
        if SETTINGS in names:
            saved = self._read_settings()
            check_settings(self.url, saved, json.loads(json.dumps(settings)))
            self._remove([name for name in names if name.startswith(".")])
            return
        system, path = self._location
        system.makedirs(path, exist_ok=True)
        self.write(SETTINGS, lambda stream: _write_json(stream, settings))

    def finish(self) -> None:
        """Mark the output as complete."""
        self.write(SUCCESS, lambda stream: None)

    def _read_settings(self) -> dict[str, Any]:
        system, path = self._location
        try:
            return dict(json.loads(system.cat_file(f"{path}/{SETTINGS}")))
        except (ValueError, TypeError) as error:
            raise ElmokitError(
                f"{self.url} is damaged ({SETTINGS}: {reason_of(error)}): use --overwrite"
            ) from None

    def _remove(self, names: Sequence[str]) -> None:
        """Delete files of a run: the mark of its end first, its settings last."""
        system, path = self._location
        for name in sorted(names, key=lambda name: (name == SETTINGS, name != SUCCESS)):
            system.rm_file(f"{path}/{name}")


def part_name(block: Block) -> str:
    """Return the name of the output file of a block."""
    return f"part-{block.index:06d}.parquet"


def write_table(folder: BlockFolder, block: Block, table: Any) -> None:
    """Write the output of a block."""
    parquet = require("pyarrow.parquet", extra="ray", purpose="Writing Parquet files")
    # Vectors hardly ever repeat, so a dictionary of them would be useless.
    folder.write(
        part_name(block), lambda stream: parquet.write_table(table, stream, use_dictionary=False)
    )


def _write_json(stream: IO[bytes], settings: Mapping[str, Any]) -> None:
    stream.write(json.dumps(settings, indent=1, ensure_ascii=False).encode())
