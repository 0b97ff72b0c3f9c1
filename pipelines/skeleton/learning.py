"""The step that trains: streams of tasks in several orders, which share the training of their common beginnings.

This module reaches training and data alone: an edit of a table or of a figure makes no training again.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ...training.graph_streams.recipe import GraphData, Learned, Recipe

Task = tuple[int, ...]
Order = tuple[Task, ...]


@dataclass(frozen=True)
class LearnedRow:
    """A stream after one of its tasks.

    Attributes:
        method, architecture, width, depth: of the recipe.
        settings: of the method, as JSON.
        kind: ``default``, ``task_order`` or ``class_order``.
        order_index: which order; of task orders 0 is the default.
        repeat: number of the repeat.
        k: tasks learned.
        classes: those learned so far, in the order learned, task by task.
        sizes: how many of them each task brought.
        class_accuracy: (len(classes),) in [0, 1], on the test sequences of each.
        val_class_accuracy: likewise, on those that validate.
    """

    key: str
    method: str
    settings: str
    architecture: str
    width: int
    depth: int
    kind: str
    order_index: int
    repeat: int
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
    dataset: str,
    digest: str,
    recipe: Recipe,
    kind: str,
    orders: Sequence[Sequence[Task]],
    indices: Sequence[int],
    seed: int,
    repeat: int,
    device: str,
) -> Iterator[LearnedRow]:
    """Source step: train the orders of a piece, all of one length together, and each common beginning once.

    Args:
        piece: of ``stretches``.
        dataset: folder of the shards, whose content ``digest`` names.
        digest: content digest of the data set.
        recipe: what learns, and how.
        kind: see ``LearnedRow``.
        orders: tasks of each order, each a tuple of classes.
        indices: number of each order.
        seed, repeat: all randomness comes from them and from what was learned before.
        device: ``cpu`` or ``cuda``.
    """
    start, stop = map(int, piece.split("-"))
    data = graph_data(dataset, digest, recipe.architecture)
    mine = list(zip(indices, orders, strict=True))[start:stop]
    learned = _learn_all(data, recipe, [tuple(tuple(task) for task in order) for _, order in mine], seed, repeat, device)
    for (index, _), found in zip(mine, learned, strict=True):
        for one in found:
            yield _row(recipe, kind, index, repeat, one)


def _learn_all(
    data: GraphData, recipe: Recipe, orders: Sequence[Order], seed: int, repeat: int, device: str
) -> list[list[Learned]]:
    """Each order after each of its tasks."""
    from ...training.graph_streams.learn import learn_next
    from ...training.graph_streams.recipe import Learned

    nothing = np.full(data.classes, np.nan)
    learned: dict[Order, Learned] = {}
    found: list[list[Learned]] = [[] for _ in orders]
    for k in range(1, len(orders[0]) + 1):
        # What joint learns depends on the set of tasks alone, and it takes no more than the order from its parent.
        joint = recipe.method == "joint"
        known = [tuple(sorted(order[:k])) if joint else order[:k] for order in orders]
        wanted = list(dict.fromkeys(known))
        parents = [learned.get(each[:-1]) for each in wanted]
        if joint and k > 1:
            parents = [Learned(each[:-1], repeat, {}, nothing, nothing) for each in wanted]
        made = learn_next(
            data,
            recipe,
            parents,
            [each[-1] for each in wanted],
            seed=seed,
            repeats=[repeat] * len(wanted),
            device=device,
            streams_at_once=1 if device == "cpu" else 64,
        )
        learned = dict(zip(wanted, made, strict=True))
        for mine, each, order in zip(found, known, orders, strict=True):
            mine.append(dataclasses.replace(learned[each], order=order[:k], state={}))
    return found


def _row(recipe: Recipe, kind: str, index: int, repeat: int, learned: Learned) -> LearnedRow:
    classes = [each for task in learned.order for each in task]
    return LearnedRow(
        key=f"{index:05d}-{len(learned.order)}",
        method=recipe.method,
        settings=json.dumps(dict(recipe.settings), sort_keys=True),
        architecture=recipe.architecture,
        width=recipe.width,
        depth=recipe.depth,
        kind=kind,
        order_index=index,
        repeat=repeat,
        k=len(learned.order),
        classes=classes,
        sizes=[len(task) for task in learned.order],
        class_accuracy=learned.class_accuracy[classes].tolist(),
        val_class_accuracy=learned.val_class_accuracy[classes].tolist(),
    )


@functools.lru_cache(maxsize=2)
def graph_data(dataset: str, digest: str, architecture: str) -> GraphData:
    """The shards as what networks take; held, for a process trains many pieces of them. ``digest`` names the content."""
    from ...datasets.skeleton.tensors import node_vectors
    from ...datasets.skeleton.view import load_arrays
    from ...training.graph_streams.recipe import GraphData

    arrays = load_arrays(dataset)
    if architecture == "gcn":
        x, operators = node_vectors(arrays.x), arrays.layout.adjacency() + np.eye(len(arrays.layout.joints), dtype=np.float32)
    else:
        x, operators = arrays.x[..., 0], arrays.layout.partitions()
    train, val, test = (np.flatnonzero(arrays.roles == role) for role in ("train", "val", "test"))
    return GraphData(np.ascontiguousarray(x), arrays.labels, train, val, test, operators, len(arrays.classes))
