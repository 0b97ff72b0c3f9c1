"""Elastic weight consolidation (Kirkpatrick et al., PNAS 2017) and online EWC (Schwarz et al., ICML 2018).

The variants are those in the code of vCLIMB, CGLB and Avalanche.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...curation.registry import checked
from ..core.batches import batches
from ..core.lesson import Lesson
from . import importance
from .finetune import present
from .method import Method

Fisher = Literal["summed", "batches", "samples"]


@checked
def ewc(*, strength: float, fisher: Fisher = "summed", online: bool = False, decay: float = 1.0) -> Method:
    """Loss: classification + lambda times the sum over past positions and parameters of F (theta - theta*)^2.

    Args:
        strength: lambda. vCLIMB: 3e3 (UCF101), 5e2 (Kinetics), 3e5 (ActivityNet); its only released configuration, for
            Kinetics, has 3e3. CLEAR: 0.4, online. The EWC papers write lambda / 2.
        fisher: definition of F. "summed" (vCLIMB's released code): the square of the loss's gradient summed over all batches of
            the position, in training mode. "batches" (Avalanche, which CLEAR ran): the mean over batches of the squared
            gradient of a batch's mean loss, in evaluation mode; it decreases with the batch size. "samples" (the papers): the
            mean of the squared gradients of single samples, the empirical Fisher information.
        online: use one penalty, anchored at the last weights, whose F accumulates with ``decay``, instead of one per position.
        decay: factor on the past F at each further position, in [0, 1]; CLEAR does not state its value.

    Raises:
        ValueError: ``decay`` is out of range.

    >>> ewc(strength=3e3).learners, ewc(strength=0.4, fisher="batches", online=True).learners
    (('one', 'streams'), ('one',))
    """
    if not 0 <= decay <= 1:
        raise ValueError(f"ewc: decay {decay}: in [0, 1]")
    if fisher == "summed" and not online:
        teach = functools.partial(
            importance.teach, strength=strength, loss=lambda step: step.classification(), weigh=lambda gradient: gradient**2
        )
        return Method("ewc", present, "finetune", teach=teach, learners=("one", "streams"), together=True)
    teach = functools.partial(_teach, strength=strength, fisher=fisher, decay=decay if online else None)
    return Method("ewc", present, "finetune", teach=teach, together=True)


def _teach(lesson: Lesson, *, strength: float, fisher: Fisher, decay: float | None) -> None:
    if lesson.previous is not None:
        if fisher == "summed":
            found = {n: g**2 for n, g in lesson.gradients(lambda step: step.classification(), lesson.previous).items()}
        else:
            found = _mean_square(lesson, lesson.means.schedule.batch_size if fisher == "batches" else 1)
        name = f"{lesson.task - 1:04}" if decay is None else "online"
        for key, fresh in found.items():
            known = lesson.state.get(f"{name}/importance/{key}")
            if known is not None and decay is not None:
                found[key] = decay * importance.widened(known, fresh.shape) + fresh
        importance.keep(lesson, found, name)
    importance.fit_under_penalty(lesson, strength)


def _mean_square(lesson: Lesson, size: int) -> dict[str, Tensor]:
    """Mean squared gradient over batches of ``size`` samples of the previous position, in evaluation mode."""
    if lesson.previous is None:
        raise RuntimeError("there is no position before the first")
    parameters = lesson.parameters()
    found = {name: torch.zeros_like(value) for name, value in parameters.items()}
    means = dataclasses.replace(lesson.means, second_weight=0.0)
    lesson.model.eval()
    order = np.arange(len(lesson.previous.labels))
    for count, batch in enumerate(batches(lesson.previous, order, None, means, size=size), 1):
        loss = lesson.step(batch).classification()
        gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            found[name] += (gradient.square() - found[name]) / count
    return found
