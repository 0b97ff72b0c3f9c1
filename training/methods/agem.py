"""A-GEM (Chaudhry et al., ICLR 2019): no step against the gradient on the memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from ..core.batches import batches
from ..core.determinism import generator
from ..core.lesson import ForwardPass, Lesson
from ..data.examples import Draw
from .method import Method
from .replay import replay

Sampler = Literal["random", "reservoir", "each_position"]


def agem(*, memory: Sampler = "random", sample: int | Literal["batch", "capacity"] = "batch") -> Method:
    """Trains on the present's samples alone, by the classification loss over the outputs of its own classes.

    Before each step the gradient of the loss over the old classes' outputs is taken on a sample of the memory, and what
    points against it is removed. Where a position brings no class of its own, both losses are over all outputs. The
    defaults are IIRC's released code.

    Args:
        memory: "random" fills equal quotas of the classes; "reservoir" is a uniform sample of the stream (CLEAR);
            "each_position" keeps a memory's size of each domain or task (Avalanche's), and samples as many of each.
        sample: how many kept samples the reference gradient is taken on: a batch's, the memory's size ("capacity"; CLEAR), or
            a number.

    >>> agem().exemplars, agem(memory="each_position").exemplars
    ('random', 'each_position')
    """
    if memory not in get_args(Sampler) or (
        sample not in ("batch", "capacity") and not (isinstance(sample, int) and sample > 0)
    ):
        raise ValueError(
            f"agem: memory {memory!r}: one of {', '.join(get_args(Sampler))}; sample {sample!r}: 'batch', 'capacity', or >= 1"
        )
    settings = {"memory": memory, "sample": sample} if (memory, sample) != ("random", "batch") else {}
    return Method(
        "agem",
        replay,
        "finetune",
        settings,
        functools.partial(_teach, sample=sample, by_position=memory == "each_position"),
        memory,
    )


def _teach(lesson: Lesson, *, sample: int | Literal["batch", "capacity"], by_position: bool) -> None:
    memory = np.arange(lesson.fresh, len(lesson.train.labels))
    old = lesson.old_classes
    if not len(memory):
        lesson.fit(lambda step: step.classification())
        return
    if isinstance(sample, int):
        size = sample
    else:
        size = lesson.means.schedule.batch_size if sample == "batch" or lesson.capacity is None else lesson.capacity
    groups = [memory]
    if by_position:
        groups = [memory[lesson.positions[memory] == position] for position in range(lesson.task)]
    draw = generator(lesson.means.seed, "agem", str(lesson.task))
    steps = 0

    def adjust(parameters: Sequence[nn.Parameter]) -> None:
        nonlocal steps
        drawn = [rows[torch.randperm(len(rows), generator=draw)[: max(1, size // len(groups))].numpy()] for rows in groups]
        chosen = np.concatenate(drawn)
        view = Draw(lesson.means.seed, f"{lesson.task}/memory/{steps}")
        (batch,) = batches(lesson.train, chosen, view, lesson.means, size=len(chosen))
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
