"""Learning without forgetting (Li and Hoiem, ECCV 2016): the old model's outputs on new samples stand for the old tasks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ..core.criteria import softened_distillation
from .finetune import present
from .method import Method

if TYPE_CHECKING:
    from .method import AnyLesson, AnyStep


def lwf(*, strength: float, temperature: float, by_task: bool = False, heads: Literal["task", "seen"] = "seen") -> Method:
    """Loss: classification + lambda times the distillation of the old outputs, softened by T.

    Args:
        strength: lambda.
        temperature: T.
        by_task: a softmax for each old task's classes, their losses added; False: one over all old classes.
        heads: which classes compete in the classification loss: those of the task alone (CGLB), or all seen so far.

    >>> lwf(strength=1.0, temperature=2.0).settings
    {'strength': 1.0, 'temperature': 2.0, 'by_task': False}
    """
    settings = {"strength": strength, "temperature": temperature, "by_task": by_task, "heads": heads}
    teach = functools.partial(_teach, **settings)
    learners = ("one", "streams")
    return Method("lwf", present, "finetune", settings, teach, learners=learners)


def _teach(lesson: AnyLesson, *, strength: float, temperature: float, by_task: bool, heads: str) -> None:
    def loss(step: AnyStep) -> Tensor:
        total = step.own_classification() if heads == "task" else step.classification()
        if lesson.previous is None:
            return total
        pairs = zip(*(lesson.earlier(each, by_task=by_task) for each in (step.logits, step.before())), strict=True)
        return total + strength * torch.stack([softened_distillation(now, then, temperature) for now, then in pairs]).sum()

    lesson.fit(loss)
