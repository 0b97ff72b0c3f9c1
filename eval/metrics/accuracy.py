"""Accuracy, from counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def correct_count(truth: ArrayLike, predicted: ArrayLike) -> int:
    """Number of predictions that equal the truth.

    Args:
        truth: (n,) class indices, any integer dtype.
        predicted: (n,) class indices, any integer dtype.

    Raises:
        ValueError: the shapes differ, an array is not one-dimensional or not of integers.
    """
    left, right = np.asarray(truth), np.asarray(predicted)
    if left.ndim != 1 or left.shape != right.shape:
        raise ValueError(f"truth {left.shape} and predictions {right.shape}: both must be (n,) with one n")
    for name, values in (("truth", left), ("predictions", right)):
        if values.dtype.kind not in "iu":
            raise ValueError(f"{name} are {values.dtype}: class indices are integers")
    return int(np.count_nonzero(left == right))


def accuracy_matrix(correct: ArrayLike, tested: ArrayLike) -> NDArray[np.float64]:
    """Matrix R: R[i, j] = accuracy on domain j after training up to domain i.

    Args:
        correct: (N, N) integers, correct predictions; -1 in cells that the protocol does not test.
        tested: (N,) integers, number of test rows of each domain, all positive.

    Returns:
        (N, N) float64 in [0, 1]; NaN in cells that were not tested.

    Raises:
        ValueError: wrong shapes, an empty test set, more correct than tested.
    """
    hits, totals = np.asarray(correct), np.asarray(tested)
    if hits.ndim != 2 or hits.shape[0] != hits.shape[1] or totals.shape != hits.shape[:1]:
        raise ValueError(f"counts {hits.shape} with {totals.shape} totals: (N, N) and (N,) are needed")
    if (totals <= 0).any():
        raise ValueError(f"test set {int(np.argmax(totals <= 0))} is empty: its accuracy is undefined")
    if ((hits < -1) | (hits > totals)).any():
        i, j = np.argwhere((hits < -1) | (hits > totals))[0]
        raise ValueError(f"correct[{i}, {j}] = {hits[i, j]} of {totals[j]}: counts lie in 0..tested, or are -1")
    return np.where(hits < 0, np.nan, hits / totals)
