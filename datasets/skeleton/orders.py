"""Orders in which tasks and classes are learned: all of the tasks, seeded ones of the classes; as columns of a table."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.rng import rng

if TYPE_CHECKING:
    from ...curation.store import Rows

MAX_TASKS = 7
"""All orders of more tasks than these are not listed: 8 tasks have 40,320."""


def task_orders(tasks: int = 5) -> NDArray[np.int64]:
    """All orders of the tasks, (tasks!, tasks) int64 in lexicographic order, the default order first.

    Raises:
        ValueError: for more than ``MAX_TASKS``.
    """
    if not 1 <= tasks <= MAX_TASKS:
        raise ValueError(f"{tasks} tasks: all orders of 1 to {MAX_TASKS} are listed")
    return np.asarray(list(itertools.permutations(range(tasks))), dtype=np.int64)


def class_orders(classes: int = 10, n: int = 100, *, seed: int) -> NDArray[np.int64]:
    """Random orders of the classes, (n, classes) int64, no two alike and none the default order; order i does not depend on n.

    Raises:
        ValueError: for more orders than there are.
    """
    if classes < 1 or n > math.factorial(min(classes, 20)) - 1:
        raise ValueError(f"{n} orders of {classes} classes: there are not so many beside the default order")
    seen = {tuple(range(classes))}
    found: list[tuple[int, ...]] = []
    for draw in itertools.count():
        if len(found) == n:
            break
        order = tuple(rng(seed, "class_orders", str(draw)).permutation(classes).tolist())
        if order not in seen:
            seen.add(order)
            found.append(order)
    return np.asarray(found, dtype=np.int64).reshape(n, classes)


def order_columns(task_count: int, class_count: int) -> tuple[list[str], list[str]]:
    """Names of the columns of so many task orders and class orders: ``task_order000``, ..., ``class_order000``, ..."""
    return [f"task_order{n:03d}" for n in range(task_count)], [f"class_order{n:03d}" for n in range(class_count)]


def orders_row(task_count: int, class_count: int) -> type:
    """Row dataclass of ``list_orders``, for ``gives``.

    ``key``; ``label`` and ``class_name``; ``task``: of the class in the default order; and for each order a column: the place
    of the class among all as they are learned, from 0. In a task order the classes of a task stay in label order.
    """
    fields: list[tuple[str, Any]] = [("key", str), ("label", int), ("class_name", str), ("task", int)]
    names = itertools.chain(*order_columns(task_count, class_count))
    return dataclasses.make_dataclass("Orders", [*fields, *((name, int) for name in names)], frozen=True)


def list_orders(*, rows: Rows, tasks: int, n: int, seed: int) -> Iterator[pa.Table]:
    """Source step: one row a class, in label order; see ``orders_row``.

    Args:
        rows: with ``label``, ``class_name`` and ``task``.
        tasks: how many the rows have.
        n: class orders.
        seed: of the class orders.

    Raises:
        ValueError: the rows have another number of tasks; or as ``task_orders`` and ``class_orders`` do.
    """
    table = rows.table(["label", "class_name", "task"]).group_by(["label", "class_name", "task"]).aggregate([]).sort_by("label")
    task = table["task"].to_numpy()
    if len(np.unique(task)) != tasks:
        raise ValueError(f"{len(np.unique(task))} tasks of {len(task)} classes: orders of {tasks} tasks are asked for")
    by_task = [np.concatenate([np.flatnonzero(task == each) for each in order]) for order in task_orders(tasks)]
    names = itertools.chain(*order_columns(len(by_task), n))
    columns = [np.argsort(order) for order in [*by_task, *class_orders(len(task), n, seed=seed)]]
    keys = pa.array([f"class{label:03d}" for label in range(len(task))])
    found = pa.table([keys, *table.columns], names=["key", *table.column_names])
    for name, places in zip(names, columns, strict=True):
        found = found.append_column(name, pa.array(places))
    yield found
