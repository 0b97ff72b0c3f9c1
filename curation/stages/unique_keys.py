"""Take the first rows of a stage, each key once; find repeated keys and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from ..key_hashes import key_hashes
from ..rows import Sifted, sift
from .reorder import StoredRows
from .spill import SpilledNumbers


def take_first(rows: StoredRows, *, n: int | None = None) -> Iterator[Sifted]:
    """Keep the first row of every key, and of these the first ``n``, in their order. A ``whole`` step.

    Args:
        rows: rows with a column ``key``.
        n: number of rows to keep (CLEAR: 7,850,000); None for all.

    Yields:
        Kept rows; others are rejected as ``duplicate_key`` or ``beyond_first_n``. Memory: one part and the repeated
        keys; 64-bit hashes of many keys go through a temporary file, of 8 bytes per row.

    Raises:
        ValueError: ``n`` is negative.

    >>> import pyarrow as pa
    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": ["a", "b", "a", "c"]}))
    >>> kept, rejected = next(take_first(rows, n=2))
    >>> kept["key"].to_pylist(), rejected.select(["key", "reason"]).to_pylist()
    (['a', 'b'], [{'key': 'a', 'reason': 'duplicate_key'}, {'key': 'c', 'reason': 'beyond_first_n'}])
    """
    if n is not None and n < 0:
        raise ValueError(f"n is {n}: the number of rows to take is 0 or more")
    repeated = repeated_keys(lambda: (table["key"] for table in rows.batches(["key"])), rows.num_rows)
    at = taken = 0
    for table in rows.batches():
        count = table.num_rows
        again = repeated[np.searchsorted(repeated, at) : np.searchsorted(repeated, at + count)] - at
        duplicate = np.zeros(count, dtype=bool)
        duplicate[again] = True
        place = taken + np.cumsum(~duplicate)
        beyond = np.zeros(count, dtype=bool) if n is None else place > n
        yield sift(table, {"duplicate_key": duplicate, "beyond_first_n": beyond})
        at, taken = at + count, int(place[-1]) if count else taken


HELD_HASHES = 1 << 22
"""Maximum number of hashes that are sorted at a time; more are cut into ranges, in a temporary file."""


def repeated_keys(read: Callable[[], Iterable[pa.ChunkedArray]], count: int) -> np.ndarray:
    """Row numbers of keys that occurred before, ascending, int64. Hashes only find candidates; the keys decide.

    Args:
        read: returns all keys in order, in any number of arrays; called twice.
        count: number of keys.

    >>> repeated_keys(lambda: [pa.chunked_array([["a", "b"]]), pa.chunked_array([["a"]])], 3)
    array([2])
    """
    candidates = repeated_numbers(map(key_hashes, read()), count)
    found = [np.empty(0, dtype=np.int64)]
    if not len(candidates):
        return found[0]
    seen: set[str] = set()
    at = 0
    for keys in read():
        indices = indices_of(candidates, key_hashes(keys))
        again = np.zeros(len(indices), dtype=bool)
        for place, key in enumerate(keys.take(pa.array(indices)).to_pylist()):
            again[place] = key in seen
            seen.add(key)
        found.append(indices[again] + at)
        at += len(keys)
    return np.concatenate(found)


def repeated_numbers(numbers: Iterable[np.ndarray], count: int) -> np.ndarray:
    """Numbers that occur more than once, uint64, ascending. Memory does not grow with the numbers that occur once.

    Args:
        numbers: uint64, uniformly distributed as hashes are, in any number of arrays.
        count: of the numbers; above ``HELD_HASHES`` they go through a temporary file, of 8 bytes each.

    >>> repeated_numbers([np.array([3, 1], np.uint64), np.array([3], np.uint64)], 3)
    array([3], dtype=uint64)
    """
    bits = (max(count - 1, 0) // HELD_HASHES).bit_length()
    ranges = SpilledNumbers(1 << bits, [np.uint64])
    found = [np.empty(0, dtype=np.uint64)]
    for some in numbers:
        once, times = np.unique(some, return_counts=True)  # so that no range is filled by one number
        found.append(once[times > 1])
        ranges.add(once >> np.uint64(64 - bits), [once])
    for number in range(1 << bits):
        (some,) = ranges.take(number)
        some.sort()
        found.append(np.unique(some[1:][some[1:] == some[:-1]]))
    return np.unique(np.concatenate(found))


def indices_of(numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Indices, int64, of the values that are among ``numbers``, which must be ascending.

    Unlike ``numpy.isin``, it does not sort the numbers at every call.

    >>> indices_of(np.array([3, 7]), np.array([7, 1, 9, 3])).tolist()
    [0, 3]
    """
    if not len(numbers):
        return np.empty(0, dtype=np.int64)
    place = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
    return np.flatnonzero(numbers[place] == values)
