"""Memory aware synapses (Aljundi et al., ECCV 2018) as in the released codes of vCLIMB and CGLB."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ...curation.registry import checked
from . import importance
from .finetune import present
from .method import Method

if TYPE_CHECKING:
    from .importance import AnyLesson, AnyStep


def output_norm(step: AnyStep) -> Tensor:
    """Mean over the batch of the L2 norm of the logits (the MAS paper squares the norm)."""
    return step.logits.norm(dim=-1).mean(-1).sum()


def output_square(step: AnyStep, *, last: bool) -> Tensor:
    """Mean square of the logits of all classes known before the task, or with ``last`` only of the previous task's classes."""
    return step.lesson.earlier(step.logits, by_task=last)[-1].square().mean((-2, -1)).sum()


@checked
def mas(
    *,
    strength: float,
    omega: Literal["norm", "square"] = "norm",
    data: Literal["new", "learned"] = "learned",
    average: Literal["released", "mean"] = "mean",
) -> Method:
    """Loss: classification + lambda times the sum over parameters of Omega (theta - theta*)^2. Omega uses no labels.

    Args:
        strength: lambda, 3e5 in vCLIMB.
        omega: "norm" (vCLIMB): the absolute value of the gradient of ``output_norm`` summed over the task's batches, stored for
            each past task. "square" (CGLB): the squared gradient of ``output_square``, averaged over the samples of all tasks
            so far, with the last weights as the only anchor.
        data: samples for "square": those of the "new" task at its start, or those of the task "learned" before it.
        average: average for "square": "mean" multiplies by the number of samples, which CGLB adds by mistake ("released").

    >>> mas(strength=3e5).learners
    ('one', 'streams')
    """
    if omega == "norm":
        teach = functools.partial(importance.teach, strength=strength, loss=output_norm, weigh=torch.abs)
    else:
        teach = functools.partial(_teach_square, strength=strength, new=data == "new", average=average)
    return Method("mas", present, "finetune", teach=teach, learners=("one", "streams"))


def _teach_square(lesson: AnyLesson, *, strength: float, new: bool, average: str) -> None:
    if lesson.previous is not None:
        samples: Any = lesson.train if new else lesson.previous
        found = lesson.gradients(functools.partial(output_square, last=new), samples)
        weights, count = {name: gradient**2 for name, gradient in found.items()}, len(samples.labels)
        seen = float(lesson.state["seen"].view(-1)[0]) if "seen" in lesson.state else 0.0
        for name, fresh in weights.items() if seen else ():
            old = importance.widened(lesson.state[f"0000/importance/{name}"], fresh.shape)
            added = fresh + count if average == "released" else fresh * count
            weights[name] = (old * seen + added) / (seen + count)
        importance.keep(lesson, weights, "0000")
        one = next(iter(weights.values()))
        lesson.state["seen"] = one.new_full((len(one),), seen + count)
    importance.fit_under_penalty(lesson, strength)
