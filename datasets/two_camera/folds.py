"""Folds: which part a pair is tested in.

Source: the fold files of the released code (``*_idx_3_parts*.mat``). The published folds of S20 and NUS are the permutation of
``np.random.RandomState(999)`` cut into three consecutive parts of equal size; 162 pairs give 54 each and 195 give 65.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...curation.rows import with_column

if TYPE_CHECKING:
    from ...curation.store import Rows


def parts(count: int, folds: int, seed: int) -> list[np.ndarray]:
    """Indices of the pairs of each fold, int64, in the order of the permutation; sizes differ by one at most.

    Args:
        count: pairs.
        folds: at least 2.
        seed: of numpy's legacy generator; 999 gives the published folds. Its stream is frozen by numpy's policy (NEP 19).

    >>> parts(7, folds=3, seed=999)
    [array([3, 2, 5]), array([6, 1]), array([4, 0])]
    >>> [len(part) for part in parts(162, folds=3, seed=999)]
    [54, 54, 54]
    """
    if not 2 <= folds <= max(count, 2):
        raise ValueError(f"{folds} folds of {count} pairs: from 2 to the number of pairs are wanted")
    return np.array_split(np.random.RandomState(seed).permutation(count), folds)


def assign_folds(rows: Rows, *, folds: int, seed: int) -> pa.Table:
    """Whole step: add the column ``fold``. The order of the rows is the order that the permutation is of.

    >>> from benchwright.curation.store import Rows
    >>> assign_folds(Rows.of(pa.table({"key": list("abcdef")})), folds=3, seed=999)["fold"].to_pylist()
    [2, 1, 0, 1, 2, 0]
    """
    table = rows.table()
    fold = np.empty(table.num_rows, dtype=np.int64)
    for number, mine in enumerate(parts(table.num_rows, folds, seed)):
        fold[mine] = number
    return with_column(table, "fold", pa.array(fold))
