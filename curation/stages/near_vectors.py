"""Pairs of rows whose vectors have a cosine that reaches a threshold, in batches.

All are compared, or (IVF) those of the nearest cells (``vector_cells.py``), one group of cells after another, so that vectors
stay in the files of their parts. Products in float32 nominate pairs, by a bound of their error; of the products of two rows,
which are float32, float64 sums in one fixed order decide. Such a sum takes some hundred times as long as a product in a matrix,
so that of many near rows only the pairs are decided that may change a group or the nearest of a row.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from blake3 import blake3

from ..threads import ahead
from .near_hashes import PAIRS, Pairs, distinct_rows, stretches
from .nominate import TF32, Knn, faiss_uses_gpu, gpu_knn
from .spill import SpilledNumbers
from .topk import UNIT_ROUNDOFF, summed_products
from .unit_vectors import Stacked, blocks_of, placed
from .vector_cells import Cells, by_cell, cells_of, drawn_rows

_BLOCK_ROWS = 1 << 12

_ASSIGNED, _HELD_ROWS, _ASKED = 1 << 14, 1 << 16, 1 << 17
"""Number of rows assigned to cells at a time, of rows of a group in memory, and of searches in its cells, each of a row and a
cell."""

_NEAREST = 64
"""Number of neighbours per row that a GPU returns; a row that may have more is searched again on the CPU."""

_DENSE = 4
"""Number of nominated pairs per row from which on not all of them are decided."""

_CHECKED_ROWS = 1000
"""Number of rows on which the recall of IVF is measured."""


@dataclass(frozen=True)
class VectorSearch:
    """How to search for pairs of near vectors.

    Attributes:
        kind: ``flat`` compares all pairs of rows. ``ivf`` is APPROXIMATE: two rows are compared if one is in one of the
            ``probes`` cells nearest to the other; some pairs are missed, and a log message gives the measured recall.
            ``auto`` is ``flat`` up to ``flat_rows`` rows, otherwise ``ivf``.
        flat_rows: see ``kind``.
        cells: maximum number of cells of ``ivf``; None: one for 256 rows. Fewer cells: more comparisons, fewer pairs missed.
        probes: number of cells searched for each row.
        seed: seed of the sample of rows from which the cells are computed.
    """

    kind: Literal["auto", "flat", "ivf"] = "auto"
    flat_rows: int = 1_000_000
    cells: int | None = None
    probes: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("auto", "flat", "ivf"):
            raise ValueError(f"search kind is {self.kind!r}: one of auto, flat, ivf")
        if min(self.flat_rows, self.probes, self.cells or 1) < 1:
            raise ValueError(f"{self}: flat_rows, cells and probes are at least 1")


def distinct_vectors(vectors: Stacked, rows: np.ndarray, add: Callable[[Pairs], None]) -> np.ndarray:
    """Rows of which no two have equal vectors, without those that have no direction.

    Args:
        vectors: vectors of all rows.
        rows: (n,) integers, ascending.
        add: called with pairs of rows of equal vectors: each row that is left out, and the one in its place.

    >>> vectors = Stacked([np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], np.float32)])
    >>> distinct_vectors(vectors, np.arange(3), lambda pairs: print(pairs.left, pairs.right, pairs.similarity))
    [0] [2] [1.]
    array([0])
    """
    alone = np.zeros(len(rows), dtype=bool)
    for columns in stretches(_digests(vectors, rows), len(rows)):
        (first, again, _), (*_, one_of_each) = distinct_rows(columns)
        alone[one_of_each] = True
        for start in range(0, len(again), _BLOCK_ROWS):
            left, right = rows[first[start : start + _BLOCK_ROWS]], rows[again[start : start + _BLOCK_ROWS]]
            add(Pairs(left, right, _cosines(vectors, left, right)))
    return rows[alone]


def _digests(vectors: Stacked, rows: np.ndarray) -> Iterator[list[np.ndarray]]:
    """Two words of the BLAKE3 digest of each vector that has a direction, and its index in ``rows``."""
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = vectors.stored(rows[start : start + _BLOCK_ROWS])
        there = np.flatnonzero(np.isfinite(block).all(axis=1) & block.any(axis=1))
        digests = b"".join(blake3(vector).digest(length=16) for vector in block[there].view(np.uint8))
        words = np.frombuffer(digests, dtype="<u8").reshape(-1, 2).astype(np.uint64)
        yield [words[:, 0], words[:, 1], (there + start).astype(rows.dtype)]


def vector_pairs(
    vectors: Stacked,
    rows: np.ndarray,
    keys: Iterable[str],
    min_cosine: float,
    search: VectorSearch,
    *,
    device: str = "cpu",
    linking: bool = False,
) -> Iterator[Pairs]:
    """Find pairs of rows whose cosine is at least ``min_cosine``.

    Args:
        vectors: vectors of all rows.
        rows: (n,) integers, the rows to compare, ascending; time grows with the square of the number of equal ones.
        keys: keys of these rows, by which ivf draws its samples; iterated twice.
        min_cosine: the threshold.
        search: search settings.
        device: ``cuda`` lets a GPU nominate pairs, if faiss was built for it. The result is the same.
        linking: where very many rows are near, leave out pairs without which the groups of rows that pairs connect, and the
            similarity of each row with its nearest one, are the same; which ones depends on the machine. Otherwise all pairs
            are found, in time that grows with their number: about 10 microseconds each for vectors of 512 numbers.

    >>> vectors = Stacked([np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], np.float32)])
    >>> for pairs in vector_pairs(vectors, np.arange(3), "abc", 0.7, VectorSearch()):
    ...     print(pairs.left, pairs.right, pairs.similarity.round(2))
    [1] [0] [0.8]
    """
    comparison = _Comparison(vectors, min_cosine, linking)
    if search.kind == "flat" or (search.kind == "auto" and len(rows) <= search.flat_rows):
        yield from _all_pairs(comparison, rows, device)
        return
    cells = cells_of(vectors, rows, keys, most=search.cells, probes=search.probes, seed=search.seed)
    yield from _cell_pairs(comparison, rows, cells, _gpu_search(device))
    _tell_recall(comparison, rows, keys, cells, search.seed)


def _all_pairs(comparison: _Comparison, rows: np.ndarray, device: str) -> Iterator[Pairs]:
    """Pairs among all rows."""
    on_gpu = _on_gpu(comparison.vectors.width, device)
    there, at = np.empty((len(rows), comparison.vectors.width), dtype=np.float32), 0
    for mine, block in blocks_of(comparison.vectors.roughly, rows, _BLOCK_ROWS):
        there[at : at + len(mine)] = block
        at += len(mine)
        if on_gpu is not None:
            on_gpu.add(block)
        nearest = on_gpu and on_gpu.search
        yield from comparison.pairs(mine, block, rows[:at], there[:at], nearest, compared=np.less)


def _cell_pairs(comparison: _Comparison, rows: np.ndarray, cells: Cells, gpu: Knn | None) -> Iterator[Pairs]:
    """Pairs of rows of which one is in a cell that is searched for the other, found in one group of cells after another."""
    groups = len(cells.coarse)
    members, asking = (SpilledNumbers(groups, [np.int32, rows.dtype]) for _ in range(2))
    for mine, block in blocks_of(comparison.vectors.take, rows, _ASSIGNED):
        probed = cells.nearest(block)
        members.add(cells.group_of(probed[:, 0]), [probed[:, 0], mine])
        there = probed.ravel() >= 0
        probed, asked = probed.ravel()[there], np.repeat(mine, probed.shape[1])[there]
        asking.add(cells.group_of(probed), [probed, asked])
    for group in range(groups):
        cell, held = members.take(group)
        order = np.argsort(cell, kind="stable")
        for start in range(0, len(order), _HELD_ROWS):
            some = order[start : start + _HELD_ROWS]
            yield from _held_pairs(comparison, cell[some], held[some], asking.blocks(group), gpu)


def _held_pairs(
    comparison: _Comparison, cell: np.ndarray, held: np.ndarray, asking: Iterable[list[np.ndarray]], gpu: Knn | None
) -> Iterator[Pairs]:
    """Pairs of the rows ``held``, sorted by their cells, with the rows that ask for these cells."""
    vectors = comparison.vectors
    there = np.concatenate([block for _, block in blocks_of(vectors.roughly, held, _BLOCK_ROWS)])
    bounds = np.searchsorted(cell, np.arange(cell[0], cell[-1] + 2))
    for mine, block, place, asked in ahead(_asking(vectors, asking, cell[0], cell[-1])):
        for number, places in by_cell(asked, place):
            others = slice(*bounds[number - cell[0] : number - cell[0] + 2])
            nearest = gpu and functools.partial(_nearest, gpu, there[others])
            for some in (places[start : start + _BLOCK_ROWS] for start in range(0, len(places), _BLOCK_ROWS)):
                yield from comparison.pairs(mine[some], block[some], held[others], there[others], nearest)


def _asking(
    vectors: Stacked, asking: Iterable[list[np.ndarray]], first: int, last: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Rows that ask for cells from ``first`` to ``last``, their vectors, and places among them with the cells asked for."""
    for cells, rows in asking:
        asked = np.flatnonzero((cells >= first) & (cells <= last))
        for start in range(0, len(asked), _ASKED):
            some = asked[start : start + _ASKED]
            mine, place = np.unique(rows[some], return_inverse=True)
            yield mine, vectors.roughly(mine), place, cells[some]


def _nearest(gpu: Knn, others: np.ndarray, block: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    return gpu(block, others, count)


def _on_gpu(width: int, device: str) -> Any:
    """An empty index on the GPU; None where faiss can use no GPU."""
    if not device.startswith("cuda") or not faiss_uses_gpu():
        return None
    import faiss  # imported only when needed: the import takes a third of a second

    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), _gpu_number(device), faiss.IndexFlatIP(width))


def _gpu_search(device: str) -> Knn | None:
    """Search on the GPU; None where faiss can use no GPU."""
    return gpu_knn(_gpu_number(device)) if device.startswith("cuda") else None


def _gpu_number(device: str) -> int:
    return int(device.partition(":")[2] or 0)


# ----------------------------------------------------------------------------------------------------- nominated, decided


@dataclass(frozen=True)
class _Comparison:
    """How rows are compared, see ``vector_pairs``."""

    vectors: Stacked
    min_cosine: float
    linking: bool

    @property
    def floor(self) -> float:
        """What float32 products of near rows are above, whose vectors are those of ``roughly``."""
        return self.min_cosine - (self.vectors.width + 4) * 2 * UNIT_ROUNDOFF

    def pairs(
        self,
        mine: np.ndarray,
        block: np.ndarray,
        held: np.ndarray,
        others: np.ndarray,
        nearest: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]] | None,
        compared: np.ufunc = np.not_equal,
    ) -> Iterator[Pairs]:
        """Near pairs of the rows ``mine`` with the rows ``held``.

        Args:
            mine: rows (n,), each once.
            block: their vectors (n, d), by ``roughly``.
            held: rows (m,), each once.
            others: their vectors (m, d), by ``roughly``.
            nearest: a GPU's search among ``held``: returns products and indices of the nearest, as many as it is asked for.
            compared: tells of a row of ``held``, and one of ``mine``, whether they are compared.
        """
        if nearest is not None:
            floor = self.floor - 3 * TF32
            scores, ids = nearest(block, _NEAREST)  # faiss has no range search on GPUs
            full = scores[:, -1] > floor
            left, place = np.nonzero((scores > floor) & (ids >= 0) & ~full[:, None])
            one, other = mine[left], held[ids[left, place]]
            once = compared(other, one)
            yield from self.decided(one[once], other[once])
            mine, block = mine[full], block[full]
        step = min(max(PAIRS // max(len(mine), 1), 1), _BLOCK_ROWS)
        for start in range(0, len(held), step):
            some = held[start : start + step]
            left, right = _places(block @ others[start : start + step].T > self.floor)
            once = compared(some[right], mine[left])
            left, right = left[once], right[once]
            one, other = (np.flatnonzero(np.bincount(each)) for each in (left, right))
            if self.linking and len(left) > _DENSE * (len(one) + len(other)):
                yield from self.decided(*self._links(mine[one], some[other], compared))
            else:
                yield from self.decided(mine[left], some[right])

    def decided(self, left: np.ndarray, right: np.ndarray) -> Iterator[Pairs]:
        """Pairs (n,) of rows whose cosine reaches the threshold."""
        step = max(PAIRS // (4 * max(self.vectors.width, 1)), 1)
        for at in range(0, len(left), step):
            one, other = left[at : at + step], right[at : at + step]
            cosine = _cosines(self.vectors, one, other)
            near = cosine >= self.min_cosine
            yield Pairs(one[near], other[near], cosine[near])

    def near(self, mine: np.ndarray, held: np.ndarray) -> np.ndarray:
        """Which of the rows ``mine`` (n,) are near which of the rows ``held`` (m,), both ascending: bool (n, m)."""
        least, most = self._bounds(mine, held)
        near = least >= self.min_cosine
        left, right = _places((most >= self.min_cosine) & ~near)
        for pairs in self.decided(mine[left], held[right]):
            near[np.searchsorted(mine, pairs.left), np.searchsorted(held, pairs.right)] = True
        return near

    def _bounds(self, mine: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the cosines of rows, (n,) and (m,), are at least and at most, before they are cut off at 1: (n, m) float64 each,
        NaN for those without direction.

        Products of float32 numbers are exact in float64. Their sums, by BLAS or in the fixed order, in d - 1 and log2(d)
        roundings one after another, differ by at most (d - 1 + log2(d)) 2^-53 |x| |y|, less than the bound that is used.
        """
        one, other = (self.vectors.take(rows).astype(np.float64) for rows in (mine, held))
        products, bound = one @ other.T, (2 * self.vectors.width + 8) * 2.0**-53
        return products - bound, products + bound

    def _links(self, mine: np.ndarray, held: np.ndarray, compared: np.ufunc) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of rows without which no other pair of them matters: a few for each row, unless very many cosines are equal.

        They are the pairs whose cosine may be the highest of a row, those that may be near or not, and so many of the others
        that they connect the same rows.
        """
        least, most = self._bounds(mine, held)
        apart = np.isnan(least) | ~compared(held, mine[:, None])
        least[apart] = most[apart] = -np.inf
        sure = least >= self.min_cosine
        wanted = most > np.minimum.outer(least.max(axis=1), least.max(axis=0))
        wanted = (wanted | ~sure) & (most >= self.min_cosine)
        # One row is often near all others, which leaves little to connect.
        row, column = sure.sum(axis=1).argmax(), sure.sum(axis=0).argmax()
        wanted[row] |= sure[row]
        wanted[:, column] |= sure[:, column]
        while True:
            one, other = _connected(wanted & sure)
            left, right = _places(sure & (one[:, None] != other))
            if not len(left):
                break
            # One pair for each set of rows that is connected so far: at least every second set joins another.
            chosen = np.full(len(mine) + len(held), -1)
            chosen[one[left]] = chosen[other[right]] = np.arange(len(left))
            chosen = chosen[chosen >= 0]
            wanted[left[chosen], right[chosen]] = True
        left, right = _places(wanted)
        return mine[left], held[right]


def _places(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns where a mask (n, m) is true; ``np.nonzero`` of two dimensions takes far longer."""
    rows, columns = np.divmod(np.flatnonzero(mask.ravel()), max(mask.shape[1], 1))
    return rows, columns


def _connected(links: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (n,) and (m,) of the connected sets of the rows and columns that ``links`` (n, m) bool connects."""
    from scipy.sparse import coo_array  # imported only when needed
    from scipy.sparse.csgraph import connected_components

    count = sum(links.shape)
    left, right = _places(links)
    graph = coo_array((np.ones(len(left), dtype=np.int8), (left, right + len(links))), shape=(count, count))
    label = connected_components(graph, directed=False)[1]
    return label[: len(links)], label[len(links) :]


def _cosines(vectors: Stacked, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Cosines of pairs of rows, float64 up to 1; NaN if one has no direction."""
    there, place = np.unique(np.concatenate([left, right]), return_inverse=True)
    unit = vectors.take(there)
    one, other = unit[place[: len(left)]], unit[place[len(left) :]]
    return np.minimum(summed_products(one.T, other.T), 1.0)


def _tell_recall(comparison: _Comparison, rows: np.ndarray, keys: Iterable[str], cells: Cells, seed: int) -> None:
    """Log the recall of ivf, measured on a sample of rows drawn by key, which are compared with all rows."""
    vectors = comparison.vectors
    drawn = rows[drawn_rows(seed, "recall", keys, _CHECKED_ROWS)]
    asked = placed(vectors.take(drawn))
    probed = cells.nearest(asked)
    there = found = 0
    for mine, block in blocks_of(vectors.roughly, rows, _BLOCK_ROWS):
        left, right = (np.unique(each) for each in _places(asked @ block.T > comparison.floor))
        near = comparison.near(drawn[left], mine[right]) & (drawn[left][:, None] != mine[right])
        one, other = probed[left], cells.nearest(placed(vectors.take(mine[right])))
        searched = np.zeros_like(near)
        for each in range(probed.shape[1]):
            searched |= (one[:, each, None] == other[:, 0]) | (one[:, 0, None] == other[:, each])
        there += np.count_nonzero(near)
        found += np.count_nonzero(near & searched)
    logging.getLogger("benchwright").warning(
        "near-duplicates: ivf is approximate: of %d near rows of %d rows drawn it found %d (recall %.3f); more probes: more",
        there,
        len(drawn),
        found,
        found / there if there else 1.0,
    )
