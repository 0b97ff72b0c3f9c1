"""A number for each of all rows: places in an order of columns, codes of values, draws. And the rows table by table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..rng import uniform
from .external_sort import places_of, sorted_by_columns
from .reorder import TABLE_BYTES, TABLE_ROWS, StoredRows
from .spill import SpillableArray, of_at_least


def ranks(rows: StoredRows, by: Sequence[tuple[str, str]], *, scratch: str | None = None) -> SpillableArray:
    """Place of each row in the order of some columns; equal rows keep their order, and those without a value come last.

    Args:
        rows: all rows.
        by: columns, each with ``ascending`` or ``descending``, the first counts most.
        scratch: folder for temporary files, about as large as the columns in memory; default: the system's.

    Returns:
        uint32, or uint64 for 4 billion rows and more, of shape (n,).

    >>> from benchwright.curation.stage_rows import Rows
    >>> ranks(Rows.of(pa.table({"key": ["b", "c", "a"]})), [("key", "ascending")])[:]
    array([1, 2, 0], dtype=uint32)
    """
    names = [name for name, _ in by]
    order = sorted_by_columns(lambda: rows.batches(names), rows.schema, rows.num_rows, by, scratch=scratch)
    return places_of(order, rows.num_rows, scratch=scratch)


def coded(rows: StoredRows, column: str) -> tuple[list[Any], np.ndarray]:
    """The values of a column, each once, as they come; and the place of each row's value among them, int32 (n,).

    >>> from benchwright.curation.stage_rows import Rows
    >>> coded(Rows.of(pa.table({"key": ["a", "b", "c"], "label": ["run", None, "run"]})), "label")
    (['run', None], array([0, 1, 0], dtype=int32))
    """
    codes = Codes()
    found = [np.empty(0, dtype=np.int32), *(codes(table[column]) for table in rows.batches([column]))]
    return codes.values, np.concatenate(found)


class Codes:
    """A number for each value, from 0 on, as they come.

    >>> codes = Codes()
    >>> codes(pa.chunked_array([["run", None]])), codes(pa.chunked_array([["jump", "run"]])), codes.values
    (array([0, 1], dtype=int32), array([2, 0], dtype=int32), ['run', None, 'jump'])
    """

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}

    @property
    def values(self) -> list[Any]:
        """The values that came, each once, as they came."""
        return list(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __call__(self, column: pa.ChunkedArray) -> np.ndarray:
        """The number of each value of a column, int32 (n,)."""
        found = column.combine_chunks().dictionary_encode(null_encoding="encode")
        known = [self._places.setdefault(value, len(self._places)) for value in found.dictionary.to_pylist()]
        return np.asarray(known, dtype=np.int32)[found.indices.to_numpy()]


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


def draws(rows: StoredRows, seed: int, stage: str, *, scratch: str | None = None) -> SpillableArray:
    """``rng.uniform`` of the keys: a number in [0, 1) for each row, float64 (n,).

    >>> from benchwright.curation.stage_rows import Rows
    >>> draws(Rows.of(pa.table({"key": ["a", "b", "c"]})), 0, "choose")[:].round(3)
    array([0.238, 0.891, 0.865])
    """
    drawn = SpillableArray(np.float64, scratch=scratch)
    for table in rows.batches(["key"]):
        drawn.append(uniform(seed, stage, table["key"].to_pylist()))
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
