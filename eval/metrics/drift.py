"""Vectors of samples compared by group: a plane to plot them in, means of groups, and distances between these means."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray


def principal_plane(vectors: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coordinates along the two directions of greatest variance, and the share of the total variance along each.

    Each direction is signed so that its largest coefficient is positive: the same vectors always give the same picture.

    Args:
        vectors: (n, d), n at least 1.

    Returns:
        (n, 2) coordinates and (2,) shares; zeros for a direction without variance.

    >>> points, shares = principal_plane([[0.0, 0.0, 5.0], [2.0, 0.0, 5.0], [4.0, 0.0, 5.0]])
    >>> points.round(6).tolist(), shares.round(6).tolist()
    ([[-2.0, 0.0], [0.0, 0.0], [2.0, 0.0]], [1.0, 0.0])
    """
    values = np.asarray(vectors, dtype=np.float64)
    centred = values - values.mean(axis=0)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    kept = singular[:2] > 1e-9 * max(singular[0], 1e-300)
    directions = directions[:2][kept]
    most = np.abs(directions).argmax(axis=1)
    directions *= np.sign(directions[np.arange(len(directions)), most])[:, None]
    points, shares = np.zeros((len(values), 2)), np.zeros(2)
    points[:, : len(directions)] = centred @ directions.T
    shares[: len(directions)] = singular[:2][kept] ** 2 / (singular**2).sum()
    return points, shares


def group_sums(batches: Iterable[ArrayLike], groups: ArrayLike, count: int) -> NDArray[np.float64]:
    """Sums of the vectors of each group; at most one batch is in memory.

    Args:
        batches: arrays of shape (b, d), together with as many rows as ``groups``.
        groups: (n,) whole numbers from 0 to ``count`` - 1.
        count: number of groups.

    >>> group_sums([[[1.0, 0.0], [3.0, 0.0]], [[0.0, 2.0]]], [0, 0, 1], 3).tolist()
    [[4.0, 0.0], [0.0, 2.0], [0.0, 0.0]]
    """
    of = np.asarray(groups, dtype=np.int64)
    sums: NDArray[np.float64] | None = None
    at = 0
    for batch in batches:
        values = np.asarray(batch, dtype=np.float64)
        if not len(values):
            continue
        if sums is None:
            sums = np.zeros((count, values.shape[1]))
        here = of[at : at + len(values)]
        for group in np.unique(here).tolist():
            sums[group] += values[here == group].sum(axis=0)
        at += len(values)
    if at != len(of):
        raise ValueError(f"{at} vectors for {len(of)} groups: one each is needed")
    return np.zeros((count, 0)) if sums is None else sums


def cosine_distances(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """1 - cosine of vectors along the last axis, which is the same for sums and means; NaN where either is zero.

    >>> cosine_distances([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [3.0, 0.0], [1.0, 0.0]]).tolist()
    [1.0, 0.0, nan]
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.where(lengths > 0, (a * b).sum(axis=-1) / lengths, np.nan)
    return np.clip(1 - cosines, 0, 2)
