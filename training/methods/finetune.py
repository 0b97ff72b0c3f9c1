"""No memory: the model trains on the current domain or task alone."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.exemplars import RowNumbers, current_rows
from .method import Method, Start


def finetune(*, start: Start = "finetune") -> Method:
    """Lower bound: train on the current domain or task, without any measure against forgetting.

    >>> finetune().start, finetune(start="scratch").start
    ('finetune', 'scratch')
    """
    return Method("finetune", present, start, learners=("one", "streams"))


def present(buffer: RowNumbers, sizes: Sequence[int], *, seed: int) -> RowNumbers:
    """All rows of the current domain or task. The buffer is not used, and nothing is drawn.

    >>> present([], [3, 2], seed=0)  # the last domain's two rows of five
    array([3, 4])
    """
    return current_rows(sizes)
