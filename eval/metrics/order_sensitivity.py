"""Effect of the order of tasks or classes on a learner: forgetting, its bound, and the performance difference over orders.

Source: Wei, De Schepper and Mets, "Benchmarking sensitivity of continual graph learning for skeleton-based action recognition"
(arXiv:2401.18054), section 3.2. R[i, j] is the accuracy on the task learned j-th after learning tasks 0..i, all classes seen so
far competing; (N, N) in [0, 1], cells above the diagonal are not used. The paper's AA_k (Eq. 2) is
``class_incremental.accuracy_curve``. Forgetting has three definitions here, which differ in sign:

===============================  =====================================================  ======================
``forgetting_from_best``         best accuracy before task k, minus the accuracy now    positive is forgetting
``backward_forgetting``          accuracy just after the task, minus the accuracy now   positive is forgetting
``final_minus_diagonal``         the accuracy now, minus that just after the task       negative is forgetting
===============================  =====================================================  ======================

The first is the paper's AF_k, the last what CGLB's code prints; ``backward_forgetting`` is in ``class_incremental``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .class_incremental import backward_forgetting, learned_cells


def forgetting_from_best(matrix: ArrayLike) -> float:
    """AF of the paper (Eq. 3): mean over j < N-1 of max_{l < N-1} R[l, j] - R[N-1, j], in [-1, 1]. NaN for one task.

    Args:
        matrix: R.

    Raises:
        ValueError: as ``class_incremental.learned_cells``.

    >>> nan = float("nan")
    >>> R = [[0.5, nan, nan], [0.75, 0.5, nan], [0.25, 0.5, 1.0]]
    >>> forgetting_from_best(R)  # (0.75 - 0.25 + 0.5 - 0.5) / 2: the first task was known best after the second
    0.25
    """
    values = learned_cells(matrix)
    if len(values) == 1:
        return float("nan")
    best = np.where(np.tri(len(values), dtype=bool), values, -np.inf)[:-1, :-1].max(axis=0)
    return float((best - values[-1, :-1]).mean())


def final_minus_diagonal(matrix: ArrayLike) -> float:
    """AF as CGLB's code prints it: mean over j < N-1 of R[N-1, j] - R[j, j], in [-1, 1]. NaN for one task.

    Args:
        matrix: R.

    Raises:
        ValueError: as ``class_incremental.learned_cells``.

    >>> nan = float("nan")
    >>> final_minus_diagonal([[0.5, nan, nan], [0.75, 0.5, nan], [0.25, 0.5, 1.0]])  # (0.25 - 0.5 + 0.5 - 0.5) / 2
    -0.125
    """
    return -backward_forgetting(matrix)


def forgetting_bound(average_accuracy: ArrayLike, tasks: int, newest: ArrayLike = 1.0) -> NDArray[np.float64]:
    """Theorem 1 (section 4.1, appendix A): ``forgetting_from_best`` is at most 1 - k/(k-1) AA_k + a_kk/(k-1).

    Args:
        average_accuracy: AA_k in [0, 1], any shape.
        tasks: k, 2 or more.
        newest: a_kk, the accuracy on the task just learned; 1, as the paper plots it, makes the bound hold for every learner.

    Returns:
        The bound, in the shape of ``average_accuracy``; below 0 where the accuracy leaves no room for forgetting.

    Raises:
        ValueError: fewer than two tasks, so that none is old.

    >>> forgetting_bound([1.0, 0.75], tasks=2)  # an average of 0.75 leaves room for half of the first task to be forgotten
    array([0. , 0.5])
    >>> forgetting_bound([0.75], tasks=2, newest=0.5)
    array([0.])
    """
    if tasks < 2:
        raise ValueError(f"{tasks} tasks: forgetting needs an old one and a new one")
    average = np.asarray(average_accuracy, dtype=np.float64)
    return 1 - tasks / (tasks - 1) * average + np.asarray(newest, dtype=np.float64) / (tasks - 1)


def task_accuracy_matrix(class_accuracy: Sequence[ArrayLike], sizes: Sequence[int]) -> NDArray[np.float64]:
    """R of a stream from its accuracies by class: the accuracy of a task is the plain mean over its classes.

    Args:
        class_accuracy: N arrays; the i-th has the accuracies in [0, 1] of the classes of tasks 0..i, in the order learned.
        sizes: number of classes of each of the N tasks.

    Returns:
        (N, N) float64, NaN above the diagonal.

    Raises:
        ValueError: the lengths of the arrays do not match the sizes.

    >>> task_accuracy_matrix([[1.0, 0.5], [0.5, 0.5, 1.0]], sizes=[2, 1])
    array([[0.75,  nan],
           [0.5 , 1.  ]])
    """
    ends = np.cumsum(sizes)
    lengths = [np.shape(row) for row in class_accuracy]
    if lengths != [(end,) for end in ends.tolist()]:
        raise ValueError(f"accuracies of shapes {lengths} after tasks of {list(sizes)} classes: all classes seen, each time")
    matrix = np.full((len(ends), len(ends)), np.nan)
    for i, row in enumerate(class_accuracy):
        values = np.asarray(row, dtype=np.float64)
        matrix[i, : i + 1] = np.add.reduceat(values, [0, *ends[:i].tolist()]) / np.asarray(sizes[: i + 1])
    return matrix


TABLE_2_DDOF = 0
"""Table 2 divides the squares of its deviations over five repeats by five. The paper does not say so, but its MOPDs of NTU-CIL
are of differences that are multiples of 1/132 (by task) or 1/66 (by class), and all eight deviations fit no other divisor."""


@dataclasses.dataclass(frozen=True)
class OrderDifference:
    """Order-normalised performance difference (section 3.2, Eq. 4): how far final accuracy depends on the order, in [0, 1].

    Attributes:
        opd: (S, T) for each repeat and task (or class): highest minus lowest final accuracy over the orders.
        aopd: (S,) mean over tasks.
        mopd: (S,) maximum over tasks.

    >>> order_difference([[[1.0, 0.5], [0.75, 0.5]]])
    OrderDifference(opd=array([[0.25, 0.  ]]), aopd=array([0.125]), mopd=array([0.25]))
    """

    opd: NDArray[np.float64]
    aopd: NDArray[np.float64]
    mopd: NDArray[np.float64]


def order_difference(final: ArrayLike) -> OrderDifference:
    """OPD, AOPD and MOPD of final accuracies; ``mean_and_deviation`` summarises them over repeats.

    Args:
        final: (S, R, T) accuracies in [0, 1] of S repeats, R orders and T tasks (or classes), where T is indexed by task
            identity, not by the position at which the task was learned.

    Raises:
        ValueError: another shape, an empty array, a value outside [0, 1] or NaN.

    >>> final = [[[1.0, 0.5], [0.75, 0.5]]]  # one repeat: two orders, and under each of them the tasks A and B
    >>> found = order_difference(final)
    >>> found.opd  # A: 1.0 - 0.75, B: 0.5 - 0.5
    array([[0.25, 0.  ]])
    >>> found.aopd, found.mopd
    (array([0.125]), array([0.25]))
    """
    values = np.asarray(final, dtype=np.float64)
    if values.ndim != 3 or values.size == 0:
        raise ValueError(f"final accuracies {values.shape}: (repeats, orders, tasks), none of them 0")
    if not ((values >= 0) & (values <= 1)).all():
        s, r, t = np.argwhere(~((values >= 0) & (values <= 1)))[0]
        raise ValueError(f"final accuracy {values[s, r, t]} of repeat {s}, order {r}, task {t}: it must be in [0, 1]")
    opd = values.max(axis=1) - values.min(axis=1)
    return OrderDifference(opd, opd.mean(axis=1), opd.max(axis=1))


def mean_and_deviation(repeats: ArrayLike, *, ddof: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation over the first axis, of the values that are not NaN; for one, the deviation is NaN, and for
    none the mean too.

    Args:
        repeats: (S, ...) values of S repeats.
        ddof: subtracted from the number of values n in the deviation's divisor: 1 is the sample's, 0 (``TABLE_2_DDOF``) that
            of the paper's Table 2.

    Raises:
        ValueError: no repeats.

    >>> mean, deviation = mean_and_deviation([[0.5, 1.0], [0.5, 0.5], [0.5, 0.0]])  # three repeats of two values
    >>> mean, deviation
    (array([0.5, 0.5]), array([0. , 0.5]))
    """
    values = np.asarray(repeats, dtype=np.float64)
    if values.ndim == 0 or len(values) == 0:
        raise ValueError(f"repeats {values.shape}: (S, ...) with at least one")
    known = np.ma.array(values, mask=np.isnan(values))
    spread = np.ma.masked_where(known.count(axis=0) < 2, known.std(axis=0, ddof=ddof))
    mean, deviation = (np.ma.filled(found, np.nan)[()] for found in (known.mean(axis=0), spread))
    return mean, deviation
