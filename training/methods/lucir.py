"""LUCIR (Hou et al., "Learning a unified classifier incrementally via rebalancing", CVPR 2019) as in IIRC's code."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor, nn

from ..core.batches import outputs
from ..core.criteria import multi_hot
from ..core.lesson import ForwardPass, Lesson
from .er import replay
from .method import Method


def lucir(*, strength: float = 5.0, margin: float = 0.5, rivals: int = 2, imprinted: int = 1000) -> Method:
    """Loss: classification + lambda (1 - cos(f, f_old)) + a margin between true and new classes. Needs a cosine head.

    The second term is a mean over all samples, where f and f_old are features of the current and the old model, and lambda =
    ``strength`` sqrt(old classes / new classes). For every sample of the memory, the third term pushes the cosine of its label
    ``margin`` above those of the ``rivals`` nearest new classes. Weights of new classes are initialised to the mean of the
    normalised features of their first ``imprinted`` samples, scaled to the mean norm of the old weights; weights of old classes
    are not trained.

    >>> lucir(strength=10.0).exemplars, lucir(strength=10.0).head
    ('herding', 'cosine')
    """
    if strength < 0 or margin < 0 or rivals < 1 or imprinted < 1:
        given = f"strength {strength}, margin {margin}, rivals {rivals}, imprinted {imprinted}"
        raise ValueError(f"lucir: {given}: not negative, at least one rival, and at least one sample")
    teach = functools.partial(_teach, strength=strength, margin=margin, rivals=rivals, imprinted=imprinted)
    return Method("lucir", replay, "finetune", teach=teach, exemplars="herding", classes=("new",), head="cosine")


def _teach(lesson: Lesson, *, strength: float, margin: float, rivals: int, imprinted: int) -> None:
    model, old = lesson.model, lesson.old_classes
    if model.eta is None:
        raise ValueError("lucir compares cosines: the model needs a cosine head (eta 'kept')")
    if lesson.teacher is None:
        lesson.fit(lambda step: step.classification())
        return
    imprint(lesson, imprinted)
    before = model.weight.detach()[:old].clone()
    hook = model.weight.register_hook(lambda gradient: torch.cat([torch.zeros_like(before), gradient[old:]]))
    weight = strength * math.sqrt(old / model.groups[-1])

    def loss(step: ForwardPass) -> Tensor:
        return step.classification() + weight * forgetting(step) + margin_loss(step, margin, rivals)

    lesson.fit(loss)
    hook.remove()
    with torch.no_grad():
        # Weight decay has shrunk them, which does not change any cosine.
        model.weight[:old] = before


def imprint(lesson: Lesson, most: int) -> None:
    """Set the weights of the new classes from the features of their first ``most`` samples in the evaluation view."""
    model, old = lesson.model, lesson.old_classes
    own = lesson.train.take(np.arange(lesson.fresh))
    unit = nn.functional.normalize(outputs(model, own, lesson.means, what=model.penultimate), dim=1)
    has = multi_hot(torch.from_numpy(own.labels), model.classes)[:, old:]
    has = has * (has.cumsum(0) <= most)
    means = nn.functional.normalize(has.T @ unit, dim=1)
    with torch.no_grad():
        model.weight[old:] = means.to(model.weight) * model.weight[:old].norm(dim=1).mean()


def forgetting(step: ForwardPass) -> Tensor:
    """1 - cos between features of the current and the old model, mean over the batch."""
    if step.lesson.teacher is None:
        return torch.zeros((), device=step.logits.device)
    with torch.no_grad():
        before = step.lesson.teacher.embed(step.batch.x)
    return (1 - nn.functional.cosine_similarity(step.embedded, before, dim=-1)).mean()


def margin_loss(step: ForwardPass, margin: float, rivals: int) -> Tensor:
    """max(0, margin - cos_y + cos_k), mean over the labels y of memory samples and the ``rivals`` nearest new classes k."""
    lesson = step.lesson
    kept = (step.batch.rows >= lesson.fresh).to(step.logits.device)
    if lesson.model.eta is None or not bool(kept.any()):
        return torch.zeros((), device=step.logits.device)
    cosines = step.logits[kept] / lesson.model.eta.detach()
    samples, labels = multi_hot(step.batch.targets[kept], cosines.shape[1]).nonzero(as_tuple=True)
    nearest = cosines[:, lesson.old_classes :].topk(min(rivals, lesson.model.groups[-1]), dim=1).values
    return (margin - cosines[samples, labels][:, None] + nearest[samples]).clamp(min=0).mean()
