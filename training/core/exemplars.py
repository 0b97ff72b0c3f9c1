"""A memory of limited size with an equal quota for each class (iCaRL's, as vCLIMB's released code uses it).

The memory holds row numbers of the stream, a ranked list a class, so that giving room to new classes means cutting lists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...curation.rng import rng
from ..data.examples import Labels, RowNumbers


@dataclasses.dataclass(frozen=True)
class Capacity:
    """How much a memory holds.

    Attributes:
        size: in all, or of each class.
        unit: "samples" (the released code: whole clips) or "parts" (the frames of clips, as they are kept).
        per_class: ``size`` is a class's own, so that the memory grows with the classes (IIRC).

    >>> Capacity(2000).quota(classes=100), Capacity(20, per_class=True).quota(classes=100)
    (20, 20)
    >>> Capacity(10).quota(classes=20)
    Traceback (most recent call last):
        ...
    ValueError: a memory of 10 samples has no room for 20 classes: one each is the least
    """

    size: int
    unit: Literal["samples", "parts"] = "samples"
    per_class: bool = False

    def __post_init__(self) -> None:
        if self.size < 1 or self.unit not in ("samples", "parts"):
            raise ValueError(f"capacity {self.size} {self.unit!r}: at least 1, in 'samples' or 'parts'")
        if not isinstance(self.per_class, bool):  # it was a number of samples once
            raise ValueError(f"per_class {self.per_class!r}: true or false: size says of how many")

    def quota(self, classes: int) -> int:
        """m = capacity // classes seen. Raises ValueError where not one unit a class is left."""
        quota = self.size if self.per_class else self.size // classes
        if not quota:
            raise ValueError(f"a memory of {self.size} {self.unit} has no room for {classes} classes: one each is the least")
        return quota

    def cut(self, ranked: RowNumbers, sizes: RowNumbers, classes: int) -> RowNumbers:
        """The first of ``ranked`` that fit into a class's quota; ``sizes`` (n,) are the parts of each of them."""
        quota = self.quota(classes)
        if self.unit == "samples":
            return ranked[:quota]
        return ranked[: int(np.searchsorted(np.cumsum(sizes), quota, side="right"))]


def herding(features: NDArray[np.float64], count: int) -> RowNumbers:
    """Rows whose running mean stays nearest to the mean of all, greedily (Rebuffi et al., iCaRL, algorithm 4).

    Args:
        features: (n, d); L2-normalised here.
        count: at most n are given.

    Returns:
        Row numbers, each once, best first; the first of equals.

    >>> herding(np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]]), 2)  # the third is nearest to the mean of all
    array([2, 1])
    """
    unit = normalised(features)
    mean, total = unit.mean(0), np.zeros(unit.shape[1])
    left = np.ones(len(unit), dtype=bool)
    chosen: list[int] = []
    for k in range(1, min(count, len(unit)) + 1):
        distance = np.linalg.norm(mean - (total + unit) / k, axis=1)
        best = int(np.argmin(np.where(left, distance, np.inf)))
        left[best] = False
        total += unit[best]
        chosen.append(best)
    return np.array(chosen, dtype=np.int64)


def shuffled(rows: RowNumbers, *, seed: int, key: str) -> RowNumbers:
    """``rows`` in an order that depends on (seed, key) alone."""
    return rng(seed, "exemplars", key).permutation(rows)


def given(rows: RowNumbers, keys: Sequence[str], order: Mapping[str, int]) -> RowNumbers:
    """Those of ``rows`` whose key stands in ``order``, by its number; ``keys`` are those of ``rows``."""
    known = sorted((order[key], row) for key, row in zip(keys, rows.tolist(), strict=True) if key in order)
    return np.array([row for _, row in known], dtype=np.int64)


def by_class(rows: RowNumbers, labels: Labels) -> dict[int, RowNumbers]:
    """Class -> its rows in their order, classes ascending; ``labels`` are those of ``rows``.

    A sample with a set of labels (n, k) belongs to the first.

    >>> by_class(np.array([5, 6, 7]), np.array([1, 0, 1]))
    {0: array([6]), 1: array([5, 7])}
    """
    own = labels if labels.ndim == 1 else labels[:, 0]
    return {int(label): rows[own == label] for label in np.unique(own)}


def nearest_means(features: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n,) int64: the nearest of ``means`` (classes, d), of length 1, to each normalised row of ``features`` (n, d).

    Of equals the first.

    >>> nearest_means(np.array([[3.0, 0.1], [0.2, 5.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([0, 1])
    """
    unit = normalised(features)
    # |a - b|^2 = 2 - 2 a b for vectors of length 1: the largest product is the nearest.
    return np.asarray((unit @ means.T).argmax(1), dtype=np.int64)


def class_means(features: NDArray[np.float64], labels: Labels, classes: int) -> NDArray[np.float64]:
    """(classes, d): for each class the mean of its normalised features, normalised again, as in the iCaRL paper.

    Raises:
        ValueError: a class has no exemplar.

    >>> class_means(np.array([[3.0, 4.0], [6.0, 8.0]]), np.array([0, 0]), classes=1)  # of vectors of length 1
    array([[0.6, 0.8]])
    """
    unit = normalised(features)
    empty = np.setdiff1d(np.arange(classes), labels)
    if len(empty):
        raise ValueError(f"class {int(empty[0])} has no exemplar, so it has no mean: the memory is too small")
    return normalised(np.stack([unit[labels == label].mean(0) for label in range(classes)]))


def normalised(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of length 1; a row of zeros stays one.

    >>> normalised(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    values = np.asarray(features, dtype=np.float64)
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
