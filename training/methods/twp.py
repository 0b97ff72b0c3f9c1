"""Topology-aware weight preserving (Liu et al., AAAI 2021): keeps weights that matter for the loss or a graph's attention."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ...curation.registry import checked
from . import importance
from .finetune import present
from .method import Method

if TYPE_CHECKING:
    from ..graph_streams.parallel_streams import Streams, StreamStep

Gradients = Literal["summed", "fresh"]
NormRule = Literal["constant", "minimised"]


@checked
def twp(
    *,
    strength_loss: float = 1e4,
    strength_topology: float = 1e4,
    beta: float = 0.01,
    gradients: Gradients = "fresh",
    norm: NormRule = "minimised",
) -> Method:
    """Loss: classification + a penalty weighted by loss and topology + beta times the L1 norm of the loss's gradient.

    The penalty's weight is lambda_l g^2 + lambda_t h^2, where g is the gradient of the loss on the previous task, and h the
    gradient of the norm of its attention (of a gcn or st_gcn, or the result of a network's own ``topology(x)``). The L1 norm
    keeps few weights important, which leaves others for future tasks.

    A simplification: for either ``norm`` it is the norm of g alone, as in the code of TWP and CGLB. The importance that it
    should keep small also contains h, which neither code includes in the norm.

    Args:
        strength_loss, strength_topology: lambda_l and lambda_t.
        beta: weight of the L1 norm, at least 0.
        gradients: "summed" (CGLB): gradients are not reset within a task, and the loss's gradient counts twice per step;
            "fresh": they are reset at each step.
        norm: "minimised" (the TWP paper): by double backpropagation, which makes a step several times slower. "constant" (the
            code of TWP and CGLB): a number, which adds beta times itself to the value of the loss and nothing to its gradient.

    Raises:
        ValueError: ``beta`` is below 0.

    >>> method = twp(strength_loss=10000.0, strength_topology=100.0, beta=0.1)
    >>> method.learners, method.attention  # the model must be one with attention over edges
    (('streams',), True)
    """
    if not beta >= 0:
        raise ValueError(f"twp: beta {beta}: 0 or more")
    weight = beta if norm == "minimised" else 0.0
    teach = functools.partial(
        _teach, strength_loss=strength_loss, strength_topology=strength_topology, gradients=gradients, beta=weight
    )
    return Method("twp", present, "finetune", teach=teach, learners=("streams",), attention=True)


def _teach(lesson: Streams, *, strength_loss: float, strength_topology: float, gradients: str, beta: float) -> None:
    total = torch.zeros_like(lesson.flat.detach())
    if lesson.previous is not None:
        by_loss = lesson.gradients(lambda step: step.classification(), lesson.previous)["flat"]
        by_topology = lesson.topology_gradient(lesson.previous)
        if gradients == "summed":
            by_topology = by_topology + by_loss
            total = by_topology
        weight = strength_loss * by_loss**2 + strength_topology * by_topology**2
        importance.keep(lesson, {"flat": weight}, f"{lesson.task - 1:04}")

    def loss(step: StreamStep) -> Tensor:
        found = step.classification() * (2 if gradients == "summed" else 1)
        found = found + importance.penalty(lesson.parameters(), lesson.state)
        return found + beta * step.gradient_size() if beta else found

    def adjust(gradient: Tensor) -> Tensor:
        return total.add_(gradient)

    lesson.fit(loss, adjust=adjust if gradients == "summed" else None, twice=beta > 0)
