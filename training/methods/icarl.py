"""iCaRL (Rebuffi et al., CVPR 2017) as in vCLIMB: sigmoid distillation, herded exemplars, nearest mean."""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...curation.registry import checked
from ..core.batches import outputs
from ..core.criteria import multi_hot
from ..core.lesson import ForwardPass, Lesson
from ..data.examples import Draw
from .er import replay
from .method import Method

Targets = Literal["all_rows", "as_released", "replaced"]


@checked
def icarl(*, targets: Targets = "all_rows", predict: Literal["head", "nearest_mean"] = "nearest_mean") -> Method:
    """Loss: classification over all classes + the sum over old classes y of BCE(g_y, q_y), each the mean over samples.

    q is the sigmoid of the old model's output, computed once before the task's training, on one augmented view.

    Args:
        targets: "all_rows" computes q for every row; "as_released" leaves q at 0 for the rows in the last incomplete batch of a
            shuffled epoch, as the released code does (different only with a schedule that drops this batch). "replaced" (IIRC)
            has a single loss, the classification; in its targets, the sigmoids of the old model's outputs on the same batch
            replace the labels of all old classes.
        predict: "nearest_mean", or "head".

    >>> icarl().predict, icarl().exemplars
    ('nearest_mean', 'herding')
    >>> icarl(predict="head", targets="replaced").labels
    ('one', 'sets')
    """
    teach = functools.partial(_teach, targets=targets)
    return Method("icarl", replay, "finetune", teach=teach, exemplars="herding", predict=predict)


def _teach(lesson: Lesson, *, targets: Targets) -> None:
    if lesson.teacher is None:
        lesson.fit(lambda step: step.classification())
        return
    if targets == "replaced":
        lesson.fit(replaced)
        return
    stored = _old_outputs(lesson, lesson.teacher, targets)
    lesson.fit(lambda step: step.classification() + distillation(step, stored[step.batch.rows]))


def distillation(step: ForwardPass, target: Tensor) -> Tensor:
    """The sum over old classes of the mean BCE between the model's outputs and ``target`` (b, old classes) in [0, 1]."""
    logits = step.logits[:, : target.shape[1]]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target.to(logits), reduction="none")
    return loss.mean(0).sum()


def replaced(step: ForwardPass) -> Tensor:
    """The classification loss, with the old model's sigmoids as targets of the old classes."""
    wanted = multi_hot(step.batch.targets, step.logits.shape[1])
    if step.lesson.teacher is not None:
        wanted[:, : step.lesson.old_classes] = step.before().sigmoid()
    return step.lesson.means.criterion(step.logits, wanted)


def _old_outputs(lesson: Lesson, teacher: torch.nn.Module, targets: Targets) -> Tensor:
    """(n, old classes) float32 on the CPU: q of each row of the lesson."""
    stage = f"{lesson.task}/targets"
    stored = outputs(teacher, lesson.train, lesson.means, draw=Draw(lesson.means.seed, stage)).sigmoid()
    if targets == "as_released":
        seen = lesson.shuffled(np.arange(len(stored)), stage)
        unseen = torch.ones(len(stored), dtype=torch.bool)
        unseen[torch.from_numpy(seen)] = False
        stored[unseen] = 0
    return stored
