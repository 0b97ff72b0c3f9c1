"""Folds: the part in which each pair is tested, and the data of a fold that an estimator gets.

Source: the fold files of the released code (``*_idx_3_parts*.mat``). The published folds of S20 and NUS are the permutation of
``np.random.RandomState(999)`` cut into three consecutive parts of equal size; 162 pairs give 54 each and 195 give 65.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.bounded_reading import read_file
from ...curation.matlab import read_mat
from ...curation.rng import rng
from ...curation.rows import with_column
from ...curation.stages.ranks import in_tables

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

Lights = NDArray[np.float64]


def mark_originals(table: pa.Table) -> pa.Table:
    """Table step: the columns of ``rows.Augmented``, for rows that are all measured.

    >>> mark_originals(pa.table({"key": ["a"]})).to_pylist()
    [{'key': 'a', 'source_key': 'a', 'target_key': '', 'original': True}]
    """
    table = with_column(table, "source_key", table["key"])
    table = with_column(table, "target_key", pa.array([""] * table.num_rows, pa.string()))
    return with_column(table, "original", pa.array([True] * table.num_rows))


def parts(count: int, folds: int, seed: int) -> list[np.ndarray]:
    """Indices of the pairs of each fold, int64 (n,), in the order of the permutation; sizes differ by at most one.

    Args:
        count: number of pairs.
        folds: number of folds, at least 2.
        seed: seed of numpy's legacy generator; 999 gives the published folds. Its stream is frozen by numpy's policy (NEP 19).

    Raises:
        ValueError: fewer than 2 folds, or more than pairs.

    >>> parts(7, folds=3, seed=999)
    [array([3, 2, 5]), array([6, 1]), array([4, 0])]
    >>> [len(part) for part in parts(162, folds=3, seed=999)]
    [54, 54, 54]
    """
    if not 2 <= folds <= max(count, 2):
        raise ValueError(f"{folds} folds of {count} pairs: expected from 2 to the number of pairs")
    return np.array_split(np.random.RandomState(seed).permutation(count), folds)


def assign_folds(rows: Rows, *, folds: int, seed: int) -> Iterator[pa.Table]:
    """Whole step: add the column ``fold``, by a permutation of the rows in their order.

    >>> from benchwright.curation.stage_rows import Rows
    >>> next(assign_folds(Rows.of(pa.table({"key": list("abcdef")})), folds=3, seed=999))["fold"].to_pylist()
    [2, 1, 0, 1, 2, 0]
    """
    return _with_fold(rows, parts(rows.num_rows, folds, seed))


def assign_parts(rows: Rows, *, shares: Sequence[float], seed: int) -> Iterator[pa.Table]:
    """Whole step: add the column ``fold``: 0 training, 1 validation, 2 test, in random order, by shares of all pairs.

    Args:
        shares: shares of the parts; they sum to 1. Published: 0.6, 0.2, 0.2 (the order is in the released file).
        seed: seed for the order.

    Raises:
        ValueError: a share is not above 0, or the sum is not 1.

    >>> from benchwright.curation.stage_rows import Rows
    >>> table, = assign_parts(Rows.of(pa.table({"key": list("abcdefghij")})), shares=[0.6, 0.2, 0.2], seed=0)
    >>> np.bincount(table["fold"].to_numpy())
    array([6, 2, 2])
    """
    if abs(sum(shares) - 1) > 1e-9 or min(shares) <= 0:
        raise ValueError(f"shares {list(shares)}: expected numbers above 0 that sum to 1")
    ends = np.round(np.cumsum(shares) * rows.num_rows).astype(np.int64)
    return _with_fold(rows, np.split(rng(seed, "assign_parts").permutation(rows.num_rows), ends[:-1]))


def released_parts(rows: Rows, *, path: str) -> Iterator[pa.Table]:
    """Whole step: add the column ``fold`` from the released ``.mat`` file of parts (``idx_parts``: three lists of row numbers).

    Raises:
        ValueError: the file has another form, or parts of other pairs: they contain the numbers in the keys, from 0.

    >>> from benchwright.curation.stage_rows import Rows
    >>> from scipy.io import savemat
    >>> lists = np.array([None, None, None])
    >>> lists[:] = [np.array([[2, 0]]), np.array([[3]]), np.array([[1]])]
    >>> savemat("parts.mat", {"idx_parts": lists})
    >>> rows = Rows.of(pa.table({"key": ["pair0", "pair1", "pair2", "pair3"]}))
    >>> next(released_parts(rows, path="parts.mat"))["fold"].to_pylist()
    [0, 2, 0, 1]
    """
    try:
        cells = read_mat(read_file(path), ["idx_parts"])["idx_parts"]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if len(cells) != 3 or any(part.dtype.kind not in "iuf" for part in cells):
        raise ValueError(f"{path}: expected 'idx_parts' with three parts")
    released = [part.astype(np.int64).ravel() for part in cells]
    count = sum(len(part) for part in released)
    keys = (key for table in rows.batches(["key"]) for key in table["key"].to_pylist())
    numbered = np.fromiter((int(re.sub(r"\D", "", key)) for key in keys), dtype=np.int64)
    if sorted(np.concatenate(released).tolist()) != list(range(count)) or (len(numbered) and int(numbered.max()) >= count):
        raise ValueError(f"{path}: {count} numbers, which are not those of {rows.num_rows} pairs")
    return _with_fold(rows, released, numbered)


def _with_fold(rows: Rows, of_folds: Sequence[np.ndarray], numbers: np.ndarray | slice = slice(None)) -> Iterator[pa.Table]:
    """Add the column ``fold``, where ``of_folds`` lists the numbers in each fold; ``numbers`` of the rows, if not 0, 1, ..."""
    fold = np.empty(sum(map(len, of_folds)), dtype=np.int64)
    for number, mine in enumerate(of_folds):
        fold[mine] = number
    fold = fold[numbers]
    for first, table in in_tables(rows):
        yield with_column(table, "fold", pa.array(fold[first : first + table.num_rows]))


def no_pictures(keys: NDArray[np.str_], lights: NDArray[np.str_] | None = None) -> Any:
    """Placeholder for the pictures of a fold if the estimator does not declare that it needs them.

    >>> no_pictures(np.array(["pair7"]))
    Traceback (most recent call last):
        ...
    ValueError: pictures of 1 pairs: an estimator that uses pictures must set needs_pictures = True
    """
    raise ValueError(f"pictures of {len(keys)} pairs: an estimator that uses pictures must set needs_pictures = True")


@dataclasses.dataclass(frozen=True)
class Fold:
    """One training and its test.

    Attributes:
        name: name of the fold in tables.
        X_train: (n, 9) float32, transforms row by row.
        gt_train: (n, 3) float64, lights divided by green.
        pair_train: (n,) key of the measured pair that a row shows.
        light_train: (n,) key of the pair whose light the row has; its own pair if it was measured.
        X_validate, gt_validate: rows to select a checkpoint by; none if the estimator must hold out some itself.
        key_test: (m,) keys of the measured pairs that are tested.
        X_test: (m, 9) float32.
        gt_test: (m, 3) float64; None if it is withheld from the estimator.
        pictures: function from keys of measured pairs to their ``training.illuminants.pictures.LinearPictures``, of both
            cameras, for estimators with ``needs_pictures = True``. With keys of other pairs as second argument: the pictures
            under the lights of those pairs, which only re-illuminated rows (``pair_train``, ``light_train``) allow.

    >>> from benchwright.eval.protocols.cross_validation import PairExamples, rotating_folds
    >>> rows = PairExamples(
    ...     key=np.array(["a", "b", "a-as-b"]),
    ...     pair=np.array(["a", "b", "a"]),
    ...     light=np.array(["a", "b", "b"]),
    ...     X=np.zeros((3, 9), np.float32),
    ...     gt=np.ones((3, 3)),
    ...     fold=np.array([0, 1, 0]),
    ...     original=np.array([True, True, False]),
    ... )
    >>> fold = rotating_folds(rows)[1]  # pair b is tested: what is lit as b is lit is not learned from
    >>> fold.key_test.tolist(), fold.pair_train.tolist(), fold.X_train.shape, fold.gt_test
    (['b'], ['a'], (1, 9), None)
    """

    name: str
    X_train: NDArray[np.float32]
    gt_train: Lights
    pair_train: NDArray[np.str_]
    light_train: NDArray[np.str_]
    X_validate: NDArray[np.float32]
    gt_validate: Lights
    key_test: NDArray[np.str_]
    X_test: NDArray[np.float32]
    gt_test: Lights | None
    pictures: Callable[..., Any] = no_pictures

    @property
    def measured_train(self) -> NDArray[np.bool_]:
        """(n,) whether a training row was measured, not re-illuminated."""
        return self.pair_train == self.light_train
