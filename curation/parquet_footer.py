"""Where the columns of a Parquet file lie, read from its footer: pyarrow's own look at a column chunk
(``FileMetaData.row_group(n).column(c)``) checks statistics that nobody needs here, and ends the process where they are damaged.

The footer is a struct of Thrift's compact protocol (https://parquet.apache.org/docs/file-format/metadata/).
"""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from typing import IO, Any

_MAX_BYTES = 1 << 24
_MAX_DEPTH = 16
_NESTED = (9, 10, 11, 12)  # list, set, map, struct


@dataclass(frozen=True)
class Chunk:
    """A column of a row group.

    Attributes:
        column: its path in the schema, joined by dots.
        values: numbers, texts and nulls in it, those of lists one by one.
        size: bytes when decompressed.
        start: where its first page begins in the file.
        stored: bytes in the file.
        has_dictionary: whether a dictionary stands before its values.
    """

    column: str
    values: int
    size: int
    start: int
    stored: int
    has_dictionary: bool


def column_chunks(stream: IO[bytes]) -> list[list[Chunk]]:
    """The columns of every row group. Raises ``ValueError`` where the footer is damaged."""
    end = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, end - 8))
    size = int.from_bytes(stream.read(4), "little")
    if size > end - 8:
        raise ValueError("its footer is damaged: it would be larger than the file")
    if size > _MAX_BYTES:
        raise ValueError(f"its footer has {size:,} bytes, at most {_MAX_BYTES:,} are read: write it with larger row groups")
    stream.seek(end - 8 - size)
    return _groups(stream.read(size))


@functools.lru_cache(4)  # a file is opened once for each stretch of its rows
def _groups(footer: bytes) -> list[list[Chunk]]:
    try:
        groups = _Compact(footer).struct().get(4, [])
        return [[_chunk(column[3]) for column in group[1]] for group in groups]
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"its footer is damaged: {type(error).__name__}") from None


def _chunk(facts: dict[int, Any]) -> Chunk:
    starts = [start for start in (facts.get(11), facts[9]) if start]
    column = ".".join(name.decode() for name in facts[3])
    return Chunk(column, facts[5], facts[6], min(starts, default=0), facts[7], 11 in facts)


class _Compact:
    """A struct as a table of its fields by number. What the bytes do not hold raises ``IndexError``."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

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
