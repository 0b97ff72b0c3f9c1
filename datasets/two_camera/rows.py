"""Common rows of all two-camera datasets: one row per pair of pictures, and the rows as arrays.

Colours are row vectors of raw R, G, B, linear, black level subtracted, at any positive scale: only their direction matters.
A transform maps row vectors, ``colour_2 = colour_1 @ transform_1to2``, and is stored row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class MeasuredPair:
    """A pair of pictures with its lights and transforms.

    Attributes:
        key: unique; letters, digits, ``_`` and ``-``.
        name: name of the pair in the source.
        gt_1: light in the raw colours of the first, main camera (3,), which networks estimate.
        gt_2: the same light in the second camera's raw colours (3,).
        transform_1to2: transform fitted to all valid pixels (9,), 3 x 3 row by row.
        transform_2to1: transform in the other direction (9,).
        transform_chart_1to2: transform fitted to the chart's patches (9,); None if there is no chart.
        transform_chart_2to1: transform in the other direction (9,).
        condition_1: ratio of the largest to the smallest singular value of the first camera's colours; None if only the
            transform is available, not the colours.
        condition_2: ratio for the second camera's colours.
    """

    key: str
    name: str
    gt_1: list[float]
    gt_2: list[float]
    transform_1to2: list[float]
    transform_2to1: list[float]
    transform_chart_1to2: list[float] | None
    transform_chart_2to1: list[float] | None
    condition_1: float | None
    condition_2: float | None


@dataclass(frozen=True)
class Folded:
    """Columns that ``folds`` adds.

    Attributes:
        fold: part in which the pair is tested, from 0. In the radiometric set: 0 training, 1 validation, 2 test.
    """

    key: str
    fold: int


@dataclass(frozen=True)
class Augmented:
    """Columns that ``augment`` adds.

    Attributes:
        source_key: key of the measured pair; the row's own key if it is original. It determines the fold and the folder.
        target_key: key of the pair whose light the row has; "" if it is original.
        original: whether the row was measured, not re-illuminated. Only original rows are tested.
    """

    key: str
    source_key: str
    target_key: str
    original: bool


@dataclass(frozen=True)
class PairNumbers:
    """Columns of every finished row: ``MeasuredPair`` with ``Folded`` and ``Augmented``, without charts and conditions."""

    key: str
    name: str
    source_key: str
    target_key: str
    original: bool
    fold: int
    gt_1: list[float]
    gt_2: list[float]
    transform_1to2: list[float]
    transform_2to1: list[float]


@dataclass(frozen=True)
class TransformPairs:
    """Finished rows as arrays, for training and evaluation.

    Attributes:
        key: (n,) text; so are ``name``, ``source_key`` and ``target_key``.
        original: bool (n,).
        fold: int64 (n,).
        gt_1: float64 (n, 3); so is ``gt_2``.
        transform_1to2: float64 (n, 3, 3); so is ``transform_2to1``.
        transform_chart_1to2: float64 (n, 3, 3), NaN if there is no chart; so is ``transform_chart_2to1``.

    >>> key, T, gt = np.array(["a", "b"]), np.stack([np.eye(3)] * 2), np.ones((2, 3))
    >>> pairs = TransformPairs(key, key, key, key, np.ones(2, bool), np.arange(2), gt, gt, T, T, T, T)
    >>> len(pairs), pairs.take(pairs.fold == 1).key
    (2, array(['b'], dtype='<U1'))
    """

    key: np.ndarray
    name: np.ndarray
    source_key: np.ndarray
    target_key: np.ndarray
    original: np.ndarray
    fold: np.ndarray
    gt_1: np.ndarray
    gt_2: np.ndarray
    transform_1to2: np.ndarray
    transform_2to1: np.ndarray
    transform_chart_1to2: np.ndarray
    transform_chart_2to1: np.ndarray

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: np.ndarray) -> TransformPairs:
        """Select rows by indices or a mask (n,)."""
        return TransformPairs(**{name: getattr(self, name)[rows] for name in TransformPairs.__dataclass_fields__})


def numbers(column: pa.ChunkedArray | pa.Array, width: int) -> np.ndarray:
    """A column of lists of ``width`` numbers as float64 (n, width); NaN for a null list.

    Raises:
        ValueError: a list has another length.

    >>> numbers(pa.array([[1.0, 2.0, 3.0], None]), 3)
    array([[ 1.,  2.,  3.],
           [nan, nan, nan]])
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    lengths = whole.value_lengths()
    valid = whole.is_valid().to_numpy(zero_copy_only=False)
    if not np.array_equal(lengths.fill_null(width).to_numpy(zero_copy_only=False), np.full(len(whole), width)):
        raise ValueError(f"expected lists of {width} numbers, found lengths {sorted(set(lengths.to_pylist()) - {width, None})}")
    found = np.full((len(whole), width), np.nan)
    found[valid] = whole.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return found


def lists(values: np.ndarray) -> pa.Array:
    """Numbers (n, ...) as a column with a list per row; null for a row of only NaN.

    Values are rounded to float32, like the released ones: the last digits of sums differ between processors, and the bytes
    must not.

    >>> lists(np.array([[0.5, 1.0, 0.25], [np.nan, np.nan, np.nan]])).to_pylist()
    [[0.5, 1.0, 0.25], None]
    """
    flat = np.asarray(values, dtype=np.float32).astype(np.float64).reshape(len(values), -1)
    width = flat.shape[1]
    gone = np.isnan(flat).all(axis=1)
    ends = np.concatenate([[0], np.cumsum(np.where(gone, 0, width))]).astype(np.int32)
    offsets = pa.array(ends, mask=np.append(gone, False))
    return pa.ListArray.from_arrays(offsets, pa.array(flat[~gone].ravel()))


def as_pairs(table: pa.Table) -> TransformPairs:
    """A table of finished rows as arrays."""

    def array(name: str) -> np.ndarray:
        column = table[name]
        if name.startswith("transform_"):
            return numbers(column, 9).reshape(-1, 3, 3)
        if name.startswith("gt_"):
            return numbers(column, 3)
        return np.asarray(column.to_pylist(), dtype={"original": np.bool_, "fold": np.int64}.get(name, np.str_))

    return TransformPairs(**{name: array(name) for name in TransformPairs.__dataclass_fields__})
