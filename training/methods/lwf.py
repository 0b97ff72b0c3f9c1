"""Learning without forgetting (Li and Hoiem, ECCV 2016): the old model's outputs on new samples stand for the old tasks."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.criteria import softened_distillation
from ..core.lesson import Lesson, Step
from .finetune import present
from .method import Method


def lwf(*, strength: float | Sequence[float], temperature: float, by_task: bool = False) -> Method:
    """Loss: classification + lambda times the distillation of the old outputs, softened by T.

    Args:
        strength: lambda; or one for each position, the first of which has nothing to distil, the last for all further ones
            (CLEAR: 0, 2/11, 4/11, ...).
        temperature: T.
        by_task: a softmax for each old task's classes, their losses added; False: one over all old classes.
    """
    by_position = [float(each) for each in strength] if isinstance(strength, Sequence) else [float(strength)]
    if not by_position:
        raise ValueError("lwf: strength is an empty list: one number a position, or one for all")
    teach = functools.partial(_teach, by_position=by_position, temperature=temperature, by_task=by_task)
    settings = {"strength": strength, "temperature": temperature, "by_task": by_task}
    return Method("lwf", present, "finetune", settings, teach)


def _teach(lesson: Lesson, *, by_position: Sequence[float], temperature: float, by_task: bool) -> None:
    tasks = lesson.model.groups[:-1] if by_task else ()
    old = tasks if sum(tasks) == lesson.old_classes else (lesson.old_classes,)  # a further domain has all classes of before

    strength = by_position[min(lesson.task, len(by_position) - 1)]

    def loss(step: Step) -> Tensor:
        if lesson.teacher is None:
            return step.classification()
        with torch.no_grad():
            before = lesson.teacher(step.batch.x)
        pairs = zip(step.logits[:, : lesson.old_classes].split(old, 1), before.split(old, 1), strict=True)
        distilled = torch.stack([softened_distillation(now, then, temperature) for now, then in pairs]).sum()
        return step.classification() + strength * distilled

    lesson.fit(loss)
