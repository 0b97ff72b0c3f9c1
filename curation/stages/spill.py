"""Rows and numbers that are kept in temporary files where they are many."""

from __future__ import annotations

import array
import collections
import contextlib
import math
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from ..records import naming

_BLOCK = 1 << 20

_BUFFER = 1 << 14
"""Buffer of the file: what is read lies apart in small pieces, of which a large one would read more than is asked for."""

HELD_BYTES = 1 << 26
"""Size up to which what is spilled is in memory."""


class _ScratchFile:
    """Data one after another in a file: in memory up to ``HELD_BYTES``, then in a temporary one that ends with this object.

    Args:
        scratch: folder for the file; default: the system's.
    """

    def __init__(self, scratch: str | None) -> None:
        self._file = tempfile.SpooledTemporaryFile(HELD_BYTES, buffering=_BUFFER, dir=scratch)  # noqa: SIM115
        self._folder = scratch or tempfile.gettempdir()
        self._lock = threading.Lock()
        self._size, self._at_end = 0, True

    def append(self, data: memoryview) -> int:
        """Write data at the end, and return the byte where they start."""
        with self._lock, self._named():
            if not self._at_end:  # to seek empties the buffer
                self._file.seek(self._size)
            self._file.write(data)
            start, self._size, self._at_end = self._size, self._size + data.nbytes, True
            return start

    def read(self, start: int, into: np.ndarray) -> None:
        """Fill an array from the byte ``start`` on."""
        if len(into):
            with self._lock, self._named():
                self._at_end = False
                self._file.seek(start)
                self._file.readinto(into.data.cast("B"))

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Name the folder in the error if it has no room, and close the file: at its end it would be written again, and a
        traceback printed."""
        try:
            with naming(self._folder):
                yield
        except OSError:
            with contextlib.suppress(OSError):
                self._file.close()
            raise


class SpillableArray:
    """One-dimensional array that is appended to and read by slices: in memory up to ``HELD_BYTES``, then in a temporary file.

    Args:
        dtype: of the values.
        scratch: folder for the file; default: the system's.

    >>> values = SpillableArray(np.int64)
    >>> values.append(np.arange(3))
    >>> values.append(np.arange(2))
    >>> len(values), values[1:4], values.take(np.array([4, 0]))
    (5, array([1, 2, 0]), array([1, 0]))
    """

    def __init__(self, dtype: np.typing.DTypeLike, *, scratch: str | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self._file = _ScratchFile(scratch)
        self._length = 0

    @classmethod
    def of(cls, values: np.ndarray, *, scratch: str | None = None) -> SpillableArray:
        """An array of these values."""
        made = cls(values.dtype, scratch=scratch)
        made.append(values)
        return made

    def append(self, values: np.ndarray) -> None:
        """Append values (n,), which are converted to ``dtype``."""
        self._file.append(np.ascontiguousarray(values, dtype=self.dtype).data)
        self._length += len(values)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, rows: slice) -> np.ndarray:
        """A copy of consecutive values."""
        start, stop, step = rows.indices(self._length)
        if step != 1:
            raise IndexError(f"step {step}: only slices of consecutive values can be read")
        values = np.empty(max(stop - start, 0), dtype=self.dtype)
        self._file.read(start * self.dtype.itemsize, values)
        return values

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all values, a few megabytes at a time, with the index of the first."""
        for start in range(0, self._length, _BLOCK):
            yield start, self[start : start + _BLOCK]

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Values at ``indices``, integers (n,) from 0 on; each block that has one of them is read once."""
        found = np.empty(len(indices), dtype=self.dtype)
        order = np.argsort(indices, kind="stable")
        ordered = indices[order].astype(np.int64)
        if len(ordered) and not 0 <= ordered[0] <= ordered[-1] < self._length:
            wrong = ordered[0] if ordered[0] < 0 else ordered[-1]
            raise IndexError(f"index {wrong} of an array of {self._length} values")
        at = 0
        while at < len(ordered):
            start = int(ordered[at])
            end = int(np.searchsorted(ordered, start + _BLOCK))
            found[order[at:end]] = self[start : int(ordered[end - 1]) + 1][ordered[at:end] - start]
            at = end
        return found


class SpilledNumbers:
    """Columns of numbers by the number of their range, in memory up to ``HELD_BYTES``, then in a temporary file.

    Args:
        ranges: number of ranges.
        dtypes: of the columns; default: those of the first rows that are added.
        scratch: folder for the file; default: the system's.

    >>> spilled = SpilledNumbers(2, [np.uint64, np.uint32])
    >>> spilled.add(np.array([1, 0, 1]), [np.array([70, 80, 90]), np.array([0, 1, 2])])
    >>> spilled.counts, spilled.take(1)
    (array([1, 2]), [array([70, 90], dtype=uint64), array([0, 2], dtype=uint32)])
    """

    def __init__(self, ranges: int, dtypes: Sequence[np.typing.DTypeLike] | None = None, *, scratch: str | None = None) -> None:
        self._counts = np.zeros(ranges, dtype=np.int64)
        self._dtypes = None if dtypes is None else [np.dtype(each) for each in dtypes]
        self._file = _ScratchFile(scratch)
        self._written: list[tuple[list[int], np.ndarray]] = []
        """For each block where its columns begin in the file, and the first row of each range in it."""
        self._waiting: list[list[np.ndarray]] = []

    @property
    def counts(self) -> np.ndarray:
        """Number of rows of each range, int64."""
        self._write()
        return self._counts

    def add(self, range_of: np.ndarray, columns: Sequence[np.ndarray]) -> None:
        """Add rows to the ranges ``range_of``, integers (n,); the rows of a range keep their order.

        The columns, (n,) each, are converted to the dtypes.
        """
        self._dtypes = self._dtypes or [column.dtype for column in columns]
        # numpy sorts integers of 16 bits by counting.
        kinds = [np.dtype(np.uint16 if len(self._counts) <= 1 << 16 else np.int64), *self._dtypes]
        for start in range(0, len(range_of), _BLOCK):
            block = [each[start : start + _BLOCK].astype(kind) for each, kind in zip([range_of, *columns], kinds, strict=True)]
            self._waiting.append(block)
            if sum(len(each[0]) for each in self._waiting) >= _BLOCK:
                self._write()

    def _write(self) -> None:
        if self._waiting:
            range_of, *columns = (np.concatenate(each) for each in zip(*self._waiting, strict=True))
            self._waiting = []
            order = np.argsort(range_of, kind="stable")
            counts = np.bincount(range_of, minlength=len(self._counts))
            self._written.append(([self._file.append(column[order].data) for column in columns], np.cumsum([0, *counts])))
            self._counts += counts

    def blocks(self, number: int) -> Iterator[list[np.ndarray]]:
        """The columns of a range, about a million rows at a time."""
        self._write()
        rows, first = 0, 0
        for end, (_, bounds) in enumerate(self._written, 1):
            rows += int(bounds[number + 1] - bounds[number])
            if rows >= _BLOCK or (rows and end == len(self._written)):
                yield self._read(number, first, end, rows)
                rows, first = 0, end

    def take(self, number: int) -> list[np.ndarray]:
        """The columns of a range; none if no rows were added and no dtypes given."""
        count = int(self.counts[number])
        return self._read(number, 0, len(self._written), count)

    def _read(self, number: int, first: int, end: int, rows: int) -> list[np.ndarray]:
        found = [np.empty(rows, dtype=kind) for kind in self._dtypes or ()]
        at = 0
        for starts, bounds in self._written[first:end]:
            low, count = int(bounds[number]), int(bounds[number + 1] - bounds[number])
            for start, column in zip(starts, found, strict=True):
                self._file.read(start + low * column.itemsize, column[at : at + count])
            at += count
        return found


class SpilledBatches:
    """Batches by the number of their range, in memory up to ``HELD_BYTES``, then in a temporary file.

    Args:
        schema: of the batches. Columns may be dictionaries, which are kept once for each batch.
        scratch: folder for the file; default: the system's.

    >>> batch = pa.record_batch({"key": ["a", "b", "c"]})
    >>> spilled = SpilledBatches(batch.schema)
    >>> spilled.add(batch, np.array([0, 1, 3]))
    >>> spilled.take(1)["key"].to_pylist()
    ['b', 'c']
    """

    def __init__(self, schema: pa.Schema, *, scratch: str | None = None) -> None:
        self._file, self._schema, self._lock = _ScratchFile(scratch), schema, threading.Lock()
        self._places: dict[int, array.array[int]] = collections.defaultdict(partial(array.array, "q"))
        self._encoded = [index for index, field in enumerate(schema) if pa.types.is_dictionary(field.type)]
        self._codes, self._texts = schema, list[pa.Schema]()
        for index in self._encoded:
            field = schema.field(index)
            self._codes = self._codes.set(index, field.with_type(field.type.index_type))
            self._texts.append(pa.schema([field.with_type(field.type.value_type)]))

    def add(self, batch: pa.RecordBatch, bounds: np.ndarray) -> None:
        """Add a batch whose rows ``bounds[n]`` to ``bounds[n + 1] - 1`` belong to range n. Threads may add at the same time."""
        columns, texts = list(batch.columns), list[int]()
        for index, schema in zip(self._encoded, self._texts, strict=True):
            texts += self._write(pa.RecordBatch.from_arrays([columns[index].dictionary], schema=schema))
            columns[index] = columns[index].indices
        batch = pa.RecordBatch.from_arrays(columns, schema=self._codes)
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            low, high = int(bounds[number]), int(bounds[number + 1])
            place = self._write(batch.slice(low, high - low))
            with self._lock:
                self._places[number].extend((*place, *texts))

    def take(self, number: int) -> pa.Table:
        """The batches of a range."""
        batches: list[pa.RecordBatch] = []
        places = iter(self._places[number])
        for start, size in zip(places, places, strict=True):
            columns = self._read(start, size, self._codes).columns
            for index, schema in zip(self._encoded, self._texts, strict=True):
                (texts,) = self._read(next(places), next(places), schema).columns
                columns[index] = pa.DictionaryArray.from_arrays(columns[index], texts, safe=False)
            batches.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return pa.Table.from_batches(batches, self._schema)

    def _write(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Start and size of the batch in the file."""
        data = memoryview(batch.serialize())
        return self._file.append(data), data.nbytes

    def _read(self, start: int, size: int, schema: pa.Schema) -> pa.RecordBatch:
        data = np.empty(size, dtype=np.uint8)
        self._file.read(start, data)
        return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def of_at_least(
    least: int, tables: Iterable[pa.Table], schema: pa.Schema, *, or_bytes: float = math.inf
) -> Iterator[tuple[int, pa.Table]]:
    """Merge input rows to tables of at least ``least`` rows or ``or_bytes`` bytes (the last may be smaller, none is empty).

    Yields the index of the first row of each table, and the table.
    """
    waiting: list[pa.Table] = []
    first = held = size = 0
    for table in tables:
        waiting.append(table.select(schema.names).cast(schema))
        held, size = held + table.num_rows, size + table.nbytes
        if held >= least or size >= or_bytes:
            yield first, pa.concat_tables(waiting)
            first, held, size, waiting = first + held, 0, 0, []
    if held:
        yield first, pa.concat_tables(waiting)


def in_batches(
    tables: Iterable[pa.Table], schema: pa.Schema, least: int, *, or_bytes: float = math.inf
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """``of_at_least`` with each table as one batch."""
    return ((first, _one_batch(table, schema)) for first, table in of_at_least(least, tables, schema, or_bytes=or_bytes))


def _one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:  # a column has more than 2 GiB of text
        raise ValueError(f"{table.num_rows} rows hold more than 2 GiB in a column: make the parts smaller")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


class Sorter:
    """Sort rows by distinct numbers, one range of numbers at a time. Rows are in memory up to ``HELD_BYTES``, then in a
    temporary file.

    Args:
        size: size of a range of numbers; an output table has less than twice as many rows.
        scratch: folder for the file; default: the system's.

    >>> sorter = Sorter(2)
    >>> sorter.add(pa.table({"key": ["c", "a"]}), np.array([20, 0]))
    >>> sorter.add(pa.table({"key": ["b"]}), np.array([1]))
    >>> [table["key"].to_pylist() for table in sorter.tables()]
    [['a', 'b'], ['c']]
    """

    def __init__(self, size: int, *, scratch: str | None = None) -> None:
        self._size, self._scratch = size, scratch
        self._spilled: SpilledBatches | None = None
        self._ranges: set[int] = set()

    def add(self, table: pa.Table, numbers: np.ndarray) -> None:
        """Add rows with their ``numbers``, int64 (n,), each of which occurs once in the sorter."""
        table = table.append_column("", pa.array(numbers))
        self._spilled = self._spilled or SpilledBatches(table.schema, scratch=self._scratch)
        if table.num_rows:
            order = np.argsort(numbers)
            ranges = numbers[order] // self._size
            self._ranges |= set(np.unique(ranges).tolist())
            bounds = np.searchsorted(ranges, np.arange(ranges[-1] + 2))
            self._spilled.add(table.take(pa.array(order)).combine_chunks().to_batches()[0], bounds)

    def tables(self) -> Iterator[pa.Table]:
        """All rows in order, in at least one table; all but the last have ``size`` rows or more. Raises ``ValueError`` if no
        table was added."""
        if self._spilled is None:
            raise ValueError("no table was added: its columns are not known")
        empty, some = self._spilled.take(-1), False
        tables = (self._spilled.take(number).sort_by("") for number in sorted(self._ranges))
        for _, table in of_at_least(self._size, tables, empty.schema):
            some = True
            yield table.drop_columns([""])
        if not some:
            yield empty.drop_columns([""])
