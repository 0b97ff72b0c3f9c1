"""Angular error between illuminants, and the six statistics of it that papers on illuminant estimation report.

The error and the quartiles' rules are those of the released code of Abdelhamed, Punnappurath and Brown ("Leveraging the
Availability of Two Cameras for Illuminant Estimation", CVPR 2021, section 4 and Tables 1 to 3). Over folds there are three
ways to average, and they differ: ``pooled``, ``fold_mean`` and the ``first_two_folds_mean`` of the released job script.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclasses.dataclass(frozen=True)
class AngularStatistics:
    """Statistics of n angular errors, in degrees.

    Attributes:
        mean, median: of all.
        best_25: mean of the round(n / 4) lowest, half to even (54 errors -> 14, 162 -> 40).
        worst_25: mean of the round(n / 4) highest.
        q1, q3: quartiles, numpy's linear rule.

    >>> found = angular_statistics([9, 1, 2, 4, 3, 5, 1, 7])
    >>> found.best_25, found.worst_25  # (1 + 1) / 2 and (7 + 9) / 2
    (1.0, 8.0)
    """

    mean: float
    median: float
    best_25: float
    worst_25: float
    q1: float
    q3: float


def angular_error_deg(estimate: ArrayLike, truth: ArrayLike) -> NDArray[np.float64]:
    """arccos(<a, b> / (|a| |b| + 1e-8)) in degrees, row by row.

    The 1e-8 is the released code's. Where |a| |b| is 1, it puts equal vectors 0.008 degrees apart, and shorter vectors further:
    pass illuminants divided by their green, as the code does. Vectors shorter than 0.1 are rejected.

    Args:
        estimate: (n, 3) linear RGB, green or length about 1.
        truth: (n, 3) linear RGB, green or length about 1.

    Returns:
        (n,) float64 in [0, 180].

    Raises:
        ValueError: shapes that are not (n, 3) or do not pair, values that are not finite, a row shorter than 0.1.

    >>> angular_error_deg([[1, 1, 0], [0, 1, 0]], [[0, 1, 0], [0, 1, 0]]).round(3).tolist()
    [45.0, 0.008]
    >>> angular_error_deg([[0, 0, 0]], [[1, 1, 1]])
    Traceback (most recent call last):
        ...
    ValueError: row 0: estimate [0.0, 0.0, 0.0], truth [1.0, 1.0, 1.0]: finite values are needed, divided by green
    """
    a, b = np.asarray(estimate, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if a.ndim != 2 or a.shape[1] != 3 or a.shape != b.shape:
        raise ValueError(f"estimates {a.shape} and truths {b.shape}: both must be (n, 3) with one n")
    lengths = np.stack([np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)])
    bad = ~(np.isfinite(lengths) & (lengths >= 0.1)).all(axis=0)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"row {row}: estimate {a[row].tolist()}, truth {b[row].tolist()}: finite values are needed, divided by green"
        )
    cosine = np.einsum("ij,ij->i", a, b) / (lengths[0] * lengths[1] + 1e-8)
    return np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))


def angular_statistics(errors_deg: ArrayLike) -> AngularStatistics:
    """The six statistics of errors (n,) in degrees, as returned by ``angular_error_deg``.

    Raises:
        ValueError: fewer than three errors (a quarter of them rounds to none), another shape, or a value outside [0, 180].

    >>> angular_statistics([1, 2, 3, 4, 5, 6, 7, 8])
    AngularStatistics(mean=4.5, median=4.5, best_25=1.5, worst_25=7.5, q1=2.75, q3=6.25)
    >>> angular_statistics([3, 1])
    Traceback (most recent call last):
        ...
    ValueError: errors (2,): (n,) with n of 3 or more is needed
    """
    errors = np.asarray(errors_deg, dtype=np.float64)
    if errors.ndim != 1 or len(errors) < 3:
        raise ValueError(f"errors {errors.shape}: (n,) with n of 3 or more is needed")
    if not ((errors >= 0) & (errors <= 180)).all():
        raise ValueError(f"errors from {errors.min()} to {errors.max()} degrees: expected 0 to 180")
    ordered = np.sort(errors)
    quarter = round(len(errors) / 4)
    q1, q3 = np.quantile(ordered, [0.25, 0.75])
    return AngularStatistics(
        mean=float(ordered.mean()),
        median=float(np.median(ordered)),
        best_25=float(ordered[:quarter].mean()),
        worst_25=float(ordered[-quarter:].mean()),
        q1=float(q1),
        q3=float(q3),
    )


def pooled(folds_deg: Sequence[ArrayLike]) -> AngularStatistics:
    """Statistics of all folds' errors together, in degrees, as if there were one test set.

    Args:
        folds_deg: for each fold, (n,) errors in degrees.

    Raises:
        ValueError: as ``angular_statistics``.

    >>> pooled([[1, 1, 1], [2, 2, 2, 2, 2, 2, 2, 2, 2]]).mean  # (3 * 1 + 9 * 2) / 12
    1.75
    """
    return angular_statistics(np.concatenate([np.asarray(fold, dtype=np.float64) for fold in folds_deg]))


def fold_mean(folds_deg: Sequence[ArrayLike]) -> AngularStatistics:
    """Mean over folds of each fold's statistics, in degrees: closest to the paper's tables 2 and 3.

    Args:
        folds_deg: for each fold, (n,) errors in degrees.

    Raises:
        ValueError: no fold, or as ``angular_statistics`` for any fold.

    >>> fold_mean([[1, 1, 1], [2, 2, 2, 2, 2, 2, 2, 2, 2]]).mean  # (1 + 2) / 2
    1.5
    """
    return mean_statistics([angular_statistics(fold) for fold in folds_deg])


def first_two_folds_mean(folds_deg: Sequence[ArrayLike]) -> AngularStatistics:
    """``as_released``: the job script's mean of three folds, whose slice ``[:2, 1:]`` leaves out the third. Takes
    and raises as ``fold_mean``.

    >>> first_two_folds_mean([[1, 1, 1], [2, 2, 2], [9, 9, 9]]).mean
    1.5
    """
    return fold_mean(folds_deg[:2])


def mean_statistics(statistics: Sequence[AngularStatistics]) -> AngularStatistics:
    """Mean of each statistic.

    Raises:
        ValueError: nothing to average.

    >>> mean_statistics([AngularStatistics(1, 1, 1, 1, 1, 1), AngularStatistics(3, 2, 1, 3, 2, 1)])
    AngularStatistics(mean=2.0, median=1.5, best_25=1.0, worst_25=2.0, q1=1.5, q3=1.0)
    """
    if not statistics:
        raise ValueError("no statistics to average: at least one fold is needed")
    rows = np.array([dataclasses.astuple(one) for one in statistics], dtype=np.float64)
    return AngularStatistics(*rows.mean(axis=0).tolist())
