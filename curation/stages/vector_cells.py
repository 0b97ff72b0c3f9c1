"""Cells of near vectors, of which those nearest to a row are found in time that hardly grows with their number.

They have two levels: k-means of a sample of the rows makes groups, then that of each group's sample its cells. A row is
compared with the centres of the groups, and with those of the cells of its nearest groups. Centres are vectors of whole
numbers, of which all sums are exact: cells depend neither on the processor nor on the number of threads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..rng import uniform
from .spill import SpillableArray, SpilledNumbers
from .unit_vectors import Stacked, blocks_of, lengths_of, placed

_BLOCK_ROWS = 1 << 12
_DRAWN_KEYS = 1 << 18

_CELL_ROWS = 256
"""Number of rows per cell, on average: fewer rows cost more centres, more rows more comparisons."""

_GROUPS = 4
"""Number of groups of cells, as a multiple of the square root of the number of cells."""

_NEAREST_GROUPS, _FIRST_GROUPS = 32, 8
"""Number of groups among whose cells the nearest ones of a row are searched for, and of those that are searched first."""

_SAMPLED, _MOST_SAMPLED = 64, 1 << 16
"""Number of rows per cell from which cells are computed, and the maximum for the cells of a group."""

_ROUNDS = 10
"""Rounds of k-means."""

_NUMBERS, _NONE = (1 << 24) - 1, np.iinfo(np.int64).min
"""The bits of a cell's number, and what is below each product with a number."""


@dataclass(frozen=True)
class Cells:
    """Cells of two levels, by their centres: vectors of whole numbers, whose products are exact in float32 in any order.

    Attributes:
        coarse: centres of the groups of cells, (g, d) float32.
        fine: for each group the centres of its cells, int16.
        first: number of the first cell of each group, and the number of cells, (g + 1,).
        probes: number of cells searched for each row.
    """

    coarse: np.ndarray
    fine: list[np.ndarray]
    first: np.ndarray
    probes: int

    def nearest(self, vectors: np.ndarray) -> np.ndarray:
        """The nearest cells (n, probes) int32 of unit vectors (n, d) float32, nearest first, among those of the nearest
        groups; -1 for none."""
        whole = whole_vectors(vectors)
        groups = _sorted(_numbered(whole @ self.coarse.T, 0), _NEAREST_GROUPS) & _NUMBERS
        best = np.full((len(whole), self.probes), _NONE)
        for some in (groups[:, :_FIRST_GROUPS], groups[:, _FIRST_GROUPS:]):
            best = self._best(whole, some, best)
        best = _sorted(best, self.probes)
        return np.where(best == _NONE, -1, best & _NUMBERS).astype(np.int32)

    def group_of(self, numbers: np.ndarray) -> np.ndarray:
        """Groups (n,) of the cells of these numbers (n,)."""
        return np.searchsorted(self.first, numbers, side="right") - 1

    def _best(self, whole: np.ndarray, groups: np.ndarray, best: np.ndarray) -> np.ndarray:
        """The highest of ``best`` (n, probes) and of the numbered products of whole vectors with the cells of groups (n, g)."""
        least = (best.min(axis=1) // (_NUMBERS + 1)).astype(np.float32)
        found = np.full((*groups.shape, self.probes), _NONE)
        for group, places in by_cell(groups.ravel(), np.arange(groups.size)):
            rows, place = np.divmod(places, groups.shape[1])
            products = whole[rows] @ self.fine[group].T.astype(np.float32)
            high = np.flatnonzero(products.max(axis=1) >= least[rows])
            numbered = _highest(_numbered(products[high], int(self.first[group])), self.probes)
            found[rows[high], place[high], : numbered.shape[1]] = numbered
        return _highest(np.concatenate([best, found.reshape(len(best), groups.shape[1] * self.probes)], axis=1), self.probes)


def whole_vectors(vectors: np.ndarray) -> np.ndarray:
    """Unit vectors (n, d) float32 times nearly 4096, rounded: sums of their products are whole numbers below 2**24, which are
    exact in float32."""
    scale = np.float32(2**12 - 1 - math.sqrt(vectors.shape[1]) / 2)  # rounding adds up to 1/2 to each value
    return np.rint(vectors * scale)


def _numbered(products: np.ndarray, first: int) -> np.ndarray:
    """Products (n, m) of whole vectors as int64, in order by product, then by the number from ``first`` in the lowest bits."""
    return products.astype(np.int64) * (_NUMBERS + 1) + np.arange(first, first + products.shape[1])


def _highest(numbered: np.ndarray, count: int) -> np.ndarray:
    """The highest numbers of each row, in no order."""
    return np.partition(numbered, -count, axis=1)[:, -count:] if numbered.shape[1] > count else numbered


def _sorted(numbered: np.ndarray, count: int) -> np.ndarray:
    """The highest numbers of each row, highest first."""
    return np.sort(_highest(numbered, count), axis=1)[:, ::-1]


def cells_of(
    vectors: Stacked, rows: np.ndarray, keys: Iterable[str], *, most: int | None = None, probes: int = 8, seed: int = 0
) -> Cells:
    """Cells of rows, computed from a sample drawn by key: groups, then the cells of each group.

    There are ``_GROUPS`` times the square root of the number of cells groups, so that no row is compared with all cells, and
    only the sample of one group is in memory.

    Args:
        vectors: vectors of all rows.
        rows: (n,) integers, at least one: the rows to be divided.
        keys: keys of these rows, in the same order.
        most: maximum number of cells, at least 1; None: one for ``_CELL_ROWS`` rows. There are 39 rows or more per cell.
        probes: number of cells that ``Cells.nearest`` finds, at least 1.
        seed: seed of the sample.

    >>> vectors = Stacked([np.repeat(np.eye(2, dtype=np.float32), 50, axis=0)])
    >>> cells = cells_of(vectors, np.arange(100), map(str, range(100)), most=2, probes=1)
    >>> cells.nearest(vectors.take(np.array([0, 49, 50, 99]))).tolist()
    [[0], [0], [1], [1]]
    """
    count = min(most or -(-len(rows) // _CELL_ROWS), max(len(rows) // 39, 1))
    groups = min(round(_GROUPS * math.sqrt(count)), count)
    sample, at = SpillableArray(rows.dtype), 0
    for draws in _draws(seed, "near_duplicates", keys):
        sample.append(rows[at : at + len(draws)][draws < _SAMPLED * count / len(rows)])
        at += len(draws)
    coarse = _centres(_sample_of(vectors, sample, min(_SAMPLED * groups, _MOST_SAMPLED)), groups)
    drawn = SpilledNumbers(groups, [rows.dtype])
    for _, some in sample.blocks():
        for mine, block in blocks_of(vectors.take, some, _BLOCK_ROWS):
            drawn.add(np.argmax(whole_vectors(block) @ coarse.T, axis=1), [mine])
    shares = 1 + (count - groups) * drawn.counts // len(sample)
    fine = list[np.ndarray]()
    for group, share in enumerate(shares.tolist()):
        some = _sample_of(vectors, drawn.take(group)[0], _MOST_SAMPLED)
        fine.append((_centres(some, share) if len(some) else coarse[group, None]).astype(np.int16))
    return Cells(coarse, fine, np.cumsum([0, *map(len, fine)]), probes)


def _sample_of(vectors: Stacked, rows: np.ndarray | SpillableArray, most: int) -> np.ndarray:
    """Whole vectors of rows, of at most so many that lie evenly among them."""
    count = min(len(rows), most)
    rows = rows.take(np.arange(count) * len(rows) // count)
    sample = np.empty((count, vectors.width), dtype=np.float32)
    for start in range(0, count, _BLOCK_ROWS):
        sample[start : start + _BLOCK_ROWS] = whole_vectors(placed(vectors.take(rows[start : start + _BLOCK_ROWS])))
    return sample


def _centres(sample: np.ndarray, count: int) -> np.ndarray:
    """Centres (up to count, d) of spherical k-means of whole vectors, as whole vectors.

    All sums are exact, so that the result is the same on every machine.
    """
    count = min(count, len(sample))
    centres = sample[np.arange(count) * len(sample) // count]
    for _ in range(_ROUNDS):
        starts = range(0, len(sample), _BLOCK_ROWS)
        nearest = np.concatenate([np.argmax(sample[start : start + _BLOCK_ROWS] @ centres.T, axis=1) for start in starts])
        order = np.argsort(nearest, kind="stable")
        there, first = np.unique(nearest[order], return_index=True)
        for cell, members in zip(there, np.split(order, first[1:]), strict=True):
            total = sample[members].sum(axis=0, dtype=np.float64)[None]
            centres[cell] = whole_vectors(placed((total / lengths_of(total)[:, None]).astype(np.float32)))
    return centres


def by_cell(cells: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each cell of ``cells`` (n,), ascending, with its values of ``values`` (n,), in their order."""
    order = np.argsort(cells, kind="stable")
    there, first = np.unique(cells[order], return_index=True)
    return zip(there.tolist(), np.split(values[order], first)[1:], strict=True)


def _draws(seed: int, stage: str, keys: Iterable[str]) -> Iterator[np.ndarray]:
    """The draw of each key, some at a time."""
    keys = iter(keys)
    while some := list(itertools.islice(keys, _DRAWN_KEYS)):
        yield uniform(seed, stage, some)


def drawn_rows(seed: int, stage: str, keys: Iterable[str], count: int) -> np.ndarray:
    """Indices (up to count,) int64, ascending, of the keys of the smallest draws of a seed and stage."""
    draws, indices, at = np.empty(0), np.empty(0, dtype=np.int64), 0
    for some in _draws(seed, stage, keys):
        draws = np.concatenate([draws, some])
        indices = np.concatenate([indices, np.arange(at, at + len(some))])
        order = np.argsort(draws, kind="stable")[:count]
        draws, indices, at = draws[order], indices[order], at + len(some)
    return np.sort(indices)
