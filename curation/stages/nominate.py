"""Candidates of a top-k search from an inexact search, such as faiss on a GPU, proven to contain the exact k best.

A GPU can save only the time of the matrix products: blocks must still be read from disk and copied to the GPU. The gain has
not been measured, and may be small.
"""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_LOGGER = logging.getLogger(__name__)

Knn = Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
"""Queries (q, d), vectors (n, d) and k -> inner products (q, k), descending, and row numbers (q, k), -1 for none."""

MOST = 2048
"""Maximum number of rows per query that faiss returns on a GPU."""

TF32 = 2.0**-10
"""Maximum relative error of a float32 number that a tensor core cuts or rounds to ten bits after the leading one."""


_TRIAL = """
import faiss, numpy
vectors = numpy.eye(8, dtype=numpy.float32)
resources = faiss.StandardGpuResources()
resources.noTempMemory()
faiss.knn_gpu(resources, vectors, vectors, 2, metric=faiss.METRIC_INNER_PRODUCT)
"""
_TRIAL_LIMIT_S = 120


@functools.cache
def faiss_uses_gpu() -> bool:
    """Whether this build of faiss can use this machine's GPUs, tried once per process.

    A build for GPUs of other kinds (PyPI's older ``faiss-gpu-cu12`` on an H100) ends its process at the first search, so a
    small search is tried in another one.
    """
    import faiss

    if not getattr(faiss, "get_num_gpus", int)():
        return False
    try:
        command = [sys.executable, "-c", _TRIAL]
        trial = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TRIAL_LIMIT_S, check=False)
        if trial.returncode == 0:
            return True
        reason = " ".join([f"exit code {trial.returncode}", *trial.stderr.strip()[-200:].splitlines()[-1:]])
    except subprocess.TimeoutExpired:
        reason = f"no answer within {_TRIAL_LIMIT_S} s"
    _LOGGER.warning("faiss %s cannot search on this machine's GPU (%s): searching on the CPU", faiss.__version__, reason)
    return False


def gpu_knn(device: int = 0) -> Knn | None:
    """The search of faiss on a GPU, by default the first; None where faiss can use no GPU."""
    import faiss

    if not faiss_uses_gpu():
        return None
    found: Any = faiss
    resources = found.StandardGpuResources()

    def search(queries: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return found.knn_gpu(resources, queries, vectors, k, metric=found.METRIC_INNER_PRODUCT, device=device)

    return search


def nominate(
    knn: Knn, queries: np.ndarray, vectors: np.ndarray, k: int, longest: float, bars: np.ndarray
) -> list[np.ndarray] | None:
    """Rows, ascending, that must be scored exactly to find the k best of each query; None if that cannot be proven.

    Let s(x) be the exact score of a row and t(x) that of the search, with |s(x) - t(x)| <= e for all rows, and let the search
    return the m > k rows of largest t. Of these, k have s >= t_k - e, where t_k is the k-th largest t: so the k-th best score
    is at least L = max(t_k - e, bar), where the bar is the minimum score of the query. A row that is not returned has
    t <= t_m, so s <= t_m + e. If t_m + e < L, no such row is among the k best or ties with the last of them; and of the
    returned rows, only those with t + e >= L can be. If all n rows are returned, nothing remains to be proven.

    The bound e: both factors of a product have a relative error of up to ``TF32``, if the search uses tensor cores, and sums
    of d products in float32 add d roundings, in any order. Twice the usual bound is used, since tensor cores may cut instead
    of rounding, which also covers the rounding of s in float64. With u = 2^-24 and g = d u / (1 - d u) that is
    e = ((1 + TF32)^2 (1 + 2 g) - 1) |x| |q|, by the Cauchy-Schwarz inequality, plus d (1 + |x| + |q|) times the smallest normal
    number, for factors and products that are flushed to zero.

    Args:
        knn: the search.
        queries: (q, d) float32, finite.
        vectors: (n, d) float32, finite, none of them zero.
        k: number of rows wanted, at least 1.
        longest: upper bound of the length of the vectors.
        bars: (q,) minimum score of a wanted row, per query.

    >>> import faiss
    >>> knn = lambda queries, vectors, k: faiss.knn(queries, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
    >>> vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    >>> nominate(knn, vectors[:1], vectors, 1, 1.0, np.array([-np.inf]))
    [array([0])]
    """
    count, width = vectors.shape
    wanted = min(count, MOST)
    if wanted < count and wanted <= k:
        return None
    rounding = width * 2.0**-24
    gamma = 2 * rounding / (1 - rounding)
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    lost = width * float(np.finfo(np.float32).tiny) * (1 + longest + lengths)
    error = ((1 + TF32) ** 2 * (1 + gamma) - 1) * longest * lengths + lost
    try:
        scores, rows = knn(queries, vectors, wanted)
    except (RuntimeError, MemoryError):  # for example a GPU out of memory: the caller falls back to the CPU
        return None
    scores = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(scores).all() or (rows < 0).any():
        return None
    least = np.maximum(scores[:, k - 1] - error, bars) if wanted >= k else bars
    if wanted < count and not (scores[:, -1] + error < least).all():
        return None
    return [np.sort(found[t + e >= bar]).astype(np.int64) for found, t, e, bar in zip(rows, scores, error, least, strict=True)]
