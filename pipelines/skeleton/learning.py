"""Learning steps of skeleton trainings: several orders of tasks that share their beginnings, or one order as a stream.

This module imports no code of tables or figures, so that changing that code does not make trainings stale.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from ...curation.rng import rng
from ...curation.rows import Sifted
from ...datasets.skeleton.tensors import node_vectors
from ...datasets.skeleton.view import ArraysShape, Orders, load_arrays, load_orders
from ...eval.protocols.predictions import ONE_LABEL, ORDER, asked, columns, row
from ...eval.protocols.stream_loop import Position, Stream, Test
from ...training.data.examples import ArrayExamples
from ...training.graph_streams.learn import learn_next
from ...training.graph_streams.nets import graph_of
from ...training.graph_streams.recipe import ClassesOfTask, GraphData, LearnedStream, Recipe, full_batches, kept_rows
from ...training.methods.method import Method
from ...training.methods.registry import made
from ..experiments import LOGGER, rejected_training, training_text
from ..stream_trainings import Prepared

TaskSequence = tuple[ClassesOfTask, ...]
PREDICTIONS = columns(ONE_LABEL).append(ORDER)
"""Columns of the rows stored by a training of several orders."""


def ranges_of_orders(*, orders: int, orders_per_part: int) -> Iterator[str]:
    """Pieces of ``orders_per_part`` orders each; neighbours in lexicographic order share the most."""
    for start in range(0, orders, orders_per_part):
        yield f"{start}-{min(start + orders_per_part, orders)}"


def learn_orders(
    piece: str,
    *,
    training: Mapping[str, Any],
    digest: str,
    dataset: str,
    method: Callable[..., Any],
    model: Callable[..., Any],
    orders: Sequence[Sequence[ClassesOfTask]],
    indices: Sequence[int],
    device: str,
) -> Iterator[pa.Table | Sifted]:
    """Source step: train the orders of a piece, all of the same length, together, and each common beginning once.

    Args:
        piece: a piece from ``ranges_of_orders``.
        training: facts, see ``experiments.Training``; of its settings, ``method``, ``model``, ``schedule`` and ``seed`` are
            used. All randomness comes from that seed, the draw of the order (see ``draw_of``) and the tasks learned before.
        digest: content digest of the dataset.
        dataset: folder of its shards.
        method: makes the method, a ``Method`` that trains streams side by side.
        model: makes the network.
        orders: tasks of each order, each a tuple of classes.
        indices: number of each order.
        device: see ``core.devices.device_of``.
    """
    start, stop = map(int, piece.split("-"))
    settings, began = training["settings"], time.monotonic()
    data = graph_data(dataset, digest, graph_of(model))
    schedule = full_batches(**settings["schedule"])
    recipe = Recipe(made(method, settings["method"]), model, settings["model"], schedule=schedule)
    mine = [tuple(tuple(task) for task in order) for order in orders[start:stop]]
    try:
        draws = [draw_of(training, index) for index in indices[start:stop]]
        learned = _learn_all(data, recipe, mine, settings["seed"], draws, device)
    except ArithmeticError as error:
        yield rejected_training(PREDICTIONS, error, key=f"diverged-{piece}")
        return
    for index, order, draw, found in zip(indices[start:stop], mine, draws, learned, strict=True):
        yield _predictions(data, index, order, found, _held(data, recipe.method, order, settings["seed"], draw))
    rate = 60 * len(mine) / max(time.monotonic() - began, 1e-9)
    LOGGER.info("%s: %d of %d orders, %.1f a minute", training_text(training), stop, len(orders), rate)


def _learn_all(
    data: GraphData, recipe: Recipe, orders: Sequence[TaskSequence], seed: int, draws: Sequence[str], device: str
) -> list[list[LearnedStream]]:
    """For each order, the learned streams after each of its tasks; orders with one draw share their common beginnings."""
    nothing, any_order = np.zeros(0, dtype=np.int64), recipe.method.any_order
    learned: dict[tuple[str, TaskSequence], LearnedStream] = {}
    found: list[list[LearnedStream]] = [[] for _ in orders]
    for k in range(1, len(orders[0]) + 1):
        known = [
            (draw, tuple(sorted(order[:k])) if any_order else order[:k]) for draw, order in zip(draws, orders, strict=True)
        ]
        wanted = list(dict.fromkeys(known))
        parents = [learned.get((draw, each[:-1])) for draw, each in wanted]
        if any_order and k > 1:  # such methods need nothing from the parent but its order
            parents = [LearnedStream(each[:-1], draw, {}, nothing, nothing) for draw, each in wanted]
        after = learn_next(
            data,
            recipe,
            parents,
            [each[-1] for _, each in wanted],
            seed=seed,
            draws=[draw for draw, _ in wanted],
            device=device,
            streams_at_once=1 if device == "cpu" else 64,
        )
        learned = dict(zip(wanted, after, strict=True))
        for mine, each in zip(found, known, strict=True):
            mine.append(dataclasses.replace(learned[each], state={}))
    return found


def _held(data: GraphData, method: Method, order: TaskSequence, seed: int, draw: str) -> list[int | None]:
    """Samples in the memory after each task; None for a method without one."""
    if method.exemplars != "share":
        return [None] * len(order)
    return list(itertools.accumulate(len(kept_rows(data, task, method.share, seed=seed, draw=draw)) for task in order))


def draw_of(training: Mapping[str, Any], order: int) -> str:
    """Name of the draw of initial weights, memories and batches with which a training learns an order.

    It is that of the repeat, or with ``evaluation.draws = "per_order"`` one of the order alone; the default order has the
    repeat's in any case.
    """
    experiment, repeat = training["protocol"], str(training["seed"])
    own = training["settings"].get("draws") == "per_order" and (order > 0 or experiment == "class_order")
    return f"{repeat}/{experiment} {order}" if own else repeat


def _predictions(
    data: GraphData, index: int, order: TaskSequence, learned: Sequence[LearnedStream], held: Sequence[int | None]
) -> pa.Table:
    """Rows of predictions for one order: the test samples, the training on each task, and the predictions after it.

    Args:
        data, order, learned: the samples, the tasks, and the learned streams.
        index: number of the order.
        held: samples in the memory after each task. Each sample counts as one part.
    """
    place = place_of_class(order)
    sets = {split: rows for split, rows in (("test", data.test), ("val", data.val)) if len(rows)}
    labels = {split: place[data.labels[rows]] for split, rows in sets.items()}
    add = functools.partial(row, ONE_LABEL)
    tables = [
        add(f"0000//{split}", 0, "", split, len(all_of), keys=[*map(str, sets[split].tolist())], labels=all_of.tolist())
        for split, all_of in labels.items()
    ]
    for k, (task, one, count) in enumerate(zip(order, learned, held, strict=True), start=1):
        samples, memory = int(np.isin(data.labels[data.train], task).sum()), {"memory_samples": count, "memory_parts": count}
        names = [str(label) for label in task]
        tables.append(add(f"{k:04}", k, task_name(task), "", samples, class_names=names, record="{}", **memory))
        for split, all_of in labels.items():
            rows = asked(all_of, sum(map(len, order[:k])))
            found = place[one.predicted if split == "test" else one.val_predicted][rows].tolist()
            tables.append(add(f"{k:04}//{split}", k, "", split, len(rows), predicted=found))
    table = pa.concat_tables(tables).append_column(ORDER, pa.array([index] * len(tables), ORDER.type))
    return table.set_column(0, "key", pc.binary_join_element_wise(f"{index:05d}", table["key"], "/"))


def samples_for(graph: str, shape: ArraysShape) -> tuple[tuple[int, ...], NDArray[np.float32]]:
    """Shape of a sample for a network that takes ``graph``, and the graph itself, see ``graph_streams.nets.graph_of``."""
    layout, joints = shape.layout, len(shape.layout.joints)
    bodies = (shape.bodies,) if shape.bodies > 1 else ()
    if graph == "adjacency":
        return (*bodies, joints, shape.frames * shape.axes), layout.adjacency() + np.eye(joints, dtype=np.float32)
    return (*bodies, shape.axes, shape.frames, joints), layout.partitions()


@functools.lru_cache(maxsize=2)
def graph_data(dataset: str, digest: str, graph: str) -> GraphData:
    """The shards in the form for networks that take ``graph``, see ``graph_streams.nets.graph_of``.

    Cached, since a process trains many pieces on them. ``digest`` identifies the content.
    """
    arrays = load_arrays(dataset)
    _, axes, frames, _, bodies = arrays.x.shape
    sample, operators = samples_for(graph, ArraysShape(arrays.layout, axes, frames, bodies))
    x = node_vectors(arrays.x) if graph == "adjacency" else np.moveaxis(arrays.x, -1, 1).reshape(-1, *sample)
    train, val, test = (np.flatnonzero(arrays.roles == role) for role in ("train", "val", "test"))
    return GraphData(np.ascontiguousarray(x), arrays.labels, train, val, test, operators, len(arrays.classes))


def node_stream(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training whose network takes ``adjacency``: samples are node vectors (V, F), or (M, V, F)."""
    return _prepared(dataset, digest, training, "adjacency")


def tensor_stream(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training whose network takes ``partitions``: samples are tensors (C, T, V), or (M, C, T, V)."""
    return _prepared(dataset, digest, training, "partitions")


def _prepared(dataset: str, digest: str, training: Mapping[str, Any], graph: str) -> Prepared:
    data = graph_data(dataset, digest, graph)
    order = order_of(load_orders(dataset), training["protocol"], training["order"])
    place = place_of_class(order)

    def samples(rows: NDArray[np.int64]) -> ArrayExamples:
        return ArrayExamples(data.x[rows], place[data.labels[rows]], [str(row) for row in rows.tolist()])

    tests = [Test("", split, samples(rows)) for split, rows in (("test", data.test), ("val", data.val)) if len(rows)]
    positions = [
        Position(
            name=task_name(task),
            train=samples(data.train[np.isin(data.labels[data.train], task)]),
            classes=tuple(map(str, task)),
            tests=tuple(range(len(tests))),
        )
        for task in order
    ]
    draw, repeat = draw_of(training, training["order"]), training["seed"]
    seed = None if draw == str(repeat) else int(rng(repeat, "seed of an order", draw).integers(1 << 31))
    return Prepared(Stream(tuple(positions), tuple(tests)), model={graph: torch.from_numpy(data.operators)}, seed=seed)


def order_of(orders: Orders, experiment: str, index: int) -> TaskSequence:
    """The tasks of one order, each as a tuple of its classes."""
    sizes = np.bincount(orders.task_of_class)
    order = orders.class_orders[index] if experiment == "class_order" else orders.task_orders[index]
    if experiment != "class_order":  # sizes of tasks are permuted with the tasks
        sizes = sizes[list(dict.fromkeys(orders.task_of_class[order].tolist()))]
    return tuple(tuple(part.tolist()) for part in np.split(order, np.cumsum(sizes)[:-1]))


def place_of_class(order: TaskSequence) -> NDArray[np.int64]:
    """(classes,) the position of each class in the order of learning, from 0."""
    return np.argsort([label for task in order for label in task])


def task_name(task: ClassesOfTask) -> str:
    """The classes of a task, ascending, joined by +."""
    return "+".join(map(str, sorted(task)))
