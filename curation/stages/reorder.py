"""Put the rows of a stage in another order without holding them all.

Up to ``HELD_BYTES`` of rows are held and gathered. More are read once, in their own order: each part is cut by the place that
its rows take in the result, the cuts are laid aside in one temporary file, and then each stretch of the result is put together
from its cuts. Beside that, memory holds one part, one stretch and a rank of 4 bytes a row (8 beyond 4 billion).
"""

from __future__ import annotations

import collections
import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..records import naming
from .spill import SpilledBatches, ahead, in_batches

TABLE_ROWS = 1 << 18
"""Most rows of a table that is given."""

TABLE_BYTES = 1 << 26
"""About the most bytes of one: wide rows come in tables of fewer."""

HELD_BYTES = 1 << 28
"""Rows that are held in memory at once; where there are more, all go through a file."""

_GATHERERS = 2  # tables that are gathered at a time while another is in use
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
    stretches = [slice(start, start + TABLE_ROWS) for start in range(0, count, TABLE_ROWS)]
    unit = 1_000_000 if not any(np.any(values[stretch] % 1_000_000) for stretch in stretches) else 1
    if (high - low) // unit >= 1 << (63 - bits):
        return np.argsort(values, kind="stable")
    # Value and index fit one integer: sorting those needs no second array, and is stable by its nature.
    values -= low
    values //= unit
    values <<= bits
    for stretch in stretches:
        values[stretch] |= np.arange(*stretch.indices(count))
    values.sort()
    values &= (1 << bits) - 1
    return values


def inverse(order: np.ndarray) -> np.ndarray:
    """Place of each number in ``order``, a permutation of integers of shape (n,); same shape and dtype.

    >>> inverse(np.array([2, 0, 1]))
    array([1, 2, 0])
    """
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return places


def numbers_of_digits(tables: Iterable[pa.Table], column: str, count: int) -> np.ndarray | None:
    """Numbers that sort as texts of digits do, which takes a third of the memory that sorting the texts takes.

    Args:
        tables: in order, of ``count`` rows.
        column: of text.

    Returns:
        int64 of shape (count,); None if a text is anything but 1 to 17 digits.

    >>> numbers_of_digits([pa.table({"key": ["9", "10", "1"]})], "key", 3).argsort()
    array([2, 1, 0])
    """
    values, lengths, at = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.uint8), 0
    for table in tables:
        texts, end = table[column], at + table.num_rows
        if not pc.all(pc.match_substring_regex(texts, "^[0-9]{1,17}$").fill_null(False), min_count=0).as_py():
            return None
        values[at:end] = texts.cast(pa.int64()).to_numpy()
        lengths[at:end] = pc.binary_length(texts).to_numpy()
        at = end
    longest = int(lengths.max(initial=0))
    for start in range(0, count, TABLE_ROWS):
        digits = lengths[start : start + TABLE_ROWS].astype(np.int64)
        values[start : start + TABLE_ROWS] *= 10 ** (longest - digits) * (longest + 1)
        values[start : start + TABLE_ROWS] += digits
    return values


def reorder(
    rows: StoredRows, order: np.ndarray, cuts: Sequence[int], *, scratch: str | None = None, held_bytes: int | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Rows at the indices ``order``, in that order, as tables of at most ``TABLE_ROWS`` rows.

    Args:
        rows: all rows, of any columns (payload columns move as references).
        order: int64 of shape (m,): indices of rows, each at most once. Rows that are not named are left out.
        cuts: places in ``order`` at which a table must not continue, such as the starts of buckets.
        scratch: folder for the temporary file, which takes about as much room as the rows in memory would.
        held_bytes: of rows that are held, ``HELD_BYTES`` by default; where there are more, all go through the file.

    Yields:
        Place in ``order`` of the table's first row, and the table.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": ["a", "b", "c"]}))
    >>> [(place, table["key"].to_pylist()) for place, table in reorder(rows, np.array([2, 0, 1]), cuts=[0, 1])]
    [(0, ['c']), (1, ['a', 'b'])]
    """
    if not len(order):
        return
    schema = rows.schema.remove_metadata()
    # Dictionaries take less room, and their codes are gathered faster than text.
    tables = (table.select(schema.names) for table in rows.batches(encoded=rows.repetitive()))
    held, size, count = list[pa.Table](), 0, 0
    for table in tables:
        held.append(table.replace_schema_metadata())
        size, count = size + table.nbytes, count + table.num_rows
        if size > (HELD_BYTES if held_bytes is None else held_bytes):
            edges = _edges(len(order), cuts, size / count)
            yield from _through_file(itertools.chain(held, tables), schema, _rank(order, rows.num_rows), edges, scratch)
            return
    gather = _Gather(pa.concat_tables(held), schema)
    del held
    spans = itertools.pairwise(_edges(len(order), cuts, size / count).tolist())
    if size < _FEW_BYTES:
        yield from ((a, gather(order[a:b])) for a, b in spans)
        return
    with ThreadPoolExecutor(_GATHERERS) as pool:
        under_way: collections.deque[tuple[int, Future[pa.Table]]] = collections.deque()
        for a, b in spans:
            under_way.append((a, pool.submit(gather, order[a:b])))
            if len(under_way) > _GATHERERS:
                start, table = under_way.popleft()
                yield start, table.result()
        yield from ((start, table.result()) for start, table in under_way)


class _Gather:
    """Rows of a table at any indices."""

    def __init__(self, table: pa.Table, schema: pa.Schema) -> None:
        self._schema = schema
        self._table = table.select(schema.names).combine_chunks()

    def __call__(self, indices: np.ndarray) -> pa.Table:
        return self._table.take(pa.array(indices)).cast(self._schema)


def _rank(order: np.ndarray, count: int) -> np.ndarray:
    """Place of every row in ``order``, the largest number for those that have none."""
    kind = np.uint32 if len(order) < 2**32 - 1 else np.uint64
    rank = np.full(count, np.iinfo(kind).max, dtype=kind)
    rank[order] = np.arange(len(order), dtype=kind)
    return rank


def _through_file(
    tables: Iterable[pa.Table], schema: pa.Schema, rank: np.ndarray, edges: np.ndarray, scratch: str | None
) -> Iterator[tuple[int, pa.Table]]:
    with tempfile.TemporaryFile(dir=scratch, buffering=1 << 20) as file:
        cuts = SpilledBatches(file, schema.append(pa.field("", pa.from_numpy_dtype(rank.dtype))))
        least = min(max(_FEWEST, _CUT_ROWS * len(edges)), _MOST)
        for first, batch in ahead(in_batches(tables, schema, least, or_bytes=TABLE_BYTES)):
            with naming(scratch or tempfile.gettempdir()):
                _cut(batch, rank[first : first + batch.num_rows], edges, cuts)
        yield from ahead((start, _assembled(cuts.take(n), start)) for n, start in enumerate(edges[:-1].tolist()))


def _edges(total: int, cuts: Sequence[int], row_bytes: float) -> np.ndarray:
    most = int(min(TABLE_ROWS, max(TABLE_BYTES / max(row_bytes, 1), 1)))
    corners = np.unique(np.asarray([0, *cuts, total], dtype=np.int64))
    return np.unique(np.concatenate([corners, *(np.arange(a, b, most) for a, b in itertools.pairwise(corners))]))


def _cut(batch: pa.RecordBatch, rank: np.ndarray, edges: np.ndarray, cuts: SpilledBatches) -> None:
    order = np.argsort(rank)
    order = order[: np.searchsorted(rank, np.iinfo(rank.dtype).max, sorter=order)]
    ranks = rank[order]
    batch = batch.take(pa.array(order)).append_column("", pa.array(ranks))
    cuts.add(batch, np.searchsorted(ranks, edges.astype(rank.dtype)))


def _assembled(table: pa.Table, start: int) -> pa.Table:
    table = table.combine_chunks()
    # The ranks of a stretch are the numbers from its start on, so their inverse is a scatter, not a sort.
    places = table[""].to_numpy().astype(np.int64) - start
    return table.drop_columns([""]).take(pa.array(inverse(places)))
