"""Pairs of rows whose vectors have a cosine that reaches a threshold, in batches.

All are compared, by faiss, or (IVF) those of the nearest cells. Cells hold about ``_CELL_ROWS`` rows each, so that the time per
row hardly grows. They have two levels: k-means of a sample makes groups, then that of each group's sample its cells. A row is
compared with the centres of the groups, and with those of the cells of its nearest groups. One group after another is compared,
so that vectors stay in the files of their parts. Centres are vectors of whole numbers, of which all sums are exact: cells
depend neither on the processor nor on the number of threads. Of the products of two rows, which are float32, float64 sums in
one fixed order decide.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from blake3 import blake3

from ..rng import uniform
from ..threads import ahead
from .near_hashes import PAIRS, Pairs, distinct_rows, stretches
from .nominate import TF32, Knn, faiss_uses_gpu, gpu_knn
from .spill import SpillableArray, SpilledNumbers
from .topk import RESCORE_ROWS, UNIT_ROUNDOFF, summed_products

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

_ASSIGNED, _HELD_ROWS, _ASKED = 1 << 14, 1 << 16, 1 << 17
"""Number of rows assigned to cells at a time, of rows of a group in memory, and of searches in its cells, each of a row and a
cell."""

_NUMBERS, _NONE = (1 << 24) - 1, np.iinfo(np.int64).min
"""The bits of a cell's number, and what is below each product with a number."""

_NEAREST = 64
"""Number of neighbours per row that a GPU returns; a row that may have more is searched again on the CPU."""

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


class Stacked:
    """Vectors of consecutive parts, by row number; memory-mapped parts are not copied, and leave memory once they are read."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self._parts = [np.asarray(part) for part in parts if len(part)]
        self._maps = [_map_of(part) for part in self._parts]
        self._ends = np.cumsum([len(part) for part in self._parts])
        if any(part.ndim != 2 or part.shape[1] != self._parts[0].shape[1] for part in self._parts):
            raise ValueError(f"vectors have the shapes {sorted({part.shape[1:] for part in self._parts})}: expected one width")

    @property
    def width(self) -> int:
        """Number of values of a vector."""
        return self._parts[0].shape[1] if self._parts else 0

    def stored(self, rows: np.ndarray) -> np.ndarray:
        """Vectors (n, d) float32 of rows (n,), as they are stored."""
        out = np.empty((len(rows), self.width), dtype=np.float32)
        order = np.argsort(rows, kind="stable")
        bounds = np.searchsorted(rows[order], self._ends)
        numbers = np.flatnonzero(np.diff(bounds, prepend=0))
        for each, mine in zip(numbers, np.split(order, bounds[numbers])[: len(numbers)], strict=True):
            out[mine] = self._parts[each][rows[mine].astype(np.int64) - (self._ends[each] - len(self._parts[each]))]
            if (mapped := self._maps[each]) is not None:
                mapped.madvise(mmap.MADV_DONTNEED)  # the system may keep the pages, but they no longer count as ours
        return out

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Unit vectors (n, d) float32 of rows (n,); NaN for vectors of length 0 or not finite."""
        out = self.stored(rows)
        for start in range(0, len(out), RESCORE_ROWS):
            some = out[start : start + RESCORE_ROWS]
            np.divide(some, _lengths(some)[:, None], out=some, casting="unsafe")
        return out

    def roughly(self, rows: np.ndarray) -> np.ndarray:
        """Unit vectors that may differ from those of ``take`` in the last bit; 0 for vectors of length 0 or not finite."""
        out = self.stored(rows)
        lengths = np.sqrt(np.einsum("nd,nd->n", out, out, dtype=np.float64))
        good = (lengths > 0) & np.isfinite(lengths)
        out[~good] = 0
        return np.divide(out, np.where(good, lengths, 1)[:, None], out=out, casting="unsafe")


def _map_of(part: np.ndarray) -> mmap.mmap | None:
    """The file that is mapped to the memory of an array, if any, where the system can be told to let go of it."""
    base: Any = part
    while isinstance(base, np.ndarray):
        base = base.base
    letting_go = isinstance(base, mmap.mmap) and not part.flags.writeable and hasattr(mmap, "MADV_DONTNEED")
    return base if letting_go else None


def _lengths(vectors: np.ndarray) -> np.ndarray:
    """Lengths of vectors (n, d); NaN for 0 or not finite."""
    lengths = np.sqrt(summed_products(vectors.T, vectors.T))
    lengths[(lengths == 0) | ~np.isfinite(lengths)] = np.nan
    return lengths


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
    vectors: Stacked, rows: np.ndarray, keys: Iterable[str], min_cosine: float, search: VectorSearch, *, device: str = "cpu"
) -> Iterator[Pairs]:
    """Find pairs of rows whose cosine is at least ``min_cosine``.

    Args:
        vectors: vectors of all rows.
        rows: (n,) integers, the rows to compare, ascending; time grows with the square of the number of equal ones.
        keys: keys of these rows, by which ivf draws its samples; iterated twice.
        min_cosine: the threshold.
        search: search settings.
        device: ``cuda`` lets a GPU nominate pairs, if faiss was built for it. The result is the same.
    """
    floor = min_cosine - vectors.width * 2 * UNIT_ROUNDOFF
    if search.kind == "flat" or (search.kind == "auto" and len(rows) <= search.flat_rows):
        yield from _all_pairs(vectors, rows, floor, min_cosine, device)
        return
    cells, gpu = _cells(vectors, rows, keys, search), _gpu_search(device)
    yield from _cell_pairs(vectors, rows, cells, floor - (3 * TF32 if gpu else 0), min_cosine, gpu)
    _tell_recall(vectors, rows, keys, cells, floor, min_cosine, search.seed)


def _placed(vectors: np.ndarray) -> np.ndarray:
    """Vectors without direction set to 0: all their products are 0, and they are rejected later."""
    np.copyto(vectors, 0, where=np.isnan(vectors))
    return vectors


def _blocks_of(
    take: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows, and their vectors, in blocks, each read while the one before it is in use."""
    starts = range(0, len(rows), size)
    return ahead((mine, _placed(take(mine))) for mine in (rows[start : start + size] for start in starts))


def _all_pairs(vectors: Stacked, rows: np.ndarray, floor: float, min_cosine: float, device: str) -> Iterator[Pairs]:
    """Pairs among all rows."""
    import faiss  # imported only when needed: the import takes a third of a second

    index = faiss.IndexFlatIP(vectors.width)
    on_gpu = _on_gpu(index, device)
    floor -= 3 * TF32 if on_gpu else 0
    at = 0
    for mine, block in _blocks_of(vectors.roughly, rows, _BLOCK_ROWS):
        for each in (index, on_gpu):
            if each is not None:
                each.add(block)
        left, right = _nominated(functools.partial(_ranged, index), on_gpu and on_gpu.search, block, floor)
        once = right < left + at
        yield from _decided(vectors, rows[right[once]], mine[left[once]], min_cosine)
        at += len(mine)


# --------------------------------------------------------------------------------------------------------------- cells


@dataclass(frozen=True)
class _Cells:
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
        """The nearest cells (n, probes) of unit vectors, nearest first, among those of the nearest groups; -1 for none."""
        whole = _whole(vectors)
        groups = _sorted(_numbered(whole @ self.coarse.T, 0), _NEAREST_GROUPS) & _NUMBERS
        best = np.full((len(whole), self.probes), _NONE)
        for some in (groups[:, :_FIRST_GROUPS], groups[:, _FIRST_GROUPS:]):
            best = self._best(whole, some, best)
        best = _sorted(best, self.probes)
        return np.where(best == _NONE, -1, best & _NUMBERS).astype(np.int32)

    def _best(self, whole: np.ndarray, groups: np.ndarray, best: np.ndarray) -> np.ndarray:
        """The highest of ``best`` (n, probes) and of the numbered products of whole vectors with the cells of groups (n, g)."""
        least = (best.min(axis=1) // (_NUMBERS + 1)).astype(np.float32)
        found = np.full((*groups.shape, self.probes), _NONE)
        for group, places in _by_cell(groups.ravel(), np.arange(groups.size)):
            rows, place = np.divmod(places, groups.shape[1])
            products = whole[rows] @ self.fine[group].T.astype(np.float32)
            high = np.flatnonzero(products.max(axis=1) >= least[rows])
            numbered = _highest(_numbered(products[high], int(self.first[group])), self.probes)
            found[rows[high], place[high], : numbered.shape[1]] = numbered
        return _highest(np.concatenate([best, found.reshape(len(best), groups.shape[1] * self.probes)], axis=1), self.probes)


def _whole(vectors: np.ndarray) -> np.ndarray:
    """Unit vectors times nearly 4096, rounded: sums of their products are whole numbers below 2**24, exact in float32."""
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


def _cells(vectors: Stacked, rows: np.ndarray, keys: Iterable[str], search: VectorSearch) -> _Cells:
    """Cells of about ``_CELL_ROWS`` rows, computed from a sample drawn by key: groups, then the cells of each group.

    There are ``_GROUPS`` times the square root of the number of cells groups, so that no row is compared with all cells, and
    only the sample of one group is in memory.
    """
    count = min(search.cells or -(-len(rows) // _CELL_ROWS), max(len(rows) // 39, 1))
    groups = min(round(_GROUPS * math.sqrt(count)), count)
    sample, at = SpillableArray(rows.dtype), 0
    for draws in _draws(search.seed, "near_duplicates", keys):
        sample.append(rows[at : at + len(draws)][draws < _SAMPLED * count / len(rows)])
        at += len(draws)
    coarse = _centres(_sample_of(vectors, sample, min(_SAMPLED * groups, _MOST_SAMPLED)), groups)
    drawn = SpilledNumbers(groups, [rows.dtype])
    for _, some in sample.blocks():
        for mine, block in _blocks_of(vectors.take, some, _BLOCK_ROWS):
            drawn.add(np.argmax(_whole(block) @ coarse.T, axis=1), [mine])
    shares = 1 + (count - groups) * drawn.counts // len(sample)
    fine = list[np.ndarray]()
    for group, share in enumerate(shares.tolist()):
        some = _sample_of(vectors, drawn.take(group)[0], _MOST_SAMPLED)
        fine.append((_centres(some, share) if len(some) else coarse[group, None]).astype(np.int16))
    return _Cells(coarse, fine, np.cumsum([0, *map(len, fine)]), search.probes)


def _sample_of(vectors: Stacked, rows: np.ndarray | SpillableArray, most: int) -> np.ndarray:
    """Whole vectors of rows, of at most so many that lie evenly among them."""
    count = min(len(rows), most)
    rows = rows.take(np.arange(count) * len(rows) // count)
    sample = np.empty((count, vectors.width), dtype=np.float32)
    for start in range(0, count, _BLOCK_ROWS):
        sample[start : start + _BLOCK_ROWS] = _whole(_placed(vectors.take(rows[start : start + _BLOCK_ROWS])))
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
            centres[cell] = _whole(_placed((total / _lengths(total)[:, None]).astype(np.float32)))
    return centres


def _cell_pairs(
    vectors: Stacked, rows: np.ndarray, cells: _Cells, floor: float, min_cosine: float, gpu: Knn | None
) -> Iterator[Pairs]:
    """Pairs of rows of which one is in a cell that is searched for the other, found in one group of cells after another."""
    groups = len(cells.coarse)
    members, asking = (SpilledNumbers(groups, [np.int32, rows.dtype]) for _ in range(2))
    for mine, block in _blocks_of(vectors.take, rows, _ASSIGNED):
        probed = cells.nearest(block)
        members.add(_group_of(cells, probed[:, 0]), [probed[:, 0], mine])
        there = probed.ravel() >= 0
        probed, asked = probed.ravel()[there], np.repeat(mine, probed.shape[1])[there]
        asking.add(_group_of(cells, probed), [probed, asked])
    for group in range(groups):
        cell, held = members.take(group)
        order = np.argsort(cell, kind="stable")
        for start in range(0, len(order), _HELD_ROWS):
            some = order[start : start + _HELD_ROWS]
            yield from _held_pairs(vectors, cell[some], held[some], asking.blocks(group), floor, min_cosine, gpu)


def _group_of(cells: _Cells, numbers: np.ndarray) -> np.ndarray:
    return np.searchsorted(cells.first, numbers, side="right") - 1


def _held_pairs(
    vectors: Stacked,
    cell: np.ndarray,
    held: np.ndarray,
    asking: Iterable[list[np.ndarray]],
    floor: float,
    min_cosine: float,
    gpu: Knn | None,
) -> Iterator[Pairs]:
    """Pairs of the rows ``held``, sorted by their cells, with the rows that ask for these cells."""
    there = np.concatenate([block for _, block in _blocks_of(vectors.roughly, held, _BLOCK_ROWS)])
    bounds = np.searchsorted(cell, np.arange(cell[0], cell[-1] + 2))
    for mine, block, place, asked in ahead(_asking(vectors, asking, cell[0], cell[-1])):
        for number, places in _by_cell(asked, place):
            others = slice(*bounds[number - cell[0] : number - cell[0] + 2])
            nearest = gpu and functools.partial(_nearest, gpu, there[others])
            step = max(PAIRS // max(len(there[others]), 1), 1)
            for some in (places[start : start + step] for start in range(0, len(places), step)):
                left, right = _nominated(functools.partial(_products, there[others]), nearest, block[some], floor)
                left, right = mine[some[left]], held[others][right]
                yield from _decided(vectors, left[left != right], right[left != right], min_cosine)


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


def _by_cell(cells: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each cell with its values."""
    order = np.argsort(cells, kind="stable")
    there, first = np.unique(cells[order], return_index=True)
    return zip(there.tolist(), np.split(values[order], first)[1:], strict=True)


def _products(others: np.ndarray, block: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """As ``_ranged``."""
    return _above(block @ others.T, floor)


def _above(products: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the products (n, m) above ``floor``; ``np.nonzero`` of two dimensions takes far longer."""
    rows, columns = np.divmod(np.flatnonzero((products > floor).ravel()), max(products.shape[1], 1))
    return rows, columns


def _nearest(gpu: Knn, others: np.ndarray, block: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    return gpu(block, others, count)


def _draws(seed: int, stage: str, keys: Iterable[str]) -> Iterator[np.ndarray]:
    """The draw of each key, some at a time."""
    keys = iter(keys)
    while some := list(itertools.islice(keys, _DRAWN_KEYS)):
        yield uniform(seed, stage, some)


def _drawn(seed: int, stage: str, keys: Iterable[str], count: int) -> np.ndarray:
    """Indices, ascending, of the keys of the smallest draws."""
    draws, indices, at = np.empty(0), np.empty(0, dtype=np.int64), 0
    for some in _draws(seed, stage, keys):
        draws = np.concatenate([draws, some])
        indices = np.concatenate([indices, np.arange(at, at + len(some))])
        order = np.argsort(draws, kind="stable")[:count]
        draws, indices, at = draws[order], indices[order], at + len(some)
    return np.sort(indices)


# ----------------------------------------------------------------------------------------------------- nominated, decided


def _on_gpu(index: Any, device: str) -> Any:
    """A copy of an empty index on the GPU; None where faiss can use no GPU."""
    import faiss

    if not device.startswith("cuda") or not faiss_uses_gpu():
        return None
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), _gpu_number(device), index)


def _gpu_search(device: str) -> Knn | None:
    """Search on the GPU; None where faiss can use no GPU."""
    return gpu_knn(_gpu_number(device)) if device.startswith("cuda") else None


def _gpu_number(device: str) -> int:
    return int(device.partition(":")[2] or 0)


def _nominated(
    all_above: Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]],
    nearest: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]] | None,
    block: np.ndarray,
    floor: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Indices in the block, and among the vectors that are searched, of all pairs whose product may be above ``floor``.

    Args:
        all_above: returns them.
        nearest: returns products and indices of the nearest, as many as it is asked for; None: ``all_above`` for all.
        block: vectors that search.
        floor: see above.
    """
    if nearest is None:
        return all_above(block, floor)
    scores, ids = nearest(block, _NEAREST)  # faiss has no range search on GPUs
    full = scores[:, -1] > floor
    left, place = np.nonzero((scores > floor) & (ids >= 0) & ~full[:, None])
    again, right = all_above(block[full], floor)
    return np.concatenate([left, np.flatnonzero(full)[again]]), np.concatenate([ids[left, place], right])


def _ranged(index: Any, block: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    limits, _, ids = index.range_search(block, floor)
    return np.repeat(np.arange(len(block)), np.diff(limits.astype(np.int64))), ids.astype(np.int64)


def _decided(vectors: Stacked, left: np.ndarray, right: np.ndarray, min_cosine: float) -> Iterator[Pairs]:
    """Nominated pairs of rows whose cosine reaches the threshold."""
    step = max(PAIRS // (4 * max(vectors.width, 1)), 1)
    for at in range(0, len(left), step):
        one, other = left[at : at + step], right[at : at + step]
        cosine = _cosines(vectors, one, other)
        near = cosine >= min_cosine
        yield Pairs(one[near], other[near], cosine[near])


def _cosines(vectors: Stacked, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Cosines of pairs of rows, float64 up to 1; NaN if one has no direction."""
    there, place = np.unique(np.concatenate([left, right]), return_inverse=True)
    unit = vectors.take(there)
    one, other = unit[place[: len(left)]], unit[place[len(left) :]]
    return np.minimum(summed_products(one.T, other.T), 1.0)


def _tell_recall(
    vectors: Stacked, rows: np.ndarray, keys: Iterable[str], cells: _Cells, floor: float, min_cosine: float, seed: int
) -> None:
    """Log the recall of ivf, measured on a sample of rows drawn by key, which are compared with all rows."""
    drawn = rows[_drawn(seed, "recall", keys, _CHECKED_ROWS)]
    asked = _placed(vectors.take(drawn))
    probed = cells.nearest(asked)
    there = found = 0
    for mine, block in _blocks_of(vectors.roughly, rows, _BLOCK_ROWS):
        left, right = _above(asked @ block.T, floor)
        for pairs in _decided(vectors, drawn[left], mine[right], min_cosine):
            left, right = pairs.left[pairs.left != pairs.right], pairs.right[pairs.left != pairs.right]
            near, place = np.unique(right, return_inverse=True)
            one, other = probed[np.searchsorted(drawn, left)], cells.nearest(_placed(vectors.take(near)))[place]
            there += len(left)
            found += int(((one == other[:, :1]) | (one[:, :1] == other)).any(axis=1).sum())
    logging.getLogger("benchwright").warning(
        "near-duplicates: ivf is approximate: of %d near rows of %d rows drawn it found %d (recall %.3f); more probes: more",
        there,
        len(drawn),
        found,
        found / there if there else 1.0,
    )
