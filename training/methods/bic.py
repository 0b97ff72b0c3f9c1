"""Bias correction (Wu et al., "Large scale incremental learning", CVPR 2019) as in vCLIMB's released code."""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..core.criteria import sigmoid_distillation, softened_distillation
from ..core.exemplars import rows_by_class
from ..core.lesson import ForwardPass, Lesson
from ..data.examples import Labels, RowNumbers
from .er import replay
from .method import Method

Softened = Literal["softmax", "sigmoid"]


def bic(*, share: float = 0.9, temperature: float = 2.0, softened: Softened = "softmax") -> Method:
    """Train the network (stage 1), then the scale and shift of the new classes' outputs (stage 2).

    Stage 1 minimises a KD + (1 - a) classification, where a = old classes / all classes and KD distils the old model's
    corrected and softened outputs. Stage 2 trains the scale and shift of the current task on the classification loss alone,
    with SGD at learning rate 0.001 for the same number of epochs (momentum 0.9, evaluation mode, weights of the last epoch: our
    choice). The corrections of all tasks stay in the model. The first task uses all rows in stage 1 and has no stage 2.

    Args:
        share: fraction of each class's rows used in stage 1: the first int(share n), in order. No released configuration sets
            it; 0.9 is the BiC paper's.
        temperature: T.
        softened: "softmax" over the old classes, or "sigmoid" of each, for classes that are not mutually exclusive (our choice
            for IIRC, whose paper names BiC and whose code does not include it).

    >>> bic(share=0.8).settings
    {'share': 0.8, 'temperature': 2.0, 'softened': 'softmax'}
    """
    if not 0 < share < 1:
        raise ValueError(f"bic: share {share} must be between 0 and 1")
    if softened not in ("softmax", "sigmoid"):
        raise ValueError(f"bic: softened {softened!r}: 'softmax' or 'sigmoid'")
    teach = functools.partial(_teach, share=share, temperature=temperature, softened=softened)
    settings = {"share": share, "temperature": temperature, "softened": softened}
    return Method("bic", replay, "finetune", settings, teach, "herding", classes=("new",))


def split_classes(labels: Labels, share: float) -> tuple[RowNumbers, RowNumbers]:
    """Split rows into the first int(share n) of each class, in order, and all others."""
    first = np.zeros(len(labels), dtype=bool)
    for rows in rows_by_class(np.arange(len(labels)), labels).values():
        first[rows[: int(len(rows) * share)]] = True
    return np.flatnonzero(first), np.flatnonzero(~first)


def _teach(lesson: Lesson, *, share: float, temperature: float, softened: Softened) -> None:
    if lesson.teacher is None:
        lesson.fit(lambda step: step.classification())
        return
    one, two = split_classes(lesson.train.labels, share)
    lesson.fit(functools.partial(first_stage, temperature=temperature, softened=softened), rows=one)
    if len(two):
        _correct(lesson, two)


def _correct(lesson: Lesson, rows: RowNumbers) -> None:
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
        optimiser="sgd",
        learning_rate=1e-3,
        momentum=0.9,
        weight_decay=0.0,
        select="none",
        plateau=None,
        decay_after_epochs=None,
        decay_every_epochs=None,
    )
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
