"""CLEAR's five summaries of an accuracy matrix.

Source: Lin, Shi, Pathak and Ramanan, "The CLEAR Benchmark: Continual LEArning on Real-World Imagery", NeurIPS 2021 Datasets
and Benchmarks (arXiv:2201.06289), sections 4.1 and 4.2, and section 3 of its supplement. Each is the plain mean of a region
of R, where R[i, j] is the accuracy on domain j after training on domain i, both in time order. Nothing is subtracted:
"backward transfer" and "forward transfer" are accuracies here, unlike those of Lopez-Paz and Ranzato (NeurIPS 2017), which
are differences.

Rules for all: R is (N, N), values in [0, 1]. A region without cells (all but the diagonal of a single domain) is
undefined and gives NaN. NaN in a cell means "not tested": a metric whose region holds such a cell raises an error instead of
averaging the cells that were tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray


class NotTested(ValueError):
    """A metric needs a cell that was not tested.

    >>> acc_lower_triangle_mean([[1.0, 0.0], [float("nan"), 0.75]])
    Traceback (most recent call last):
        ...
    benchwright.eval.metrics.clear.NotTested: R[1, 0] was not tested: acc is the mean over 3 cells
    """


def check_matrix(matrix: ArrayLike) -> NDArray[np.float64]:
    """``matrix`` as (N, N) float64.

    Raises:
        ValueError: not square, empty, or a tested cell outside [0, 1] (percent must be divided by 100).

    >>> check_matrix([[90, 80], [70, 60]])
    Traceback (most recent call last):
        ...
    ValueError: R[0, 0] = 90.0: accuracies must be in [0, 1]
    """
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.shape[0] == 0:
        raise ValueError(f"accuracy matrix has shape {values.shape}: it must be (N, N) with N >= 1")
    outside = ~np.isnan(values) & ~((values >= 0) & (values <= 1))
    if outside.any():
        i, j = np.argwhere(outside)[0]
        raise ValueError(f"R[{i}, {j}] = {values[i, j]}: accuracies must be in [0, 1]")
    return values


def _region_mean(matrix: ArrayLike, metric: str, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> float:
    cells = check_matrix(matrix)[rows, columns]
    if cells.size == 0:
        return float("nan")
    if np.isnan(cells).any():
        at = int(np.argmax(np.isnan(cells)))
        raise NotTested(f"R[{rows[at]}, {columns[at]}] was not tested: {metric} is the mean over {cells.size} cells")
    return float(cells.mean())


def in_domain_diagonal_mean(matrix: ArrayLike) -> float:
    """In-domain accuracy (supplement, Eq. 4): (1/N) sum_i R[i, i], in [0, 1].

    >>> in_domain_diagonal_mean([[1.0, 0.0], [0.0, 0.5]])
    0.75
    """
    size = len(check_matrix(matrix))
    return _region_mean(matrix, "in-domain", np.arange(size), np.arange(size))


def next_domain_superdiagonal_mean(matrix: ArrayLike) -> float:
    """Next-domain accuracy (Eq. 1): 1/(N-1) sum_{i<N} R[i, i+1], in [0, 1]; NaN for N = 1.

    >>> next_domain_superdiagonal_mean([[0.0, 0.75, 0.0], [0.0, 0.0, 0.25], [0.0, 0.0, 0.0]])
    0.5
    """
    size = len(check_matrix(matrix))
    return _region_mean(matrix, "next-domain", np.arange(size - 1), np.arange(1, size))


def acc_lower_triangle_mean(matrix: ArrayLike) -> float:
    """Acc (supplement, Eq. 1): mean of R[i, j] over j <= i, N(N+1)/2 cells, in [0, 1].

    Not the mean of the last row, which other papers call Acc.

    >>> acc_lower_triangle_mean([[1.0, 0.0], [0.5, 0.75]])  # (1.0 + 0.5 + 0.75) / 3
    0.75
    """
    return _region_mean(matrix, "acc", *np.tril_indices(len(check_matrix(matrix))))


def bwt_below_diagonal_mean(matrix: ArrayLike) -> float:
    """BwT (supplement, Eq. 2): mean of R[i, j] over j < i, N(N-1)/2 cells, in [0, 1]; NaN for N = 1.

    The diagonal is not subtracted.

    >>> bwt_below_diagonal_mean([[1.0, 0.0], [0.5, 0.75]])  # 0.5, and not 0.5 - 1.0
    0.5
    """
    return _region_mean(matrix, "bwt", *np.tril_indices(len(check_matrix(matrix)), -1))


def fwt_above_diagonal_mean(matrix: ArrayLike) -> float:
    """FwT (supplement, Eq. 3): mean of R[i, j] over j > i, N(N-1)/2 cells, in [0, 1]; NaN for N = 1.

    No chance level is subtracted.

    >>> fwt_above_diagonal_mean([[1.0, 0.5, 0.25], [0.0, 1.0, 0.75], [0.0, 0.0, 1.0]])  # (0.5 + 0.25 + 0.75) / 3
    0.5
    >>> fwt_above_diagonal_mean([[1.0, float("nan")], [0.5, 0.75]])
    Traceback (most recent call last):
        ...
    benchwright.eval.metrics.clear.NotTested: R[0, 1] was not tested: fwt is the mean over 1 cells
    """
    return _region_mean(matrix, "fwt", *np.triu_indices(len(check_matrix(matrix)), 1))


IID_METRICS: Mapping[str, Callable[[ArrayLike], float]] = {
    "in_domain": in_domain_diagonal_mean,
    "next_domain": next_domain_superdiagonal_mean,
    "acc": acc_lower_triangle_mean,
    "bwt": bwt_below_diagonal_mean,
    "fwt": fwt_above_diagonal_mean,
}
"""The paper's short names -> the functions that define them. The iid protocol reports all five."""

STREAMING_METRICS: Mapping[str, Callable[[ArrayLike], float]] = {name: IID_METRICS[name] for name in ("next_domain", "fwt")}
"""Metrics of the streaming protocol: it trains on past buckets as a whole, so that only future buckets can be tested."""
