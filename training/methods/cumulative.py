"""Training on all samples seen so far: the upper bound for methods with a buffer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.exemplars import RowNumbers
from .method import Method, Start


def cumulative(*, start: Start = "finetune") -> Method:
    """Trains on all samples seen so far.

    Args:
        start: "scratch" draws new weights for each domain or task, "finetune" continues with the last ones.

    >>> cumulative().rule([], [3, 2], seed=0)
    array([0, 1, 2, 3, 4])
    """
    return Method("cumulative", all_rows, start, has_memory=False)


def joint(*, start: Start = "scratch") -> Method:
    """Upper bound: each task trains on all samples so far. For the bound alone, only the last task matters.

    ``cumulative`` with another default start, which also trains on parallel graph streams.

    >>> joint().start
    'scratch'
    """
    return Method("joint", all_rows, start, learners=("one", "streams"), any_order=start == "scratch", has_memory=False)


def all_rows(buffer: RowNumbers, sizes: Sequence[int], *, seed: int) -> RowNumbers:
    """All rows of the stream so far. The buffer is not used, and nothing is drawn.

    >>> all_rows([], [3, 2], seed=0)
    array([0, 1, 2, 3, 4])
    """
    return np.arange(sum(sizes), dtype=np.int64)
