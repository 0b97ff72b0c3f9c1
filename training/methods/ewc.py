"""Elastic weight consolidation (Kirkpatrick et al., PNAS 2017) as the released codes of vCLIMB and CGLB have it."""

from __future__ import annotations

import functools

from . import importance
from .finetune import present
from .method import Method


def ewc(*, strength: float) -> Method:
    """Loss: classification + lambda times the sum over past tasks and parameters of F (theta - theta*)^2.

    F is the square of the classification loss's gradient summed over all batches of the task, not an average of squares
    by sample, and not divided by the number of batches.

    Args:
        strength: lambda. Paper: 3e3 (UCF101), 5e2 (Kinetics), 3e5 (ActivityNet); the one released configuration, for
            Kinetics, has 3e3.

    >>> ewc(strength=3e3).settings
    {'strength': 3000.0}
    """
    teach = functools.partial(
        importance.teach, strength=strength, loss=lambda step: step.classification(), weigh=lambda gradient: gradient**2
    )
    return Method("ewc", present, "finetune", {"strength": strength}, teach, learners=("one", "streams"))
