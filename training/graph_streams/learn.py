"""Learn one further task on many streams: what the order-sensitivity experiment calls level after level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from ...curation.encoders.one_thread import one_thread
from ..core.determinism import generator, repeatable
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
    repeats: Sequence[int],
    device: str = "cpu",
    streams_at_once: int = 1,
) -> list[LearnedStream]:
    """Teach each stream its next task.

    A result depends on (seed, repeat, the tasks so far) alone, to the last bit on one machine: so orders that begin alike
    share their beginning, and it does not matter which streams a call has. Only where several are trained in one tensor
    program does a stream depend on how many there are, by rounding: multiplications of stacks add up in another order.

    Args:
        parents: where each stream stands; None begins one. A method that starts from scratch takes no more than the order from
            its parent.
        tasks: the classes that each stream learns next, none of which it knows.
        repeats: of each stream; a parent's own.
        device: "cpu" or "cuda". Not tried on "cuda" here, where torch's own operations and gradient take a step: bits differ.
        streams_at_once: maximum streams in one tensor program, of those that learn from the same rows. One step
            fills a core of a processor and its cache, so more than 1 pays on an accelerator only.

    Raises:
        ValueError: a task whose class is known or has no training row, arrays that do not pair,
            no such device.
        ArithmeticError: weights are no longer finite.
    """
    method = recipe.method
    if not len(parents) == len(tasks) == len(repeats):
        raise ValueError(f"{len(parents)} parents, {len(tasks)} tasks, {len(repeats)} repeats: one of each a stream")
    orders = [_order(parent, task, repeat) for parent, task, repeat in zip(parents, tasks, repeats, strict=True)]
    if streams_at_once < 1:
        raise ValueError(f"streams_at_once {streams_at_once}: at least 1")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda': this machine has none that torch can use")
    place = torch.device(device)
    net = net_of(recipe.make, recipe.model, data, place)
    streams_at_once = 1 if getattr(net, "alone", False) else streams_at_once
    groups: defaultdict[object, list[int]] = defaultdict(list)
    rows = [chosen_rows(method, data, order, seed=seed, repeat=repeat) for order, repeat in zip(orders, repeats, strict=True)]
    for stream, (order, repeat) in enumerate(zip(orders, repeats, strict=True)):
        # What a method may look at again: its memories of the past, or the samples of the task before.
        past = (order, repeat) if method.exemplars else (order[-2:-1], [len(task) for task in order])
        if recipe.schedule.batch_size < len(rows[stream]):  # whose batches are drawn for each repeat
            past = (*past, repeat)
        groups[rows[stream].tobytes(), repr(past)].append(stream)
    done: dict[int, LearnedStream] = {}
    with one_thread(), repeatable(place, half=False):
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
                    _stacked(net, recipe, [parents[s] for s in chunk], [repeats[s] for s in chunk], seed),
                    orders=[orders[s] for s in chunk],
                    repeats=[repeats[s] for s in chunk],
                    rows=rows[chunk[0]],
                    seed=seed,
                    device=place,
                )
                if method.teach is None:
                    streams.fit(lambda step: step.classification())
                else:
                    method.teach(streams)
                predicted = [streams.predict(rows, inputs) for rows, inputs in looked_at]
                for s, state, test, val in zip(chunk, streams.saved(), *predicted, strict=True):
                    done[s] = LearnedStream(orders[s], repeats[s], state, test, val)
    return [done[stream] for stream in range(len(orders))]


def _order(parent: LearnedStream | None, task: ClassesOfTask, repeat: int) -> tuple[ClassesOfTask, ...]:
    order = () if parent is None else parent.order
    known = {label for past in order for label in past}
    if not task or known & set(task) or len(set(task)) < len(task):
        raise ValueError(f"task {task} after {order}: at least one class, each once, and none that is known")
    if parent is not None and parent.repeat != repeat:
        raise ValueError(f"repeat {repeat} of a stream whose parent has repeat {parent.repeat}")
    return (*order, tuple(task))


def _stacked(
    net: GraphNet, recipe: Recipe, parents: Sequence[LearnedStream | None], repeats: Sequence[int], seed: int
) -> dict[str, Tensor]:
    """What the streams continue from, along a stream axis."""
    states: list[dict[str, Tensor]] = []
    for parent, repeat in zip(parents, repeats, strict=True):
        if parent is not None and recipe.method.start != "scratch":
            states.append(dict(parent.state))
            continue
        weights, statistics = net.draw(generator(seed, "graph_streams weights", str(repeat)))
        states.append({"weights": weights, "statistics": statistics})
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}
