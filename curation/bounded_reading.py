"""Compressed streams, lines and JSON of files that strangers wrote: nothing is passed over, and memory is bounded.

A file may hold several compressed streams one after another: all of them are read. What follows the last one and is neither a
stream nor zeros is told, and so is a stream that breaks.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, cast

import fsspec

from .rows import Rejected

MAX_BYTES = 1 << 28
"""Most bytes, decompressed, of a file that is read whole."""

MAX_LINES = 1 << 24
"""Most lines of a list: each may become a reject, which takes fifty bytes of memory and more."""

MAX_LINE_BYTES = 1 << 24
LINES_AT_ONCE = 1 << 17

MAX_COLUMNS = 1000
"""Most columns of a CSV file."""

MAX_BAD_ROWS = 1 << 20
"""Most rows of a CSV file that become rejects, each of which takes hundreds of bytes of memory: where there are more, it is
another file than was meant."""

MAX_JSON_VALUES = 1 << 23
"""Most values of a JSON file that is read whole: two bytes of text can become a hundred of memory."""

_CHUNK_BYTES = 1 << 20
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)
_ENDINGS = {".gz": "gzip", ".tgz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".lzma": "xz"}
_OTHER_ENDINGS = (".zip", ".zst", ".lz4", ".snappy", ".Z", ".7z")


def compression_by_name(name: str) -> str | None:
    """``gzip``, ``bzip2``, ``xz`` or None, by the ending of a file's name.

    Raises:
        ValueError: an ending of another compression.
    """
    if name.lower().endswith(_OTHER_ENDINGS):
        raise ValueError(f"{name!r}: unpack it first; plain files and those in {', '.join(sorted(_ENDINGS))} are read")
    return next((kind for ending, kind in _ENDINGS.items() if name.lower().endswith(ending)), None)


def decompressed(stream: IO[bytes], kind: str | None) -> IO[bytes]:
    """The stream itself, or what is in it; ``seek`` goes forward by decompressing. Reading raises ``OSError``, ``EOFError``,
    ``zlib.error`` or ``lzma.LZMAError`` where it breaks, or where other bytes than zeros follow the last compressed stream."""
    match kind:
        case "gzip":
            return cast("IO[bytes]", gzip.GzipFile(fileobj=stream, mode="rb"))
        case "bzip2":
            return cast("IO[bytes]", io.BufferedReader(_Streams(stream, bz2.BZ2Decompressor, kind), _CHUNK_BYTES))
        case "xz":
            return cast("IO[bytes]", io.BufferedReader(_Streams(stream, lzma.LZMADecompressor, kind), _CHUNK_BYTES))
        case _:
            return stream


class _Streams(io.RawIOBase):
    """Streams one after another. Python's own readers leave out, in silence, what follows the first that is none."""

    def __init__(self, stream: IO[bytes], make: Any, kind: str) -> None:
        self._stream, self._make, self._kind = stream, make, kind
        self._decompressor = make()
        self._begun = False  # whether the decompressor has been given a byte
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        offset += self._place if whence == io.SEEK_CUR else 0
        if whence == io.SEEK_END or offset < self._place:
            raise io.UnsupportedOperation("a compressed stream is read forward")
        while self._place < offset and self.read(min(offset - self._place, _CHUNK_BYTES)):
            pass
        return self._place

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            if self._decompressor.eof and not self._next_stream():
                return 0
            fed = b""
            if self._decompressor.needs_input:
                fed = self._stream.read(_CHUNK_BYTES)
                if not fed and not self._begun:
                    return 0
                if not fed:
                    raise EOFError("the compressed stream is cut short")
                self._begun = True
            data = self._decompressor.decompress(fed, len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def _next_stream(self) -> bool:
        """Begin the stream that follows; False at the end of the file."""
        left = self._decompressor.unused_data.lstrip(b"\0")
        while not left:
            data = self._stream.read(_CHUNK_BYTES)
            if not data:
                return False
            left = data.lstrip(b"\0")
        self._stream.seek(-len(left), io.SEEK_CUR)
        self._decompressor, self._begun = self._make(), False
        where = self._stream.tell()
        probe = self._make()
        try:
            probe.decompress(left, 0)
        except (OSError, lzma.LZMAError):
            size = self._stream.seek(0, io.SEEK_END) - where
            raise OSError(f"{size} bytes after the {self._kind} data, which are not read") from None
        return True


def read_file(path: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """A file, decompressed by its ending.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: more than ``max_bytes``, or compressed data that are broken or not all; names the file.
    """
    with fsspec.open(path, "rb") as stream:
        return read_stream(cast("IO[bytes]", stream), repr(path), kind=compression_by_name(path), max_bytes=max_bytes)


def read_stream(stream: IO[bytes], place: str, *, kind: str | None = None, max_bytes: int = MAX_BYTES) -> bytes:
    """What is left of a stream. Raises as ``read_file`` does."""
    data = decompressed_head(stream, place, kind, size=max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{place} has more than {max_bytes:,} bytes, which is the limit of a file of its kind")
    return data


def decompressed_head(stream: IO[bytes], place: str, kind: str | None, *, size: int = 1 << 16) -> bytes:
    """The first bytes of a stream, 64 KiB by default, or all of a shorter one. Raises as ``read_file`` does."""
    try:
        return decompressed(stream, kind).read(size)
    except _DAMAGE as error:
        raise ValueError(f"{place} cannot be read: {type(error).__name__}: {error}") from None


def read_lines(path: str) -> Iterator[bytes]:
    """Lines of a file, decompressed by its ending, without their ends and a byte order mark. Raises as ``line_blocks``."""
    with fsspec.open(path, "rb") as stream:
        for block in line_blocks(cast("IO[bytes]", stream), repr(path), kind=compression_by_name(path)):
            yield from block


def utf8_lines(path: str, what: str) -> Iterator[str]:
    """``read_lines`` as text. Raises also where they are not UTF-8; ``what`` names the file in that error."""
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{what} is not UTF-8: line {number}, byte {error.start} of it") from None


def text_blocks(path: str) -> Iterator[tuple[int, list[str]]]:
    """Lines of a list by blocks, each with the number of lines before it; one block without any of an empty file.

    Bytes that are no UTF-8 become U+FFFD. Raises as ``line_blocks``.
    """
    start = 0
    with fsspec.open(path, "rb") as stream:
        for lines in line_blocks(cast("IO[bytes]", stream), f"list {path!r}", kind=compression_by_name(path)):
            yield start, [line.decode("utf-8", "replace") for line in lines]
            start += len(lines)
    if not start:
        yield 0, []


def line_blocks(stream: IO[bytes], place: str, *, kind: str | None = None) -> Iterator[list[bytes]]:
    """Lines of a stream without their ends and a byte order mark, at most ``LINES_AT_ONCE`` at once; they end as those of
    ``bytes.splitlines`` do.

    Raises:
        ValueError: more than ``MAX_LINES``, one of more than ``MAX_LINE_BYTES``, or compressed data that are broken or not all;
            names the file.
    """
    count, rest, first = 0, b"", True
    plain = decompressed(stream, kind)
    while True:
        try:
            chunk = plain.read(_CHUNK_BYTES)
        except _DAMAGE as error:
            raise ValueError(f"{place} fails after line {count:,}: {type(error).__name__}: {error}") from None
        data = rest + chunk
        if first and len(data) >= 3:
            data, first = data.removeprefix(b"\xef\xbb\xbf"), False
        # A carriage return that ends the chunk may have its newline in the next one.
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1 if chunk else len(data)
        rest, lines = data[cut:], data[:cut].splitlines()
        count += len(lines)
        if count > MAX_LINES or len(rest) > MAX_LINE_BYTES:
            message = f"more than {MAX_LINES:,} lines" if count > MAX_LINES else f"line {count + 1:,} is too long"
            raise ValueError(f"{place}: {message}; lists have {MAX_LINES:,} lines of {MAX_LINE_BYTES:,} bytes at most")
        for start in range(0, len(lines), LINES_AT_ONCE):
            yield lines[start : start + LINES_AT_ONCE]
        if not chunk:
            return


def text_lines(text: IO[str], place: str) -> Iterator[str]:
    """Lines of text with their ends, for ``csv.reader``. Raises ``ValueError`` as ``line_blocks`` does, for their number and
    length."""
    for count, line in enumerate(iter(lambda: text.readline(MAX_LINE_BYTES + 1), ""), 1):
        if count > MAX_LINES or len(line) > MAX_LINE_BYTES:
            message = f"more than {MAX_LINES:,} lines" if count > MAX_LINES else f"line {count:,} is too long"
            raise ValueError(f"{place}: {message}; a CSV file has {MAX_LINES:,} lines of {MAX_LINE_BYTES:,} characters at most")
        yield line


def bounded(rows: Iterable[Any], place: str) -> Iterator[Any]:
    """Rows and rejects of a list. Raises ``ValueError`` behind ``MAX_BAD_ROWS`` rejects."""
    bad = 0
    for row in rows:
        if isinstance(row, Rejected):
            bad += 1
            if bad > MAX_BAD_ROWS:
                message = f"the last one for {row.reason} ({row.key}: {row.detail[:200]})"
                raise ValueError(f"{place}: more than {MAX_BAD_ROWS:,} rows cannot be used, {message}: is this the right file?")
        yield row


def check_columns(header: Sequence[str], place: str) -> None:
    """Raise ``ValueError`` if a CSV file has more columns than ``MAX_COLUMNS``."""
    if len(header) > MAX_COLUMNS:
        raise ValueError(f"{place}: its header has {len(header):,} columns: {MAX_COLUMNS:,} are read at most")


def unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An ``object_pairs_hook`` for ``json``: of a name that appears twice one value would be lost. Raises ``ValueError``."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        again = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {again[:80]!r} appears twice in one object")
    return found


def parse_json(data: bytes, *, hook: Any = unrepeated) -> Any:
    """The value of a JSON file.

    Args:
        data: UTF-8, with or without a byte order mark.
        hook: what makes an object of its pairs.

    Raises:
        ValueError: no JSON, nested too deep, more than ``MAX_JSON_VALUES`` values, or a name that appears twice in an object.
    """
    values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if values > MAX_JSON_VALUES:
        raise ValueError(f"JSON of up to {values:,} values: at most {MAX_JSON_VALUES:,} are read")
    try:
        return json.loads(data.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=hook)
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
