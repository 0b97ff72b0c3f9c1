"""A-GEM (Chaudhry et al., ICLR 2019): no step goes against the gradient on the memory."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...curation.registry import checked
from ..core.batches import batches
from ..core.determinism import generator
from ..core.exemplars import RowNumbers
from ..core.lesson import ForwardPass, Lesson
from ..data.examples import Draw, Examples
from .er import replay
from .method import Method

AgemSampler = Literal["random", "reservoir", "each_position"]


@checked
def agem(
    *,
    memory: AgemSampler = "random",
    sample: int | Literal["batch", "capacity"] = "batch",
    at_once: int | Literal["all"] = "all",
) -> Method:
    """Train only on the current samples, with the classification loss over the outputs of their own classes.

    Before each step, the gradient of the loss over the old classes' outputs is computed on a sample of the memory, and the
    component of the step that points against it is removed. If a domain adds no classes, both losses cover all outputs. The
    defaults follow IIRC's released code.

    Args:
        memory: "random" fills equal class quotas; "reservoir" is a uniform sample of the stream (CLEAR); "each_position" keeps
            a full memory for each domain or task (Avalanche), and samples equally from each.
        sample: number of stored samples for the reference gradient: the batch size ("batch"), the memory's size ("capacity";
            CLEAR), or a number.
        at_once: number of these samples per forward pass; "all" (Avalanche) may need too much memory for large images. The
            gradient equals that of the whole sample, except that batch norm computes its moments over ``at_once`` samples; its
            running statistics are updated once.

    >>> agem().exemplars, agem(memory="each_position").exemplars
    ('random', 'each_position')
    """
    if any(isinstance(count, int) and count < 1 for count in (sample, at_once)):
        raise ValueError(f"agem: sample {sample!r}: 'batch', 'capacity', or >= 1; at_once {at_once!r}: 'all', or >= 1")
    teach = functools.partial(_teach, sample=sample, by_position=memory == "each_position", at_once=at_once)
    return Method("agem", replay, "finetune", teach=teach, exemplars=memory, together=True)


def _teach(
    lesson: Lesson, *, sample: int | Literal["batch", "capacity"], by_position: bool, at_once: int | Literal["all"]
) -> None:
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
        steps += 1
        together = len(chosen) if at_once == "all" else at_once
        project(parameters, reference(lesson, lesson.train, chosen, view, parameters, old, together))

    lesson.fit(ForwardPass.own_classification, rows=np.arange(lesson.fresh), adjust=adjust)


def reference(
    lesson: Lesson,
    samples: Examples,
    chosen: RowNumbers,
    view: Draw,
    parameters: Sequence[nn.Parameter],
    classes: int,
    at_once: int,
) -> list[Tensor]:
    """Gradients of the mean loss over the first ``classes`` outputs on the chosen samples, ``at_once`` of them at a time."""
    ranks, found = lesson.means.ranks, list[Tensor]()
    with _one_move(lesson.model) if at_once < len(chosen) else contextlib.nullcontext():
        for batch in batches(samples, chosen, view, lesson.means, size=at_once, shared=True):
            whole = batch.whole or len(batch.rows)
            with lesson.together(batch):
                value = lesson.over_classes(lesson.model(batch.x), batch.targets, 0, classes)
                gradients = torch.autograd.grad(value, list(parameters), materialize_grads=True)
            share = whole / len(chosen) * (1 if ranks is None else ranks.share(whole))
            weighed = gradients if share == 1 else [gradient * share for gradient in gradients]
            found = [a + b for a, b in zip(found, weighed, strict=True)] if found else list(weighed)
    return found if ranks is None else [ranks.add(gradient.contiguous()) for gradient in found]


@contextlib.contextmanager
def _one_move(model: nn.Module) -> Iterator[None]:
    """Within the block, all passes together update batch norm's running statistics once, with the mean of their moments."""
    kind = nn.modules.batchnorm._BatchNorm  # pyright: ignore[reportPrivateUsage]
    norms = [part for part in model.modules() if isinstance(part, kind) and part.training and part.track_running_stats]
    before = [(norm.momentum, {name: value.clone() for name, value in norm.named_buffers()}) for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all passes
    yield
    for norm, (momentum, then) in zip(norms, before, strict=True):
        count = then["num_batches_tracked"] + 1
        share = 1 / count if momentum is None else momentum
        norm.momentum = momentum
        norm.get_buffer("num_batches_tracked").copy_(count)
        for name in ("running_mean", "running_var"):
            now = norm.get_buffer(name)
            now.copy_(then[name] + share * (now - then[name]))


def project(parameters: Sequence[nn.Parameter], reference: Sequence[Tensor]) -> None:
    """Replace g by g - (g r / r r) r if g r < 0; g, r: all gradients as one vector. Parameters without gradient are skipped."""
    pairs = [(p.grad, r) for p, r in zip(parameters, reference, strict=True) if p.grad is not None]
    along = sum(float((g.double() * r.double()).sum()) for g, r in pairs)
    if along >= 0:
        return
    share = along / sum(float(r.double().square().sum()) for _, r in pairs)
    for g, r in pairs:
        g.sub_(r, alpha=share)
