"""Nap (Lin et al., NeurIPS 2021): the model learns the first domain and is never trained again, a lower bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.exemplars import RowNumbers, current_rows
from .method import Method


def nap() -> Method:
    """Trains only on the first domain.

    >>> nap().rule([], [3], seed=0)
    array([0, 1, 2])
    """
    return Method("nap", first_domain, "finetune", has_memory=False)


def first_domain(buffer: RowNumbers, sizes: Sequence[int], *, seed: int) -> RowNumbers:
    """All rows of the first domain or task, and none of the others. The buffer is not used, and nothing is drawn.

    >>> first_domain([], [3], seed=0), first_domain([0, 1, 2], [3, 2], seed=0)
    (array([0, 1, 2]), array([], dtype=int64))
    """
    return current_rows(sizes) if len(sizes) == 1 else np.empty(0, dtype=np.int64)
