"""Bias correction (Wu et al., "Large scale incremental learning", CVPR 2019), by default as in vCLIMB's released code."""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...curation.registry import checked
from ..core.criteria import sigmoid_distillation, softened_distillation
from ..core.exemplars import rows_by_class
from ..core.lesson import ForwardPass, Lesson
from ..data.examples import Labels, RowNumbers
from .er import replay
from .method import Method

Softened = Literal["softmax", "sigmoid"]
Correction = Literal["rest", "balanced"]


@checked
def bic(
    *, share: float = 0.9, temperature: float = 2.0, softened: Softened = "softmax", correction: Correction = "rest"
) -> Method:
    """Train the network (stage 1), then the scale and shift of the new classes' outputs (stage 2).

    Stage 1 minimises a KD + (1 - a) classification, where a = old classes / all classes and KD distils the old model's
    corrected and softened outputs. Stage 2 trains the scale and shift of the current task on the classification loss alone
    (in evaluation mode, weights of the last epoch: our choice); see ``correction``. The corrections of all tasks stay in the
    model. The first task uses all rows in stage 1 and has no stage 2.

    Args:
        share: fraction of each class's rows used in stage 1: the first int(share n), in order. No released configuration sets
            it; 0.9 is the BiC paper's.
        temperature: T.
        softened: "softmax" over the old classes, or "sigmoid" of each, for classes that are not mutually exclusive (our choice
            for IIRC, whose paper names BiC and whose code does not include it).
        correction: "rest" fits stage 2 to all rows that stage 1 leaves, with SGD at learning rate 0.001 (momentum 0.9: our
            choice) for the same number of epochs (vCLIMB). "balanced" fits it to as many rows of each class as the share leaves
            of the smallest (BiC's released code: old and new classes are balanced), and stage 1 has all others. Its optimiser
            and learning rate are then those of stage 1, for twice the epochs (as in that code, which also lowers the rate and
            penalises the shift).

    >>> bic(share=0.8).exemplars, bic(share=0.8).classes
    ('herding', ('new',))
    """
    if not 0 < share < 1:
        raise ValueError(f"bic: share {share} must be between 0 and 1")
    teach = functools.partial(_teach, share=share, temperature=temperature, softened=softened, correction=correction)
    return Method("bic", replay, "finetune", teach=teach, exemplars="herding", classes=("new",))


def split_classes(labels: Labels, share: float, correction: Correction = "rest") -> tuple[RowNumbers, RowNumbers]:
    """Split rows into the first int(share n) of the n of each class, in order, and all others; with "balanced", the others are
    the last m of each class, for the least m = n - int(share n) of any class."""
    first = np.zeros(len(labels), dtype=bool)
    groups = [*rows_by_class(np.arange(len(labels)), labels).values()]
    held = [len(rows) - int(len(rows) * share) for rows in groups]
    for rows, last in zip(groups, held, strict=True):
        first[rows[: len(rows) - (min(held) if correction == "balanced" else last)]] = True
    return np.flatnonzero(first), np.flatnonzero(~first)


def _teach(lesson: Lesson, *, share: float, temperature: float, softened: Softened, correction: Correction) -> None:
    if lesson.teacher is None:
        lesson.fit(lambda step: step.classification())
        return
    one, two = split_classes(lesson.train.labels, share, correction)
    lesson.fit(functools.partial(first_stage, temperature=temperature, softened=softened), rows=one)
    if len(two):
        _correct(lesson, two, correction)


def _correct(lesson: Lesson, rows: RowNumbers, correction: Correction) -> None:
    """Train the current task's (alpha, beta) on ``rows``; all else stays fixed, including batch norm's statistics."""
    model = lesson.model
    newest = torch.zeros_like(model.alpha)
    newest[-1] = 1
    moved = [*model.parameters()]
    before = [parameter.requires_grad for parameter in moved]
    model.requires_grad_(False)
    pair = [model.alpha, model.beta]
    for parameter in pair:
        parameter.requires_grad_(True)
    hooks = [parameter.register_hook(lambda gradient: gradient * newest) for parameter in pair]
    plan = dataclasses.replace(
        lesson.means.schedule,
        weight_decay=0.0,
        select="none",
        plateau=None,
        decay_after_epochs=None,
        decay_every_epochs=None,
    )
    if correction == "balanced":
        plan = dataclasses.replace(plan, epochs=2 * plan.epochs)
    else:
        plan = dataclasses.replace(plan, optimiser="sgd", learning_rate=1e-3, momentum=0.9)
    lesson.fit(lambda step: step.classification(), rows=rows, parameters=pair, schedule=plan, evaluation_mode=True)
    for hook in hooks:
        hook.remove()
    for parameter, wanted in zip(moved, before, strict=True):
        parameter.requires_grad_(wanted)


def first_stage(step: ForwardPass, *, temperature: float, softened: Softened = "softmax") -> Tensor:
    """a KD + (1 - a) classification, a = old classes / all classes."""
    lesson = step.lesson
    if lesson.teacher is None:
        return step.classification()
    distil = softened_distillation if softened == "softmax" else sigmoid_distillation
    distilled = distil(step.logits[:, : lesson.old_classes], step.before(), temperature)
    a = lesson.old_classes / lesson.model.classes
    return a * distilled + (1 - a) * step.classification()
