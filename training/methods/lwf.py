"""Learning without forgetting (Li and Hoiem, ECCV 2016): the old model's outputs on new samples stand for the old tasks."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ..core.criteria import softened_distillation
from ..core.lesson import Lesson, Step
from .finetune import present
from .method import Method


def lwf(*, strength: float, temperature: float, by_task: bool = False) -> Method:
    """Loss: classification + lambda times the distillation of the old outputs, softened by T.

    Args:
        strength: lambda.
        temperature: T.
        by_task: a softmax for each old task's classes, their losses added; False: one over all old classes.

    >>> lwf(strength=1.0, temperature=2.0).settings
    {'strength': 1.0, 'temperature': 2.0, 'by_task': False}
    """
    teach = functools.partial(_teach, strength=strength, temperature=temperature, by_task=by_task)
    settings = {"strength": strength, "temperature": temperature, "by_task": by_task}
    return Method("lwf", present, "finetune", settings, teach)


def _teach(lesson: Lesson, *, strength: float, temperature: float, by_task: bool) -> None:
    tasks = lesson.model.groups[:-1] if by_task else ()
    old = tasks if sum(tasks) == lesson.old_classes else (lesson.old_classes,)  # a further domain has all classes of before

    def loss(step: Step) -> Tensor:
        if lesson.teacher is None:
            return step.classification()
        with torch.no_grad():
            before = lesson.teacher(step.batch.x)
        pairs = zip(step.logits[:, : lesson.old_classes].split(old, 1), before.split(old, 1), strict=True)
        distilled = torch.stack([softened_distillation(now, then, temperature) for now, then in pairs]).sum()
        return step.classification() + strength * distilled

    lesson.fit(loss)
