"""A-GEM (Chaudhry et al., ICLR 2019) as IIRC's released code has it: no step against the gradient on the memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..core.batches import batches
from ..core.determinism import generator
from ..core.lesson import ForwardPass, Lesson
from ..data.examples import Draw
from .method import Method
from .replay import replay


def agem() -> Method:
    """Trains on the task's samples alone, by the classification loss over the outputs of the task's own classes.

    Before each step the gradient of the loss over the old classes' outputs is taken on a batch drawn from the memory, and
    what points against it is removed. The memory is drawn at random.

    >>> agem().exemplars, agem().start
    ('random', 'finetune')
    """
    return Method("agem", replay, "finetune", {}, _teach, "random")


def _teach(lesson: Lesson) -> None:
    memory = np.arange(lesson.fresh, len(lesson.train.labels))
    old = lesson.old_classes
    if not len(memory):
        lesson.fit(lambda step: step.classification())
        return
    draw = generator(lesson.means.seed, "agem", str(lesson.task))
    steps = 0

    def adjust(parameters: Sequence[nn.Parameter]) -> None:
        nonlocal steps
        chosen = memory[torch.randperm(len(memory), generator=draw)[: lesson.means.schedule.batch_size].numpy()]
        (batch,) = batches(lesson.train, chosen, Draw(lesson.means.seed, f"{lesson.task}/memory/{steps}"), lesson.means)
        steps += 1
        value = lesson.over_classes(lesson.model(batch.x), batch.targets, 0, old)
        reference = torch.autograd.grad(value, list(parameters), materialize_grads=True)
        project(parameters, reference)

    lesson.fit(ForwardPass.own_classification, rows=np.arange(lesson.fresh), adjust=adjust)


def project(parameters: Sequence[nn.Parameter], reference: Sequence[Tensor]) -> None:
    """g becomes g - (g r / r r) r where g r < 0; g, r: all gradients as one vector. Parameters without one are left out."""
    pairs = [(p.grad, r) for p, r in zip(parameters, reference, strict=True) if p.grad is not None]
    along = sum(float((g.double() * r.double()).sum()) for g, r in pairs)
    if along >= 0:
        return
    share = along / sum(float(r.double().square().sum()) for _, r in pairs)
    for g, r in pairs:
        g.sub_(r, alpha=share)
