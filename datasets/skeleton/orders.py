"""Orders in which tasks and classes are learned: all of the tasks, seeded ones of the classes; as columns of a table.

Source: Wei, De Schepper and Mets, arXiv:2401.18054, section 4.4 and Table 2: all 120 orders of five tasks, and random orders of
the classes. How they are drawn is ours.
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
    from ...curation.store import Rows

MAX_TASKS = 7
"""Orders of more tasks than these are drawn: 8 tasks have 40,320."""


def task_orders(tasks: int = 5, n: int | None = None, *, seed: int | None = None) -> NDArray[np.int64]:
    """Orders of the tasks, (n, tasks) int64, the default order first.

    Args:
        tasks: how many there are.
        n: None: all tasks! orders, in lexicographic order; otherwise the default order and n - 1 drawn ones, no two alike.
        seed: of the drawn ones.

    Raises:
        ValueError: for all orders of more than ``MAX_TASKS``, or more orders than there are.

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
    return np.concatenate([np.arange(tasks)[None], _drawn(tasks, n - 1, seed, "task_orders")])


def class_orders(classes: int = 10, n: int = 100, *, seed: int) -> NDArray[np.int64]:
    """Random orders of the classes, (n, classes) int64, no two alike and none the default order; order i does not depend on n.

    Raises:
        ValueError: for more orders than there are.

    >>> class_orders(4, 2, seed=0)
    array([[0, 3, 1, 2],
           [2, 0, 3, 1]])
    """
    return _drawn(classes, n, seed, "class_orders")


def _drawn(items: int, n: int, seed: int, stage: str) -> NDArray[np.int64]:
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
    """Names of the columns of so many task orders and class orders: ``task_order000``, ..., ``class_order000``, ...

    >>> order_columns(2, 1)
    (['task_order000', 'task_order001'], ['class_order000'])
    """
    return [f"task_order{n:03d}" for n in range(task_count)], [f"class_order{n:03d}" for n in range(class_count)]


@functools.cache
def orders_row(task_count: int, class_count: int) -> type:
    """Row dataclass of ``list_orders``, for ``gives``.

    ``key``; ``label`` and ``class_name``; ``task``: of the class in the default order; and for each order a column: the place
    of the class among all as they are learned, from 0. In a task order the classes of a task stay in label order. Of the same
    numbers it is the same type, so that plans of the same settings are equal.

    >>> [field.name for field in dataclasses.fields(orders_row(2, 1))]
    ['key', 'label', 'class_name', 'task', 'task_order000', 'task_order001', 'class_order000']
    """
    fields: list[tuple[str, Any]] = [("key", str), ("label", int), ("class_name", str), ("task", int)]
    names = itertools.chain(*order_columns(task_count, class_count))
    return dataclasses.make_dataclass("Orders", [*fields, *((name, int) for name in names)], frozen=True)


def list_orders(*, rows: Rows, tasks: int, of_tasks: int | None, of_classes: int, seed: int) -> Iterator[pa.Table]:
    """Source step: one row per class, in label order; see ``orders_row``.

    Args:
        rows: with ``label``, ``class_name`` and ``task``.
        tasks: how many the rows have.
        of_tasks: how many orders of the tasks; None: all.
        of_classes: how many orders of the classes.
        seed: of those that are drawn.

    Raises:
        ValueError: the rows have another number of tasks; or as ``task_orders`` and ``class_orders`` do.

    >>> from benchwright.curation.store import Rows
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
