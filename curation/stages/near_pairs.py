"""Pairs of near-equal rows, by hashes or by vectors: every pair whose similarity reaches a threshold, in batches.

Hashes: sorted tables (Manku, Jain and Das Sarma, WWW 2007). If 64 bits are cut into m blocks, two hashes that differ in at
most r bits are equal in m - r blocks: for every choice of m - r blocks, hashes are sorted by those bits, and neighbours that
are equal in them are compared. No pair is missed. More hashes than fit in memory are first cut apart by one block, in a
temporary file, for each of the r + 1 blocks that may be the first in which a pair is equal; the tables of the other blocks
are then made for one piece after another, and fit the cache.

Vectors: all are compared, by faiss, or (IVF) those of the nearest cells, which faiss computes: one cell after another, so that
vectors stay in the files of their parts. Products are float32; float64 sums in one fixed order decide, so that the result does
not depend on the processor.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ..rng import uniform
from .nominate import faiss_uses_gpu
from .spill import SpillableArray, SpilledNumbers
from .topk import UNIT_ROUNDOFF, summed_products

_BITS = 64
_MOST_BLOCKS = 16
"""A hash is cut into fewer blocks than this number plus the number of bits that may differ."""

HELD_HASHES = 1 << 18
"""Maximum number of hashes that are compared in memory at once; more are cut apart, in a temporary file."""

_CUT_BITS, _MOST_CUT_BITS = 8, 10
"""Bits by which hashes are cut apart at a time: by their highest ones, and by those of a block at most."""

_SORTED = 1 << 15
"""Number of hashes compared with their neighbours at a time: these fit a cache."""

_FEW, _STEPS = 32, 4
"""If at most one in so many have a neighbour to be compared with, only these are gathered; asked once in so many steps."""

_PAIRS = 1 << 22
"""Number of pairs handled at a time, which bounds the memory."""

_BLOCK_ROWS = 1 << 12
_DRAWN_KEYS = 1 << 18
_CELL_GROUPS = 1 << 8
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
        codes: uint64 (n, words), one word per picture or frame; no two rows equal.
        max_distance: maximum number of differing bits, of 64.

    Yields:
        Pairs; each pair only once if hashes have one word.

    >>> codes = np.array([[0b0000], [0b0011], [0b1111]], np.uint64)
    >>> [(pair.left.tolist(), pair.right.tolist()) for pair in hash_pairs(codes, 2) if len(pair.left)][0]
    ([0, 1], [1, 2])
    """
    words = list(codes.T)
    for word in range(len(words)):
        yield from _near_pairs(words, word, max_distance, _blocks(len(codes), max_distance))


def numbered_hash_pairs(rows: Iterable[Sequence[np.ndarray]], count: int, max_distance: int) -> Iterator[Pairs]:
    """Find pairs of rows whose hashes are equal or near, as ``hash_pairs`` does, in memory that does not grow with the rows.

    Args:
        rows: the columns of rows, in any number of pieces: one uint64 (n,) for each word of a hash, then row numbers (n,).
        count: number of rows, or more.
        max_distance: maximum number of differing bits, of 64.

    Yields:
        Pairs of row numbers. Of rows of one hash, each is in a pair with the same one of them, and only that one is compared
        with rows of other hashes.

    >>> words, numbers = np.array([0b0000, 0b0000, 0b1111], np.uint64), np.array([5, 6, 7])
    >>> [(pair.left.tolist(), pair.right.tolist()) for pair in numbered_hash_pairs([[words, numbers]], 3, 4) if len(pair.left)]
    [([5], [6]), ([5], [7])]
    """
    held, words = SpilledNumbers(1), 0
    for columns in _stretches(rows, count):
        equal, columns = _distinct(columns)
        yield equal
        if count <= HELD_HASHES:
            *words, numbers = columns
            for pair in hash_pairs(np.stack(words, axis=1), max_distance):
                yield Pairs(numbers[pair.left], numbers[pair.right], pair.similarity)
            return
        held.add(np.zeros(len(columns[0]), dtype=np.uint16), columns)
        words = len(columns) - 1
    distinct = int(held.counts[0])
    for word in range(words):
        yield from _apart(lambda: held.blocks(0), distinct, word, max_distance, _blocks(distinct, max_distance))


def _stretches(rows: Iterable[Sequence[np.ndarray]], count: int, below: int = _BITS) -> Iterator[list[np.ndarray]]:
    """Rows in stretches of at most ``HELD_HASHES``, more only if all have one first word; those of one hash are in one.

    All rows are equal in the bits of the first word from ``below`` on.
    """
    if count <= HELD_HASHES or not below:
        if pieces := list(rows):
            yield [np.concatenate(column) for column in zip(*pieces, strict=True)]
        return
    cuts = SpilledNumbers(1 << _CUT_BITS)
    for columns in rows:
        cuts.add(columns[0] >> np.uint64(below - _CUT_BITS) & _bits(0, _CUT_BITS), columns)
    for number in range(1 << _CUT_BITS):
        yield from _stretches(cuts.blocks(number), int(cuts.counts[number]), below - _CUT_BITS)


def _distinct(columns: list[np.ndarray]) -> tuple[Pairs, list[np.ndarray]]:
    """Pairs of rows of equal hashes, and one row of each hash."""
    *words, numbers = columns
    order = np.argsort(words[0]) if len(words) == 1 else np.lexsort(words)
    columns = [column[order] for column in columns]
    *words, numbers = columns
    new = np.ones(len(numbers), dtype=bool)
    new[1:] = np.logical_or.reduce([word[1:] != word[:-1] for word in words])
    starts, again = np.flatnonzero(new), np.flatnonzero(~new)
    first = numbers[starts[np.searchsorted(starts, again) - 1]]
    return Pairs(first, numbers[again], np.ones(len(again))), [column[new] for column in columns]


def _apart(
    rows: Callable[[], Iterable[list[np.ndarray]]],
    count: int,
    word: int,
    most: int,
    blocks: Sequence[tuple[int, int]],
    equal: tuple[int, ...] = (),
) -> Iterator[Pairs]:
    """Pairs of rows that are near in a word, equal in the blocks ``equal``, and in no other before the last of these.

    More rows than fit in memory are cut apart by the next block in which a pair may be equal.
    """
    if most < 1:
        return
    if count <= HELD_HASHES or len(equal) == len(blocks) - most:
        *words, numbers = (np.concatenate(column) for column in zip(*rows(), strict=True))
        for pair in _near_pairs(words, word, most, blocks, equal):
            yield Pairs(numbers[pair.left], numbers[pair.right], pair.similarity)
        return
    for block in range(equal[-1] + 1 if equal else 0, most + len(equal) + 1):
        low, high = blocks[block]
        bits = min(high - low, (4 * count // HELD_HASHES).bit_length(), _MOST_CUT_BITS)
        cuts = SpilledNumbers(1 << bits)
        for columns in rows():
            cuts.add(columns[word] >> np.uint64(high - bits) & _bits(0, bits), columns)
        for number, some in enumerate(cuts.counts.tolist()):
            if some > 1:
                yield from _apart(functools.partial(cuts.blocks, number), some, word, most, blocks, (*equal, block))


def _near_pairs(
    words: Sequence[np.ndarray], word: int, most: int, blocks: Sequence[tuple[int, int]], equal: tuple[int, ...] = ()
) -> Iterator[Pairs]:
    """Pairs of rows of different hashes that are near in a word, and near on average; for ``equal`` see ``_apart``."""
    if len(words) == 1:
        for left, right in _near_numbers(words[0], most, blocks, equal):
            yield Pairs(left, right, 1 - np.bitwise_count(words[0][left] ^ words[0][right]) / _BITS)
        return
    for left, right in _near_in(words[word], most, blocks, equal):  # near on average is near in at least one word
        distance = np.zeros(len(left), dtype=np.int64)
        for each in words:
            distance += np.bitwise_count(each[left] ^ each[right])
        near = distance <= most * len(words)
        yield Pairs(left[near], right[near], 1 - distance[near] / (_BITS * len(words)))


def _near_in(
    column: np.ndarray, most: int, blocks: Sequence[tuple[int, int]], equal: tuple[int, ...]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of rows whose numbers (n,) uint64 are equal or differ in at most ``most`` bits; for ``equal`` see ``_apart``."""
    order = np.argsort(column, kind="stable")
    values, starts = np.unique(column[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    if equal == tuple(range(len(equal))):  # numbers that are equal have no unequal block
        for left, right in _expanded(np.arange(1, len(order) + 1), np.repeat(ends, ends - starts)):
            yield order[left], order[right]
    for one, other in _near_numbers(values, most, blocks, equal):
        for pair, left in _expanded(starts[one], ends[one]):
            for at, right in _expanded(starts[other[pair]], ends[other[pair]]):
                yield order[left[at]], order[right]


def _blocks(count: int, most: int) -> list[tuple[int, int]]:
    """The blocks of bits [low, high) into which so many hashes are cut."""
    parts = min(range(most + 1, most + _MOST_BLOCKS), key=lambda parts: _cost(count, parts, most))
    return [(_BITS * n // parts, _BITS * (n + 1) // parts) for n in range(parts)]


def _near_numbers(
    values: np.ndarray, most: int, blocks: Sequence[tuple[int, int]], equal: tuple[int, ...]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices of the pairs of numbers, (n,) uint64, no two equal, that differ in at most ``most`` bits; each pair once.

    For ``equal`` see ``_apart``.
    """
    if most < 1 or len(values) < 2:
        return
    count, numbered = len(blocks), (len(values) - 1).bit_length()
    varying = int(np.bitwise_or.reduce(values ^ values[0]))
    widths = [(varying >> low & (1 << high - low) - 1).bit_length() for low, high in blocks]
    for more in itertools.combinations(range(equal[-1] + 1 if equal else 0, count), count - most - len(equal)):
        chosen = (*equal, *more)
        # Sorted by the bits of the chosen blocks that vary, and by row: both in one number, of 32 bits if they fit.
        keyed, left = list[tuple[int, int]](), _BITS - numbered
        for n in chosen:
            keyed.append((blocks[n][0] + widths[n] - min(widths[n], left), min(widths[n], left)))
            left -= keyed[-1][1]
        kind = np.dtype(np.uint32 if left >= _BITS // 2 else np.uint64)
        keys, at = np.arange(len(values), dtype=kind), numbered
        for low, width in keyed:
            if width:
                keys |= (values >> np.uint64(low) & _bits(0, width)).astype(kind) << kind.type(at)
                at += width
        keys.sort()
        rows = (keys & kind.type((1 << numbered) - 1)).astype(np.int64)
        # A pair that is equal in more blocks is yielded only for the first choice of blocks.
        same = np.bitwise_or.reduce([_bits(*blocks[n]) for n in chosen])
        before = [_bits(*blocks[n]) for n in range(chosen[-1]) if n not in chosen]
        for place, other in _neighbours(keys, numbered, values.take(rows), most):
            one, two = rows[place], rows[other]
            differ = values[one] ^ values[two]
            first = np.logical_and.reduce([differ & same == 0, *(differ & block != 0 for block in before)])
            yield one[first], two[first]


def _bits(low: int, high: int) -> np.uint64:
    """The number in which the bits [low, high) are set."""
    return np.uint64((1 << high) - (1 << low))


def _neighbours(keys: np.ndarray, numbered: int, values: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places of the pairs of values, (n,), that differ in at most ``most`` bits.

    Their keys, (n,) ascending, are equal but for the lowest ``numbered`` bits.
    """
    same, count = keys.dtype.type((1 << numbered) - 1), len(keys)
    room, distances = np.empty(min(_SORTED, count), dtype=np.uint64), np.empty(min(_SORTED, count), dtype=np.uint8)
    for start in range(0, count - 1, _SORTED):
        step, stop = 1, min(start + _SORTED, count - 1)
        live = (keys[start + 1 : stop + 1] ^ keys[start:stop]) <= same
        while np.count_nonzero(live) > len(live) // _FEW:
            for _ in range(_STEPS):
                differ = np.bitwise_xor(values[start + step : stop + step], values[start:stop], out=room[: stop - start])
                near = np.bitwise_count(differ, out=distances[: stop - start]) <= most
                if near.any():
                    at = np.flatnonzero(near) + start
                    at = at[(keys[at] ^ keys[at + step]) <= same]
                    yield at, at + step
                step += 1
                stop = max(min(stop, count - step), start)
            live = (keys[start + step : stop + step] ^ keys[start:stop]) <= same
        at = np.flatnonzero(live) + start
        while len(at):
            near = np.bitwise_count(values[at] ^ values[at + step]) <= most
            if near.any():
                yield at[near], at[near] + step
            step += 1
            at = at[at < count - step]
            at = at[(keys[at] ^ keys[at + step]) <= same]


def _cost(rows: int, count: int, most: int) -> float:
    """Estimated work for uniformly distributed hashes; sorting a table costs as much as ten comparisons per row."""
    return math.comb(count, most) * rows * (10 + rows / 2 ** (1 + _BITS * (count - most) / count))


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
        self._parts = [np.asarray(part) for part in parts if len(part)]
        self._ends = np.cumsum([len(part) for part in self._parts])
        if any(part.ndim != 2 or part.shape[1] != self._parts[0].shape[1] for part in self._parts):
            raise ValueError(f"vectors have the shapes {sorted({part.shape[1:] for part in self._parts})}: expected one width")

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Unit vectors (n, d) float32 of rows (n,); NaN for vectors of length 0 or not finite."""
        out = np.empty((len(rows), self._parts[0].shape[1] if self._parts else 0), dtype=np.float32)
        order = np.argsort(rows, kind="stable")
        bounds = np.searchsorted(rows[order], self._ends)
        numbers = np.flatnonzero(np.diff(bounds, prepend=0))
        for each, mine in zip(numbers, np.split(order, bounds[numbers])[: len(numbers)], strict=True):
            out[mine] = self._parts[each][rows[mine].astype(np.int64) - (self._ends[each] - len(self._parts[each]))]
        lengths = np.sqrt(summed_products(out.T, out.T))
        lengths[(lengths == 0) | ~np.isfinite(lengths)] = np.nan
        return (out / lengths[:, None]).astype(np.float32)


def vector_pairs(
    vectors: Stacked, rows: np.ndarray, keys: Iterable[str], min_cosine: float, search: VectorSearch, *, device: str = "cpu"
) -> Iterator[Pairs]:
    """Find pairs of rows whose cosine is at least ``min_cosine``.

    Args:
        vectors: vectors of all rows.
        rows: (n,) integers, the rows to compare, ascending.
        keys: keys of these rows, by which ivf draws its samples; iterated twice.
        min_cosine: the threshold.
        search: search settings.
        device: ``cuda`` lets a GPU nominate pairs, if faiss was built for it. The result is the same.
    """
    flat = search.kind == "flat" or (search.kind == "auto" and len(rows) <= search.flat_rows)
    index = _index(vectors, rows, keys, search, flat=flat)
    on_gpu = _on_gpu(index, device)
    floor = min_cosine - vectors.take(rows[:1]).shape[1] * 2 * UNIT_ROUNDOFF
    if not flat and on_gpu is None:
        cells = yield from _cell_pairs(vectors, rows, index, floor, min_cosine)
        _tell_recall(vectors, rows, keys, functools.partial(_probed, vectors, rows, index, cells), floor, min_cosine, search)
        return
    floor -= 0.0 if flat else _HALF
    for start in range(0, len(rows), _BLOCK_ROWS):
        mine = rows[start : start + _BLOCK_ROWS]
        block = vectors.take(mine)
        placed = _placed(block)
        for each in (index, on_gpu):
            if each is not None:
                each.add(placed)
        left, right = _nominated(index, on_gpu, placed, floor)
        once = right < left + start
        yield from _decided(vectors, block, mine, rows, left[once], right[once], min_cosine)
    if not flat:
        _tell_recall(vectors, rows, keys, functools.partial(_ranged, index), floor, min_cosine, search)


def _placed(vectors: np.ndarray) -> np.ndarray:
    """Vectors without direction as 0: all their products are 0, and they are rejected later."""
    return np.where(np.isnan(vectors), np.float32(0), vectors)


def _cell_pairs(
    vectors: Stacked, rows: np.ndarray, index: Any, floor: float, min_cosine: float
) -> Generator[Pairs, None, SpillableArray]:
    """Pairs of rows of which the earlier one is in a cell that is probed for the later one. Returns the cell of each row.

    Vectors are read for one cell after another: faiss would hold all of them.
    """
    cells, groups = SpillableArray(np.int32), min(index.nlist, _CELL_GROUPS)
    members, asking = (SpilledNumbers(groups, [np.int32, rows.dtype]) for _ in range(2))
    for start in range(0, len(rows), _BLOCK_ROWS):
        mine = rows[start : start + _BLOCK_ROWS]
        block = _placed(vectors.take(mine))
        own, probed = (index.quantizer.search(block, count)[1] for count in (1, index.nprobe))
        cells.append(own[:, 0])
        members.add(own[:, 0] * groups // index.nlist, [own[:, 0], mine])
        asking.add(probed.ravel() * groups // index.nlist, [probed.ravel(), np.repeat(mine, probed.shape[1])])
    for group in range(groups):
        inside, asked = _by_cell(members.take(group)), _by_cell(asking.take(group))
        for cell, held in inside.items():
            for first in range(0, len(held), _BLOCK_ROWS):
                right = held[first : first + _BLOCK_ROWS]
                later = asked.get(cell, right[:0])
                later = later[np.searchsorted(later, right[0], side="right") :]
                if not len(later):
                    continue
                others = _placed(vectors.take(right))
                for start in range(0, len(later), _BLOCK_ROWS // 2):
                    mine = later[start : start + _BLOCK_ROWS // 2]
                    block = vectors.take(mine)
                    left, place = np.nonzero((_placed(block) @ others.T > floor) & (right < mine[:, None]))
                    yield from _decided(vectors, block, mine, right, left, place, min_cosine)
    return cells


def _by_cell(columns: list[np.ndarray]) -> dict[int, np.ndarray]:
    """The rows of each cell, ascending, from the cells and the rows."""
    cell, rows = columns
    order = np.argsort(cell, kind="stable")
    cell, first = np.unique(cell[order], return_index=True)
    return dict(zip(cell.tolist(), np.split(rows[order], first[1:]), strict=True)) if len(cell) else {}


def _probed(
    vectors: Stacked, rows: np.ndarray, index: Any, cells: SpillableArray, asked: np.ndarray, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """As ``_ranged``, of rows in the cells that are probed."""
    probed = np.zeros((len(asked), index.nlist), dtype=bool)
    np.put_along_axis(probed, index.quantizer.search(asked, index.nprobe)[1], True, axis=1)
    found = [np.empty((2, 0), dtype=np.int64)]
    for start in range(0, len(rows), _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, len(rows))
        near = asked @ _placed(vectors.take(rows[start:stop])).T > floor
        left, place = np.nonzero(near & probed[:, cells[start:stop]])
        found.append(np.stack([left, place + start]))
    left, right = np.concatenate(found, axis=1)
    return left, right


def _drawn(seed: int, stage: str, keys: Iterable[str], count: int) -> np.ndarray:
    """Indices, ascending, of the keys of the smallest draws."""
    draws, indices, at = np.empty(0), np.empty(0, dtype=np.int64), 0
    keys = iter(keys)
    while some := list(itertools.islice(keys, _DRAWN_KEYS)):
        draws = np.concatenate([draws, uniform(seed, stage, some)])
        indices = np.concatenate([indices, np.arange(at, at + len(some))])
        order = np.argsort(draws, kind="stable")[:count]
        draws, indices, at = draws[order], indices[order], at + len(some)
    return np.sort(indices)


def _index(vectors: Stacked, rows: np.ndarray, keys: Iterable[str], search: VectorSearch, *, flat: bool) -> Any:
    """An empty faiss index; for ivf a trained one."""
    import faiss  # imported only when needed: the import takes a third of a second

    width = vectors.take(rows[:1]).shape[1]
    if flat:
        return faiss.IndexFlatIP(width)
    wanted = 2 ** round(math.log2(4 * math.sqrt(len(rows)))) if search.cells is None else search.cells
    cells = min(wanted, max(len(rows) // 39, 1))  # faiss asks for at least 39 rows per cell
    drawn = rows[_drawn(search.seed, "near_duplicates", keys, 64 * cells)]
    sample = np.empty((len(drawn), width), dtype=np.float32)
    for start in range(0, len(drawn), _BLOCK_ROWS):
        sample[start : start + _BLOCK_ROWS] = _placed(vectors.take(drawn[start : start + _BLOCK_ROWS]))
    index: Any = faiss.index_factory(width, f"IVF{cells},SQfp16", faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = search.seed + 1  # faiss treats 0 as no seed
    index.nprobe = min(search.probes, cells)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # so that the means of cells are summed in one fixed order
    try:
        index.train(sample)
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
    return np.repeat(np.arange(len(block)), np.diff(limits.astype(np.int64))), ids.astype(np.int64)


def _decided(
    vectors: Stacked,
    block: np.ndarray,
    asked: np.ndarray,
    rows: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    min_cosine: float,
) -> Iterator[Pairs]:
    """Nominated pairs whose cosine reaches the threshold.

    ``left`` are indices in the block, which has the vectors of the rows ``asked``, and ``right`` in ``rows``.
    """
    step = max(_PAIRS // (4 * max(block.shape[1], 1)), 1)
    for at in range(0, len(left), step):
        mine, others = left[at : at + step], right[at : at + step]
        there, back = np.unique(others, return_inverse=True)
        cosine = summed_products(block[mine].T, vectors.take(rows[there])[back].T)
        near = cosine >= min_cosine
        yield Pairs(rows[others[near]], asked[mine[near]], np.minimum(cosine[near], 1.0))


def _tell_recall(
    vectors: Stacked,
    rows: np.ndarray,
    keys: Iterable[str],
    nominate: Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]],
    floor: float,
    min_cosine: float,
    search: VectorSearch,
) -> None:
    """Log the recall of ivf, measured on a sample of rows drawn by key."""
    drawn = rows[_drawn(search.seed, "recall", keys, _CHECKED_ROWS)]
    asked = _placed(vectors.take(drawn))
    left, right = nominate(asked, floor)
    found = sum(len(each.left) for each in _decided(vectors, asked, drawn, rows, left, right, min_cosine))
    there = 0
    for start in range(0, len(rows), _BLOCK_ROWS):
        left, place = np.nonzero(asked @ vectors.take(rows[start : start + _BLOCK_ROWS]).T >= floor)
        there += sum(len(each.left) for each in _decided(vectors, asked, drawn, rows, left, place + start, min_cosine))
    own = int((asked != 0).any(axis=1).sum())  # each row is near itself
    logging.getLogger("benchwright").warning(
        "near-duplicates: ivf is approximate: of %d near rows of %d rows drawn it found %d (recall %.3f); more probes: more",
        there - own,
        len(drawn),
        max(found - own, 0),
        max(found - own, 0) / (there - own) if there > own else 1.0,
    )
