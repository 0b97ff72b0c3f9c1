"""Take the first rows of a stage, each key once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..digest import key_hashes
from ..rows import Sifted, sift
from .reorder import StoredRows


def take_first(rows: StoredRows, *, n: int | None = None) -> Iterator[Sifted]:
    """The first row of every key, and of these the first ``n``, in the order in which they came. A ``whole`` step.

    Args:
        rows: of any columns.
        n: how many to keep (CLEAR: 7,850,000); None for all.

    Yields:
        Kept rows; ``duplicate_key`` and ``beyond_first_n`` are rejected. Memory: 8 bytes a row, and one part.

    Raises:
        ValueError: for a negative ``n``.

    >>> import pyarrow as pa
    >>> from benchwright.curation.store import Rows
    >>> rows = Rows.of(pa.table({"key": ["a", "b", "a", "c"]}))
    >>> kept, rejected = next(take_first(rows, n=2))
    >>> kept["key"].to_pylist(), rejected.select(["key", "reason"]).to_pylist()
    (['a', 'b'], [{'key': 'a', 'reason': 'duplicate_key'}, {'key': 'c', 'reason': 'beyond_first_n'}])
    """
    if n is not None and n < 0:
        raise ValueError(f"n is {n}: the number of rows to take is 0 or more")
    repeated = _repeated(rows)
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


def _repeated(rows: StoredRows) -> np.ndarray:
    """Indices of rows whose key stands on an earlier row, ascending, int64.

    Hashes only find candidates; equal keys decide.
    """
    hashes = np.empty(rows.num_rows, dtype=np.uint64)
    at = 0
    for table in rows.batches(["key"]):
        hashes[at : at + table.num_rows] = key_hashes(table["key"])
        at += table.num_rows
    hashes.sort()
    candidates = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    if not len(candidates):
        return np.empty(0, dtype=np.int64)
    seen: set[str] = set()
    found: list[int] = []
    at = 0
    for table in rows.batches(["key"]):
        for index in np.flatnonzero(np.isin(key_hashes(table["key"]), candidates)).tolist():
            key = table["key"][index].as_py()
            if key in seen:
                found.append(at + index)
            seen.add(key)
        at += table.num_rows
    return np.asarray(found, dtype=np.int64)
