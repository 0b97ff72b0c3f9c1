"""Exact inner-product top-k over blocks of vectors that need not fit in memory, with one order on every machine.

Float32 matrix products round differently with every BLAS, thread count and block size. They therefore only nominate rows:
every row that may still be among the k best, by a proven bound of the rounding error, is scored again in float64 with a
fixed order of summation, and these scores decide, ties going to the smaller id. The products of float32 numbers are exact
in float64, so the result depends only on the vectors.

A row is scored again if its first score passes a threshold that rises as better rows are seen. This is faster than a
k-selection over every block (``faiss.knn``), and ties at the threshold cannot be lost.
"""

from __future__ import annotations

import numpy as np

from .nominate import Knn, nominate

CHUNK_BYTES = 16 * 2**20
"""Bytes of float32 vectors per matrix product: enough for BLAS to be fast, few enough to stay in a cache."""

UNIT_ROUNDOFF = 2.0**-24
"""Half the distance from 1 to the next float32."""

LONGEST = 1e19
"""Length of a query above which its product with a vector could overflow float32."""

RESCORE_ROWS = 64
"""Number of vectors scored in float64 at a time, so that their products stay in the second-level cache."""


def inner_products(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Inner products in float64, the same to the last bit on any machine, see ``summed_products``.

    Args:
        vectors: (n, d), float16 or float32.
        query: (d,), float16 or float32.

    Returns:
        (n,) float64.

    >>> inner_products(np.array([[1.0, 0.0], [0.5, 0.25]], np.float32), np.array([2.0, 4.0], np.float32))
    array([2., 2.])
    """
    column = np.asarray(query, dtype=np.float64)[:, None]
    out = np.empty(len(vectors), dtype=np.float64)
    for start in range(0, len(vectors), RESCORE_ROWS):
        rows = vectors[start : start + RESCORE_ROWS]
        out[start : start + len(rows)] = summed_products(rows.T, column)
    return out


def summed_products(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Products of (d, n) and (d, n) or (d, 1) in float64, summed over d to (n,) by a binary tree, padded with zeros.

    The tree is made of elementwise additions, which IEEE 754 fixes to the last bit, so any machine gives the same numbers.
    ``np.dot`` and ``np.sum`` do not promise that: their order depends on the processor.
    """
    width, count = one.shape
    half = 1 << max(width - 1, 0).bit_length()
    sums = np.zeros((half, count))
    np.multiply(one, other, out=sums[:width], dtype=np.float64)
    while half > 1:
        half //= 2
        sums[:half] += sums[half : 2 * half]
    return sums[0]


def squared_norms(vectors: np.ndarray) -> np.ndarray:
    """Squared lengths of contiguous float32 rows (n, d), float32 (n,); good to a few parts in a million, not bit-exact."""
    import faiss  # imported only when needed: the import takes a third of a second

    out = np.empty(len(vectors), dtype=np.float32)
    if len(vectors):
        norms = faiss.fvec_norms_L2sqr  # pyright: ignore[reportAttributeAccessIssue]
        norms(faiss.swig_ptr(out), faiss.swig_ptr(vectors), vectors.shape[1], len(vectors))
    return out


class TopK:
    """The k rows of largest inner product for each of several queries, over blocks that are added one after another.

    Memory: 16 bytes per query and k; copies of at most 2 k rows (or ``CHUNK_BYTES`` of them) from small blocks, which are
    merged; and temporarily the scores of the rows nominated in a block. Rows with a value that is not finite, or whose
    squared length is 0 or beyond float32, have no direction: they are never found, and ``result`` lists them.

    Args:
        queries: (q, d) float32, finite. For the k rows of *smallest* product, negate the queries and the scores.
        k: number of rows wanted per query, at least 1.
        knn: a search that nominates rows instead of the matrix products, if proven to lose none; see ``nominate``.

    Raises:
        ValueError: queries of another shape, too long or with values that are not finite, or k < 1.

    >>> found = TopK(np.array([[1.0, 0.0]], np.float32), k=2)
    >>> found.add(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], np.float32), ids=np.arange(3))
    >>> scores, ids, without_direction = found.result()
    >>> scores.round(2), ids
    (array([[1. , 0.6]]), array([[0, 2]]))
    """

    def __init__(self, queries: np.ndarray, k: int, knn: Knn | None = None) -> None:
        self._queries = np.ascontiguousarray(queries, dtype=np.float32)
        if self._queries.ndim != 2 or self._queries.shape[1] == 0:
            raise ValueError(f"queries have shape {np.shape(queries)}: expected (number of queries, width)")
        if not np.isfinite(self._queries).all():
            raise ValueError(f"query {np.argwhere(~np.isfinite(self._queries))[0][0]} has a value that is not finite")
        if k < 1:
            raise ValueError(f"k is {k}: it must be at least 1")
        norms = np.linalg.norm(self._queries.astype(np.float64), axis=1)
        if norms.max(initial=0) > LONGEST:
            raise ValueError(f"query {norms.argmax()} has length {norms.max():.3g}: beyond {LONGEST:.0e} float32 overflows")
        self._k, self._knn = k, knn
        count, width = self._queries.shape
        # |fl(x.q) - x.q| <= gamma(d) |x||q| for any order of summation, with or without fused multiply-add
        # (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1); doubled for the rounded norms.
        gamma = width * UNIT_ROUNDOFF / (1 - width * UNIT_ROUNDOFF)
        self._slack = 2 * gamma * norms
        self._underflow = width * float(np.finfo(np.float32).tiny)
        self._scores = [np.empty(0, dtype=np.float64) for _ in range(count)]
        self._ids = [np.empty(0, dtype=np.int64) for _ in range(count)]
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._bad: list[np.ndarray] = []

    def add(self, block: np.ndarray, ids: np.ndarray) -> None:
        """Add a block of rows.

        Args:
            block: (n, d) float32 or float16, memory-mapped or not; read once, and nominated rows a second time.
            ids: (n,) int64, unique over all blocks. The smaller of two ids wins a tie.

        Raises:
            ValueError: a block of another width or type, or not one id per row.
        """
        if block.ndim != 2 or block.shape[1] != self._queries.shape[1] or block.dtype.name not in ("float32", "float16"):
            raise ValueError(
                f"a block is {block.dtype} {block.shape}; expected float32 or float16 of (n, {self._queries.shape[1]})"
            )
        if len(ids) != len(block):
            raise ValueError(f"{len(ids)} ids for the {len(block)} rows of a block: expected one id a row")
        enough = max(2 * self._k, CHUNK_BYTES // (4 * block.shape[1]))
        if len(block) >= enough:
            self._take(block, ids)
            return
        # Merging a few new rows with the k old ones costs more than scoring them: small blocks wait.
        self._waiting.append((np.array(block), ids))
        if sum(len(waiting) for _, waiting in self._waiting) >= enough:
            self._take_waiting()

    def _take_waiting(self) -> None:
        if self._waiting:
            blocks, ids = zip(*self._waiting, strict=True)
            self._waiting = []
            self._take(np.concatenate(blocks), np.concatenate(ids))

    def _take(self, block: np.ndarray, ids: np.ndarray) -> None:
        bars = [s[-1] if len(s) == self._k else -np.inf for s in self._scores]
        nominated = self._searched(block, bars)
        if nominated is None:
            nominated = self._scanned(block, ids, bars)
        for query, found in enumerate(nominated):
            self._merge(query, inner_products_of(block, found, self._queries[query]), ids[found])

    def _searched(self, block: np.ndarray, bars: list[float]) -> list[np.ndarray] | None:
        """Rows nominated by ``knn``; None without ``knn``, or if it cannot be proven to lose none."""
        if self._knn is None:
            return None
        vectors = np.ascontiguousarray(block, dtype=np.float32)
        squares = squared_norms(vectors)
        if not (np.isfinite(squares) & (squares > 0)).all():
            return None
        longest = 1.01 * float(np.sqrt(squares.max(initial=0)))  # the squares are rounded
        return nominate(self._knn, self._queries, vectors, self._k, longest, np.array(bars))

    def _scanned(self, block: np.ndarray, ids: np.ndarray, bars: list[float]) -> list[np.ndarray]:
        """Rows nominated by matrix products, chunk by chunk; records rows without a direction."""
        nominees = _Nominees(self._k, bars)
        rows = max(256, CHUNK_BYTES // (4 * block.shape[1]))
        for start in range(0, len(block), rows):
            chunk = np.ascontiguousarray(block[start : start + rows], dtype=np.float32)
            squares = squared_norms(chunk)
            good = np.isfinite(squares) & (squares > 0)
            self._bad.append(ids[start : start + len(chunk)][~good])
            if not good.any():
                continue
            with np.errstate(invalid="ignore", over="ignore"):
                approximate = chunk @ self._queries.T
            if not good.all():
                approximate[~good] = np.nan
            slack = self._slack * np.sqrt(float(squares[good].max())) + self._underflow
            nominees.add(approximate, slack, start)
        return nominees.finish()

    def _merge(self, query: int, scores: np.ndarray, ids: np.ndarray) -> None:
        scores = np.concatenate([self._scores[query], scores])
        ids = np.concatenate([self._ids[query], ids])
        order = np.lexsort((ids, -scores))[: self._k]
        self._scores[query], self._ids[query] = scores[order], ids[order]

    def result(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the k best rows of each query.

        Returns:
            Scores (q, k) float64, descending; ids (q, k) int64; and the ids of rows without a direction, int64, ascending.
            If fewer than k rows exist, -inf and -1 fill the rest.
        """
        self._take_waiting()
        scores = np.full((len(self._queries), self._k), -np.inf)
        ids = np.full((len(self._queries), self._k), -1, dtype=np.int64)
        for query, (found_scores, found_ids) in enumerate(zip(self._scores, self._ids, strict=True)):
            scores[query, : len(found_scores)] = found_scores
            ids[query, : len(found_ids)] = found_ids
        return scores, ids, np.sort(np.concatenate([np.empty(0, dtype=np.int64), *self._bad]))


def inner_products_of(block: np.ndarray, rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """``inner_products`` of some rows of a block (n, d), gathered a few at a time: (len(rows),) float64."""
    step = 16 * RESCORE_ROWS
    parts = [inner_products(block[rows[i : i + step]], query) for i in range(0, len(rows), step)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.float64)


class _Nominees:
    """Rows of one block that may be among the k best, by bounds of their scores."""

    def __init__(self, k: int, bars: list[float]) -> None:
        self._k = k
        self._bars = np.asarray(bars, dtype=np.float64)
        self._rows: list[list[np.ndarray]] = [[] for _ in bars]
        self._lows: list[list[np.ndarray]] = [[] for _ in bars]
        self._highs: list[list[np.ndarray]] = [[] for _ in bars]
        self._counts = [0] * len(bars)

    def add(self, approximate: np.ndarray, slack: np.ndarray, start: int) -> None:
        """Nominate rows of a chunk whose true score, at most ``approximate + slack``, may reach the bar of the query.

        A comparison with NaN is false, so rows that are not finite are never nominated.
        """
        # Rounded down to float32, so that the fast comparison cannot lose a row.
        bars = np.nextafter((self._bars - slack).astype(np.float32), np.float32(-np.inf))
        rows, queries = np.nonzero(approximate >= bars)
        if not len(rows):
            return
        values = approximate[rows, queries].astype(np.float64)
        order = np.argsort(queries, kind="stable")
        ends = np.searchsorted(queries[order], np.arange(len(bars) + 1))
        for query in np.unique(queries):
            chosen = order[ends[query] : ends[query + 1]]
            self._rows[query].append(rows[chosen] + start)
            self._lows[query].append(values[chosen] - slack[query])
            self._highs[query].append(values[chosen] + slack[query])
            self._counts[query] += len(chosen)
            if self._counts[query] > 2 * self._k:
                self._thin(query)

    def _thin(self, query: int) -> None:
        rows, lows, highs = (np.concatenate(x[query]) for x in (self._rows, self._lows, self._highs))
        if len(lows) > self._k:
            # At least k rows score this much, so a row that cannot reach it is dropped.
            self._bars[query] = max(self._bars[query], np.partition(lows, -self._k)[-self._k])
        keep = highs >= self._bars[query]
        self._rows[query], self._lows[query], self._highs[query] = [rows[keep]], [lows[keep]], [highs[keep]]
        self._counts[query] = int(keep.sum())

    def finish(self) -> list[np.ndarray]:
        """For each query the rows of the block that must be scored exactly; ascending."""
        for query, count in enumerate(self._counts):
            if count:
                self._thin(query)
        return [np.concatenate(rows) if rows else np.empty(0, dtype=np.int64) for rows in self._rows]
