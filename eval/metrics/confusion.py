"""Confusion matrices as exact sums: counted once, added over batches and increments, reduced to the three open-world tasks.

A matrix is stored as its non-zero cells, so that two can be added without a common list of labels, and 718 classes with
hundreds of clusters take no more cells than there are samples. Labels are int64: a class index >= 0, ``UNKNOWN`` (-1), and
-2 - j for a cluster ``unknown_j`` that a predictor found by itself.

Source: Prijatelj, Grieggs, Huang, Du, Shringi, Funk, Kaufman, Robertson and Scheirer, "Human Activity Recognition in an Open
World", JAIR 81 (2024), section 4.1. Rows are the truth, columns the prediction.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

Labels = NDArray[np.int64]
OpenWorldTask = Literal["none", "classification", "recognition", "detection"]
TASKS: tuple[OpenWorldTask, ...] = get_args(OpenWorldTask)

UNKNOWN = -1
"""The label of a sample of no known class, in reduced truths and in predictions."""
KNOWN = 1 << 62
"""The label shared by all known classes in recognition and detection."""


@dataclasses.dataclass(frozen=True, eq=False)
class Confusion:
    """A confusion matrix: its non-zero cells, in the order of (truth, predicted).

    Attributes:
        truth, predicted: (m,) int64 labels; no pair occurs twice.
        count: (m,) int64, samples in the cell, > 0.

    >>> first, second = Confusion.of([0, 0, 1], [0, 1, 1]), Confusion.of([0], [0])
    >>> both = first + second
    >>> both.n, both.trace, both.labels
    (4, 3, array([0, 1]))
    >>> np.stack([both.truth, both.predicted, both.count], axis=1)  # a cell that is zero is not kept
    array([[0, 0, 2],
           [0, 1, 1],
           [1, 1, 1]])
    """

    truth: Labels
    predicted: Labels
    count: Labels

    @staticmethod
    def of(truth: ArrayLike, predicted: ArrayLike) -> Confusion:
        """Count pairs.

        Args:
            truth, predicted: (n,) integers; n may be 0.

        Raises:
            ValueError: the shapes differ, or an array is not one-dimensional or not of integers.

        >>> Confusion.of([0, 0, 0, 1], [0, 0, 1, 1]).count  # of the cells (0, 0), (0, 1) and (1, 1)
        array([2, 1, 1])
        """
        left, right = np.asarray(truth), np.asarray(predicted)
        if left.ndim != 1 or left.shape != right.shape:
            raise ValueError(f"truth {left.shape} and predictions {right.shape}: both must be (n,) with one n")
        for name, values in (("truth", left), ("predictions", right)):
            if values.size and values.dtype.kind not in "iu":
                raise ValueError(f"{name} are {values.dtype}: labels are integers")
        return _grouped(left.astype(np.int64), right.astype(np.int64), np.ones(len(left), dtype=np.int64))

    def __add__(self, other: Confusion) -> Confusion:
        return _grouped(
            np.concatenate([self.truth, other.truth]),
            np.concatenate([self.predicted, other.predicted]),
            np.concatenate([self.count, other.count]),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Confusion) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("truth", "predicted", "count")
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def n(self) -> int:
        """Number of samples.

        >>> Confusion.of([0, 0, 1], [0, 1, 1]).n
        3
        """
        return int(self.count.sum())

    @property
    def trace(self) -> int:
        """Samples whose prediction equals their truth."""
        return int(self.count[self.truth == self.predicted].sum())

    @functools.cached_property
    def labels(self) -> Labels:
        """All labels that occur as truth or prediction, ascending."""
        return np.union1d(self.truth, self.predicted)

    @functools.cached_property
    def marginals(self) -> tuple[Labels, Labels]:
        """Samples of each label, as truth and as prediction, in the order of ``labels``."""
        truth, predicted = np.zeros(len(self.labels), dtype=np.int64), np.zeros(len(self.labels), dtype=np.int64)
        np.add.at(truth, np.searchsorted(self.labels, self.truth), self.count)
        np.add.at(predicted, np.searchsorted(self.labels, self.predicted), self.count)
        return truth, predicted


def _grouped(truth: Labels, predicted: Labels, count: Labels) -> Confusion:
    if not len(count):
        none = np.empty(0, dtype=np.int64)
        return Confusion(none, none, none)
    order = np.lexsort((predicted, truth))
    truth, predicted = truth[order], predicted[order]
    starts = np.flatnonzero(np.concatenate([[True], (truth[1:] != truth[:-1]) | (predicted[1:] != predicted[:-1])]))
    return Confusion(truth[starts], predicted[starts], np.add.reduceat(count[order], starts))


EMPTY = Confusion.of([], [])


def reduce_labels(labels: ArrayLike, known: ArrayLike, task: OpenWorldTask) -> Labels:
    """Labels reduced for one task (section 4.1, Figure 4); used for truths and predictions.

    - "none": as they are.
    - "classification": every label that is not a known class (novel classes, recognised clusters) becomes ``UNKNOWN``.
    - "recognition": all known classes become ``KNOWN``; novel classes, clusters and ``UNKNOWN`` stay apart.
    - "detection": both, so that two labels remain.

    Args:
        labels: any shape, integers.
        known: class indices of the known classes, in any order.

    Returns:
        int64, of the shape of ``labels``.

    Raises:
        ValueError: an unknown task.

    >>> labels = [0, 1, 9, -2]  # known, known, novel, a cluster that was found
    >>> reduce_labels(labels, [0, 1], "classification")
    array([ 0,  1, -1, -1])
    >>> reduce_labels(labels, [0, 1], "recognition") == KNOWN
    array([ True,  True, False, False])
    """
    if task not in TASKS:
        raise ValueError(f"task {task!r}: one of {', '.join(TASKS)}")
    values = np.asarray(labels, dtype=np.int64)
    if task == "none":
        return values
    is_known = np.isin(values, np.asarray(known, dtype=np.int64))
    if task in ("recognition", "detection"):
        values = np.where(is_known, KNOWN, values)
    return values if task == "recognition" else np.where(is_known, values, UNKNOWN)


def top_labels(columns: ArrayLike, probabilities: ArrayLike, k: int, *, batch_size: int = 2048) -> Labels:
    """Labels of the k most probable columns of each sample, most probable first; of equal columns the first.

    Args:
        columns: (c,) label of each column.
        probabilities: (n, c) floats without NaN; may be memory-mapped, since ``batch_size`` rows are copied at a time.

    Returns:
        (n, min(k, c)) int64.

    Raises:
        ValueError: shapes that do not pair, k < 1, or a NaN.

    >>> top_labels([-1, 4, 7], [[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]], k=2)  # of equals the first column
    array([[ 4,  7],
           [-1,  7]])
    """
    labels, scores = np.asarray(columns, dtype=np.int64), np.asarray(probabilities)
    if scores.ndim != 2 or labels.shape != scores.shape[1:] or k < 1:
        raise ValueError(
            f"probabilities {scores.shape} with {labels.shape} columns, k = {k}: (n, c), (c,) and k >= 1 are needed"
        )
    top = np.empty((len(scores), min(k, len(labels))), dtype=np.int64)
    for start in range(0, len(scores), batch_size):
        block = np.array(scores[start : start + batch_size])
        rows = np.arange(len(block))
        # k passes cost less than a sort of 719 columns, and ties are resolved by position.
        for rank in range(top.shape[1]):
            best = block.argmax(axis=1)
            if rank == 0 and np.isnan(block[rows, best]).any():  # argmax returns a NaN if there is one
                at = start + int(np.argmax(np.isnan(block[rows, best])))
                raise ValueError(f"probabilities of sample {at} hold NaN")
            top[start : start + len(block), rank] = labels[best]
            block[rows, best] = -np.inf
    return top


@dataclasses.dataclass(frozen=True)
class Ordered:
    """Ordered confusion matrices: rank i holds (truth, i-th most probable label) of all samples.

    After a reduction, several of a sample's k labels may be equal. Only the first of these is kept, so that a sample is counted
    once in top-k accuracy (our choice; a plain sum would count a novel sample once per cluster).

    >>> two = Ordered.of(truth=[4, 7], top=[[4, 7], [-1, 7]])
    >>> two.top_accuracy(1), two.top_accuracy(2)
    (0.5, 1.0)
    """

    ranks: tuple[Confusion, ...]

    @staticmethod
    def of(truth: ArrayLike, top: ArrayLike, known: ArrayLike = (), task: OpenWorldTask = "none") -> Ordered:
        """Count samples.

        Args:
            truth: (n,) class indices.
            top: (n, k) labels from ``top_labels``.
            known, task: see ``reduce_labels``.

        >>> Ordered.of([9], [[-2, -1]], known=[0, 1], task="detection").top_accuracy(2)  # twice "unknown" counts once
        1.0
        """
        labels = reduce_labels(truth, known, task)
        ranked = reduce_labels(top, known, task)
        ranks: list[Confusion] = []
        for i in range(ranked.shape[1]):
            new = ~(ranked[:, :i] == ranked[:, i : i + 1]).any(axis=1)
            ranks.append(Confusion.of(labels[new], ranked[new, i]))
        return Ordered(tuple(ranks))

    def __add__(self, other: Ordered) -> Ordered:
        return Ordered(tuple(a + b for a, b in itertools.zip_longest(self.ranks, other.ranks, fillvalue=EMPTY)))

    @property
    def first(self) -> Confusion:
        """The ordinary confusion matrix."""
        return self.ranks[0] if self.ranks else EMPTY

    def top_accuracy(self, k: int) -> float:
        """Share of samples with the truth among the first k labels: sum_{i<=k} trace(CM_i) / n; NaN without samples."""
        n = self.first.n
        return sum(rank.trace for rank in self.ranks[:k]) / n if n else math.nan


def accuracy(confusion: Confusion) -> float:
    """trace / n, in [0, 1]; NaN without samples.

    >>> accuracy(Confusion.of([0, 0, 1, 1], [0, 1, 1, 1]))
    0.75
    """
    return confusion.trace / confusion.n if confusion.n else math.nan


def matthews_correlation(confusion: Confusion) -> float:
    """Matthews correlation for many classes, R_K, in [-1, 1]; 0 if truth or prediction is constant; NaN without samples.

    Source: Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", Computational Biology
    and Chemistry 28 (2004). Sums are whole numbers until the last division.

    >>> round(matthews_correlation(Confusion.of([0, 0, 1, 1], [0, 1, 1, 1])), 3)  # (3 * 4 - (2 * 1 + 2 * 3)) / sqrt(8 * 6)
    0.577
    >>> matthews_correlation(Confusion.of([0, 0, 0, 1], [0, 0, 0, 0]))  # always the commonest class: an accuracy of 0.75
    0.0
    """
    if not confusion.n:
        return math.nan
    truth, predicted = ([int(v) for v in side] for side in confusion.marginals)
    n = confusion.n
    of_truth = n * n - sum(v * v for v in truth)
    of_predicted = n * n - sum(v * v for v in predicted)
    if not of_truth or not of_predicted:
        return 0.0
    covariance = confusion.trace * n - sum(a * b for a, b in zip(truth, predicted, strict=True))
    return covariance / math.sqrt(of_truth * of_predicted)


def _entropy(counts: Labels, n: int) -> float:
    share = counts[counts > 0] / n
    return float(-(share * np.log(share)).sum())


def mutual_information(confusion: Confusion) -> float:
    """I(truth; prediction) in nats, >= 0; NaN without samples.

    >>> round(mutual_information(Confusion.of([0, 1], [5, 3])), 4)  # ln 2: how clusters are called does not matter
    0.6931
    """
    if not confusion.n:
        return math.nan
    truth, predicted = confusion.marginals
    labels = confusion.labels
    rows = truth[np.searchsorted(labels, confusion.truth)].astype(np.float64)
    columns = predicted[np.searchsorted(labels, confusion.predicted)]
    cells = confusion.count / confusion.n
    return max(0.0, float((cells * np.log(confusion.count * (confusion.n / (rows * columns)))).sum()))


def normalised_mutual_information(confusion: Confusion) -> float:
    """Arithmetic NMI: I / ((H(truth) + H(prediction)) / 2), in [0, 1]; NaN without samples.

    Where both are constant it is 0/0: we return 0 (our choice; scikit-learn returns 1), since nothing was distinguished.

    >>> round(normalised_mutual_information(Confusion.of([0, 1], [5, 3])), 4)
    1.0
    >>> normalised_mutual_information(Confusion.of([0, 0], [3, 3]))
    0.0
    """
    if not confusion.n:
        return math.nan
    truth, predicted = confusion.marginals
    mean = (_entropy(truth, confusion.n) + _entropy(predicted, confusion.n)) / 2
    return min(1.0, mutual_information(confusion) / mean) if mean > 0 else 0.0
