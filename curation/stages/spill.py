"""Batches spilled to a temporary file by the range that they belong to, and read back range by range."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TypeVar

import numpy as np
import pyarrow as pa

T = TypeVar("T")


class SpilledBatches:
    """Batches by the number of the range that they belong to."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file, self._schema = file, schema
        self._places: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)

    def add(self, batch: pa.RecordBatch, bounds: np.ndarray) -> None:
        """A batch whose rows ``bounds[n]`` to below ``bounds[n + 1]`` belong to range n."""
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            low, high = int(bounds[number]), int(bounds[number + 1])
            data = batch.slice(low, high - low).serialize()
            self._places[number].append((self._file.tell(), data.size))
            self._file.write(data)

    def take(self, number: int) -> pa.Table:
        """The batches of a range."""
        batches: list[pa.RecordBatch] = []
        for start, size in self._places[number]:
            self._file.seek(start)
            batches.append(pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), self._schema))
        return pa.Table.from_batches(batches, self._schema)


def of_at_least(
    least: int, tables: Iterable[pa.Table], schema: pa.Schema, *, or_bytes: float = math.inf
) -> Iterator[tuple[int, pa.Table]]:
    """Input rows in tables of at least ``least`` rows, or of so many bytes, but for the last, with the index of the first; no
    table without rows."""
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
    """Input rows in batches as by ``of_at_least``, with the index of the first."""
    return ((first, _one_batch(table, schema)) for first, table in of_at_least(least, tables, schema, or_bytes=or_bytes))


def _one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:  # text of more than 2 GiB in one column
        raise ValueError(f"{table.num_rows} rows hold more than 2 GiB in a column: make the parts smaller")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, each made by another thread while the one before is in use."""
    iterator = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(next, iterator, end)
        while (item := pending.result()) is not end:
            pending = pool.submit(next, iterator, end)
            yield item  # type: ignore[misc]  # not the end
