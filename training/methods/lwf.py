"""Learning without forgetting (Li and Hoiem, ECCV 2016): the old model's outputs on new samples are distilled."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ...curation.registry import checked
from ..core.criteria import softened_distillation
from .finetune import present
from .method import Method, PaperForm, Teach

if TYPE_CHECKING:
    from ..core.lesson import Lesson
    from .importance import AnyLesson, AnyStep


@checked
def lwf(
    *,
    strength: float | Sequence[float],
    temperature: float,
    by_task: bool = False,
    heads: Literal["task", "seen"] = "seen",
    form: PaperForm = "as_written",
) -> Method:
    """Loss: classification + lambda times the distillation of the old outputs, softened by T.

    Args:
        strength: lambda, or one value per position: nothing is distilled at the first, and the last applies to all further
            positions (CLEAR: 0, 2/11, 4/11, ...).
        temperature: T.
        by_task: use one softmax per old task, and add the losses; False: one softmax over all old classes.
        heads: classes that compete in the classification loss: those of the "task" alone (CGLB), or all "seen" so far.
        form: "as_released" (Avalanche, which CLEAR ran): the old model runs in training mode, so its batch norm uses the
            moments of the new batch. "as_written": it runs in evaluation mode.

    Raises:
        ValueError: ``strength`` is empty.

    >>> lwf(strength=1.0, temperature=2.0).learners
    ('one', 'streams')
    """
    by_position = [float(each) for each in strength] if isinstance(strength, Sequence) else [float(strength)]
    if not by_position:
        raise ValueError("lwf: strength is an empty list: one number a position, or one for all")
    teach = functools.partial(_teach, by_position=by_position, temperature=temperature, by_task=by_task, heads=heads)
    if form == "as_released":
        teach = functools.partial(_by_a_model_in_training, teach=teach)
        return Method("lwf", present, "finetune", teach=teach, together=True)
    learners = ("one", "streams")
    return Method("lwf", present, "finetune", teach=teach, learners=learners, together=True)


def _teach(lesson: AnyLesson, *, by_position: Sequence[float], temperature: float, by_task: bool, heads: str) -> None:
    strength = by_position[min(lesson.task, len(by_position) - 1)]

    def loss(step: AnyStep) -> Tensor:
        total = step.own_classification() if heads == "task" else step.classification()
        if lesson.previous is None:
            return total
        pairs = zip(*(lesson.earlier(each, by_task=by_task) for each in (step.logits, step.before())), strict=True)
        return total + strength * torch.stack([softened_distillation(now, then, temperature) for now, then in pairs]).sum()

    lesson.fit(loss)


def _by_a_model_in_training(lesson: Lesson, *, teach: Teach) -> None:
    if lesson.teacher is not None:
        lesson.teacher.train()
    teach(lesson)
