"""Orders in which tasks and classes are learned, as columns of a table: all orders of the tasks, random orders of the classes.

Source: Wei, De Schepper and Mets, arXiv:2401.18054, section 4.4 and Table 2: all 120 orders of five tasks, and random orders of
the classes. The way they are drawn is ours.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.rng import rng

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

MAX_TASKS = 7
"""Up to this number of tasks, all orders can be listed; for more they are drawn: 8 tasks have 40,320."""


def task_orders(tasks: int = 5, n: int | None = None, *, seed: int | None = None) -> NDArray[np.int64]:
    """Orders of the tasks, (n, tasks) int64, the default order first.

    Args:
        tasks: number of tasks.
        n: number of orders: the default order and n - 1 random ones, all different. None: all tasks! orders, in lexicographic
            order.
        seed: seed for the random orders; required with ``n``.

    Raises:
        ValueError: all orders of more than ``MAX_TASKS`` tasks, or more orders than exist, are requested, or ``n`` has no seed.

    >>> task_orders(3)
    array([[0, 1, 2],
           [0, 2, 1],
           [1, 0, 2],
           [1, 2, 0],
           [2, 0, 1],
           [2, 1, 0]])
    >>> task_orders(5, 2, seed=0)
    array([[0, 1, 2, 3, 4],
           [1, 2, 3, 0, 4]])
    >>> task_orders(20)
    Traceback (most recent call last):
        ...
    ValueError: 20 tasks: all orders need 1 to 7 tasks; for more, set the number of orders
    """
    if n is None:
        if not 1 <= tasks <= MAX_TASKS:
            raise ValueError(f"{tasks} tasks: all orders need 1 to {MAX_TASKS} tasks; for more, set the number of orders")
        return np.asarray(list(itertools.permutations(range(tasks))), dtype=np.int64)
    if n < 1 or seed is None:
        raise ValueError(f"{n} orders, seed {seed}: at least the default one, and a seed to draw the others")
    return np.concatenate([np.arange(tasks)[None], _random_orders(tasks, n - 1, seed, "task_orders")])


def class_orders(classes: int = 10, n: int = 100, *, seed: int) -> NDArray[np.int64]:
    """Random orders of the classes, (n, classes) int64, all different and not the default order; order i does not depend on n.

    Raises:
        ValueError: more orders than exist are requested.

    >>> class_orders(4, 2, seed=0)
    array([[0, 3, 1, 2],
           [2, 0, 3, 1]])
    """
    return _random_orders(classes, n, seed, "class_orders")


def _random_orders(items: int, n: int, seed: int, stage: str) -> NDArray[np.int64]:
    if items < 1 or n > math.factorial(min(items, 20)) - 1:
        raise ValueError(
            f"{n} orders of {items} beside the default one: there are {math.factorial(min(max(items, 1), 20)) - 1}"
        )
    seen = {tuple(range(items)): None}
    for draw in itertools.count():
        if len(seen) > n:
            break
        seen.setdefault(tuple(rng(seed, stage, str(draw)).permutation(items).tolist()))
    return np.asarray(list(seen)[1:], dtype=np.int64).reshape(n, items)


def order_columns(task_count: int, class_count: int) -> tuple[list[str], list[str]]:
    """Names of the columns of task orders and class orders: ``task_order000``, ..., ``class_order000``, ...

    >>> order_columns(2, 1)
    (['task_order000', 'task_order001'], ['class_order000'])
    """
    return [f"task_order{n:03d}" for n in range(task_count)], [f"class_order{n:03d}" for n in range(class_count)]


@functools.cache
def orders_row(task_count: int, class_count: int) -> type:
    """Row dataclass of ``list_orders``, for ``gives``.

    The columns are ``key``; ``label`` and ``class_name``; ``task``, the task of the class in the default order; and one column
    for each order: the position of the class in the order of learning, from 0. In a task order the classes of a task stay in
    label order. The same numbers give the same type, so that plans with the same settings are equal.

    >>> [field.name for field in dataclasses.fields(orders_row(2, 1))]
    ['key', 'label', 'class_name', 'task', 'task_order000', 'task_order001', 'class_order000']
    """
    fields: list[tuple[str, Any]] = [("key", str), ("label", int), ("class_name", str), ("task", int)]
    names = itertools.chain(*order_columns(task_count, class_count))
    return dataclasses.make_dataclass("Orders", [*fields, *((name, int) for name in names)], frozen=True)


def list_orders(*, rows: Rows, tasks: int, of_tasks: int | None, of_classes: int, seed: int) -> Iterator[pa.Table]:
    """Source step: one row per class, in label order; see ``orders_row``.

    Args:
        rows: rows with ``label``, ``class_name`` and ``task``.
        tasks: number of tasks in the rows.
        of_tasks: number of task orders; None: all.
        of_classes: number of class orders.
        seed: seed for the random orders.

    Raises:
        ValueError: the rows have another number of tasks; or as for ``task_orders`` and ``class_orders``.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"label": [0, 1, 2], "class_name": ["wave", "sit", "stand"], "task": [0, 0, 1]}))
    >>> [table] = list_orders(rows=rows, tasks=2, of_tasks=None, of_classes=1, seed=0)
    >>> table["task_order000"].to_pylist(), table["task_order001"].to_pylist()  # places: the second order learns task 1 first
    ([0, 1, 2], [1, 2, 0])
    """
    table = rows.table(["label", "class_name", "task"]).group_by(["label", "class_name", "task"]).aggregate([]).sort_by("label")
    task = table["task"].to_numpy()
    if len(np.unique(task)) != tasks:
        raise ValueError(f"{len(np.unique(task))} tasks of {len(task)} classes: orders of {tasks} tasks are asked for")
    learned = task_orders(tasks, of_tasks, seed=seed)
    by_task = [np.concatenate([np.flatnonzero(task == each) for each in order]) for order in learned]
    names = itertools.chain(*order_columns(len(by_task), of_classes))
    columns = [np.argsort(order) for order in [*by_task, *class_orders(len(task), of_classes, seed=seed)]]
    keys = pa.array([f"class{label:03d}" for label in range(len(task))])
    found = pa.table([keys, *table.columns], names=["key", *table.column_names])
    yield pa.table([*found.columns, *map(pa.array, columns)], names=[*found.column_names, *names])
