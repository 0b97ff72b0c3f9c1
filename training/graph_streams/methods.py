"""Methods on streams side by side: the formulas are those of ``training.methods``, summed over the streams.

A factory gives a ``recipe.StreamMethod`` for its settings: which rows it learns from, how it learns a task, and what it keeps
of it. Quirks of CGLB, whose code the paper uses, are settings; ``published.READINGS`` has both readings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..core.criteria import softened_distillation
from ..methods import gem as gradient_memory
from ..methods import importance
from ..methods import twp as topology
from .recipe import GraphData, RowNumbers, StreamMethod, Task
from .streams import Streams, check_share, memory, task_rows


def _seen_loss(streams: Streams) -> Callable[[], Tensor]:
    heads = streams.heads(0, streams.task + 1)
    return lambda: streams.classification(streams.batch, heads)


def finetune() -> StreamMethod:
    """The classification loss over the classes seen so far, and nothing else."""
    return StreamMethod("finetune", classify)


def classify(streams: Streams) -> None:
    """Learn by the classification loss over the classes seen so far."""
    streams.fit(_seen_loss(streams))


def joint() -> StreamMethod:
    """The upper end: each task trains new weights on all samples so far, so the order of the tasks changes nothing."""
    return StreamMethod("joint", classify, rows=_all_rows, scratch=True, any_order=True)


def _all_rows(data: GraphData, order: tuple[Task, ...], *, seed: int, repeat: int) -> RowNumbers:
    return np.sort(np.concatenate([task_rows(data, task) for task in order]))


def er(*, fraction: float) -> StreamMethod:
    """Experience replay: a share of each past task's samples is learned again with the new task's.

    Args:
        fraction: share of a task's samples in its memory.
    """
    check_share(fraction)
    rows = functools.partial(_with_memory, fraction=fraction)
    return StreamMethod("er", classify, rows=rows, settings={"fraction": fraction})


def _with_memory(data: GraphData, order: tuple[Task, ...], *, seed: int, repeat: int, fraction: float) -> RowNumbers:
    kept = [task_rows(data, task)[memory(data, task, fraction, seed=seed, repeat=repeat)] for task in order[:-1]]
    return np.concatenate([task_rows(data, order[-1]), np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *kept]))])


def _regularised(streams: Streams, *, strength: float) -> None:
    """The classification loss and the pull back to where the weights were after each past task."""
    loss = _seen_loss(streams)
    streams.fit(lambda: loss().sum() + strength * importance.penalty({"flat": streams.flat}, streams.state))


def _keep(streams: Streams, weight: Tensor) -> None:
    """Keep a weight for each parameter, and the parameters, as ``methods.importance`` names them."""
    streams.state[f"{streams.task:04}/importance/flat"] = weight
    streams.state[f"{streams.task:04}/value/flat"] = streams.flat.detach().clone()


def ewc(*, strength: float) -> StreamMethod:
    """The classification loss and lambda times the sum over past tasks of F (theta - theta*)^2.

    F is the square of the full batch's gradient, in training mode; not a mean of squares by sample.

    Args:
        strength: lambda.
    """
    teach = functools.partial(_regularised, strength=strength)
    return StreamMethod("ewc", teach, _ewc_finish, settings={"strength": strength})


def _ewc_finish(streams: Streams) -> None:
    _keep(streams, streams.gradient(_seen_loss(streams)()) ** 2)


def mas(*, strength: float, data: Literal["new", "learned"], average: Literal["released", "mean"]) -> StreamMethod:
    """The classification loss and lambda times Omega (theta - theta*)^2.

    Args:
        strength: lambda.
        data: Omega is taken from the "new" task's samples as it begins, or from those of the task "learned" as it ends.
        average: CGLB adds the number of samples where it means to multiply by it ("released").
    """
    settings = {"strength": strength, "data": data, "average": average}
    finish = functools.partial(_mas_finish, average=average) if data == "learned" else None
    teach = functools.partial(_mas, strength=strength, new=data == "new", average=average)
    return StreamMethod("mas", teach, finish, settings=settings)


def _mas(streams: Streams, *, strength: float, new: bool, average: str) -> None:
    if streams.task and new:
        _mas_importance(streams, streams.heads(streams.task - 1, streams.task), average)
    _regularised(streams, strength=strength)


def _mas_finish(streams: Streams, *, average: str) -> None:
    _mas_importance(streams, streams.heads(0, streams.task + 1), average)


def _mas_importance(streams: Streams, heads: Tensor, average: str) -> None:
    """Squared gradient of the mean squared output, averaged over the samples of all tasks so far; one anchor, the last."""
    logits = streams.outputs(streams.batch)
    squares = (logits.square() * heads[:, None]).sum((1, 2)) / (heads.sum(1) * logits.shape[1])
    fresh, count = streams.gradient(squares) ** 2, logits.shape[1]
    seen = streams.state.get("seen", torch.zeros(len(fresh), 1, device=fresh.device))
    old = streams.state.get("0000/importance/flat")
    if old is not None:
        # CGLB's class-incremental code adds the number of samples where it means to multiply by it.
        added = fresh + count if average == "released" else fresh * count
        fresh = (old * seen + added) / (seen + count)
    streams.state |= {
        "seen": seen + count,
        "0000/importance/flat": fresh,
        "0000/value/flat": streams.flat.detach().clone(),
    }


def twp(*, strength_loss: float, strength_topology: float, gradients: Literal["summed", "fresh"]) -> StreamMethod:
    """The classification loss and a pull back, weighed by loss and topology.

    CGLB's regulariser on the norm of the gradient is a constant to its optimiser, so beta changes nothing; it is left out.

    Args:
        strength_loss, strength_topology: see ``training.methods.twp``.
        gradients: "summed": they are never set back within a task, as in CGLB, and that of the loss counts twice a step.
    """
    settings = {"strength_loss": strength_loss, "strength_topology": strength_topology, "gradients": gradients}
    teach = functools.partial(_twp, gradients=gradients)
    return StreamMethod("twp", teach, functools.partial(_twp_finish, **settings), settings=settings, topology=True)


def _twp(streams: Streams, *, gradients: str) -> None:
    loss = _seen_loss(streams)
    if gradients == "fresh":
        streams.fit(lambda: loss().sum() + importance.penalty({"flat": streams.flat}, streams.state))
        return
    total = streams.state.pop("left", torch.zeros_like(streams.flat.detach()))

    def adjust(gradient: Tensor) -> Tensor:
        return total.add_(gradient)

    streams.fit(lambda: 2 * loss().sum() + importance.penalty({"flat": streams.flat}, streams.state), adjust)


def _twp_finish(streams: Streams, *, strength_loss: float, strength_topology: float, gradients: str) -> None:
    by_loss = streams.gradient(_seen_loss(streams)())
    by_topology = streams.gradient(streams.net.topology(streams.flat, streams.batch.inputs))
    if gradients == "summed":
        by_topology = by_topology + by_loss
        streams.state["left"] = by_topology
    weight = topology.importance(by_loss, by_topology, strength_loss=strength_loss, strength_topology=strength_topology)
    _keep(streams, weight)


def lwf(*, strength: float, temperature: float, heads: Literal["task", "seen"]) -> StreamMethod:
    """The classification loss, over the classes of the task or all seen, and a distillation a past task's classes.

    The old model looks at the new task once, in evaluation mode: its batch is always the same.

    Args:
        strength: lambda.
        temperature: T.
        heads: whose classes compete in the classification loss.
    """
    settings = {"strength": strength, "temperature": temperature, "heads": heads}
    return StreamMethod("lwf", functools.partial(_lwf, **settings), settings=settings)


def _lwf(streams: Streams, *, strength: float, temperature: float, heads: str) -> None:
    active = streams.heads(streams.task if heads == "task" else 0, streams.task + 1)
    with torch.no_grad():
        before = streams.outputs(streams.batch, training=False)
    groups = [streams.columns(position)[:, None].expand(-1, before.shape[1], -1) for position in range(streams.task)]

    def loss() -> Tensor:
        logits = streams.outputs(streams.batch)
        total = streams.classification(streams.batch, active, logits)
        for group in groups:
            total = total + strength * softened_distillation(logits.gather(2, group), before.gather(2, group), temperature)
        return total

    streams.fit(loss)


def gem(*, strength: float, fraction: float, forward: Literal["task", "memory"]) -> StreamMethod:
    """Steps that the gradients on the memories of past tasks agree with (``training.methods.gem``).

    Args:
        strength: the quadratic program's margin.
        fraction: share of a task's samples in its memory.
        forward: CGLB passes all samples of a past task through the network ("task"), so that they move the statistics of
            batch norm, and takes the loss on the memory alone; "memory": none but the memory's are seen.
    """
    check_share(fraction)
    settings = {"strength": strength, "fraction": fraction, "forward": forward}
    return StreamMethod("gem", functools.partial(_gem, **settings), settings=settings, by_order=True)


def _gem(streams: Streams, *, strength: float, fraction: float, forward: str) -> None:
    past: list[tuple[Any, Tensor]] = []
    for position in range(streams.task):
        rows = streams.task_rows(streams.orders[0][position])
        chosen = [streams.memory(stream, position, fraction) for stream in range(len(streams.orders))]
        batch = streams.batch_of(rows, chosen) if forward == "task" else streams.batch_of(rows[chosen[0]])
        past.append((batch, streams.heads(0, position + 1)))
    loss = _seen_loss(streams)
    references: list[Tensor] = []

    def both() -> Tensor:
        references[:] = [streams.gradient(streams.classification(batch, heads)) for batch, heads in past]
        return loss()

    def adjust(gradient: Tensor) -> Tensor:
        return gradient_memory.project(gradient, torch.stack(references, dim=1), margin=strength) if past else gradient

    streams.fit(both, adjust)
