"""Rows of a stream, kept in a buffer of fixed size.

The stream is the training sets of all domains one after another; a buffer is an array of row numbers in it (int64), so
it is small, can be saved beside the weights, and holds no feature twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...curation.rng import rng

RowNumbers = NDArray[np.int64]
Removal = Literal["as_released", "as_written"]


def current_rows(sizes: Sequence[int]) -> RowNumbers:
    """Row numbers of the last domain of a stream whose domains have ``sizes`` rows.

    >>> current_rows([3, 2])
    array([3, 4])
    """
    return np.arange(sum(sizes[:-1]), sum(sizes), dtype=np.int64)


def acceptance(alpha: float, capacity: int, seen: int, *, dynamic: bool) -> float:
    """Probability that a row of the current domain enters the buffer (Lin et al., NeurIPS 2021, biased reservoir).

    min(1, a k / i), where k is the buffer's capacity, i the number of rows seen so far with the current domain, and a is
    ``alpha`` (fixed), or ``alpha`` i / k (dynamic), which makes the probability ``alpha`` whatever i is. a = 1, fixed, is
    Vitter's reservoir; a > 1 favours the present.

    Raises:
        ValueError: alpha is negative, or capacity or seen is not positive.

    >>> acceptance(1.0, capacity=100, seen=400, dynamic=False)  # 1 * 100 / 400
    0.25
    >>> acceptance(1.0, capacity=100, seen=400, dynamic=True)
    1.0
    """
    if alpha < 0 or capacity < 1 or seen < 1:
        raise ValueError(f"alpha {alpha}, capacity {capacity}, seen {seen}: alpha >= 0 and the others >= 1")
    bias = alpha * seen / capacity if dynamic else alpha
    return min(1.0, bias * capacity / seen)


def biased_reservoir(
    buffer: RowNumbers, sizes: Sequence[int], *, seed: int, alpha: float, dynamic: bool, removal: Removal = "as_released"
) -> RowNumbers:
    """The buffer after the last domain (CLEAR, section 4: biased reservoir sampling).

    The first domain fills the buffer and sets its capacity k. Later each row of the domain is accepted with one
    probability (see ``acceptance``), the buffer is shuffled, as many rows leave as were accepted, and these are appended.

    Args:
        buffer: row numbers before; empty at the first domain.
        sizes: rows of each domain so far, the current one last.
        seed: the draws depend on (seed, number of domains) alone.
        removal: "as_released" keeps the first k - t rows of the shuffled buffer, "as_written" drops its first t rows.
            The two choose different rows with the same distribution.

    Returns:
        k row numbers. Where a domain larger than k has more than k accepted rows, a random k of them stay (our choice:
        the paper's domains have equal size, so that this cannot happen).

    >>> kept = biased_reservoir(np.array([], np.int64), [4], seed=0, alpha=1.0, dynamic=False)
    >>> kept  # the first domain fills the buffer
    array([0, 1, 2, 3])
    >>> kept = biased_reservoir(kept, [4, 4], seed=0, alpha=2.0, dynamic=False)
    >>> len(kept), bool((kept >= 4).all())  # the probability is 2 * 4 / 8: every row of the present is accepted
    (4, True)
    """
    if removal not in ("as_released", "as_written"):
        raise ValueError(f"removal {removal!r}: 'as_released' or 'as_written'")
    current = current_rows(sizes)
    if len(sizes) == 1:
        return current
    capacity = int(sizes[0])
    draw = rng(seed, "reservoir", str(len(sizes)))
    accepted = current[draw.random(len(current)) <= acceptance(alpha, capacity, int(sum(sizes)), dynamic=dynamic)]
    if len(accepted) > capacity:
        accepted = np.sort(draw.permutation(accepted)[:capacity])
    shuffled = draw.permutation(buffer)
    kept = shuffled[: capacity - len(accepted)] if removal == "as_released" else shuffled[len(accepted) :]
    return np.concatenate([kept, accepted])
