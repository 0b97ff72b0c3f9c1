"""Greedy removal of near-duplicates: walk a list from its best row on and skip rows too close to one already kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .topk import inner_products

Fetch = Callable[[np.ndarray], np.ndarray]
"""Returns the unit vectors (n, d) of the rows with ids (n,) int64, in that order."""

DOUBT = 1e-9
"""Within this distance from the threshold a matrix product, whose last bits depend on the machine, does not decide."""


class Vectors:
    """Vectors by id, fetched in bulk: fetching a few from a store costs about as much as fetching thousands."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._ids = np.empty(0, dtype=np.int64)
        self._vectors = np.empty((0, 0), dtype=np.float32)

    def load(self, ids: np.ndarray) -> None:
        """Fetch the vectors of these ids (n,) now and hold them, in place of those held before."""
        self._ids = np.unique(ids)
        self._vectors = self._fetch(self._ids) if len(self._ids) else np.empty((0, 0), dtype=np.float32)

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Vectors (n, d) of the rows with ids (n,); fetched unless all of them are held."""
        places = np.searchsorted(self._ids, ids)
        held = places < len(self._ids)
        held[held] = self._ids[places[held]] == ids[held]
        return self._vectors[places] if held.all() and len(ids) else self._fetch(ids)


class Distinct:
    """Picks rows in order of preference, skipping rows that are too close to a row picked before.

    Greedy: of two near-duplicates the preferred one stays, and the result depends only on the order.

    Args:
        vectors: unit vectors by id.
        max_cosine: a row whose cosine with a kept row is above this is a near-duplicate; None keeps every row.
    """

    def __init__(self, vectors: Vectors, max_cosine: float | None) -> None:
        if max_cosine is not None and not -1 <= max_cosine <= 1:
            raise ValueError(f"near-duplicate threshold is {max_cosine}: expected a cosine from -1 to 1")
        self._vectors = vectors
        self._max_cosine = max_cosine
        self._kept: np.ndarray | None = None

    def pick(self, candidates: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Pick the first ``count`` distinct rows of a list, and return also the near-duplicates skipped on the way.

        Args:
            candidates: ids (n,) int64, most preferred first.
            count: number of rows wanted.

        Returns:
            Kept ids (at most ``count``,) and dropped ids, both in the order of the list.
        """
        if self._max_cosine is None:
            return candidates[:count], candidates[:0]
        kept: list[np.ndarray] = []
        dropped: list[np.ndarray] = []
        found, start = 0, 0
        while found < count and start < len(candidates):
            chunk = candidates[start : start + count - found]
            start += len(chunk)
            keep = self._judge(self._vectors.of(chunk), self._max_cosine)
            kept.append(chunk[keep])
            dropped.append(chunk[~keep])
            found += int(keep.sum())
        empty = candidates[:0]
        return np.concatenate([empty, *kept]), np.concatenate([empty, *dropped])

    def _judge(self, vectors: np.ndarray, max_cosine: float) -> np.ndarray:
        vectors = np.asarray(vectors, dtype=np.float32)
        near = nearer(vectors, vectors, max_cosine)
        keep: np.ndarray = np.ones(len(vectors), dtype=bool)
        if self._kept is not None:
            keep = np.logical_not(nearer(vectors, self._kept, max_cosine).any(axis=1))
        for row in range(1, len(vectors)):
            keep[row] = keep[row] and not (near[row, :row] & keep[:row]).any()
        self._kept = vectors[keep] if self._kept is None else np.concatenate([self._kept, vectors[keep]])
        return keep


def nearer(left: np.ndarray, right: np.ndarray, max_cosine: float) -> np.ndarray:
    """Whether the cosine of each pair of unit vectors is above a threshold; the same result on every machine.

    Args:
        left: (n, d) float32.
        right: (m, d) float32.
        max_cosine: the threshold.

    Returns:
        (n, m) bool.

    >>> nearer(np.array([[1.0, 0.0]], np.float32), np.array([[0.6, 0.8], [1.0, 0.0]], np.float32), max_cosine=0.9)
    array([[False,  True]])
    """
    cosines = left.astype(np.float64) @ right.astype(np.float64).T
    for row, column in np.argwhere(np.abs(cosines - max_cosine) <= DOUBT):
        cosines[row, column] = inner_products(left[row : row + 1], right[column])[0]
    return cosines > max_cosine
