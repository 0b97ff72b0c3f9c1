"""The stream of one order of a skeleton run, for methods of all benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...datasets.skeleton.view import Orders, load_orders
from ...eval.protocols.streams import Position, Stream, Test
from ...training.data.examples import ArrayExamples
from ..streams import Prepared
from .learning import Order, graph_data


def node_stream(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training by a network that asks for ``adjacency``: samples are node vectors (V, F)."""
    return _prepared(dataset, digest, training, "adjacency")


def tensor_stream(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training by a network that asks for ``partitions``: samples are tensors (C, T, V)."""
    return _prepared(dataset, digest, training, "partitions")


def _prepared(dataset: str, digest: str, training: Mapping[str, Any], graph: str) -> Prepared:
    data = graph_data(dataset, digest, graph)
    order = order_of(load_orders(dataset), training["protocol"], training["order"])
    place = np.empty(data.classes, dtype=np.int64)
    place[[each for task in order for each in task]] = np.arange(data.classes)

    def samples(rows: NDArray[np.int64]) -> ArrayExamples:
        return ArrayExamples(data.x[rows], place[data.labels[rows]], [str(row) for row in rows.tolist()])

    tests = [Test("", split, samples(rows)) for split, rows in (("test", data.test), ("val", data.val)) if len(rows)]
    positions = [
        Position(
            name="+".join(map(str, sorted(task))),
            train=samples(data.train[np.isin(data.labels[data.train], task)]),
            classes=tuple(map(str, task)),
            tests=tuple(range(len(tests))),
        )
        for task in order
    ]
    return Prepared(Stream(tuple(positions), tuple(tests)), model={graph: torch.from_numpy(data.operators)})


def order_of(orders: Orders, experiment: str, index: int) -> Order:
    """The tasks of one order, each its classes."""
    sizes = np.bincount(orders.task_of_class)
    if experiment == "class_order":
        return cut(orders.class_orders[index], sizes)
    order = orders.task_orders[index]
    return cut(order, sizes[list(dict.fromkeys(orders.task_of_class[order].tolist()))])


def cut(order: NDArray[np.int64], sizes: NDArray[np.int64]) -> Order:
    """An order of classes as tasks of these sizes."""
    return tuple(tuple(part.tolist()) for part in np.split(order, np.cumsum(sizes)[:-1]))
