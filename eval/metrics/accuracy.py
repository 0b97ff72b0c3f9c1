"""Accuracy, from counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def correct_count(truth: ArrayLike, predicted: ArrayLike) -> int:
    """Number of predictions that equal the truth.

    Args:
        truth: (n,) class indices, any integer dtype.
        predicted: (n,) class indices, any integer dtype.

    Raises:
        ValueError: the shapes differ, an array is not one-dimensional or not of integers.

    >>> correct_count([0, 2, 1, 2], [0, 1, 1, 2])
    3
    >>> correct_count([0, 1], [0.0, 1.0])
    Traceback (most recent call last):
        ...
    ValueError: predictions are float64: class indices are integers
    """
    left, right = np.asarray(truth), np.asarray(predicted)
    if left.ndim != 1 or left.shape != right.shape:
        raise ValueError(f"truth {left.shape} and predictions {right.shape}: both must be (n,) with one n")
    for name, values in (("truth", left), ("predictions", right)):
        if values.dtype.kind not in "iu":
            raise ValueError(f"{name} are {values.dtype}: class indices are integers")
    return int(np.count_nonzero(left == right))
