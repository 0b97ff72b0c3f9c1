"""Final accuracy and backward forgetting of class-incremental learning, with and without weights.

Source: Villa et al., "vCLIMB: A Novel Video Class Incremental Learning Benchmark", CVPR 2022, section 3, Eq. 1. R[i, j] is
the accuracy on the evaluation videos of task j after learning tasks 0..i, all classes seen so far competing. Paper: plain
means over tasks. Released code: means weighted by the number of classes of each task. They differ where tasks differ in
size (UCF101 alone).

Rules for all: R is (N, N) with values in [0, 1]; cells above the diagonal are not used and may be NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .clear import NotTested, check_matrix


def final_accuracy(matrix: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Acc: mean over j of R[N-1, j], in [0, 1].

    Args:
        matrix: R.
        weights: (N,) numbers of classes, as in the released code; None: the paper's plain mean.

    Raises:
        ValueError: as ``learned_cells``; weights of another length, or not above 0.

    >>> R = [[0.75, float("nan")], [0.5, 1.0]]
    >>> final_accuracy(R)
    0.75
    >>> final_accuracy(R, weights=[3, 1])  # (3 * 0.5 + 1 * 1.0) / 4
    0.625
    """
    values = learned_cells(matrix)
    return _mean(values[-1], weights, len(values))


def backward_forgetting(matrix: ArrayLike, weights: ArrayLike | None = None) -> float:
    """BWF: mean over j < N-1 of R[j, j] - R[N-1, j], in [-1, 1]; positive is forgetting. NaN for one task.

    The final accuracy is compared with that just after the task was learned, not with the best in between.

    Args:
        matrix: R.
        weights: (N,) numbers of classes, as in the released code; None: the paper's plain mean.

    Raises:
        ValueError: as ``final_accuracy``.

    >>> nan = float("nan")
    >>> backward_forgetting([[0.75, nan, nan], [0.5, 1.0, nan], [0.25, 0.5, 0.5]])  # (0.75 - 0.25 + 1.0 - 0.5) / 2
    0.5
    """
    return float(forgetting_curve(matrix, weights)[-1])


def accuracy_curve(matrix: ArrayLike, weights: ArrayLike | None = None) -> NDArray[np.float64]:
    """(N,) float64: after each task, the mean accuracy over the tasks seen so far; its last value is ``final_accuracy``.

    >>> accuracy_curve([[0.75, float("nan")], [0.5, 1.0]])
    array([0.75, 0.75])
    """
    values = learned_cells(matrix)
    return np.array([_mean(values[i, : i + 1], weights, len(values)) for i in range(len(values))])


def forgetting_curve(matrix: ArrayLike, weights: ArrayLike | None = None) -> NDArray[np.float64]:
    """(N,) float64: BWF_i after each task (Eq. 1), NaN after the first; its last value is ``backward_forgetting``.

    >>> nan = float("nan")
    >>> forgetting_curve([[0.75, nan, nan], [0.5, 1.0, nan], [0.25, 0.5, 0.5]])
    array([ nan, 0.25, 0.5 ])
    """
    values = learned_cells(matrix)
    first = np.diagonal(values)
    lost = [_mean(first[:i] - values[i, :i], weights, len(values)) for i in range(1, len(values))]
    return np.array([np.nan, *lost])


def learned_cells(matrix: ArrayLike) -> NDArray[np.float64]:
    """``matrix`` as (N, N) float64, after checking that all cells R[i, j] with j <= i were tested.

    Raises:
        ValueError: not square, or a cell outside [0, 1].
        NotTested: a cell that was not tested.

    >>> learned_cells([[0.9, float("nan")], [float("nan"), 0.7]])
    Traceback (most recent call last):
        ...
    benchwright.eval.metrics.clear.NotTested: R[1, 0] was not tested: every task is tested after it and after each later one
    """
    values = check_matrix(matrix)
    untested = np.argwhere(np.isnan(values) & np.tri(len(values), dtype=bool))
    if len(untested):
        i, j = untested[0]
        raise NotTested(f"R[{i}, {j}] was not tested: every task is tested after it and after each later one")
    return values


def _mean(values: NDArray[np.float64], weights: ArrayLike | None, tasks: int) -> float:
    if weights is None:
        return float(values.mean())
    counts = np.asarray(weights, dtype=np.float64)
    if counts.shape != (tasks,) or not (counts > 0).all():
        raise ValueError(f"weights {counts.shape} for {tasks} tasks: one positive number of classes each")
    return float(np.average(values, weights=counts[: len(values)]))
