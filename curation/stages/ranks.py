"""Of all rows in a few bytes a row: places in an order of columns, codes of values, draws. And the rows table by table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..records import naming
from ..rng import uniform
from .reorder import TABLE_BYTES, TABLE_ROWS, StoredRows
from .spill import SpilledBatches, ahead, in_batches, of_at_least

HELD_ROWS = 1 << 22
"""Rows that are sorted in memory at once; where there are more, they are cut into stretches of about a quarter as many."""

_DRAWN = 64
"""Rows by which the borders of a stretch are found: it takes more or less by some 13 %."""

_ROW = ""
"""Column of row numbers."""


def ranks(rows: StoredRows, by: Sequence[tuple[str, str]], *, scratch: str | None = None) -> np.ndarray:
    """The place of each row in the order of some columns; equal rows keep their order, and those without a value come last.

    Many rows are cut, by rows that are drawn of them, into stretches of the order; these are in one temporary file, and are
    sorted one after another. Memory: 4 bytes a row (8 beyond 4 billion), a stretch, and rows that are equal in all columns.

    Args:
        rows: all rows.
        by: columns, each with ``ascending`` or ``descending``, the first counts most.
        scratch: folder for the file, which takes about as much room as the columns in memory would.

    Returns:
        uint32, or uint64 for more rows, of shape (n,).

    >>> from benchwright.curation.stage_rows import Rows
    >>> ranks(Rows.of(pa.table({"key": ["b", "c", "a"]})), [("key", "ascending")])
    array([1, 2, 0], dtype=uint32)
    """
    names = [name for name, _ in by]
    found = np.empty(rows.num_rows, dtype=np.uint32 if rows.num_rows < 2**32 else np.uint64)
    at = 0
    for part in _sorted_stretches(rows, names, [*by, (_ROW, "ascending")], scratch):
        found[part] = np.arange(at, at + len(part), dtype=found.dtype)
        at += len(part)
    return found


def _sorted_stretches(
    rows: StoredRows, names: list[str], by: list[tuple[str, str]], scratch: str | None
) -> Iterator[np.ndarray]:
    """Numbers of the rows, int64, in the order of ``by``, a stretch at a time."""
    schema = pa.schema([*(rows.schema.field(name).remove_metadata() for name in names), (_ROW, pa.int64())])
    numbered = (
        (first, _numbered(batch, first)) for first, batch in in_batches(rows.batches(names), schema.remove(len(names)), 1)
    )
    if rows.num_rows <= HELD_ROWS:
        table = pa.concat_tables([schema.empty_table(), *(table for _, table in numbered)])
        yield table[_ROW].to_numpy()[pc.sort_indices(table, sort_keys=by).to_numpy()]
        return
    borders = _boundaries(rows, names, schema, by)
    with tempfile.TemporaryFile(dir=scratch, buffering=1 << 20) as file:
        cuts = SpilledBatches(file, schema)
        for first, batch in ahead(in_batches(rows.batches(names), schema.remove(len(names)), 1 << 16)):
            with naming(scratch or tempfile.gettempdir()):
                _cut(_numbered(batch, first), borders, by, cuts)
        for number in range(len(borders) + 1):
            table = cuts.take(number)
            yield table[_ROW].to_numpy()[pc.sort_indices(table, sort_keys=by).to_numpy()]


def _numbered(batch: pa.RecordBatch, first: int) -> pa.Table:
    return pa.Table.from_batches([batch]).append_column(_ROW, pa.array(np.arange(first, first + batch.num_rows)))


def _boundaries(rows: StoredRows, names: list[str], schema: pa.Schema, by: list[tuple[str, str]]) -> pa.Table:
    """Rows that cut all of them into stretches of about ``HELD_ROWS // 4``, in order."""
    draw = np.random.default_rng(0)
    every = max(HELD_ROWS // 4 // _DRAWN, 1)
    drawn, first = [schema.empty_table()], 0
    for table in rows.batches(names):
        starts = np.arange(0, table.num_rows, every)
        at = np.minimum(starts + draw.integers(0, every, len(starts)), table.num_rows - 1)
        some = table.take(pa.array(at)).append_column(_ROW, pa.array(at + first))
        drawn.append(some.select(schema.names).cast(schema))
        first += table.num_rows
    found = pa.concat_tables(drawn)
    return found.take(pc.sort_indices(found, sort_keys=by)[_DRAWN::_DRAWN])


def _cut(table: pa.Table, borders: pa.Table, by: list[tuple[str, str]], cuts: SpilledBatches) -> None:
    """Lay the rows of a table aside by the stretches that they belong to."""
    # Sorted together with the borders, each row stands behind the borders that it is not before.
    order = pc.sort_indices(pa.concat_tables([borders, table]), sort_keys=by).to_numpy()
    border = order < len(borders)
    number = np.cumsum(border)[~border]
    batch = table.take(pa.array(order[~border] - len(borders))).combine_chunks().to_batches()[0]
    cuts.add(batch, np.searchsorted(number, np.arange(len(borders) + 2)))


def coded(rows: StoredRows, column: str) -> tuple[list[Any], np.ndarray]:
    """The values of a column, each once, as they come; and the place of each row's value among them, int32 (n,).

    >>> from benchwright.curation.stage_rows import Rows
    >>> coded(Rows.of(pa.table({"key": ["a", "b", "c"], "label": ["run", None, "run"]})), "label")
    (['run', None], array([0, 1, 0], dtype=int32))
    """
    places: dict[Any, int] = {}
    codes, at = np.empty(rows.num_rows, dtype=np.int32), 0
    for table in rows.batches([column]):
        found = table[column].combine_chunks().dictionary_encode(null_encoding="encode")
        known = [places.setdefault(value, len(places)) for value in found.dictionary.to_pylist()]
        codes[at : at + len(found)] = np.asarray(known, dtype=np.int32)[found.indices.to_numpy()]
        at += len(found)
    return list(places), codes


def places_in_groups(group: np.ndarray, order: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Position of each row in its group, and the size of its group: both (n,), of the dtype of ``group``,
    which must be able to hold these sizes.

    ``order`` lists the rows group by group; by default the rows of a group are in row order.

    >>> places_in_groups(np.array([7, 3, 7, 7]))
    (array([0, 0, 1, 2]), array([3, 1, 3, 3]))
    """
    order = np.argsort(group, kind="stable") if order is None else order
    starts = np.flatnonzero(np.diff(group[order], prepend=group[order[:1]] - 1))
    counts = np.diff(starts, append=len(group))
    place, size = np.empty_like(group), np.empty_like(group)
    place[order] = np.arange(len(group)) - np.repeat(starts, counts)
    size[order] = np.repeat(counts, counts)
    return place, size


def draws(rows: StoredRows, seed: int, stage: str) -> np.ndarray:
    """``rng.uniform`` of the keys: a number in [0, 1) for each row, float64 (n,).

    >>> from benchwright.curation.stage_rows import Rows
    >>> draws(Rows.of(pa.table({"key": ["a", "b", "c"]})), 0, "choose").round(3)
    array([0.238, 0.891, 0.865])
    """
    drawn, at = np.empty(rows.num_rows), 0
    for table in rows.batches(["key"]):
        drawn[at : at + table.num_rows] = uniform(seed, stage, table["key"].to_pylist())
        at += table.num_rows
    return drawn


def in_tables(rows: StoredRows) -> Iterator[tuple[int, pa.Table]]:
    """All rows in their order, with the number of the first of each table; all but the last have ``TABLE_ROWS`` rows or
    ``TABLE_BYTES`` at least.

    >>> from benchwright.curation.stage_rows import Rows
    >>> [(first, table.num_rows) for first, table in in_tables(Rows.of(pa.table({"key": ["b", "c", "a"]})))]
    [(0, 3)]
    """
    if not rows.num_rows:
        yield 0, rows.schema.empty_table()
    yield from of_at_least(TABLE_ROWS, rows.batches(), rows.schema, or_bytes=TABLE_BYTES)
