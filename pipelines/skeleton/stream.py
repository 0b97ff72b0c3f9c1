"""The stream of one order of a skeleton run, for methods of all benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...datasets.skeleton.view import Orders, load_orders
from ...training.data.examples import ArrayExamples
from ..streams import Prepared
from .learning import Order, graph_data, stream_of_order


def node_stream(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training by a network that asks for ``adjacency``: samples are node vectors (V, F)."""
    return _prepared(dataset, digest, training, "adjacency")


def tensor_stream(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training by a network that asks for ``partitions``: samples are tensors (C, T, V)."""
    return _prepared(dataset, digest, training, "partitions")


def _prepared(dataset: str, digest: str, training: Mapping[str, Any], graph: str) -> Prepared:
    data = graph_data(dataset, digest, graph)
    order = order_of(load_orders(dataset), training["protocol"], training["order"])

    def samples(rows: NDArray[np.int64], labels: NDArray[np.int64]) -> ArrayExamples:
        return ArrayExamples(data.x[rows], labels, [str(row) for row in rows.tolist()])

    return Prepared(stream_of_order(data, order, samples), model={graph: torch.from_numpy(data.operators)})


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
