"""Compressed streams, lines and JSON of untrusted files, read completely and with bounded memory.

A file may hold several concatenated compressed streams: all of them are read. A damaged stream is an error, and so are bytes
after the last stream other than zeros.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import posixpath
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, cast

import fsspec

from .rows import Rejected

MAX_BYTES = 1 << 28
"""Maximum decompressed size in bytes of a file that is read whole."""

MAX_LINES = 1 << 24
"""Maximum number of lines of a list: each may become a reject, which takes at least fifty bytes of memory."""

MAX_LINE_BYTES = 1 << 24
LINES_AT_ONCE = 1 << 17

MAX_COLUMNS = 1000
"""Maximum number of columns of a CSV file."""

MAX_BAD_ROWS = 1 << 20
"""Maximum number of rows of a CSV file that become rejects, each of which takes hundreds of bytes of memory. With more, it is
probably the wrong file."""

MAX_JSON_VALUES = 1 << 23
"""Maximum number of values of a JSON file that is read whole: two bytes of text can take a hundred bytes of memory."""

_CHUNK_BYTES = 1 << 20
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)
_ENDINGS = {".gz": "gzip", ".tgz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".lzma": "xz"}
_HEADS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2"}
_OTHER_ENDINGS = (".zip", ".zst", ".lz4", ".snappy", ".Z", ".7z")


def compression_by_name(name: str) -> str | None:
    """``gzip``, ``bzip2``, ``xz`` or None, by the ending of a file name.

    Raises:
        ValueError: the ending is that of an unsupported compression.
    """
    if name.lower().endswith(_OTHER_ENDINGS):
        raise ValueError(f"{name!r}: unpack it first; plain files and those in {', '.join(sorted(_ENDINGS))} are read")
    return next((kind for ending, kind in _ENDINGS.items() if name.lower().endswith(ending)), None)


def plain_ending(name: str) -> str:
    """Ending of a file name in lower case, without that of its compression; raises as ``compression_by_name`` does.

    >>> plain_ending("lists/Train.CSV.gz"), plain_ending("lists.old/train")
    ('.csv', '')
    """
    return posixpath.splitext(posixpath.splitext(name)[0] if compression_by_name(name) else name)[1].lower()


def compression_by_head(head: bytes) -> str | None:
    """``gzip``, ``bzip2`` or None, by the first three bytes of a file: some browsers decompress a file but keep its name."""
    return next((kind for magic, kind in _HEADS.items() if head.startswith(magic)), None)


def decompressed(stream: IO[bytes], kind: str | None) -> IO[bytes]:
    """The decompressed stream, or the stream itself if ``kind`` is None; ``seek`` works forward only, by decompressing.

    Reading raises ``OSError``, ``EOFError``, ``zlib.error`` or ``lzma.LZMAError`` if the stream is damaged, or if bytes other
    than zeros follow the last compressed stream.
    """
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
    """Concatenated compressed streams. Python's own readers silently ignore what follows the last valid stream."""

    def __init__(self, stream: IO[bytes], make: Any, kind: str) -> None:
        self._stream, self._make, self._kind = stream, make, kind
        self._decompressor = make()
        self._begun = False  # whether the decompressor has received a byte
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
        """Begin the next stream; return False at the end of the file."""
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
    """Content of a file, decompressed according to its ending.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: more than ``max_bytes``, or compressed data that are damaged or incomplete; the message names the file.
    """
    with fsspec.open(path, "rb") as stream:
        return read_stream(cast("IO[bytes]", stream), repr(path), kind=compression_by_name(path), max_bytes=max_bytes)


def read_stream(stream: IO[bytes], place: str, *, kind: str | None = None, max_bytes: int = MAX_BYTES) -> bytes:
    """The rest of a stream, decompressed. Raises as ``read_file`` does."""
    data = decompressed_head(stream, place, kind, size=max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{place} has more than {max_bytes:,} bytes, which is the limit of a file of its kind")
    return data


def decompressed_head(stream: IO[bytes], place: str, kind: str | None, *, size: int = 1 << 16) -> bytes:
    """The first decompressed bytes of a stream, 64 KiB by default, or all if it is shorter. Raises as ``read_file`` does."""
    try:
        return decompressed(stream, kind).read(size)
    except _DAMAGE as error:
        raise ValueError(f"{place} cannot be read: {type(error).__name__}: {error}") from None


def read_lines(path: str) -> Iterator[bytes]:
    """Lines of a file, decompressed by its ending, without line ends and byte order mark. Raises as ``line_blocks`` does."""
    with fsspec.open(path, "rb") as stream:
        for block in line_blocks(cast("IO[bytes]", stream), repr(path), kind=compression_by_name(path)):
            yield from block


def utf8_lines(path: str, what: str) -> Iterator[str]:
    """``read_lines`` decoded as UTF-8. Raises ``ValueError`` for other bytes; ``what`` names the file in the message."""
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{what} is not UTF-8: line {number}, byte {error.start} of it") from None


def text_blocks(path: str) -> Iterator[tuple[int, list[str]]]:
    """Blocks of lines of a list, each with the number of lines before it; a single empty block for an empty file.

    Bytes that are not UTF-8 become U+FFFD. Raises as ``line_blocks`` does.
    """
    start = 0
    with fsspec.open(path, "rb") as stream:
        for lines in line_blocks(cast("IO[bytes]", stream), f"list {path!r}", kind=compression_by_name(path)):
            yield start, [line.decode("utf-8", "replace") for line in lines]
            start += len(lines)
    if not start:
        yield 0, []


def line_blocks(stream: IO[bytes], place: str, *, kind: str | None = None) -> Iterator[list[bytes]]:
    """Blocks of at most ``LINES_AT_ONCE`` lines of a stream, split as by ``bytes.splitlines``, without line ends and byte order
    mark.

    Raises:
        ValueError: more than ``MAX_LINES`` lines, a line of more than ``MAX_LINE_BYTES``, or compressed data that are damaged
            or incomplete; the message names the file.
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
        # A carriage return at the end of the chunk may be followed by its newline in the next chunk.
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
    """Lines of text with their line ends, for ``csv.reader``. Raises ``ValueError`` if they are too many or too long."""
    for count, line in enumerate(iter(lambda: text.readline(MAX_LINE_BYTES + 1), ""), 1):
        if count > MAX_LINES or len(line) > MAX_LINE_BYTES:
            message = f"more than {MAX_LINES:,} lines" if count > MAX_LINES else f"line {count:,} is too long"
            raise ValueError(f"{place}: {message}; a CSV file has {MAX_LINES:,} lines of {MAX_LINE_BYTES:,} characters at most")
        yield line


def bounded(rows: Iterable[Any], place: str) -> Iterator[Any]:
    """Pass on the rows and rejects of a list. Raises ``ValueError`` after more than ``MAX_BAD_ROWS`` rejects."""
    bad = 0
    for row in rows:
        if isinstance(row, Rejected):
            bad += 1
            check_bad_rows(bad, row, place)
        yield row


def check_bad_rows(bad: int, last: Rejected, place: str) -> None:
    """Raise ``ValueError`` if more than ``MAX_BAD_ROWS`` rows of a file are rejects; ``last`` is the last of them."""
    if bad > MAX_BAD_ROWS:
        raise ValueError(
            f"{place}: more than {MAX_BAD_ROWS:,} rows cannot be used, the last one for {last.reason} "
            f"({last.key}: {last.detail[:200]}): is this the right file?"
        )


def check_columns(header: Sequence[str], place: str) -> None:
    """Raise ``ValueError`` if a CSV file has more columns than ``MAX_COLUMNS``."""
    if len(header) > MAX_COLUMNS:
        raise ValueError(f"{place}: its header has {len(header):,} columns: {MAX_COLUMNS:,} are read at most")


def unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """``object_pairs_hook`` for ``json`` that raises ``ValueError`` for a repeated name, of which one value would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        again = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {again[:80]!r} appears twice in one object")
    return found


def parse_json(data: bytes, place: str | None = None, *, hook: Any = unrepeated) -> Any:
    """The value of a JSON file.

    Args:
        data: UTF-8, with or without a byte order mark.
        place: what is read, for errors; None if the caller adds it.
        hook: ``object_pairs_hook`` of ``json.loads``.

    Raises:
        ValueError: not JSON, nested too deeply, more than ``MAX_JSON_VALUES`` values, or a repeated name in an object.
    """
    if place is not None:
        try:
            return parse_json(data, hook=hook)
        except ValueError as error:
            raise ValueError(f"{place} is not JSON: {error}") from None
    values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if values > MAX_JSON_VALUES:
        raise ValueError(f"JSON of up to {values:,} values: at most {MAX_JSON_VALUES:,} are read")
    try:
        return json.loads(data.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=hook)
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
