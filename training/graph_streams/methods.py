"""Methods on streams side by side: the formulas are those of ``training.methods``, summed over the streams.

A method says which rows it learns from, how it learns a task, and what it keeps of it. Quirks of CGLB, whose code the paper
uses, are settings; ``published.READINGS`` has both readings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..core.criteria import softened_distillation
from ..methods import gem, importance, twp
from .recipe import GraphData, Rows, Task
from .streams import Streams, memory, task_rows


def _task_rows(data: GraphData, order: tuple[Task, ...], settings: Mapping[str, Any], seed: int, repeat: int) -> Rows:
    return task_rows(data, order[-1])


@dataclasses.dataclass(frozen=True)
class StreamMethod:
    """A method.

    Attributes:
        teach: learns the last task of the streams' orders.
        finish: run after the evaluation, where a further task may follow: what the method keeps.
        rows: (data, order, settings, seed, repeat) -> the rows to learn from.
        scratch: weights are drawn anew for each task.
        by_order: streams learn side by side only where their past tasks came in the same order, in one repeat.
    """

    teach: Callable[..., None]
    finish: Callable[..., None] | None = None
    rows: Callable[[GraphData, tuple[Task, ...], Mapping[str, Any], int, int], Rows] = _task_rows
    scratch: bool = False
    by_order: bool = False


def _seen_loss(streams: Streams) -> Callable[[], Tensor]:
    heads = streams.heads(0, streams.task + 1)
    return lambda: streams.classification(streams.batch, heads)


def _bare(streams: Streams) -> None:
    """The classification loss over the classes seen so far, and nothing else."""
    streams.fit(_seen_loss(streams))


def _regularised(streams: Streams, *, strength: float) -> None:
    """The classification loss and the pull back to where the weights were after each past task."""
    loss = _seen_loss(streams)
    streams.fit(lambda: loss().sum() + strength * importance.penalty({"flat": streams.flat}, streams.state))


def _keep(streams: Streams, weight: Tensor) -> None:
    """Keep a weight for each parameter, and the parameters, as ``methods.importance`` names them."""
    streams.state[f"{streams.task:04}/importance/flat"] = weight
    streams.state[f"{streams.task:04}/value/flat"] = streams.flat.detach().clone()


def _ewc_finish(streams: Streams, *, strength: float) -> None:
    """F is the square of the full batch's gradient, in training mode; not a mean of squares by sample."""
    _keep(streams, streams.gradient(_seen_loss(streams)()) ** 2)


def _mas(streams: Streams, *, strength: float, data: Literal["new", "learned"], average: Literal["released", "mean"]) -> None:
    if streams.task and data == "new":
        _mas_importance(streams, streams.heads(streams.task - 1, streams.task), average)
    _regularised(streams, strength=strength)


def _mas_finish(
    streams: Streams, *, strength: float, data: Literal["new", "learned"], average: Literal["released", "mean"]
) -> None:
    if data == "learned":
        _mas_importance(streams, streams.heads(0, streams.task + 1), average)


def _mas_importance(streams: Streams, heads: Tensor, average: Literal["released", "mean"]) -> None:
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


def _twp(streams: Streams, *, strength_loss: float, strength_topology: float, gradients: Literal["summed", "fresh"]) -> None:
    """The classification loss and a pull back, weighed by loss and topology.

    CGLB's regulariser on the norm of the gradient is a constant to its optimiser, so beta changes nothing; it is left out.
    With "summed" gradients are never set back within a task, as in CGLB, and that of the loss counts twice a step.
    """
    loss = _seen_loss(streams)
    if gradients == "fresh":
        streams.fit(lambda: loss().sum() + importance.penalty({"flat": streams.flat}, streams.state))
        return
    total = streams.state.pop("left", torch.zeros_like(streams.flat.detach()))

    def adjust(gradient: Tensor) -> Tensor:
        return total.add_(gradient)

    streams.fit(lambda: 2 * loss().sum() + importance.penalty({"flat": streams.flat}, streams.state), adjust)


def _twp_finish(
    streams: Streams, *, strength_loss: float, strength_topology: float, gradients: Literal["summed", "fresh"]
) -> None:
    by_loss = streams.gradient(_seen_loss(streams)())
    by_topology = streams.gradient(streams.net.topology(streams.flat, streams.batch.inputs))
    if gradients == "summed":
        by_topology = by_topology + by_loss
        streams.state["left"] = by_topology
    weight = twp.importance(by_loss, by_topology, strength_loss=strength_loss, strength_topology=strength_topology)
    _keep(streams, weight)


def _lwf(streams: Streams, *, strength: float, temperature: float, heads: Literal["task", "seen"]) -> None:
    """The classification loss, over the classes of the task or all seen, and a distillation a past task's classes.

    The old model looks at the new task once, in evaluation mode: its batch is always the same.
    """
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


def _gem(streams: Streams, *, strength: float, fraction: float, forward: Literal["task", "memory"]) -> None:
    """Steps that the gradients on the memories of past tasks agree with (``methods.gem``).

    Args:
        strength: the quadratic program's margin.
        fraction: share of a task's samples in its memory.
        forward: CGLB passes all samples of a past task through the network ("task"), so that they move the statistics of
            batch norm, and takes the loss on the memory alone; "memory": none but the memory's are seen.
    """
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
        return gem.project(gradient, torch.stack(references, dim=1), margin=strength) if past else gradient

    streams.fit(both, adjust)


def _replay(streams: Streams, *, fraction: float) -> None:
    _bare(streams)


def _with_memory(data: GraphData, order: tuple[Task, ...], settings: Mapping[str, Any], seed: int, repeat: int) -> Rows:
    kept = [task_rows(data, task)[memory(data, task, settings["fraction"], seed=seed, repeat=repeat)] for task in order[:-1]]
    return np.concatenate([task_rows(data, order[-1]), np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *kept]))])


def _all_rows(data: GraphData, order: tuple[Task, ...], settings: Mapping[str, Any], seed: int, repeat: int) -> Rows:
    return np.sort(np.concatenate([task_rows(data, task) for task in order]))


METHODS: Mapping[str, StreamMethod] = {
    "bare": StreamMethod(_bare),
    "joint": StreamMethod(_bare, rows=_all_rows, scratch=True),
    "ewc": StreamMethod(_regularised, _ewc_finish),
    "mas": StreamMethod(_mas, _mas_finish),
    "twp": StreamMethod(_twp, _twp_finish),
    "lwf": StreamMethod(_lwf),
    "gem": StreamMethod(_gem, by_order=True),
    "replay": StreamMethod(_replay, rows=_with_memory),
}
