"""Vectors of the rows of a stage, in the files of its parts, read as unit vectors."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..threads import ahead
from .topk import RESCORE_ROWS, summed_products


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
            np.divide(some, lengths_of(some)[:, None], out=some, casting="unsafe")
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


def lengths_of(vectors: np.ndarray) -> np.ndarray:
    """Lengths (n,) float64 of vectors (n, d), by sums in one fixed order; NaN for 0 or not finite."""
    lengths = np.sqrt(summed_products(vectors.T, vectors.T))
    lengths[(lengths == 0) | ~np.isfinite(lengths)] = np.nan
    return lengths


def placed(vectors: np.ndarray) -> np.ndarray:
    """The same vectors, those without direction (NaN) set to 0, in place: all their products are 0."""
    np.copyto(vectors, 0, where=np.isnan(vectors))
    return vectors


def blocks_of(take: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows (up to size,), and their vectors by ``take``, ``placed``, in blocks, each read while the one before is in use."""
    starts = range(0, len(rows), size)
    return ahead((mine, placed(take(mine))) for mine in (rows[start : start + size] for start in starts))
