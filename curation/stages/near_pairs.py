"""Pairs of near-equal rows, by hashes or by vectors: every pair whose similarity reaches a threshold, in batches.

Hashes: sorted tables (Manku, Jain and Das Sarma, WWW 2007). If 64 bits are cut into m blocks, two hashes that differ in at
most r bits are equal in m - r blocks: for every choice of m - r blocks, hashes are sorted with those bits first, and
neighbours that are equal in them are compared. No pair is missed, and memory is two numbers per hash.

Vectors: faiss nominates pairs by float32 products, exhaustively or (IVF) among the rows of the nearest cells; float64 sums in
one fixed order decide, so that the result does not depend on the processor.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ..rng import uniform
from .nominate import faiss_uses_gpu
from .topk import UNIT_ROUNDOFF, summed_products

_BITS = 64
_MOST_BLOCKS = 16
"""A hash is cut into fewer blocks than this number plus the number of bits that may differ."""

_SORTED = 1 << 18
"""Number of hashes permuted, or compared with their neighbours, at a time: a few megabytes, which fit a cache."""

_PAIRS = 1 << 22
"""Number of pairs handled at a time, which bounds the memory."""

_BLOCK_ROWS = 1 << 12
_HALF = 2.0**-10
"""Maximum error of a product of unit vectors of which one was rounded to float16."""

_NEAREST = 64
"""Number of neighbours per row that a GPU returns; a row that may have more is searched again on the CPU."""

_CHECKED_ROWS = 1000
"""Number of rows on which the recall of IVF is measured."""


class Pairs(NamedTuple):
    """Pairs of near rows, (n,) int64 each, every pair at least once, and their similarities, (n,) float64 up to 1."""

    left: np.ndarray
    right: np.ndarray
    similarity: np.ndarray


@dataclass(frozen=True)
class VectorSearch:
    """How to search for pairs of near vectors.

    Attributes:
        kind: ``flat`` compares all pairs of rows. ``ivf`` is APPROXIMATE: a row is compared with the rows of its ``probes``
            nearest cells; some pairs are missed, and a log message gives the measured recall. ``auto`` is ``flat`` up to
            ``flat_rows`` rows, otherwise ``ivf``.
        flat_rows: see ``kind``.
        cells: number of cells of ``ivf``; None: 4 times the square root of the number of rows.
        probes: number of cells searched for each row.
        seed: seed of the sample of rows from which the cells are computed.
    """

    kind: Literal["auto", "flat", "ivf"] = "auto"
    flat_rows: int = 1_000_000
    cells: int | None = None
    probes: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("auto", "flat", "ivf"):
            raise ValueError(f"search kind is {self.kind!r}: one of auto, flat, ivf")
        if min(self.flat_rows, self.probes, self.cells or 1) < 1:
            raise ValueError(f"{self}: flat_rows, cells and probes are at least 1")


# -------------------------------------------------------------------------------------------------------------- hashes


def hash_pairs(codes: np.ndarray, max_distance: int) -> Iterator[Pairs]:
    """Find pairs of rows whose hashes differ in at most ``max_distance`` bits per word, on average over the words.

    Args:
        codes: uint64 (n, words), one word per picture or frame; no two rows equal, and ascending if there is one word.
        max_distance: maximum number of differing bits, of 64.

    Yields:
        Pairs; each pair only once if hashes have one word.

    >>> codes = np.array([[0b0000], [0b0011], [0b1111]], np.uint64)
    >>> [(pair.left.tolist(), pair.right.tolist()) for pair in hash_pairs(codes, 2) if len(pair.left)][0]
    ([0, 1], [1, 2])
    """
    words = codes.shape[1]
    if words == 1:
        for left, right in _near_numbers(codes[:, 0], max_distance):
            yield Pairs(left, right, 1 - np.bitwise_count(codes[left, 0] ^ codes[right, 0]) / _BITS)
        return
    for word in range(words):  # hashes that are near on average are near in at least one word
        for left, right in _near_in(codes[:, word], max_distance):
            distance = np.bitwise_count(codes[left] ^ codes[right]).sum(axis=1, dtype=np.int64)
            near = distance <= max_distance * words
            yield Pairs(left[near], right[near], 1 - distance[near] / (_BITS * words))


def _near_in(column: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of rows whose numbers (n,) uint64 are equal or differ in at most ``most`` bits."""
    order = np.argsort(column, kind="stable")
    values, starts = np.unique(column[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    for left, right in _expanded(np.arange(1, len(order) + 1), np.repeat(ends, ends - starts)):
        yield order[left], order[right]
    for one, other in _near_numbers(values, most):
        for pair, left in _expanded(starts[one], ends[one]):
            for at, right in _expanded(starts[other[pair]], ends[other[pair]]):
                yield order[left[at]], order[right]


def _near_numbers(values: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices of the pairs of numbers, (n,) uint64 ascending, that differ in 1 to ``most`` bits; each pair once."""
    if most < 1:
        return
    count = min(range(most + 1, most + _MOST_BLOCKS), key=lambda count: _cost(len(values), count, most))
    blocks = [(_BITS * n // count, _BITS * (n + 1) // count) for n in range(count)]
    for chosen in itertools.combinations(range(count), count - most):
        order = [*(blocks[n] for n in range(count) if n not in chosen), *(blocks[n] for n in chosen)]
        # A pair that is equal in more blocks is yielded only for the first choice of blocks.
        before = [_bits(*blocks[n]) for n in range(chosen[-1]) if n not in chosen]
        turned = _turned(values, order)
        turned.sort()
        bound = _bits(0, sum(blocks[n][1] - blocks[n][0] for n in range(count) if n not in chosen))
        for left, right in _neighbours(turned, bound, most):
            left, right = _turned(left, order, back=True), _turned(right, order, back=True)
            first = np.logical_and.reduce([(left ^ right) & block != 0 for block in before]) if before else slice(None)
            yield np.searchsorted(values, left[first]), np.searchsorted(values, right[first])


def _turned(values: np.ndarray, order: Sequence[tuple[int, int]], *, back: bool = False) -> np.ndarray:
    """Permute blocks of bits [low, high) of numbers into the order ``order``, lowest block first; ``back`` undoes it."""
    moves, at = list[tuple[int, int, int]](), 0
    for low, high in order:
        width = high - low
        if moves and moves[-1][0] + moves[-1][2] == low:  # adjacent to the previous block: move both at once
            moves[-1] = (*moves[-1][:2], moves[-1][2] + width)
        else:
            moves.append((low, at, width))
        at += width
    out = np.zeros_like(values)
    for start in range(0, len(values), _SORTED):
        mine, there = values[start : start + _SORTED], out[start : start + _SORTED]
        for low, to, width in moves:
            low, to = (to, low) if back else (low, to)
            there |= ((mine >> np.uint64(low)) & _bits(0, width)) << np.uint64(to)
    return out


def _bits(low: int, high: int) -> np.uint64:
    """The number in which the bits [low, high) are set."""
    return np.uint64((1 << high) - (1 << low))


def _neighbours(ordered: np.ndarray, bound: np.uint64, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of numbers, (n,) ascending, that differ in at most ``most`` bits and in none above the bits of ``bound``."""
    for start in range(0, len(ordered) - 1, _SORTED):
        stretch = ordered[start : start + _SORTED + 1]
        at = np.flatnonzero((stretch[1:] ^ stretch[:-1]) <= bound) + start
        step = 1
        while len(at):
            near = np.bitwise_count(ordered[at] ^ ordered[at + step]) <= most
            yield ordered[at[near]], ordered[at[near] + step]
            step += 1
            at = at[at < len(ordered) - step]
            at = at[(ordered[at] ^ ordered[at + step]) <= bound]


def _cost(rows: int, count: int, most: int) -> float:
    """Estimated work for uniformly distributed hashes; sorting a table costs as much as two comparisons per row."""
    return math.comb(count, most) * rows * (2 + rows / 2 ** (1 + _BITS * (count - most) / count))


def _expanded(first: np.ndarray, last: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pair each index i with every index in [first[i], last[i]), about ``_PAIRS`` pairs at a time."""
    rows = np.flatnonzero(last > first)
    counts = (last - first)[rows]
    ends = np.cumsum(counts)
    cuts = np.searchsorted(ends, np.arange(0, ends[-1] if len(ends) else 0, _PAIRS))
    for start, stop in itertools.pairwise([*np.unique(cuts).tolist(), len(rows)]):
        times = counts[start:stop]
        within = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        yield np.repeat(rows[start:stop], times), np.repeat(first[rows[start:stop]], times) + within


# ------------------------------------------------------------------------------------------------------------- vectors


class Stacked:
    """Vectors of consecutive parts, by row number; memory-mapped parts are not copied."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._ends = np.cumsum([len(part) for part in self._parts])
        if any(part.ndim != 2 or part.shape[1] != self._parts[0].shape[1] for part in self._parts):
            raise ValueError(f"vectors have the shapes {sorted({part.shape[1:] for part in self._parts})}: expected one width")

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Unit vectors (n, d) float32 of rows (n,); NaN for vectors of length 0 or not finite."""
        out = np.empty((len(rows), self._parts[0].shape[1] if self._parts else 0), dtype=np.float32)
        number = np.searchsorted(self._ends, rows, side="right")
        for each in np.unique(number):
            mine = number == each
            out[mine] = self._parts[each][rows[mine] - (self._ends[each] - len(self._parts[each]))]
        lengths = np.sqrt(summed_products(out.T, out.T))
        lengths[(lengths == 0) | ~np.isfinite(lengths)] = np.nan
        return (out / lengths[:, None]).astype(np.float32)


def vector_pairs(
    vectors: Stacked, rows: np.ndarray, keys: Sequence[str], min_cosine: float, search: VectorSearch, *, device: str = "cpu"
) -> Iterator[Pairs]:
    """Find pairs of rows whose cosine is at least ``min_cosine``.

    Args:
        vectors: vectors of all rows.
        rows: (n,) int64, the rows to compare, ascending.
        keys: keys of these rows, by which ivf draws its samples.
        min_cosine: the threshold.
        search: search settings.
        device: ``cuda`` lets a GPU nominate pairs, if faiss was built for it. The result is the same.
    """
    flat = search.kind == "flat" or (search.kind == "auto" and len(rows) <= search.flat_rows)
    index = _index(vectors, rows, keys, search, flat=flat)
    on_gpu = _on_gpu(index, device)
    floor = min_cosine - vectors.take(rows[:1]).shape[1] * 2 * UNIT_ROUNDOFF - (0.0 if flat else _HALF)
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = vectors.take(rows[start : start + _BLOCK_ROWS])
        placed = np.where(np.isnan(block), 0, block)  # vectors without direction: all products 0, and rejected later
        for each in (index, on_gpu):
            if each is not None:
                each.add(placed)
        left, right = _nominated(index, on_gpu, placed, floor)
        once = right < left + start
        yield from _decided(vectors, block, start, rows, left[once], right[once], min_cosine)
    if not flat:
        _tell_recall(vectors, rows, keys, index, floor, min_cosine, search)


def _index(vectors: Stacked, rows: np.ndarray, keys: Sequence[str], search: VectorSearch, *, flat: bool) -> Any:
    """An empty faiss index; for ivf a trained one."""
    import faiss  # imported only when needed: the import takes a third of a second

    width = vectors.take(rows[:1]).shape[1]
    if flat:
        return faiss.IndexFlatIP(width)
    wanted = 2 ** round(math.log2(4 * math.sqrt(len(rows)))) if search.cells is None else search.cells
    cells = min(wanted, max(len(rows) // 39, 1))  # faiss asks for at least 39 rows per cell
    drawn = np.argsort(uniform(search.seed, "near_duplicates", keys), kind="stable")[: 64 * cells]
    sample = vectors.take(rows[np.sort(drawn)])
    index: Any = faiss.index_factory(width, f"IVF{cells},SQfp16", faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = search.seed + 1  # faiss treats 0 as no seed
    index.nprobe = min(search.probes, cells)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # so that the means of cells are summed in one fixed order
    try:
        index.train(np.where(np.isnan(sample), 0, sample))
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def _on_gpu(index: Any, device: str) -> Any:
    """A copy of an empty index on the GPU; None where faiss can use no GPU."""
    import faiss

    if not device.startswith("cuda") or not faiss_uses_gpu():
        return None
    number = int(device.partition(":")[2] or 0)
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), number, index)


def _nominated(index: Any, on_gpu: Any, block: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices in the block and in the index of all pairs whose product may be above ``floor``."""
    if on_gpu is None:
        return _ranged(index, block, floor)
    scores, ids = on_gpu.search(block, _NEAREST)  # faiss has no range search on GPUs
    full = scores[:, -1] > floor
    left, place = np.nonzero((scores > floor) & (ids >= 0) & ~full[:, None])
    again, right = _ranged(index, block[full], floor)
    return np.concatenate([left, np.flatnonzero(full)[again]]), np.concatenate([ids[left, place], right])


def _ranged(index: Any, block: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    limits, _, ids = index.range_search(block, floor)
    return np.repeat(np.arange(len(block)), np.diff(limits.astype(np.int64))), ids


def _decided(
    vectors: Stacked,
    block: np.ndarray,
    start: int,
    rows: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    min_cosine: float,
) -> Iterator[Pairs]:
    """Nominated pairs whose cosine reaches the threshold; ``left`` are indices in the block, ``right`` in ``rows``."""
    step = max(_PAIRS // (4 * max(block.shape[1], 1)), 1)
    for at in range(0, len(left), step):
        mine, others = left[at : at + step], right[at : at + step]
        there, back = np.unique(others, return_inverse=True)
        cosine = summed_products(block[mine].T, vectors.take(rows[there])[back].T)
        near = cosine >= min_cosine
        yield Pairs(rows[others[near]], rows[mine[near] + start], np.minimum(cosine[near], 1.0))


def _tell_recall(
    vectors: Stacked,
    rows: np.ndarray,
    keys: Sequence[str],
    index: Any,
    floor: float,
    min_cosine: float,
    search: VectorSearch,
) -> None:
    """Log the recall of ivf, measured on a sample of rows drawn by key."""
    drawn = np.sort(np.argsort(uniform(search.seed, "recall", keys), kind="stable")[:_CHECKED_ROWS])
    asked = vectors.take(rows[drawn])
    asked = np.where(np.isnan(asked), 0, asked)
    left, right = _ranged(index, asked, floor)
    found = sum(len(each.left) for each in _decided(vectors, asked, 0, rows, left, right, min_cosine))
    there = 0
    for start in range(0, len(rows), _BLOCK_ROWS):
        left, place = np.nonzero(asked @ vectors.take(rows[start : start + _BLOCK_ROWS]).T >= floor)
        there += sum(len(each.left) for each in _decided(vectors, asked, 0, rows, left, place + start, min_cosine))
    own = int((asked != 0).any(axis=1).sum())  # each row is near itself
    logging.getLogger("benchwright").warning(
        "near-duplicates: ivf is approximate: of %d near rows of %d rows drawn it found %d (recall %.3f); more probes: more",
        there - own,
        len(drawn),
        max(found - own, 0),
        max(found - own, 0) / (there - own) if there > own else 1.0,
    )
