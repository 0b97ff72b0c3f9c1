"""The step that trains methods on streams side by side: several orders of tasks, which share the training of their beginnings.

This module reaches training and data alone: an edit of a table or of a figure makes no training again.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...curation.rows import Sifted, schema_of
from ..experiments import LOGGER, told
from ..streams import diverged

if TYPE_CHECKING:
    from ...training.graph_streams.recipe import GraphData, Learned, Recipe

Task = tuple[int, ...]
Order = tuple[Task, ...]


@dataclass(frozen=True)
class LearnedRow:
    """A stream after one of its tasks.

    Attributes:
        order_index: which order; of task orders 0 is the default.
        k: tasks learned.
        classes: those learned so far, in the order learned, task by task.
        sizes: how many of them each task brought.
        class_accuracy: (len(classes),) in [0, 1], on the test sequences of each.
        val_class_accuracy: likewise, on those that validate.
    """

    key: str
    order_index: int
    k: int
    classes: list[int]
    sizes: list[int]
    class_accuracy: list[float]
    val_class_accuracy: list[float]


def stretches(*, orders: int, orders_per_part: int) -> Iterator[str]:
    """Pieces: so many orders each, neighbours in lexicographic order, which share the most."""
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
    orders: Sequence[Sequence[Task]],
    indices: Sequence[int],
    device: str,
) -> Iterator[LearnedRow | Sifted]:
    """Source step: train the orders of a piece, all of one length together, and each common beginning once.

    Args:
        piece: of ``stretches``.
        training: facts, see ``experiments.Training``: of its settings ``method``, ``model``, ``schedule`` and ``seed``. All
            randomness comes from that seed, the number of the repeat, and what was learned before.
        digest: content digest of the data set.
        dataset: folder of its shards.
        method: makes the method, a ``StreamMethod``.
        model: makes the network.
        orders: tasks of each order, each a tuple of classes.
        indices: number of each order.
        device: see ``core.devices.device_of``.
    """
    from ...training.graph_streams.nets import graph_of
    from ...training.graph_streams.recipe import Recipe, StreamMethod
    from ...training.methods.registry import made_as

    start, stop = map(int, piece.split("-"))
    settings, began = training["settings"], time.monotonic()
    data = graph_data(dataset, digest, graph_of(model))
    recipe = Recipe(made_as(StreamMethod, method, settings["method"]), model, settings["model"], **settings["schedule"])
    mine = [tuple(tuple(task) for task in order) for order in orders[start:stop]]
    try:
        learned = _learn_all(data, recipe, mine, settings["seed"], training["seed"], device)
    except ArithmeticError as error:
        if type(error) is not ArithmeticError:  # a division by zero, say, is a fault of ours
            raise
        yield diverged(schema_of(LearnedRow), error, key=f"diverged-{piece}")
        return
    for index, found in zip(indices[start:stop], learned, strict=True):
        for one in found:
            yield _row(index, one)
    rate = 60 * len(mine) / max(time.monotonic() - began, 1e-9)
    LOGGER.info("%s: %d of %d orders, %.1f a minute", told(training), stop, len(orders), rate)


def _learn_all(
    data: GraphData, recipe: Recipe, orders: Sequence[Order], seed: int, repeat: int, device: str
) -> list[list[Learned]]:
    """Each order after each of its tasks."""
    from ...training.core.devices import device_of
    from ...training.graph_streams.learn import learn_next
    from ...training.graph_streams.recipe import Learned

    nothing, any_order = np.full(data.classes, np.nan), recipe.method.any_order
    learned: dict[Order, Learned] = {}
    found: list[list[Learned]] = [[] for _ in orders]
    for k in range(1, len(orders[0]) + 1):
        known = [tuple(sorted(order[:k])) if any_order else order[:k] for order in orders]
        wanted = list(dict.fromkeys(known))
        parents = [learned.get(each[:-1]) for each in wanted]
        if any_order and k > 1:  # which takes no more than the order from its parent
            parents = [Learned(each[:-1], repeat, {}, nothing, nothing) for each in wanted]
        made = learn_next(
            data,
            recipe,
            parents,
            [each[-1] for each in wanted],
            seed=seed,
            repeats=[repeat] * len(wanted),
            device=device_of(device),
            streams_at_once=1 if device == "cpu" else 64,
        )
        learned = dict(zip(wanted, made, strict=True))
        for mine, each, order in zip(found, known, orders, strict=True):
            mine.append(dataclasses.replace(learned[each], order=order[:k], state={}))
    return found


def _row(index: int, learned: Learned) -> LearnedRow:
    classes = [each for task in learned.order for each in task]
    return LearnedRow(
        key=f"{index:05d}-{len(learned.order)}",
        order_index=index,
        k=len(learned.order),
        classes=classes,
        sizes=[len(task) for task in learned.order],
        class_accuracy=learned.class_accuracy[classes].tolist(),
        val_class_accuracy=learned.val_class_accuracy[classes].tolist(),
    )


@functools.lru_cache(maxsize=2)
def graph_data(dataset: str, digest: str, graph: str) -> GraphData:
    """The shards as networks take them that ask for ``graph``, see ``graph_streams.nets.graph_of``.

    It is held, for a process trains many pieces of them. ``digest`` names the content.
    """
    from ...datasets.skeleton.tensors import node_vectors
    from ...datasets.skeleton.view import load_arrays
    from ...training.graph_streams.recipe import GraphData

    arrays = load_arrays(dataset)
    if graph == "adjacency":
        x, operators = node_vectors(arrays.x), arrays.layout.adjacency() + np.eye(len(arrays.layout.joints), dtype=np.float32)
    else:
        x, operators = arrays.x[..., 0], arrays.layout.partitions()
    train, val, test = (np.flatnonzero(arrays.roles == role) for role in ("train", "val", "test"))
    return GraphData(np.ascontiguousarray(x), arrays.labels, train, val, test, operators, len(arrays.classes))
