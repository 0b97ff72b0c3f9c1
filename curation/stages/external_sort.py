"""Orders of rows of any number: row numbers sorted by columns or by integers, and the place of each row in such an order.

Up to ``HELD_ROWS`` rows, or ``HELD_NUMBERS`` numbers, are sorted in memory. More are cut, at borders drawn from them, into
stretches of about a quarter as many; these are kept in one temporary file and sorted one after another. Memory does
not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..threads import in_threads
from .spill import SpillableArray, SpilledBatches, SpilledNumbers, in_batches

HELD_ROWS = 1 << 22
"""Maximum number of rows that are sorted by columns in memory."""

HELD_NUMBERS = 1 << 25
"""Maximum number of rows that are sorted by a number, or brought into the order of the rows, in memory."""

NO_NUMBER = np.iinfo(np.int64).min
"""Number of a row that has none."""

MOST_DIGITS = 17
DIGITS = f"^[0-9]{{1,{MOST_DIGITS}}}$"

_DRAWN = 64
"""Drawn rows per stretch: stretches then differ in size by some 13 %."""

_PIECE = 1 << 18
_ROW = ""
"""Column of row numbers."""


def numbers_dtype(count: int) -> np.dtype[np.unsignedinteger]:
    """uint32 or uint64, the smaller that can number ``count`` rows and has a number to spare: see ``nowhere``.

    >>> numbers_dtype(3)
    dtype('uint32')
    """
    return np.dtype(np.uint32 if count < 2**32 else np.uint64)


def nowhere(dtype: np.dtype[Any]) -> int:
    """Place of a row that is not in an order: the largest number.

    >>> nowhere(np.dtype("uint32"))
    4294967295
    """
    return int(np.iinfo(dtype).max)


# ------------------------------------------------------------------------------------------------------- sorted rows


def sorted_by_columns(
    read: Callable[[], Iterable[pa.Table]],
    schema: pa.Schema,
    count: int,
    by: Sequence[tuple[str, str]],
    *,
    scratch: str | None = None,
) -> Iterator[np.ndarray]:
    """Sort rows by some columns; equal rows keep their order, and those without a value come last.

    Args:
        read: returns all rows in order, in any number of tables; called twice if there are many rows.
        schema: of the columns in ``by``; other columns of the tables are ignored.
        count: number of rows.
        by: columns, each with ``ascending`` or ``descending``, the first counts most.
        scratch: folder for the temporary file, which is about as large as the columns in memory; default: the system's.

    Yields:
        Row numbers, int64, in the sorted order, a stretch at a time. Rows that are equal in all columns are in one stretch.

    >>> tables = [pa.table({"key": ["b", "c"]}), pa.table({"key": ["a"]})]
    >>> list(sorted_by_columns(lambda: tables, tables[0].schema, 3, [("key", "ascending")]))
    [array([2, 0, 1])]
    """
    names = [name for name, _ in by]
    schema = pa.schema([schema.field(name).remove_metadata() for name in names])
    numbered_schema, by = schema.append(pa.field(_ROW, pa.int64())), [*by, (_ROW, "ascending")]

    def batches(least: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        return in_batches((table.select(names) for table in read()), schema, least)

    if count <= HELD_ROWS:
        table = pa.concat_tables([numbered_schema.empty_table(), *(_numbered(batch, first) for first, batch in batches(1))])
        yield table[_ROW].to_numpy()[pc.sort_indices(table, sort_keys=by).to_numpy()]
        return
    borders = _row_borders(batches(1), numbered_schema, by)
    cuts = SpilledBatches(numbered_schema, scratch=scratch)
    for _ in in_threads(partial(_cut_rows, borders, by, cuts), batches(1 << 16)):
        pass
    for number in range(len(borders) + 1):
        table = cuts.take(number)
        yield table[_ROW].to_numpy()[pc.sort_indices(table, sort_keys=by).to_numpy()]


def _numbered(batch: pa.RecordBatch, first: int) -> pa.Table:
    return pa.Table.from_batches([batch]).append_column(_ROW, pa.array(np.arange(first, first + batch.num_rows)))


def _row_borders(batches: Iterable[tuple[int, pa.RecordBatch]], schema: pa.Schema, by: Sequence[tuple[str, str]]) -> pa.Table:
    """Rows that cut all of them into stretches of about ``HELD_ROWS // 4``, in order."""
    draw = np.random.default_rng(0)
    drawn = [schema.empty_table()]
    for first, batch in batches:
        at = _drawn(batch.num_rows, HELD_ROWS, draw)
        drawn.append(pa.Table.from_batches([batch.take(pa.array(at))]).append_column(_ROW, pa.array(at + first)))
    found = pa.concat_tables(drawn)
    return found.take(pc.sort_indices(found, sort_keys=list(by))[_DRAWN::_DRAWN])


def _drawn(count: int, held: int, draw: np.random.Generator) -> np.ndarray:
    """Indices of ``_DRAWN`` of each ``held // 4`` rows, int64."""
    every = max(held // 4 // _DRAWN, 1)
    starts = np.arange(0, count, every)
    return np.minimum(starts + draw.integers(0, every, len(starts)), count - 1)


def _cut_rows(
    borders: pa.Table, by: Sequence[tuple[str, str]], cuts: SpilledBatches, first: int, batch: pa.RecordBatch
) -> None:
    """Spill the rows of a batch by the stretches that they belong to."""
    table = _numbered(batch, first)
    # Sorted together with the borders, each row stands behind the borders that it is not before.
    order = pc.sort_indices(pa.concat_tables([borders, table]), sort_keys=list(by)).to_numpy()
    border = order < len(borders)
    number = np.cumsum(border)[~border]
    batch = table.take(pa.array(order[~border] - len(borders))).combine_chunks().to_batches()[0]
    cuts.add(batch, np.searchsorted(number, np.arange(len(borders) + 2)))


# ----------------------------------------------------------------------------------------------------- sorted numbers


def sorted_by_numbers(values: SpillableArray, *, absent: int | None = None, scratch: str | None = None) -> Iterator[np.ndarray]:
    """Sort rows by a number; equal rows keep their order.

    Args:
        values: int64, the number of each row.
        absent: rows of this number are left out.
        scratch: folder for the temporary file, of 12 to 16 bytes per row; default: the system's.

    Yields:
        Row numbers, unsigned, in the sorted order, a stretch at a time.

    >>> values = SpillableArray.of(np.array([3, -1, 1, 3]))
    >>> list(sorted_by_numbers(values, absent=-1))
    [array([2, 0, 3], dtype=uint32)]
    """
    kind = numbers_dtype(len(values))
    if len(values) <= HELD_NUMBERS:
        numbers = values[:]
        if absent is None or not np.any(missing := numbers == absent):
            yield stable_order(numbers).astype(kind)
            return
        rows = np.flatnonzero(~missing).astype(kind)
        yield rows[stable_order(numbers[rows])]
        return
    border_numbers, border_rows = _number_borders(values, absent)
    cuts = SpilledNumbers(len(border_rows) + 1, [kind, np.int64], scratch=scratch)
    for first, numbers in values.blocks():
        rows = np.arange(first, first + len(numbers), dtype=kind)
        if absent is not None:
            rows, numbers = rows[numbers != absent], numbers[numbers != absent]
        order = stable_order(numbers.copy())
        rows, numbers = rows[order], numbers[order]
        bounds = [0, *map(partial(_before, numbers, rows), border_numbers, border_rows), len(rows)]
        cuts.add(np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)), [rows, numbers])
    for number in range(len(border_rows) + 1):
        rows, numbers = cuts.take(number)
        yield rows[stable_order(numbers)]


def numbers_of_digits(
    read: Callable[[], Iterable[pa.Table]], column: str, *, scratch: str | None = None
) -> SpillableArray | None:
    """Numbers that sort as texts of digits do; sorting them is faster than sorting the texts.

    Args:
        read: returns all rows in order; called twice.
        column: of text.
        scratch: folder for a temporary file; default: the system's.

    Returns:
        int64 of shape (n,), ``NO_NUMBER`` for rows without a text; None if a text is anything but 1 to ``MOST_DIGITS`` digits.

    >>> tables = [pa.table({"key": ["9", "10", "1"]})]
    >>> numbers_of_digits(lambda: tables, "key")[:].argsort()
    array([2, 1, 0])
    """
    longest = 0
    for table in read():
        if not pc.all(pc.match_substring_regex(table[column], DIGITS), min_count=0).as_py():
            return None
        longest = max(longest, pc.max(pc.binary_length(table[column])).as_py() or 0)
    found = SpillableArray(np.int64, scratch=scratch)
    for table in read():
        numbers = table[column].cast(pa.int64()).fill_null(NO_NUMBER).to_numpy()
        digits = pc.binary_length(table[column]).fill_null(0).to_numpy().astype(np.int64)
        # As text, "10" comes after "1" and before "9": pad with zeros on the right; of equal numbers the shorter text is first.
        padded = numbers * 10 ** (longest - digits) * (longest + 1) + digits
        found.append(np.where(numbers == NO_NUMBER, numbers, padded))
    return found


def _number_borders(values: SpillableArray, absent: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and rows that cut all rows into stretches of about ``HELD_NUMBERS // 4``, in order."""
    draw = np.random.default_rng(0)
    numbers, rows = list[np.ndarray](), list[np.ndarray]()
    for first, block in values.blocks():
        at = _drawn(len(block), HELD_NUMBERS, draw)
        at = at[block[at] != absent] if absent is not None else at
        numbers.append(block[at])
        rows.append(at + first)
    number, row = np.concatenate(numbers), np.concatenate(rows)
    order = np.lexsort((row, number))[_DRAWN::_DRAWN]
    return number[order], row[order]


def _before(numbers: np.ndarray, rows: np.ndarray, border_number: int, border_row: int) -> int:
    """How many of some rows, sorted by number and row, come before a border."""
    low, high = np.searchsorted(numbers, border_number), np.searchsorted(numbers, border_number, side="right")
    return int(low + np.searchsorted(rows[low:high], border_row))


def stable_order(values: np.ndarray) -> np.ndarray:
    """Indices that sort ``values``; equal values keep their order.

    Args:
        values: int64 of shape (n,); overwritten.

    Returns:
        int64 of shape (n,).

    >>> stable_order(np.array([3, 1, 3, 1]))
    array([1, 3, 0, 2])
    """
    count = len(values)
    if not count:
        return np.empty(0, dtype=np.int64)
    low, high = int(values.min()), int(values.max())
    bits = max((count - 1).bit_length(), 1)
    pieces = [slice(start, start + _PIECE) for start in range(0, count, _PIECE)]
    unit = 1_000_000 if not any(np.any(values[piece] % 1_000_000) for piece in pieces) else 1
    if (high - low) // unit >= 1 << (63 - bits):
        return np.argsort(values, kind="stable")
    # Value and index fit one integer: sorting those needs no second array, and is stable by its nature.
    values -= low
    values //= unit
    values <<= bits
    for piece in pieces:
        values[piece] |= np.arange(*piece.indices(count))
    _sort(values)
    values &= (1 << bits) - 1
    return values


def _sort(values: np.ndarray) -> None:
    """Sort distinct integers in place; many of them by two threads."""
    middle = len(values) // 2
    if len(values) < _PIECE:
        values.sort()
        return
    values.partition(middle)
    for _ in in_threads(np.ndarray.sort, [(values[:middle],), (values[middle:],)]):
        pass


# ------------------------------------------------------------------------------------------------------------- places


def places_of(order: Iterable[np.ndarray], count: int, *, scratch: str | None = None) -> SpillableArray:
    """Place of each row in an order.

    Args:
        order: row numbers, a stretch at a time, each at most once.
        count: number of all rows.
        scratch: folder for temporary files, of 12 to 24 bytes per row; default: the system's.

    Returns:
        ``numbers_dtype(count)`` of shape (count,); ``nowhere`` for rows that are not in the order.

    >>> places_of([np.array([2, 0])], 4)[:]
    array([         1, 4294967295,          0, 4294967295], dtype=uint32)
    """
    kind = numbers_dtype(count)

    def placed() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        at = 0
        for rows in order:
            yield rows, np.arange(at, at + len(rows), dtype=kind)
            at += len(rows)

    return by_row(placed(), count, kind, missing=nowhere(kind), scratch=scratch)


class RowOrder:
    """Rows in another order: their numbers where they are few, else the place of each, which need not be in memory.

    Args:
        stretches: row numbers in the new order, a stretch at a time, each at most once.
        count: number of all rows, also of those that are left out.
        scratch: as for ``places_of``.

    >>> order = RowOrder([np.array([2, 0])], 3)
    >>> len(order), order.rows(), order.places()[:]
    (2, array([2, 0]), array([         1, 4294967295,          0], dtype=uint32))
    """

    def __init__(self, stretches: Iterable[np.ndarray], count: int, *, scratch: str | None = None) -> None:
        self._count, self._scratch = count, scratch
        self._rows: np.ndarray | None = None
        self._places: SpillableArray | None = None
        if count <= HELD_NUMBERS:
            found = list(stretches)
            self._rows = found[0] if len(found) == 1 else np.concatenate([np.empty(0, dtype=numbers_dtype(count)), *found])
            self._len = len(self._rows)
        else:
            self._places = places_of(stretches, count, scratch=scratch)
            self._len = sum(int(np.count_nonzero(some != nowhere(some.dtype))) for _, some in self._places.blocks())

    def __len__(self) -> int:
        """Number of rows that are in the order."""
        return self._len

    def rows(self) -> np.ndarray:
        """Row numbers in the new order, integers of shape (len,)."""
        if self._rows is not None:
            return self._rows
        rows, places = np.empty(len(self), dtype=np.int64), self.places()
        for first, some in places.blocks():
            there = np.flatnonzero(some != nowhere(places.dtype))
            rows[some[there]] = there + first
        return rows

    def places(self) -> SpillableArray:
        """Place of each row in the order: see ``places_of``."""
        if self._places is None:
            self._places = places_of([self.rows()], self._count, scratch=self._scratch)
        return self._places


def by_row(
    pieces: Iterable[tuple[np.ndarray, np.ndarray]],
    count: int,
    dtype: np.typing.DTypeLike,
    *,
    missing: int,
    scratch: str | None = None,
) -> SpillableArray:
    """Bring values that come in any order of rows into the order of the rows.

    Args:
        pieces: row numbers, each at most once, and their values.
        count: number of all rows.
        dtype: of the values.
        missing: value of rows that do not come.
        scratch: folder for temporary files; default: the system's.

    Returns:
        Array of shape (count,).

    >>> pieces = [(np.array([2, 0]), np.array([20, 0])), (np.array([3]), np.array([30]))]
    >>> by_row(pieces, 4, np.int8, missing=-1)[:]
    array([ 0, -1, 20, 30], dtype=int8)
    """
    found = SpillableArray(dtype, scratch=scratch)
    if count <= HELD_NUMBERS:
        values = np.full(count, missing, dtype=found.dtype)
        for rows, some in pieces:
            values[rows] = some
        found.append(values)
        return found
    kind, size = numbers_dtype(count), HELD_NUMBERS // 4
    cuts = SpilledNumbers((count - 1) // size + 1, [kind, found.dtype], scratch=scratch)
    for rows, some in pieces:
        cuts.add(rows // rows.dtype.type(size), [rows, some])
    for number, first in enumerate(range(0, count, size)):
        values = np.full(min(size, count - first), missing, dtype=found.dtype)
        rows, some = cuts.take(number)
        values[rows - kind.type(first)] = some
        found.append(values)
    return found
