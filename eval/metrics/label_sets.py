"""How well sets of labels are predicted: Jaccard similarity, precision-weighted Jaccard similarity, exact match, recall.

Source: Abdelsalam et al., "IIRC: Incremental Implicitly-Refined Classification", CVPR 2021, section 4.2, and its released
code. All four are formulas on three numbers a sample: labels in both sets, true labels, predicted labels. Y is the true
set, P the predicted one.

Rules for all: sets are (n, classes) bool; a true set is never empty, a predicted one may be; values are in [0, 1], and NaN
without samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

EPSILON = 1e-8
"""Added to the number of predicted labels by the released code, so that an empty prediction gives 0."""


@dataclass(frozen=True)
class Overlaps:
    """Label counts of n samples, each (n,) int64.

    Attributes:
        common: |Y and P|.
        true: |Y|, at least 1.
        predicted: |P|.

    >>> Overlaps(common=np.array([1]), true=np.array([2]), predicted=np.array([3]))
    Overlaps(common=array([1]), true=array([2]), predicted=array([3]))
    >>> Overlaps(common=np.array([0]), true=np.array([0]), predicted=np.array([3]))
    Traceback (most recent call last):
        ...
    ValueError: sample 0 has no true label: every sample needs one
    """

    common: NDArray[np.int64]
    true: NDArray[np.int64]
    predicted: NDArray[np.int64]

    def __post_init__(self) -> None:
        if (self.true < 1).any():
            raise ValueError(f"sample {int(np.argmin(self.true))} has no true label: every sample needs one")

    def take(self, rows: ArrayLike) -> Overlaps:
        """The counts of some samples, by number (m,) or mask (n,).

        >>> counts = Overlaps(np.array([1, 0]), np.array([2, 1]), np.array([1, 3]))
        >>> counts.take([False, True]).predicted
        array([3])
        """
        at = np.asarray(rows)
        return Overlaps(self.common[at], self.true[at], self.predicted[at])

    def __len__(self) -> int:
        return len(self.true)


def label_sets(labels: NDArray[np.int64], classes: int) -> NDArray[np.bool_]:
    """(n, classes) bool of (n, k) class indices; -1, and indices from ``classes`` on, are left out.

    >>> label_sets(np.array([[2, 0], [1, -1]]), classes=3)
    array([[ True, False,  True],
           [False,  True, False]])
    >>> label_sets(np.array([[2, 0], [1, -1]]), classes=2)  # class 2 is not known yet
    array([[ True, False],
           [False,  True]])
    """
    found = np.zeros((len(labels), classes), dtype=bool)
    rows, columns = np.nonzero((labels >= 0) & (labels < classes))
    found[rows, labels[rows, columns]] = True
    return found


def overlaps(true: ArrayLike, predicted: ArrayLike) -> Overlaps:
    """Count the labels of each sample.

    Args:
        true: (n, classes) bool.
        predicted: (n, classes) bool.

    Raises:
        ValueError: other types or shapes, a sample without a true label.

    >>> true = np.array([[True, True, False]])  # animal and dog, and not cat
    >>> overlaps(true, np.array([[True, False, True]]))
    Overlaps(common=array([1]), true=array([2]), predicted=array([2]))
    """
    y, p = _sets(true, predicted)
    return Overlaps((y & p).sum(1), y.sum(1), p.sum(1))


def jaccard_similarity(counts: Overlaps) -> float:
    """JS: mean over samples of |Y and P| / |Y or P|.

    >>> true, predicted = np.array([[True, True, False]]), np.array([[True, False, True]])
    >>> round(jaccard_similarity(overlaps(true, predicted)), 4)  # 1 label in common of 3
    0.3333
    """
    return _mean(_jaccard(counts))


def precision_weighted_jaccard(counts: Overlaps) -> float:
    """pw-JS: mean over samples of |Y and P| / |Y or P| * |Y and P| / |P|, 0 where P is empty.

    IIRC's main measure, Eqs. 1 and 2.

    >>> true = np.array([[True, True, False]])
    >>> round(precision_weighted_jaccard(overlaps(true, np.array([[True, False, False]]))), 4)  # 1/2 * 1/1
    0.5
    >>> round(precision_weighted_jaccard(overlaps(true, np.array([[True, False, True]]))), 4)  # 1/3 * 1/2
    0.1667
    """
    return _mean(_jaccard(counts) * counts.common / (counts.predicted + EPSILON))


def exact_match(counts: Overlaps) -> float:
    """Share of samples with P = Y, the paper's match ratio.

    >>> true = np.array([[True, True], [True, False]])
    >>> exact_match(overlaps(true, np.array([[True, False], [True, False]])))
    0.5
    """
    return _mean((counts.common == counts.true) & (counts.common == counts.predicted))


def label_recall(counts: Overlaps) -> float:
    """Share of all true labels that are predicted. The released code averages it over batches, by their number of samples.

    >>> true = np.array([[True, True], [True, False]])
    >>> round(label_recall(overlaps(true, np.array([[True, False], [True, False]]))), 4)  # 2 of 3 labels
    0.6667
    """
    return float(counts.common.sum() / counts.true.sum()) if len(counts) else float("nan")


METRICS = {
    "pw_js": precision_weighted_jaccard,
    "js": jaccard_similarity,
    "exact_match": exact_match,
    "recall": label_recall,
}
"""Name in results -> measure."""


def co_predictions(true: ArrayLike, predicted: ArrayLike) -> NDArray[np.int64]:
    """(classes, classes) int64: the number of samples with true label i for which label j is predicted.

    Divided by the number of samples with label i it is the confusion matrix of the paper's Figure 6. Rows do not add up to 1: a
    sample has several labels. ``co_predictions(true, true)`` has the samples of each class on its diagonal.

    Args:
        true: (n, classes) bool.
        predicted: (n, classes) bool.

    Raises:
        ValueError: other types or shapes, or 2^24 samples or more.

    >>> true, predicted = np.array([[True, False], [True, True]]), np.array([[True, True], [True, False]])
    >>> co_predictions(true, predicted)  # both samples have label 0, and one is predicted to have label 1
    array([[2, 1],
           [1, 0]])
    >>> co_predictions(true, true)
    array([[2, 1],
           [1, 1]])
    """
    y, p = _sets(true, predicted)
    # float32 counts exactly up to 2^24, and multiplies a hundred times faster than integers do.
    if len(y) >= 1 << 24:
        raise ValueError(f"{len(y)} samples: at most {(1 << 24) - 1} are counted")
    return np.rint(y.T.astype(np.float32) @ p.astype(np.float32)).astype(np.int64)


def _jaccard(counts: Overlaps) -> NDArray[np.float64]:
    return counts.common / (counts.true + counts.predicted - counts.common)


def _mean(values: ArrayLike) -> float:
    each = np.asarray(values, dtype=np.float64)
    return float(each.mean()) if len(each) else float("nan")


def _sets(true: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    y, p = np.asarray(true), np.asarray(predicted)
    if y.dtype != np.bool_ or p.dtype != np.bool_ or y.ndim != 2 or y.shape != p.shape:
        raise ValueError(f"label sets {y.dtype} {y.shape} and {p.dtype} {p.shape}: two of bool (n, classes)")
    return y, p
