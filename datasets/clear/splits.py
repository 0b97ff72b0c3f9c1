"""CLEAR's two protocols as columns: five iid splits of every bucket, and the place of each image in the stream.

iid: train and test on 70 and 30 % of the same bucket. Streaming: train on all of bucket i, test on all of bucket i + 1.
"""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rng import uniform
from ...curation.rows import with_column

if TYPE_CHECKING:
    from ...curation.store import Rows

SEEDS = (0, 1, 2, 3, 4)
"""Seeds of the published splits."""


@dataclasses.dataclass(frozen=True)
class IidSplits:
    """Columns that ``assign_iid_splits`` adds.

    Attributes:
        iid_seed0: ``train`` or ``test`` in the iid split of seed 0; and so on.
        stream: place in the stream, from 0, in the order (bucket, key).
    """

    key: str
    iid_seed0: str
    iid_seed1: str
    iid_seed2: str
    iid_seed3: str
    iid_seed4: str
    stream: int


def released_permutation(count: int, seed: int) -> np.ndarray:
    """Python's shuffle of ``range(count)`` after ``random.seed(seed)``: int64 (count,). The release's definition.

    Args:
        count: 0 or more.
        seed: 0 to 4 in CLEAR.

    >>> released_permutation(5, seed=0)
    array([2, 1, 0, 4, 3])
    """
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return np.asarray(order, dtype=np.int64)


def released_split(count: int, test_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of train and test images among the ``count`` of a bucket, in the order of the released lists.

    The last ``int(test_share * count)`` of the permutation are the test images. Every bucket of the same size gets the
    same permutation, and classes are not balanced (released code, ``prepare_training_folder.py``).

    Returns:
        Train and test places, int64; a partition of ``range(count)``.

    >>> train, test = released_split(10, 0.3, seed=0)
    >>> len(train), test
    (7, array([0, 9, 6]))
    """
    tested = _tested(count, test_share)
    order = released_permutation(count, seed)
    return order[: count - tested], order[count - tested :]


def assign_iid_splits(rows: Rows, *, rule: Literal["as_released", "as_written"], test_share: float) -> pa.Table:
    """Whole step: add the split columns.

    Args:
        rows: with columns ``key``, ``bucket`` and ``label`` (int64, the class's place in the list of classes).
        rule: ``as_released``: the images of a bucket, class by class in the order of labels and within a class in the order
            of the rows, are shuffled by ``released_split``. ``as_written`` (the paper-era code): within each bucket and
            class the first ``int(test_share * n)`` of a random order are the test images; that the order is drawn by
            key, so that it does not depend on the order of the rows, is our choice.
        test_share: share of test images, 0 to 1 (0.3).

    Returns:
        All rows in their order, with the columns of ``IidSplits``.

    >>> from benchwright.curation.store import Rows
    >>> rows = Rows.of(pa.table({"key": list("abcd"), "bucket": [1, 1, 1, 1], "label": [0, 0, 1, 1]}))
    >>> split = assign_iid_splits(rows, rule="as_written", test_share=0.5)
    >>> split["iid_seed0"].to_pylist(), split["stream"].to_pylist()
    (['test', 'train', 'train', 'test'], [0, 1, 2, 3])
    """
    if not 0 <= test_share <= 1:
        raise ValueError(f"test share is {test_share}: expected a number from 0 to 1")
    if rule not in ("as_released", "as_written"):
        raise ValueError(f"split rule is {rule!r}, not 'as_released' or 'as_written'")
    table = rows.table()
    bucket, label = table["bucket"].to_numpy(), table["label"].to_numpy()
    for seed in SEEDS:
        if rule == "as_released":
            test = _released(bucket, label, test_share, seed)
        else:
            test = _stratified(bucket, label, uniform(seed, "iid_split", table["key"].to_pylist()), test_share)
        table = with_column(table, f"iid_seed{seed}", pa.array(["train", "test"]).take(pa.array(test.astype(np.int64))))
    return _in_stream(table)


@dataclasses.dataclass(frozen=True)
class Streamed:
    """What ``order_stream`` adds: see ``IidSplits``."""

    key: str
    stream: int


def order_stream(rows: Rows) -> pa.Table:
    """Whole step: the place of each row in the stream, where the splits came with the rows.

    >>> from benchwright.curation.store import Rows
    >>> rows = Rows.of(pa.table({"key": list("ba"), "bucket": [1, 1]}))
    >>> order_stream(rows)["stream"].to_pylist()
    [1, 0]
    """
    return _in_stream(rows.table())


def _in_stream(table: pa.Table) -> pa.Table:
    order = pc.sort_indices(  # pyright: ignore[reportAttributeAccessIssue]
        table.select(["bucket", "key"]), sort_keys=[("bucket", "ascending"), ("key", "ascending")]
    ).to_numpy()
    stream = np.empty(len(order), dtype=np.int64)
    stream[order] = np.arange(len(order))
    return with_column(table, "stream", pa.array(stream))


def _tested(count: int, test_share: float) -> int:
    return int(test_share * count)


def _released(bucket: np.ndarray, label: np.ndarray, test_share: float, seed: int) -> np.ndarray:
    test = np.zeros(len(bucket), dtype=bool)
    order = np.lexsort((label, bucket))  # stable: within a class the order of the rows
    for number in np.unique(bucket):
        mine = order[bucket[order] == number]
        test[mine[released_split(len(mine), test_share, seed)[1]]] = True
    return test


def _stratified(bucket: np.ndarray, label: np.ndarray, draws: np.ndarray, test_share: float) -> np.ndarray:
    test = np.zeros(len(bucket), dtype=bool)
    order = np.lexsort((draws, label, bucket))
    edges = np.flatnonzero((np.diff(bucket[order]) != 0) | (np.diff(label[order]) != 0)) + 1
    for group in np.split(order, edges):
        test[group[: _tested(len(group), test_share)]] = True
    return test
