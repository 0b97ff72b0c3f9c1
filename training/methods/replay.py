"""Experience replay (ER): the model trains on the new task and on what is kept of the old ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.exemplars import RowNumbers, current_rows
from .method import Method, Predict


def replay(buffer: RowNumbers, sizes: Sequence[int], *, seed: int) -> RowNumbers:
    """All rows of the current task, then the memory. Nothing is drawn.

    >>> replay(current_rows([2]), [2, 2], seed=0)
    array([2, 3, 0, 1])
    """
    return np.concatenate([current_rows(sizes), buffer])


def er(*, predict: Predict = "head", fraction: float | None = None) -> Method:
    """Experience replay, vCLIMB's naive replay: classification loss on new and kept samples alike, a memory drawn at random
    after every task.

    Args:
        predict: "head" (``as_released``: what the code does), or "nearest_mean" (``as_written``: the supplement says that
            it uses iCaRL's rule).
        fraction: of each task's samples in the memory, which then grows with the tasks (CGLB); None: all classes share a memory
            of one size.

    >>> er().exemplars
    'random'
    """
    if fraction is None:
        return Method("er", replay, "finetune", {"predict": predict}, exemplars="random", predict=predict)
    settings = {"predict": predict, "fraction": fraction}
    learners = ("one", "streams") if predict == "head" else ("one",)
    return Method("er", replay, "finetune", settings, exemplars="share", predict=predict, share=fraction, learners=learners)
