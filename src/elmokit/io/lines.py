"""Read the lines of a file of any size, compressed or not, in bounded memory.

    raw blocks ─► decompressed blocks ─► lines of bytes ─► decoded lines

A line that is too long for memory is passed on in pieces.
"""

from __future__ import annotations

import lzma
import os
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from elmokit.errors import ElmokitError, InvalidInput, MissingFile, UnsupportedFormat, require
from elmokit.progress import logger

STANDARD_INPUT = "-"
BLOCK_BYTES = 1 << 16  # small enough for a progress bar to move often
PIPE_SECONDS = 5.0  # to wait for a process that writes into a named pipe
MAX_LINE_BYTES = 8 << 20  # more than a million words
# One byte of a compressed file can expand to 32 KB: small blocks keep even that bounded.
COMPRESSED_BLOCK_BYTES = 256
BINARY_CHECK_BYTES = 8 << 10
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

FilePath = str | os.PathLike[str]
OnBytes = Callable[[int], object]  # takes the number of bytes of each read
RawLine = tuple[int, int, bytes, bool]  # see `_raw_lines`


class Piece(NamedTuple):
    """A decoded line, or a part of a line that is longer than `MAX_LINE_BYTES`."""

    line: int  # line number for messages, from 1
    text: str
    ended: bool  # whether the line ends here


def read_lines(
    path: FilePath, *, errors: str = "strict", on_bytes: OnBytes = lambda _: None
) -> Iterator[Piece]:
    """Yield the decoded lines of a file, compressed or not; "-" is standard input.

    `errors` is as in `bytes.decode`; `on_bytes(n)` is called after each read of n bytes.
    """
    name = name_of(path)
    blocks = _text_blocks(read_blocks(path, on_bytes=on_bytes), name)
    return _decode(_raw_lines(blocks, MAX_LINE_BYTES), name, errors)


def read_blocks(path: FilePath, *, on_bytes: OnBytes = lambda _: None) -> Iterator[bytes]:
    """Yield the bytes of a file block by block, decompressed."""
    name = name_of(path)
    with _open(path, name) as stream:
        blocks = _raw_blocks(stream, name, on_bytes, _start_of_pipe(path, stream, name))
        first = next(blocks, b"")
        compression = _compression(path, name, first)
        blocks = chain([first], blocks)
        yield from blocks if compression is None else _decompress(blocks, name, compression)


def name_of(path: FilePath) -> str:
    """Return how to call a file in a message."""
    return "standard input" if os.fspath(path) == STANDARD_INPUT else os.fspath(path)


def _open(path: FilePath, name: str) -> AbstractContextManager[BinaryIO]:
    """Open the file, or standard input, which is not closed at the end."""
    if os.fspath(path) == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    if os.path.isdir(path):  # noqa: PTH112 Not every system says so when it is opened.
        raise InvalidInput(f"{name} is a directory, not a file")
    try:
        flag = os.O_NONBLOCK if _is_pipe(path) else 0  # Do not wait for the process that writes.
        return open(path, "rb", opener=lambda file, flags: os.open(file, flags | flag))
    except FileNotFoundError:
        raise MissingFile(f"there is no file {name}") from None
    except PermissionError:
        raise ElmokitError(f"cannot read {name}: its permissions forbid it") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise ElmokitError(f"cannot open {name}: {error}") from None


def _is_pipe(path: FilePath) -> bool:
    """Tell whether a path is a named pipe, such as those of `<(command)` in a shell."""
    return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116


def _start_of_pipe(path: FilePath, stream: BinaryIO, name: str) -> bytes:
    """Return the first byte of a named pipe, if it is one; raise if no process writes into it."""
    if os.fspath(path) == STANDARD_INPUT or not _is_pipe(path):
        return b""
    end = time.monotonic() + PIPE_SECONDS
    while (start := stream.read(1)) == b"":  # It is None if there is a process, but no byte yet.
        if time.monotonic() > end:
            raise ElmokitError(f"{name} is a pipe that no process writes into")
        time.sleep(0.01)
    os.set_blocking(stream.fileno(), True)
    return start or b""


def _raw_blocks(stream: BinaryIO, name: str, on_bytes: OnBytes, start: bytes) -> Iterator[bytes]:
    while True:
        try:
            block = start + stream.read(BLOCK_BYTES - len(start))
        except OSError as error:
            raise ElmokitError(f"cannot read {name} to its end: {error}") from None
        if not block:
            return
        yield block
        on_bytes(len(block))
        start = b""


# extension: first bytes of such a file
COMPRESSIONS = {
    ".gz": (b"\x1f\x8b",),
    ".xz": (b"\xfd7zXZ\x00",),
    ".zst": (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"),  # The second is pzstd's.
}


def _decompressor(compression: str) -> tuple[Any, type[Exception]]:
    """Return a new decompressor and the error that it raises."""
    if compression == ".gz":
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), zlib.error
    if compression == ".xz":
        return lzma.LZMADecompressor(lzma.FORMAT_XZ), lzma.LZMAError
    zstandard = require("zstandard", extra="zstd", purpose="Reading .zst files")
    return zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError


def _compression(path: FilePath, name: str, start: bytes) -> str | None:
    """Return the extension of a file's compression, by its first bytes: none are valid UTF-8."""
    detected = (ext for ext, magic in COMPRESSIONS.items() if start.startswith(magic))
    compression = next(detected, None)
    extension = Path(path).suffix.lower()
    if start and extension in COMPRESSIONS and compression != extension:
        raise UnsupportedFormat(f"{name} is not a {extension} file, although its name says so")
    return compression


def _decompress(blocks: Iterable[bytes], name: str, compression: str) -> Iterator[bytes]:
    """Decompress a file, which may be several compressed streams one after another.

    `lzma.open` would silently end at a damaged second stream, and zstandard's `stream_reader` at
    the end of a truncated file; here both are errors.
    """
    decompressor: Any = None
    steps = ((block, range(0, len(block), COMPRESSED_BLOCK_BYTES)) for block in blocks)
    for part in (block[i : i + COMPRESSED_BLOCK_BYTES] for block, starts in steps for i in starts):
        # Zero bytes between streams and after the last one are padding.
        while part := part.lstrip(b"\0") if decompressor is None else part:
            if decompressor is None:
                decompressor, corrupt = _decompressor(compression)
            try:
                data = decompressor.decompress(part)
            except corrupt:
                raise UnsupportedFormat(f"{name} is corrupt: it cannot be decompressed") from None
            yield data
            part = b""
            if decompressor.eof:
                part, decompressor = decompressor.unused_data, None
    if decompressor is not None:
        raise UnsupportedFormat(f"{name} is truncated: its compressed data has no end")


def _text_blocks(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Remove a byte order mark, and raise if the start of the file does not look like text."""
    seen = 0
    for block in blocks:
        if seen < BINARY_CHECK_BYTES and b"\0" in block[: BINARY_CHECK_BYTES - seen]:
            is_utf16 = seen == 0 and block.startswith((b"\xff\xfe", b"\xfe\xff"))
            kind = "UTF-16 text: convert it to UTF-8" if is_utf16 else "a binary file, not text"
            raise UnsupportedFormat(f"{name} seems to be {kind}")
        yield block.removeprefix(BYTE_ORDER_MARK) if seen == 0 else block
        seen += len(block)


def _raw_lines(blocks: Iterable[bytes], limit: int) -> Iterator[RawLine]:
    """Cut lines into pieces of at most `limit` bytes.

    Yield line number from 1, offset in the line, piece, and whether the line ends with it.
    """
    line, offset, pending = 1, 0, bytearray()
    for block in blocks:
        for index, part in enumerate(block.split(b"\n")):
            if index > 0:  # There was a newline before this part.
                yield line, offset, bytes(pending), True
                line, offset = line + 1, 0
                pending.clear()
            pending += part
            while len(pending) > limit:
                cut = _cut_position(pending, limit)
                yield line, offset, bytes(pending[:cut]), False
                offset += cut
                del pending[:cut]
    if pending:
        yield line, offset, bytes(pending), True


def _cut_position(line: bytearray, limit: int) -> int:
    """Return where to cut a line of more than `limit` bytes: after a blank, or a character."""
    cut = max(line.rfind(b" ", 0, limit), line.rfind(b"\t", 0, limit)) + 1
    if cut:
        return cut
    boundaries = (i for i in range(limit, max(limit - 4, 0), -1) if line[i] & 0xC0 != 0x80)
    return next(boundaries, limit)


def _decode(lines: Iterable[RawLine], name: str, errors: str) -> Iterator[Piece]:
    replaced = 0
    for line_number, offset, raw, ended in lines:
        if ended and raw.endswith(b"\r"):
            raw = raw[:-1]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            if errors == "strict":
                at = offset + error.start + 1
                raise ElmokitError(
                    f"line {line_number} of {name} is not UTF-8 at its byte {at} "
                    f"(0x{raw[error.start]:02x}): convert the file, or use --errors replace"
                ) from None
            text = raw.decode(errors=errors)
            replaced += 1
        yield Piece(line_number, text, ended)
    if replaced and errors == "replace":
        what = f"1 line of {name} is" if replaced == 1 else f"{replaced} lines of {name} are"
        logger.warning(f"{what} not UTF-8: invalid bytes are read as U+FFFD")
