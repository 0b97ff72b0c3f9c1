"""Topology-aware weight preserving (Liu et al., AAAI 2021): weights matter for the loss, and for a graph's attention."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from . import importance
from .finetune import present
from .method import Method

if TYPE_CHECKING:
    from ..graph_streams.streams import Streams


def twp(
    *, strength_loss: float = 1e4, strength_topology: float = 1e4, gradients: Literal["summed", "fresh"] = "fresh"
) -> Method:
    """The classification loss and a pull back, weighed by loss and topology: lambda_l g^2 + lambda_t h^2.

    g is the gradient of the loss on the task that has been learned, h that of the norm of its attention. CGLB's regulariser on
    the norm of the gradient is a constant to its optimiser, so beta changes nothing; it is left out.

    Args:
        strength_loss, strength_topology: lambda_l and lambda_t.
        gradients: "summed": they are never set back within a task, as in CGLB, and that of the loss counts twice a step.

    >>> method = twp(strength_loss=10000.0, strength_topology=100.0, gradients="fresh")
    >>> method.learners, method.attention  # the model must be one with attention over edges: a gcn
    (('streams',), True)
    """
    settings = {"strength_loss": strength_loss, "strength_topology": strength_topology, "gradients": gradients}
    teach = functools.partial(_teach, **settings)
    return Method("twp", present, "finetune", settings, teach, learners=("streams",), attention=True)


def _teach(lesson: Streams, *, strength_loss: float, strength_topology: float, gradients: str) -> None:
    total = torch.zeros_like(lesson.flat.detach())
    if lesson.previous is not None:
        by_loss = lesson.gradients(lambda step: step.classification(), lesson.previous)["flat"]
        by_topology = lesson.gradients(lambda step: step.topology(), lesson.previous)["flat"]
        if gradients == "summed":
            by_topology = by_topology + by_loss
            total = by_topology
        weight = strength_loss * by_loss**2 + strength_topology * by_topology**2
        importance.keep(lesson, {"flat": weight}, lesson.task - 1)
    if gradients == "fresh":
        importance.fit_under_penalty(lesson, 1)
        return

    def adjust(gradient: Tensor) -> Tensor:
        return total.add_(gradient)

    lesson.fit(lambda step: 2 * step.classification() + importance.penalty(lesson.parameters(), lesson.state), adjust=adjust)
