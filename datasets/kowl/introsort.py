"""The sort order of numpy 1.23: KOWL's authors order new classes by ``numpy.argsort``, which is not stable.

The order of equal counts therefore depends on the algorithm. Theirs is introsort, the same on every machine; numpy 1.25 and
later use other algorithms on processors with AVX-512, later also with AVX2, and order equal counts differently.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_SMALL = 15


def introsort_order(values: Sequence[int] | np.ndarray) -> np.ndarray:
    """The result of ``numpy.argsort(values)`` in numpy 1.23 for integers, int64 (n,).

    Quicksort with the median of three, insertion sort for ranges of 16 or fewer, and heapsort where the recursion is deeper
    than twice the binary logarithm of the length.

    >>> introsort_order([2, 1] * 9).tolist()
    [17, 1, 15, 3, 5, 13, 7, 9, 11, 14, 12, 0, 16, 6, 4, 2, 10, 8]
    """
    v: list[int] = np.asarray(values).tolist()
    at = list(range(len(v)))
    left = [(0, len(v) - 1, 2 * (len(v).bit_length() - 1))]
    while left:
        low, high, depth = left.pop()
        if depth < 0:
            at[low : high + 1] = _heapsorted(v, at[low : high + 1])
            continue
        while high - low > _SMALL:
            cut = _partition(v, at, low, high)
            depth -= 1
            # The larger side goes on the stack, so that the stack stays small.
            if cut - low < high - cut:
                left.append((cut + 1, high, depth))
                high = cut - 1
            else:
                left.append((low, cut - 1, depth))
                low = cut + 1
        _insert(v, at, low, high)
    return np.asarray(at, dtype=np.int64)


def _partition(v: list[int], at: list[int], low: int, high: int) -> int:
    """Partition around the median of three: smaller values left of the returned position, larger ones right of it."""
    middle = low + ((high - low) >> 1)
    for a, b in ((low, middle), (middle, high), (low, middle)):
        if v[at[b]] < v[at[a]]:
            at[a], at[b] = at[b], at[a]
    pivot = v[at[middle]]
    i, j = low, high - 1
    at[middle], at[j] = at[j], at[middle]
    while True:
        i += 1
        while v[at[i]] < pivot:
            i += 1
        j -= 1
        while pivot < v[at[j]]:
            j -= 1
        if i >= j:
            break
        at[i], at[j] = at[j], at[i]
    at[i], at[high - 1] = at[high - 1], at[i]
    return i


def _insert(v: list[int], at: list[int], low: int, high: int) -> None:
    for i in range(low + 1, high + 1):
        row, j = at[i], i
        while j > low and v[row] < v[at[j - 1]]:
            at[j] = at[j - 1]
            j -= 1
        at[j] = row


def _heapsorted(v: list[int], some: list[int]) -> list[int]:
    heap = some.copy()
    for root in range(len(heap) // 2 - 1, -1, -1):
        _sift(v, heap, root, len(heap))
    for end in range(len(heap) - 1, 0, -1):
        row, heap[end] = heap[end], heap[0]
        heap[0] = row
        _sift(v, heap, 0, end)
    return heap


def _sift(v: list[int], heap: list[int], root: int, size: int) -> None:
    """Sift the row at ``root`` down until its children are no larger."""
    row, child = heap[root], 2 * root + 1
    while child < size:
        if child + 1 < size and v[heap[child]] < v[heap[child + 1]]:
            child += 1
        if v[row] >= v[heap[child]]:
            break
        heap[root] = heap[child]
        root, child = child, 2 * child + 1
    heap[root] = row
