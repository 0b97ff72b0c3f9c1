"""Pairs of near-equal rows, by hashes or by vectors: every pair whose similarity reaches a threshold, in batches.

Hashes: sorted tables (Manku, Jain and Das Sarma, WWW 2007). Of 64 bits in m blocks, two hashes that differ in at most r bits
are equal in m - r blocks: for every choice of m - r blocks, hashes are sorted with those bits first, and neighbours that are
equal in them are compared. No pair is missed, and memory is two numbers a hash.

Vectors: faiss nominates by float32 products, exactly or (IVF) among the rows of the nearest cells; float64 sums in one fixed
order decide, so that what is found does not depend on the processor.
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
from .topk import UNIT_ROUNDOFF

_BITS = 64
_MOST_BLOCKS = 16
"""Into how many blocks a hash is cut at most, beyond the number of bits that may differ."""

_SORTED = 1 << 18
"""Hashes that are turned, or compared with their neighbours, at a time: a few megabytes, which a cache holds."""

_PAIRS = 1 << 22
"""Pairs that are looked at together, and so bound the memory."""

_BLOCK_ROWS = 1 << 12
_HALF = 2.0**-10
"""By how much a product of unit vectors may differ where one of them was rounded to float16."""

_NEAREST = 64
"""Neighbours of a row that a GPU returns; a row that has more is searched again without a GPU."""

_CHECKED_ROWS = 1000
"""Rows by which the recall of IVF is measured."""


class Pairs(NamedTuple):
    """Rows (n,) int64 that are near one another, each pair at least once, and how similar they are, (n,) float64 up to 1."""

    left: np.ndarray
    right: np.ndarray
    similarity: np.ndarray


@dataclass(frozen=True)
class VectorSearch:
    """How pairs of near vectors are searched for.

    Attributes:
        kind: ``flat`` compares all rows with all. ``ivf`` is APPROXIMATE: a row is compared with the rows of its ``probes``
            nearest cells; some pairs are missed, and the report gives the measured share. ``auto`` is ``flat`` up to
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
    """Pairs of different rows whose hashes differ in at most ``max_distance`` bits a word, on average over the words.

    Args:
        codes: uint64 (n, words), no two rows equal, ascending if there is one word: a word a picture or frame.
        max_distance: of 64 bits.

    Yields:
        Pairs, of hashes of one word each pair once.

    >>> codes = np.array([[0b0000], [0b0011], [0b1111]], np.uint64)
    >>> [(pair.left.tolist(), pair.right.tolist()) for pair in hash_pairs(codes, 2) if len(pair.left)][0]
    ([0, 1], [1, 2])
    """
    words = codes.shape[1]
    if words == 1:
        for left, right in _near_numbers(codes[:, 0], max_distance):
            yield Pairs(left, right, 1 - np.bitwise_count(codes[left, 0] ^ codes[right, 0]) / _BITS)
        return
    for word in range(words):  # hashes that are near on average are near in a word
        for left, right in _near_in(codes[:, word], max_distance):
            distance = np.bitwise_count(codes[left] ^ codes[right]).sum(axis=1, dtype=np.int64)
            near = distance <= max_distance * words
            yield Pairs(left[near], right[near], 1 - distance[near] / (_BITS * words))


def _near_in(column: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of rows whose numbers (n,) uint64 differ in at most ``most`` bits, or not at all."""
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
    """Places of the pairs of numbers (n,) uint64, ascending, that differ in 1 to ``most`` bits; each pair once."""
    if most < 1:
        return
    count = min(range(most + 1, most + _MOST_BLOCKS), key=lambda count: _cost(len(values), count, most))
    blocks = [(_BITS * n // count, _BITS * (n + 1) // count) for n in range(count)]
    for chosen in itertools.combinations(range(count), count - most):
        order = [*(blocks[n] for n in range(count) if n not in chosen), *(blocks[n] for n in chosen)]
        # A pair that is equal in more blocks is told of by the first choice alone.
        before = [_bits(*blocks[n]) for n in range(chosen[-1]) if n not in chosen]
        turned = _turned(values, order)
        turned.sort()
        bound = _bits(0, sum(blocks[n][1] - blocks[n][0] for n in range(count) if n not in chosen))
        for left, right in _neighbours(turned, bound, most):
            left, right = _turned(left, order, back=True), _turned(right, order, back=True)
            first = np.logical_and.reduce([(left ^ right) & block != 0 for block in before]) if before else slice(None)
            yield np.searchsorted(values, left[first]), np.searchsorted(values, right[first])


def _turned(values: np.ndarray, order: Sequence[tuple[int, int]], *, back: bool = False) -> np.ndarray:
    """The numbers with their blocks of bits [low, high) in the order of ``order``, from the lowest on; ``back``: undone."""
    moves, at = list[tuple[int, int, int]](), 0
    for low, high in order:
        width = high - low
        if moves and moves[-1][0] + moves[-1][2] == low:  # beside the block before: both are moved at once
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
    """The number whose bits from ``low`` to before ``high`` are set."""
    return np.uint64((1 << high) - (1 << low))


def _neighbours(ordered: np.ndarray, bound: np.uint64, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of the numbers (n,) ascending that differ in no bit above those of ``bound``, and in at most ``most`` bits."""
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
    """Work where hashes are spread evenly: each table is sorted, which takes as long as two comparisons of a row."""
    return math.comb(count, most) * rows * (2 + rows / 2 ** (1 + _BITS * (count - most) / count))


def _expanded(first: np.ndarray, last: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each place i with every place in [first[i], last[i]), about ``_PAIRS`` of them at a time."""
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
    """Vectors of consecutive parts, by row number: mapped files stay mapped."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._ends = np.cumsum([len(part) for part in self._parts])
        if any(part.ndim != 2 or part.shape[1] != self._parts[0].shape[1] for part in self._parts):
            raise ValueError(f"vectors have the shapes {sorted({part.shape[1:] for part in self._parts})}: expected one width")

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Unit vectors (n, d) float32 of rows (n,); NaN where a row has no direction."""
        out = np.empty((len(rows), self._parts[0].shape[1] if self._parts else 0), dtype=np.float32)
        number = np.searchsorted(self._ends, rows, side="right")
        for each in np.unique(number):
            mine = number == each
            out[mine] = self._parts[each][rows[mine] - (self._ends[each] - len(self._parts[each]))]
        lengths = np.sqrt(_sums(np.square(out.T, dtype=np.float64)))
        lengths[(lengths == 0) | ~np.isfinite(lengths)] = np.nan
        return (out / lengths[:, None]).astype(np.float32)


def _sums(terms: np.ndarray) -> np.ndarray:
    """Sums (n,) of the columns of terms (d, n) float64, by a binary tree of additions: the same on every machine."""
    width = len(terms)
    half = 1 << max(width - 1, 0).bit_length()
    sums = np.zeros((half, *terms.shape[1:]))
    sums[:width] = terms
    while half > 1:
        half //= 2
        sums[:half] += sums[half : 2 * half]
    return sums[0]


def vector_pairs(
    vectors: Stacked, rows: np.ndarray, keys: Sequence[str], min_cosine: float, search: VectorSearch, *, device: str = "cpu"
) -> Iterator[Pairs]:
    """Pairs of rows whose cosine is at least ``min_cosine``.

    Args:
        vectors: of all rows.
        rows: (n,) int64, those that are compared, ascending.
        keys: theirs, by which ivf draws.
        min_cosine: the threshold.
        search: how.
        device: ``cuda`` lets a GPU nominate, where faiss was built for it. What is found is the same.
    """
    flat = search.kind == "flat" or (search.kind == "auto" and len(rows) <= search.flat_rows)
    index = _index(vectors, rows, keys, search, flat=flat)
    on_gpu = _on_gpu(index, device)
    floor = min_cosine - vectors.take(rows[:1]).shape[1] * 2 * UNIT_ROUNDOFF - (0.0 if flat else _HALF)
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = vectors.take(rows[start : start + _BLOCK_ROWS])
        placed = np.where(np.isnan(block), 0, block)  # of no direction: a product of 0 with all, and never near
        for each in (index, on_gpu):
            if each is not None:
                each.add(placed)
        left, right = _nominated(index, on_gpu, placed, floor)
        once = right < left + start
        yield from _decided(vectors, block, start, rows, left[once], right[once], min_cosine)
    if not flat:
        _tell_recall(vectors, rows, keys, index, floor, min_cosine, search)


def _index(vectors: Stacked, rows: np.ndarray, keys: Sequence[str], search: VectorSearch, *, flat: bool) -> Any:
    """An empty index of faiss."""
    import faiss  # not before it is needed: its import takes a third of a second

    width = vectors.take(rows[:1]).shape[1]
    if flat:
        return faiss.IndexFlatIP(width)
    wanted = 2 ** round(math.log2(4 * math.sqrt(len(rows)))) if search.cells is None else search.cells
    cells = min(wanted, max(len(rows) // 39, 1))  # as many rows a cell faiss asks for
    drawn = np.argsort(uniform(search.seed, "near_duplicates", keys), kind="stable")[: 64 * cells]
    sample = vectors.take(rows[np.sort(drawn)])
    index: Any = faiss.index_factory(width, f"IVF{cells},SQfp16", faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = search.seed + 1  # faiss takes 0 for no seed
    index.nprobe = min(search.probes, cells)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # so that what adds up the means of cells does so in one order
    try:
        index.train(np.where(np.isnan(sample), 0, sample))
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def _on_gpu(index: Any, device: str) -> Any:
    """A copy of an empty index on the GPU; None without one, and where faiss was built for none."""
    import faiss

    if not device.startswith("cuda") or not getattr(faiss, "get_num_gpus", int)():
        return None
    number = int(device.partition(":")[2] or 0)
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), number, index)


def _nominated(index: Any, on_gpu: Any, block: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Places in the block, and in the index, of all pairs whose product may be above ``floor``."""
    if on_gpu is None:
        return _ranged(index, block, floor)
    scores, ids = on_gpu.search(block, _NEAREST)  # faiss has no search by range on GPUs
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
    """Of nominated pairs those whose cosine reaches the threshold; ``left`` are places in the block, ``right`` in ``rows``."""
    step = max(_PAIRS // (4 * max(block.shape[1], 1)), 1)
    for at in range(0, len(left), step):
        mine, others = left[at : at + step], right[at : at + step]
        there, back = np.unique(others, return_inverse=True)
        cosine = _sums(np.multiply(block[mine].T, vectors.take(rows[there])[back].T, dtype=np.float64))
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
    """Log how many of the near rows of some rows, drawn by key, ivf finds."""
    drawn = np.sort(np.argsort(uniform(search.seed, "recall", keys), kind="stable")[:_CHECKED_ROWS])
    asked = vectors.take(rows[drawn])
    asked = np.where(np.isnan(asked), 0, asked)
    left, right = _ranged(index, asked, floor)
    found = sum(len(each.left) for each in _decided(vectors, asked, 0, rows, left, right, min_cosine))
    there = 0
    for start in range(0, len(rows), _BLOCK_ROWS):
        left, place = np.nonzero(asked @ vectors.take(rows[start : start + _BLOCK_ROWS]).T >= floor)
        there += sum(len(each.left) for each in _decided(vectors, asked, 0, rows, left, place + start, min_cosine))
    own = int((asked != 0).any(axis=1).sum())  # each is near itself
    logging.getLogger("benchwright").warning(
        "near-duplicates: ivf is approximate: of %d near rows of %d rows drawn it found %d (recall %.3f); more probes: more",
        there - own,
        len(drawn),
        max(found - own, 0),
        max(found - own, 0) / (there - own) if there > own else 1.0,
    )
