"""Memory aware synapses (Aljundi et al., ECCV 2018) as vCLIMB's released code has it."""

from __future__ import annotations

import functools

from torch import Tensor

from ..core.lesson import Step
from . import importance
from .finetune import present
from .method import Method


def output_norm(step: Step) -> Tensor:
    """Mean over the batch of the L2 norm of the logits; not of its square, as the MAS paper has it."""
    return step.logits.norm(dim=1).mean()


def mas(*, strength: float) -> Method:
    """Loss: classification + lambda times the sum over past tasks and parameters of Omega (theta - theta*)^2.

    Omega is the absolute value of the gradient of ``output_norm`` summed over the batches of the task. No label is used.

    Args:
        strength: lambda, 3e5 in the paper.

    >>> mas(strength=3e5).settings
    {'strength': 300000.0}
    """
    teach = functools.partial(importance.teach, strength=strength, loss=output_norm, weigh=lambda gradient: gradient.abs())
    return Method("mas", present, "finetune", {"strength": strength}, teach)
