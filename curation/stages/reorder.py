"""Put the rows of a stage in another order without holding them all.

Up to ``HELD_BYTES`` of rows are held and gathered. More are read once, in their own order: each part is cut by the place that
its rows take in the result, the cuts are laid aside in one temporary file, and then each stretch of the result is put together
from its cuts. Beside that, memory holds one part and one stretch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from ..threads import in_threads
from .external_sort import RowOrder, nowhere
from .spill import SpillableArray, SpilledBatches, in_batches

TABLE_ROWS = 1 << 18
"""Most rows of a table that is given."""

TABLE_BYTES = 1 << 26
"""About the most bytes of one: wide rows come in tables of fewer."""

HELD_BYTES = 1 << 28
"""Rows that are held in memory at once; where there are more, all go through a file."""

_FEW_BYTES = 1 << 23  # rows that are sooner gathered than threads are started
_CUT_ROWS = 1 << 10  # rows that a cut should have on average: smaller ones cost more in headers than in rows
_FEWEST, _MOST = 1 << 16, 1 << 19  # input rows that are cut at a time: a few megabytes are quickest, the cache holds them


class StoredRows(Protocol):
    """What a ``whole`` step is given (``curation.stage_rows.Rows``), as far as it is used here.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows: StoredRows = Rows.of(pa.table({"key": ["a", "b"]}))
    >>> rows.num_rows, rows.schema.names
    (2, ['key'])
    """

    @property
    def num_rows(self) -> int: ...
    @property
    def schema(self) -> pa.Schema: ...
    def repetitive(self) -> list[str]: ...
    def batches(self, columns: Sequence[str] | None = None, *, encoded: Sequence[str] = ()) -> Iterator[pa.Table]: ...


def inverse(order: np.ndarray) -> np.ndarray:
    """Place of each number in ``order``, a permutation of integers of shape (n,); same shape and dtype.

    >>> inverse(np.array([2, 0, 1]))
    array([1, 2, 0])
    """
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return places


def reorder(
    rows: StoredRows,
    order: Callable[[], RowOrder],
    cuts: Sequence[int],
    *,
    scratch: str | None = None,
    held_bytes: int | None = None,
) -> Iterator[tuple[int, pa.Table]]:
    """Rows in another order, as tables of at most ``TABLE_ROWS`` rows.

    Args:
        rows: all rows, of any columns (payload columns move as references).
        order: returns the new order; rows that are not in it are left out. It is called in another thread, while rows are read.
        cuts: places at which a table must not continue, such as the starts of buckets.
        scratch: folder for the temporary file, which takes about as much room as the rows in memory would.
        held_bytes: of rows that are held, ``HELD_BYTES`` by default; where there are more, all go through the file.

    Yields:
        Place of the table's first row, and the table.

    >>> from benchwright.curation.stage_rows import Rows
    >>> from benchwright.curation.stages.external_sort import RowOrder
    >>> rows = Rows.of(pa.table({"key": ["a", "b", "c"]}))
    >>> order = RowOrder([np.array([2, 0, 1])], 3)
    >>> [(at, table["key"].to_pylist()) for at, table in reorder(rows, lambda: order, cuts=[0, 1])]
    [(0, ['c']), (1, ['a', 'b'])]
    """
    schema = encoded = rows.schema.remove_metadata()
    # Dictionaries take less room, and their codes are gathered faster than text.
    for name in (repetitive := rows.repetitive()):
        encoded = encoded.set(
            schema.get_field_index(name), schema.field(name).with_type(pa.dictionary(pa.int32(), pa.string()))
        )
    tables = (table.select(schema.names) for table in rows.batches(encoded=repetitive))
    held, size, seen, gather = list[pa.Table](), 0, 0, None
    with ThreadPoolExecutor(1) as beside:
        ordering = beside.submit(order)
        for table in tables:
            held.append(table.replace_schema_metadata())
            size, seen = size + table.nbytes, seen + table.num_rows
            if size > (HELD_BYTES if held_bytes is None else held_bytes):
                break
        else:
            gather = _Gather(pa.concat_tables(held), schema) if held else None
    found = ordering.result()
    if not len(found):
        return
    edges = _edges(len(found), cuts, size / seen)
    if gather is None:
        yield from _through_file(itertools.chain(held, tables), encoded, schema, found.places(), edges, scratch)
        return
    del held
    numbers, spans = found.rows(), itertools.pairwise(edges.tolist())
    if size < _FEW_BYTES:
        yield from ((a, gather(numbers[a:b])) for a, b in spans)
        return
    yield from in_threads(lambda a, b: (a, gather(numbers[a:b])), spans)


class _Gather:
    """Rows of a table at any indices."""

    def __init__(self, table: pa.Table, schema: pa.Schema) -> None:
        self._schema = schema
        columns = in_threads(pa.ChunkedArray.combine_chunks, ((table[name],) for name in schema.names))
        self._table = pa.Table.from_arrays(list(columns), names=schema.names)

    def __call__(self, indices: np.ndarray) -> pa.Table:
        return self._table.take(pa.array(indices)).cast(self._schema)


def _through_file(
    tables: Iterable[pa.Table],
    encoded: pa.Schema,
    schema: pa.Schema,
    place: SpillableArray,
    edges: np.ndarray,
    scratch: str | None,
) -> Iterator[tuple[int, pa.Table]]:
    """The tables, of the schema ``encoded``, in order, of the schema ``schema``."""
    cuts = SpilledBatches(encoded.append(pa.field("", pa.from_numpy_dtype(place.dtype))), scratch=scratch)
    least = min(max(_FEWEST, _CUT_ROWS * len(edges)), _MOST)
    for _ in in_threads(partial(_cut, place, edges, cuts), in_batches(tables, encoded, least, or_bytes=TABLE_BYTES)):
        pass
    yield from in_threads(partial(_assembled, cuts, schema), enumerate(edges[:-1].tolist()))


def _edges(total: int, cuts: Sequence[int], row_bytes: float) -> np.ndarray:
    most = int(min(TABLE_ROWS, max(TABLE_BYTES / max(row_bytes, 1), 1)))
    corners = np.unique(np.asarray([0, *cuts, total], dtype=np.int64))
    return np.unique(np.concatenate([corners, *(np.arange(a, b, most) for a, b in itertools.pairwise(corners))]))


def _cut(places: SpillableArray, edges: np.ndarray, cuts: SpilledBatches, first: int, batch: pa.RecordBatch) -> None:
    place = places[first : first + batch.num_rows]
    order = np.argsort(place)
    order = order[: np.searchsorted(place, nowhere(place.dtype), sorter=order)]
    place = place[order]
    batch = batch.take(pa.array(order)).append_column("", pa.array(place))
    cuts.add(batch, np.searchsorted(place, edges.astype(place.dtype)))


def _assembled(cuts: SpilledBatches, schema: pa.Schema, number: int, start: int) -> tuple[int, pa.Table]:
    table = cuts.take(number).combine_chunks()
    # The ranks of a stretch are the numbers from its start on, so their inverse is a scatter, not a sort.
    places = table[""].to_numpy().astype(np.int64) - start
    return start, table.drop_columns([""]).take(pa.array(inverse(places))).cast(schema)
