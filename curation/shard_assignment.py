"""Assign rows to shards: rows with the same values share shards, each filled up to a limit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .rows import BLOB
from .stage_rows import Rows
from .stages.external_sort import RowOrder, by_row, sorted_by_columns, sorted_by_numbers
from .stages.reorder import StoredRows, reorder
from .stages.spill import SpillableArray
from .ustar import BLOCK, padded

_GROUP, _ORDER = "\0group", "\0order"
"""Columns that rows are sorted by: names that no column of a stage has."""


@dataclass(frozen=True)
class Placed:
    """Column that ``assign_shards`` adds, for the ``gives`` of a stage.

    >>> Placed(key="a", shard="bucket01-train-00000").shard
    'bucket01-train-00000'
    """

    key: str
    shard: str


def assign_shards(
    rows: pa.Table | StoredRows,
    *,
    by: Sequence[str],
    max_samples: int,
    max_bytes: int | None = None,
    sized_by: Sequence[str] = (),
    order: Sequence[str] | SpillableArray = (),
) -> pa.Table | Iterator[pa.Table]:
    """Name the shard of every row in a column ``shard``, and bring the rows of a shard together.

    Rows with the same values of ``by`` share shards, filled in table order: ``bucket01-train-00000``. The result is sorted
    by shard; inside a shard the rows keep their order. In the name of a shard, an integer column contributes its name and the
    number, padded to the widest in the table and to at least two digits; a text column contributes its value, with runs of
    characters other than letters, digits and ``_`` replaced by one ``_``.

    Args:
        rows: a table; or the input of a ``whole`` stage, for which tables are yielded one by one.
        by: columns of integers or text, without nulls; without columns, shards are named ``data-00000``.
        max_samples: maximum number of samples in a shard, at least 1.
        max_bytes: maximum size of a shard in bytes, including headers and padding; a larger sample gets a shard of its own.
        sized_by: columns whose sizes are summed for ``max_bytes``: ``Blob`` columns, or integers in bytes.
        order: columns by which to sort rows with the same values of ``by`` first, or a sort key for each row, (n,).

    Raises:
        ValueError: a limit below 1, a null in ``by``, only one of ``max_bytes`` and ``sized_by``, or different values that give
            the same name.

    >>> table = pa.table({"key": ["a", "b", "c", "d"], "bucket": [2, 1, 2, 2]})
    >>> placed = assign_shards(table, by=["bucket"], max_samples=2)
    >>> list(zip(placed["key"].to_pylist(), placed["shard"].to_pylist()))
    [('b', 'bucket01-00000'), ('a', 'bucket02-00000'), ('c', 'bucket02-00000'), ('d', 'bucket02-00001')]
    """
    if max_samples < 1 or (max_bytes is not None and max_bytes < 1):
        raise ValueError(f"max_samples {max_samples} and max_bytes {max_bytes} must be at least 1")
    if (max_bytes is None) != (not sized_by):
        raise ValueError(f"max_bytes {max_bytes} and sized_by {list(sized_by)} go together: name the columns that weigh")
    if not isinstance(rows, pa.Table):
        return _placed(rows, by, max_samples, max_bytes, sized_by, order)
    table = cast(pa.Table, rows)
    placed = list(_placed(Rows.of(table), by, max_samples, max_bytes, sized_by, order))
    return pa.concat_tables(placed or [_with_shard(table.slice(0, 0), pa.array([], pa.string()))])


def _placed(
    rows: StoredRows,
    by: Sequence[str],
    max_samples: int,
    max_bytes: int | None,
    sized_by: Sequence[str],
    order: Sequence[str] | SpillableArray,
) -> Iterator[pa.Table]:
    names, group, counts = _groups(rows, by)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    found = RowOrder(_sorted(rows, group, order), rows.num_rows)
    weights = _weights(rows, sized_by, found.places()) if sized_by else None
    within, shards = -1, _Shards(max_samples, max_bytes)
    for first, table in reorder(rows, lambda: found, bounds.tolist()):
        if first >= bounds[within + 1]:
            within = int(np.searchsorted(bounds, first, side="right")) - 1
            shards = _Shards(max_samples, max_bytes)
        mine = shards.filled(
            np.zeros(table.num_rows, dtype=np.int64) if weights is None else weights[first : first + table.num_rows]
        )
        labels = [f"{names[within]}-{count:05d}" for count in range(int(mine[0]), int(mine[-1]) + 1)]
        yield _with_shard(table, pa.array(labels, pa.string()).take(pa.array(mine - mine[0])))


def _with_shard(table: pa.Table, shard: pa.Array) -> pa.Table:
    kept = table.drop_columns(["shard"]) if "shard" in table.column_names else table
    return kept.append_column(pa.field("shard", pa.string(), nullable=False), shard)


def _sorted(rows: StoredRows, group: SpillableArray, order: Sequence[str] | SpillableArray) -> Iterator[np.ndarray]:
    """Row numbers sorted by group, then by ``order``, then by their original order; a stretch at a time."""
    if not len(order):
        yield from sorted_by_numbers(group)
        return
    names = [] if isinstance(order, SpillableArray) else list(order)
    added = {_GROUP: group} | ({_ORDER: order} if isinstance(order, SpillableArray) else {})

    def read() -> Iterator[pa.Table]:
        at = 0
        for table in rows.batches(names or rows.schema.names[:1]):
            for name, values in added.items():
                table = table.append_column(name, pa.array(values[at : at + table.num_rows]))
            yield table
            at += table.num_rows

    schema = pa.schema([*rows.schema, *((name, pa.from_numpy_dtype(values.dtype)) for name, values in added.items())])
    by = [_GROUP, *(names or [_ORDER])]
    yield from sorted_by_columns(read, schema, rows.num_rows, [(name, "ascending") for name in by])


def _weights(rows: StoredRows, sized_by: Sequence[str], place: SpillableArray) -> SpillableArray:
    """Bytes that the row of each place takes in a shard, int64 (n,)."""

    def weighed() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        at = 0
        for table in rows.batches(sized_by):
            weights = np.zeros(table.num_rows, dtype=np.int64)
            for column in sized_by:
                sizes = table[column].combine_chunks()
                sizes = pc.struct_field(sizes, "size") if sizes.type.equals(BLOB) else sizes
                weights += BLOCK + padded(np.asarray(sizes.cast(pa.int64()), dtype=np.int64))
            yield place[at : at + len(weights)], weights
            at += len(weights)

    return by_row(weighed(), rows.num_rows, np.int64, missing=0)


def _groups(rows: StoredRows, by: Sequence[str]) -> tuple[list[str], SpillableArray, np.ndarray]:
    """Names of the groups that occur, sorted; the group of each row, int64 (n,); and the number of rows of each group."""
    group = SpillableArray(np.int64)
    if not by or not rows.num_rows:
        for table in rows.batches(rows.schema.names[:1]):
            group.append(np.zeros(table.num_rows, dtype=np.int64))
        return ["data"], group, np.array([rows.num_rows])
    names = list(by)
    there = pa.concat_tables([table.select(names).group_by(names).aggregate([]) for table in rows.batches(names)])
    there = there.group_by(names, use_threads=False).aggregate([])
    labels, values = [""] * there.num_rows, dict[str, pa.Array]()
    for column in names:
        if there[column].null_count:
            nulls = sum(table[column].null_count for table in rows.batches([column]))
            raise ValueError(f"column {column!r} has {nulls} nulls: every row needs a shard")
        values[column] = there[column].combine_chunks().unique()
        texts = pa.array(_texts(column, values[column])).take(pc.index_in(there[column], values[column])).to_pylist()
        labels = [f"{head}-{text}" if head else text for head, text in zip(labels, texts, strict=True)]
    if len(set(labels)) < len(labels):
        raise ValueError(f"columns {list(by)}: different values give the same shard name")
    codes = _codes(there, values)
    order = np.argsort(codes)
    rank = np.argsort(np.argsort(np.array(labels, dtype=object)))[order]
    codes, counts = codes[order], np.zeros(len(labels), dtype=np.int64)
    for table in rows.batches(names):
        mine = rank[np.searchsorted(codes, _codes(table, values))]
        counts += np.bincount(mine, minlength=len(counts))
        group.append(mine)
    return sorted(labels), group, counts


def _codes(table: pa.Table, values: Mapping[str, pa.Array]) -> np.ndarray:
    """A number for each row, int64 (n,), that distinguishes rows of different values in the columns."""
    codes = np.zeros(table.num_rows, dtype=np.int64)
    for column, known in values.items():
        codes = codes * len(known) + pc.index_in(table[column], known).to_numpy()
    return codes


def _texts(column: str, values: pa.Array) -> list[str]:
    if pa.types.is_integer(values.type):
        width = max([2, *(len(str(value)) for value in values.to_pylist())])
        return [f"{column}{value:0{width}d}" for value in values.to_pylist()]
    texts = [re.sub(r"[^A-Za-z0-9_]+", "_", str(value)) for value in values.to_pylist()]
    if len(set(texts)) < len(texts) or "" in texts:
        raise ValueError(f"column {column!r}: {values.to_pylist()} do not give different names in letters, digits and _")
    return texts


class _Shards:
    """Numbers of the shards of a group, filled one after another: each takes rows until a limit is reached."""

    def __init__(self, max_samples: int, max_bytes: int | None) -> None:
        self._max_samples, self._max_bytes = max_samples, max_bytes
        self._number = self._samples = self._bytes = 0

    def filled(self, weights: np.ndarray) -> np.ndarray:
        """Number of the shard of each of the next rows, int64 (n,), by their bytes."""
        number = np.empty(len(weights), dtype=np.int64)
        total = np.concatenate([[0], np.cumsum(weights)])
        begin = 0
        while begin < len(weights):
            fitting = len(weights)
            if self._max_bytes is not None:
                room = total[begin] + self._max_bytes - self._bytes
                fitting = int(np.searchsorted(total, room, side="right")) - 1
            end = min(begin + self._max_samples - self._samples, fitting)
            if end <= begin and self._samples:
                self._number, self._samples, self._bytes = self._number + 1, 0, 0
                continue
            end = min(max(begin + 1, end), len(weights))
            number[begin:end] = self._number
            self._samples, self._bytes = self._samples + end - begin, self._bytes + int(total[end] - total[begin])
            begin = end
        return number
