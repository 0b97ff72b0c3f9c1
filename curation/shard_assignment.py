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
from .stages.ranks import ranks
from .stages.reorder import StoredRows, inverse, reorder, stable_order
from .ustar import BLOCK, padded


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
    order: Sequence[str] | np.ndarray = (),
) -> pa.Table | Iterator[pa.Table]:
    """Name the shard of every row in a column ``shard``, and bring the rows of a shard together.

    Rows with the same values of ``by`` share shards, filled in table order: ``bucket01-train-00000``. The result is sorted
    by shard; inside a shard the rows keep their order. In the name of a shard, an integer column contributes its name and the
    number, padded to the widest in the table and to at least two digits; a text column contributes its value, with runs of
    characters other than letters, digits and ``_`` replaced by one ``_``.

    Args:
        rows: a table; or the input of a ``whole`` stage, for which tables are yielded one by one. Memory: 24 bytes per row.
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
    order: Sequence[str] | np.ndarray,
) -> Iterator[pa.Table]:
    names, group = _groups(rows, by)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=len(names)))])
    weights = _weights(rows, sized_by) if sized_by else np.zeros(0, dtype=np.int64)
    sequence = _sequence(rows, group, order)
    del group
    within, number = -1, np.zeros(0, dtype=np.int64)
    for first, table in reorder(rows, sequence, bounds.tolist()):
        if first >= bounds[within + 1]:
            within = int(np.searchsorted(bounds, first, side="right")) - 1
            begin, end = bounds[within : within + 2]
            number = _fill(weights[sequence[begin:end]] if sized_by else np.zeros(end - begin, bool), max_samples, max_bytes)
        mine = number[first - bounds[within] :][: table.num_rows]
        labels = [f"{names[within]}-{count:05d}" for count in range(int(mine[0]), int(mine[-1]) + 1)]
        yield _with_shard(table, pa.array(labels, pa.string()).take(pa.array(mine - mine[0])))


def _with_shard(table: pa.Table, shard: pa.Array) -> pa.Table:
    kept = table.drop_columns(["shard"]) if "shard" in table.column_names else table
    return kept.append_column(pa.field("shard", pa.string(), nullable=False), shard)


def _sequence(rows: StoredRows, group: np.ndarray, order: Sequence[str] | np.ndarray) -> np.ndarray:
    """Row numbers sorted by group, then by ``order``, then by their original order."""
    if not len(order):
        return stable_order(group.astype(np.int64))
    if isinstance(order, np.ndarray):
        row = np.argsort(order, kind="stable")
    else:
        row = inverse(ranks(rows, [(name, "ascending") for name in order]))
    return row[stable_order(group[row].astype(np.int64))]


def _weights(rows: StoredRows, sized_by: Sequence[str]) -> np.ndarray:
    """Bytes that each row takes in a shard, int64 (n,)."""
    weights, at = np.zeros(rows.num_rows, dtype=np.int64), 0
    for table in rows.batches(sized_by):
        for column in sized_by:
            sizes = table[column].combine_chunks()
            sizes = pc.struct_field(sizes, "size") if sizes.type.equals(BLOB) else sizes
            bytes_each = np.asarray(sizes.cast(pa.int64()), dtype=np.int64)
            weights[at : at + table.num_rows] += BLOCK + padded(bytes_each)
        at += table.num_rows
    return weights


def _groups(rows: StoredRows, by: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Names of the groups that occur, sorted, and the group of each row, int32 (n,)."""
    group = np.zeros(rows.num_rows, dtype=np.int32)
    if not by or not rows.num_rows:
        return ["data"] * bool(rows.num_rows), group
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
    codes, at = codes[order], 0
    for table in rows.batches(names):
        group[at : at + table.num_rows] = rank[np.searchsorted(codes, _codes(table, values))]
        at += table.num_rows
    return sorted(labels), group


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


def _fill(weights: np.ndarray, max_samples: int, max_bytes: int | None) -> np.ndarray:
    """Number of the shard of each row of a group, int64 (n,): each shard takes rows until a limit is reached."""
    if max_bytes is None:
        return np.arange(len(weights)) // max_samples
    number = np.empty(len(weights), dtype=np.int64)
    total = np.concatenate([[0], np.cumsum(weights)])
    begin = count = 0
    while begin < len(weights):
        fitting = int(np.searchsorted(total, total[begin] + max_bytes, side="right")) - 1
        end = max(begin + 1, min(begin + max_samples, fitting))
        number[begin:end] = count
        begin, count = end, count + 1
    return number
