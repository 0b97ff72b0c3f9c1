"""CLEAR's two protocols as columns: five iid splits of every bucket, and the position of each image in the stream.

iid: train and test on 70 and 30 % of the same bucket. Streaming: train on all of bucket i, test on all of bucket i + 1.
"""

from __future__ import annotations

import array
import dataclasses
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rows import with_column
from ...curation.stages.external_sort import by_row, numbers_dtype, sorted_by_columns, sorted_by_numbers
from ...curation.stages.ranks import draws, in_tables, ranks
from ...curation.stages.spill import SpillableArray

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

_Tests = tuple[np.ndarray, np.ndarray]

SEEDS = (0, 1, 2, 3, 4)
"""Seeds of the published splits."""


@dataclasses.dataclass(frozen=True)
class IidSplits:
    """Columns that ``assign_iid_splits`` adds.

    Attributes:
        iid_seed0: ``train`` or ``test`` in the iid split of seed 0; and so on for the other seeds.
        stream: position in the stream, from 0, in the order (bucket, key).

    >>> row = IidSplits("photo7", "train", "train", "test", "train", "train", stream=0)
    >>> row.iid_seed2
    'test'
    """

    key: str
    iid_seed0: str
    iid_seed1: str
    iid_seed2: str
    iid_seed3: str
    iid_seed4: str
    stream: int


def released_permutation(count: int, seed: int) -> np.ndarray:
    """Python's shuffle of ``range(count)`` after ``random.seed(seed)``, as the release defines it: int64 (count,).

    Args:
        count: 0 or more.
        seed: 0 to 4 in CLEAR.

    >>> released_permutation(5, seed=0)
    array([2, 1, 0, 4, 3])
    """
    order = array.array("q", range(count))
    random.Random(seed).shuffle(order)
    return np.frombuffer(order, dtype=np.int64)


def released_split(count: int, test_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Train and test indices for the ``count`` images of a bucket, in the order of the released lists.

    The last ``int(test_share * count)`` of the permutation are the test images. Every bucket of the same size gets the
    same permutation, and classes are not balanced (released code, ``prepare_training_folder.py``).

    Returns:
        Train and test indices, int64; a partition of ``range(count)``.

    >>> train, test = released_split(10, 0.3, seed=0)
    >>> len(train), test
    (7, array([0, 9, 6]))
    """
    tested = _tested(count, test_share)
    order = released_permutation(count, seed)
    return order[: count - tested], order[count - tested :]


def assign_iid_splits(rows: Rows, *, rule: Literal["as_released", "as_written"], test_share: float) -> Iterator[pa.Table]:
    """Whole step: add the columns of the iid splits and the stream.

    Args:
        rows: rows with columns ``key``, ``bucket`` and ``label`` (int64, the class index).
        rule: ``as_released``: the images of a bucket, class by class in the order of labels and within a class in the order
            of the rows, are shuffled by ``released_split``. ``as_written`` (the paper-era code): within each bucket and
            class the first ``int(test_share * n)`` of a random order are the test images. Drawing this order by key, so
            that it does not depend on the order of the rows, is our choice.
        test_share: share of test images, 0 to 1 (0.3).

    Yields:
        All rows in their order, with the columns of ``IidSplits``. Memory: with ``as_released`` 17 bytes per row of the
        largest bucket.

    Raises:
        ValueError: ``test_share`` is not from 0 to 1.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": list("abcd"), "bucket": [1, 1, 1, 1], "label": [0, 0, 1, 1]}))
    >>> split = next(assign_iid_splits(rows, rule="as_written", test_share=0.5))
    >>> split["iid_seed0"].to_pylist(), split["stream"].to_pylist()
    (['test', 'train', 'train', 'test'], [0, 1, 2, 3])
    """
    if not 0 <= test_share <= 1:
        raise ValueError(f"test share is {test_share}: expected a number from 0 to 1")
    if rule not in ("as_released", "as_written"):
        raise ValueError(f"split rule is {rule!r}, not 'as_released' or 'as_written'")
    tested = _tested_rows(rows, rule, test_share)
    names = pa.array(["train", "test"])
    for first, table in _in_stream(rows):
        for seed, test in zip(SEEDS, tested, strict=True):
            mine = test[first : first + table.num_rows]
            table = with_column(table, f"iid_seed{seed}", names.take(pa.array(mine)))
        yield table


@dataclasses.dataclass(frozen=True)
class Streamed:
    """Column that ``order_stream`` adds: see ``IidSplits``.

    >>> Streamed("photo7", stream=0)
    Streamed(key='photo7', stream=0)
    """

    key: str
    stream: int


def order_stream(rows: Rows) -> Iterator[pa.Table]:
    """Whole step: add the position of each row in the stream, for rows that already have splits.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": list("ba"), "bucket": [1, 1]}))
    >>> next(order_stream(rows))["stream"].to_pylist()
    [1, 0]
    """
    for _, table in _in_stream(rows):
        yield table


def _in_stream(rows: Rows) -> Iterator[tuple[int, pa.Table]]:
    """Tables of rows with the column ``stream``, with the number of each table's first row."""
    stream = ranks(rows, [("bucket", "ascending"), ("key", "ascending")])
    for first, table in in_tables(rows):
        yield first, with_column(table, "stream", pa.array(stream[first : first + table.num_rows].astype(np.int64)))


def _tested(count: int, test_share: float) -> int:
    return int(test_share * count)


def _tested_rows(rows: Rows, rule: str, test_share: float) -> list[SpillableArray]:
    """Whether each row is a test image, uint8 (n,) for each seed."""
    group, sizes = _groups(rows)
    if rule == "as_released":
        order = SpillableArray(numbers_dtype(rows.num_rows))
        for some in sorted_by_numbers(group):
            order.append(some)
        chosen = [_released_tests(order, sizes.sum(axis=1), test_share, seed) for seed in SEEDS]
    else:
        chosen = [_written_tests(rows, group, sizes.ravel(), test_share, seed) for seed in SEEDS]
    return [by_row(pieces, rows.num_rows, np.uint8, missing=0) for pieces in chosen]


def _released_tests(order: SpillableArray, sizes: np.ndarray, test_share: float, seed: int) -> Iterator[_Tests]:
    """Row numbers, and whether they are test images, a bucket at a time."""
    at = 0
    for count in sizes.tolist():
        test = np.zeros(count, dtype=np.uint8)
        test[released_split(count, test_share, seed)[1]] = 1
        yield order[at : at + count], test
        at += count


def _written_tests(rows: Rows, group: SpillableArray, sizes: np.ndarray, test_share: float, seed: int) -> Iterator[_Tests]:
    """Row numbers, and whether they are test images, a stretch of the rows by group and draw at a time."""
    drawn = draws(rows, seed, "iid_split")

    def read() -> Iterator[pa.Table]:
        for (_, groups), (_, numbers) in zip(group.blocks(), drawn.blocks(), strict=True):
            yield pa.table({"group": groups, "drawn": numbers})

    schema = pa.schema([("group", pa.int64()), ("drawn", pa.float64())])
    by = [("group", "ascending"), ("drawn", "ascending")]
    ends, at = np.cumsum(sizes), 0
    tested = np.array([_tested(count, test_share) for count in sizes.tolist()], dtype=np.int64)
    for some in sorted_by_columns(read, schema, rows.num_rows, by):
        place = np.arange(at, at + len(some))
        mine = np.searchsorted(ends, place, side="right")
        yield some, (place - (ends - sizes)[mine] < tested[mine]).astype(np.uint8)
        at += len(some)


def _groups(rows: Rows) -> tuple[SpillableArray, np.ndarray]:
    """Group of each row, int64 (n,), numbered by bucket and within it by label; and their sizes, int64 (buckets, labels)."""
    there = [pc.unique(table[name]).to_numpy() for table in rows.batches(["bucket", "label"]) for name in ("bucket", "label")]
    none = np.empty(0, dtype=np.int64)
    buckets, labels = np.unique(np.concatenate([none, *there[::2]])), np.unique(np.concatenate([none, *there[1::2]]))
    group, sizes = SpillableArray(np.int64), np.zeros(len(buckets) * len(labels), dtype=np.int64)
    for table in rows.batches(["bucket", "label"]):
        bucket = np.searchsorted(buckets, table["bucket"].to_numpy())
        mine = bucket * len(labels) + np.searchsorted(labels, table["label"].to_numpy())
        sizes += np.bincount(mine, minlength=len(sizes))
        group.append(mine)
    return group, sizes.reshape(len(buckets), len(labels))
