"""Open Parquet files from outside, and read the locations of their columns from the footer.

pyarrow's ``FileMetaData.row_group(n).column(c)`` is not used: it checks statistics that are not needed here, and aborts the
process if they are damaged. The footer is a struct in Thrift's compact protocol
(https://parquet.apache.org/docs/file-format/metadata/).
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from .rows import one_line

_MAX_BYTES = 1 << 24
_MAX_DEPTH = 16
_NESTED = (9, 10, 11, 12)  # list, set, map, struct
_MAGIC = b"PAR1"
_PAGE = re.compile(rb"\x15[\x00-\x08](?:\x15[\x80-\xff]{0,9}[\x00-\x7f]){2}")  # type, uncompressed and compressed size
_COLUMN = re.compile(rb"\x15[\x00-\x0e]\x19")  # type, and a list of encodings
_CHUNK_BYTES = 1 << 22
_ROWS_AT_ONCE = 256
_MAX_ROW_BYTES = 1 << 16


class _Damaged(ValueError):
    """A footer that cannot be read, in words that go on from the name of the file."""


_DAMAGE = (_Damaged, pa.ArrowException, OSError, OverflowError, UnicodeError)


@dataclass(frozen=True)
class Chunk:
    """A column of a row group.

    Attributes:
        column: path of the column in the schema, joined by dots.
        values: number of values, including nulls; items of lists are counted one by one.
        size: decompressed size in bytes.
        start: offset of its first page in the file.
        stored: size in the file in bytes.
        has_dictionary: whether a dictionary page precedes the values.
        beside: offset and size in bytes of each of its page indexes.
    """

    column: str
    values: int
    size: int
    start: int
    stored: int
    has_dictionary: bool
    beside: tuple[tuple[int, int], ...]


@contextlib.contextmanager
def opened(stream: IO[bytes], place: str) -> Iterator[pq.ParquetFile]:
    """The file, which is whole. Errors of a damaged file in the block are also raised as ``ValueError``.

    Args:
        stream: seekable stream.
        place: the file, for errors.

    Raises:
        ValueError: the file is damaged, contains pages that its footer does not list, or another Parquet file.
    """
    try:
        _check_whole(stream, place)
        yield pq.ParquetFile(stream)
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk or the network: the file may be intact
        raise ValueError(f"{place} is not a valid Parquet file: {one_line(error)}") from None


def bounded_batches(file: pq.ParquetFile, columns: Sequence[str], what: str, *, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of a table that is read whole, in small batches: a few bytes of Parquet can expand to gigabytes.

    Args:
        file: an open file.
        columns: names of the columns to read.
        what: what the rows are, for errors, as in "its votes".
        max_bytes: maximum size of all rows.

    Raises:
        ValueError: the rows are larger, or take more than 64 KiB each.
    """
    size = 0
    for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(columns)):
        if batch.nbytes > _MAX_ROW_BYTES * batch.num_rows:
            each = f"{batch.nbytes // batch.num_rows:,} bytes each"
            raise ValueError(f"{what} take {each}, {_MAX_ROW_BYTES:,} at most are allowed")
        size += batch.nbytes
        if size > max_bytes:
            raise ValueError(f"{what} take more than {max_bytes:,} bytes")
        yield batch


def column_chunks(stream: IO[bytes]) -> list[list[Chunk]]:
    """The columns of every row group. Raises ``ValueError`` if the footer is damaged."""
    begin, size = _footer(stream)
    stream.seek(begin)
    return _groups(stream.read(size))


def _footer(stream: IO[bytes]) -> tuple[int, int]:
    """Offset and size of the footer in bytes."""
    end = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, end - 8))
    size = int.from_bytes(stream.read(4), "little")
    if size > end - 8:
        raise _Damaged("its footer is damaged: it would be larger than the file")
    if size > _MAX_BYTES:
        raise _Damaged(f"its footer has {size:,} bytes, at most {_MAX_BYTES:,} are read: write it with larger row groups")
    return end - 8 - size, size


def _check_whole(stream: IO[bytes], place: str) -> None:
    """Raise ``ValueError`` for pages that would not be read: their rows would be lost.

    Zeros, indexes and filters between columns are accepted, and so is the copy of the metadata that
    older writers put after a column.
    """
    groups, (end, _) = column_chunks(stream), _footer(stream)
    listed = [each for chunks in groups for chunk in chunks for each in ((chunk.start, chunk.stored), *chunk.beside)]
    at = len(_MAGIC)
    for start, size in [*sorted(listed), (end, 0)]:
        if at < start:
            _check_between(stream, at, min(start, end), place)
        at = max(at, start + size)


def _check_between(stream: IO[bytes], begin: int, end: int, place: str) -> None:
    stream.seek(begin)
    data = stream.read(min(end - begin, _CHUNK_BYTES)).lstrip(b"\0")
    while _COLUMN.match(data):
        copy = _Compact(data)
        try:
            copy.struct()
        except (IndexError, TypeError):
            break
        data = data[copy.place :].lstrip(b"\0")
    if _PAGE.match(data):
        raise ValueError(f"{place} holds {end - begin:,} bytes from byte {begin} that its footer does not list")
    stream.seek(begin)
    before = b""
    while stream.tell() < end and (data := stream.read(min(_CHUNK_BYTES, end - stream.tell()))):
        if 2 * _MAGIC in before + data:
            raise ValueError(f"{place} is several Parquet files one after another: the rows of the first would be lost")
        before = data[-2 * len(_MAGIC) :]


@functools.lru_cache(4)  # a file is opened once for each range of its rows
def _groups(footer: bytes) -> list[list[Chunk]]:
    try:
        groups = _Compact(footer).struct().get(4, [])
        return [[_chunk(column) for column in group[1]] for group in groups]
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise _Damaged(f"its footer is damaged: {type(error).__name__}") from None


def _chunk(place: dict[int, Any]) -> Chunk:
    facts = place[3]
    beside = tuple((index(place[at]), index(place.get(at + 1, 0))) for at in (4, 6) if at in place)
    starts = [index(start) for start in (facts.get(11), facts[9]) if start]
    column = ".".join(name.decode() for name in facts[3])
    return Chunk(column, facts[5], facts[6], min(starts, default=0), index(facts[7]), 11 in facts, beside)


class _Compact:
    """Reader of structs, as dicts of their fields by number. Raises ``IndexError`` for truncated or invalid data."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def place(self) -> int:
        """Number of bytes read so far."""
        return self._at

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _MAX_DEPTH:
            raise IndexError
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            found[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind == 12:
            return self.struct(depth + 1)
        if kind not in _NESTED or depth > _MAX_DEPTH:
            raise IndexError
        if kind == 11:
            count = self._varint()
            kinds = self._byte() if count else 0
            return [(self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(count)]
        head = self._byte()
        return [self._value(head & 15, depth + 1) for _ in range(head >> 4 if head >> 4 < 15 else self._varint())]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise IndexError
        self._at += size
        return self._data[self._at - size : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise IndexError

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
