"""Learn one further task on many streams; the order-sensitivity experiment calls this level by level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from ...curation.encoders.one_thread import exact
from ..core.determinism import generator
from ..core.devices import device_of
from .nets import net_of
from .parallel_streams import GraphNet, Streams
from .recipe import ClassesOfTask, GraphData, LearnedStream, Recipe, chosen_rows


def learn_next(
    data: GraphData,
    recipe: Recipe,
    parents: Sequence[LearnedStream | None],
    tasks: Sequence[ClassesOfTask],
    *,
    seed: int,
    draws: Sequence[str],
    device: str = "cpu",
    streams_at_once: int = 1,
) -> list[LearnedStream]:
    """Teach each stream its next task.

    A result depends only on (seed, draw, tasks so far), to the last bit on one machine: orders with the same draw can share a
    common beginning, and the other streams of a call do not matter. Only if several streams are trained in one tensor program
    does their number affect the rounding: batched multiplications sum in another order.

    Args:
        parents: state of each stream; None starts a new one. A method that starts from scratch uses only the order of its
            parent.
        tasks: the classes that each stream learns next, all of them new to it.
        draws: name of each stream's draw of initial weights, memories and batches, equal to its parent's.
        device: see ``core.devices.device_of``; on a GPU a step uses torch's own operations and gradient: bits differ.
        streams_at_once: maximum number of streams in one tensor program, among those that learn from the same rows. One step
            fills a processor core and its cache, so more than 1 pays only on an accelerator.

    Raises:
        ValueError: a class of a task is known already or has no training row, sequences differ in length, or the device is not
            available.
        ArithmeticError: weights are no longer finite.
    """
    method = recipe.method
    if not len(parents) == len(tasks) == len(draws):
        raise ValueError(f"{len(parents)} parents, {len(tasks)} tasks, {len(draws)} draws: one of each a stream")
    orders = [_order(parent, task, draw) for parent, task, draw in zip(parents, tasks, draws, strict=True)]
    if streams_at_once < 1:
        raise ValueError(f"streams_at_once {streams_at_once}: at least 1")
    place = torch.device(device_of(device))
    net = net_of(recipe.make, recipe.model, data, place)
    streams_at_once = 1 if getattr(net, "alone", False) else streams_at_once
    groups: defaultdict[object, list[int]] = defaultdict(list)
    rows = [chosen_rows(method, data, order, seed=seed, draw=draw) for order, draw in zip(orders, draws, strict=True)]
    for stream, (order, draw) in enumerate(zip(orders, draws, strict=True)):
        # Data that a method may use again: its memories of the past, or the samples of the previous task.
        past = (order, draw) if method.exemplars else (order[-2:-1], [len(task) for task in order])
        if recipe.schedule.batch_size < len(rows[stream]):  # batches are drawn too
            past = (*past, draw)
        groups[rows[stream].tobytes(), repr(past)].append(stream)
    done: dict[int, LearnedStream] = {}
    with exact(place):
        looked_at = [
            (rows, net.inputs(torch.from_numpy(data.x[rows]).to(place)) if len(rows) <= recipe.schedule.batch_size else None)
            for rows in (data.test, data.val)
        ]
        for members in groups.values():
            for at in range(0, len(members), streams_at_once):
                chunk = members[at : at + streams_at_once]
                streams = Streams(
                    net,
                    data,
                    recipe,
                    _stacked(net, recipe, [parents[s] for s in chunk], [draws[s] for s in chunk], seed),
                    orders=[orders[s] for s in chunk],
                    draws=[draws[s] for s in chunk],
                    rows=rows[chunk[0]],
                    seed=seed,
                    device=place,
                )
                if method.teach is None:
                    streams.fit(lambda step: step.classification())
                else:
                    method.teach(streams)
                predicted = [streams.predict(rows, inputs) for rows, inputs in looked_at]
                for s, draw, state, test, val in zip(chunk, streams.draws, streams.saved(), *predicted, strict=True):
                    done[s] = LearnedStream(orders[s], draw, state, test, val)
    return [done[stream] for stream in range(len(orders))]


def _order(parent: LearnedStream | None, task: ClassesOfTask, draw: str) -> tuple[ClassesOfTask, ...]:
    order = () if parent is None else parent.order
    known = {label for past in order for label in past}
    if not task or known & set(task) or len(set(task)) < len(task):
        raise ValueError(f"task {task} after {order}: at least one class, each once, and none that is known")
    if parent is not None and parent.draw != draw:
        raise ValueError(f"draw {draw!r} of a stream whose parent has draw {parent.draw!r}")
    return (*order, tuple(task))


def _stacked(
    net: GraphNet, recipe: Recipe, parents: Sequence[LearnedStream | None], draws: Sequence[str], seed: int
) -> dict[str, Tensor]:
    """The states that the streams continue from, stacked along a stream axis."""
    states: list[dict[str, Tensor]] = []
    for parent, draw in zip(parents, draws, strict=True):
        if parent is not None and recipe.method.start != "scratch":
            states.append(dict(parent.state))
            continue
        weights, statistics = net.draw(generator(seed, "graph_streams weights", draw))
        states.append({"weights": weights, "statistics": statistics})
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}
