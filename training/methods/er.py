"""Experience replay (ER): the model trains on the new task and on stored samples of the old ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...curation.registry import checked
from ..core.exemplars import RowNumbers, current_rows
from .method import Method, Predict

if TYPE_CHECKING:
    from ..core.lesson import Lesson

Batches = Literal["mixed", "paired"]
ErSampler = Literal["random", "reservoir", "balanced_reservoir"]


def replay(buffer: RowNumbers, sizes: Sequence[int], *, seed: int) -> RowNumbers:
    """All rows of the current task, then the memory. Nothing is drawn.

    >>> replay(current_rows([2]), [2, 2], seed=0)
    array([2, 3, 0, 1])
    """
    return np.concatenate([current_rows(sizes), buffer])


@checked
def er(
    *,
    predict: Predict = "head",
    fraction: float | None = None,
    batches: Batches = "mixed",
    memory: ErSampler = "random",
) -> Method:
    """Experience replay: classification loss on new and stored samples. The defaults are naive replay as
    vCLIMB's released code has it.

    Args:
        predict: "head" (vCLIMB ``as_released``: what the code does), or "nearest_mean" (``as_written``: the supplement says
            that it uses iCaRL's rule).
        fraction: fraction of each task's samples to store, so the memory grows with the tasks (CGLB); None: all classes share
            a memory of fixed size.
        batches: "mixed" draws batches from new and stored samples together; "paired" joins a batch of each (Avalanche, which
            CLEAR ran), and repeats the stored samples until the new ones are exhausted.
        memory: "random" refills equal class quotas at random after each position; "reservoir" is a uniform sample of the
            stream, "balanced_reservoir" one of each class.

    Raises:
        ValueError: ``fraction`` with a non-default ``batches`` or ``memory``.

    >>> er().exemplars, er(batches="paired", memory="reservoir").exemplars
    ('random', 'reservoir')
    """
    if fraction is not None and (batches, memory) != ("mixed", "random"):
        raise ValueError("er: fraction is a memory of its own, of mixed batches: leave batches and memory out, or fraction")
    if fraction is not None:
        learners = ("one", "streams") if predict == "head" else ("one",)
        return Method("er", replay, "finetune", exemplars="share", predict=predict, share=fraction, learners=learners)
    teach = _paired if batches == "paired" else None
    return Method("er", replay, "finetune", teach=teach, exemplars=memory, predict=predict, together=True)


def _paired(lesson: Lesson) -> None:
    new, old = np.arange(lesson.fresh), np.arange(lesson.fresh, len(lesson.rows))
    lesson.fit(lambda step: step.classification(), rows=(new, old) if len(old) else new)
