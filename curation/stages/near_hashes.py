"""Pairs of rows whose hashes differ in few bits, all of them, in batches.

Sorted tables (Manku, Jain and Das Sarma, WWW 2007): if 64 bits are cut into m blocks, two hashes that differ in at most r bits
are equal in m - r blocks: for every choice of m - r blocks, hashes are sorted by those bits, and neighbours that are equal in
them are compared. No pair is missed. More hashes than fit in memory are first cut apart by one block, in a temporary file, for
each of the r + 1 blocks that may be the first in which a pair is equal; the tables of the other blocks are then made for one
piece after another, and fit the cache.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .spill import SpilledNumbers

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

PAIRS = 1 << 22
"""Number of pairs handled at a time, which bounds the memory."""


class Pairs(NamedTuple):
    """Pairs of near rows, (n,) int64 each, every pair at least once, and their similarities, (n,) float64 up to 1."""

    left: np.ndarray
    right: np.ndarray
    similarity: np.ndarray


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
    for columns in stretches(rows, count):
        equal, columns = distinct_rows(columns)
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


def stretches(rows: Iterable[Sequence[np.ndarray]], count: int, below: int = _BITS) -> Iterator[list[np.ndarray]]:
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
        yield from stretches(cuts.blocks(number), int(cuts.counts[number]), below - _CUT_BITS)


def distinct_rows(columns: list[np.ndarray]) -> tuple[Pairs, list[np.ndarray]]:
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
    """Pair each index i with every index in [first[i], last[i]), about ``PAIRS`` pairs at a time."""
    rows = np.flatnonzero(last > first)
    counts = (last - first)[rows]
    ends = np.cumsum(counts)
    cuts = np.searchsorted(ends, np.arange(0, ends[-1] if len(ends) else 0, PAIRS))
    for start, stop in itertools.pairwise([*np.unique(cuts).tolist(), len(rows)]):
        times = counts[start:stop]
        within = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        yield np.repeat(rows[start:stop], times), np.repeat(first[rows[start:stop]], times) + within
