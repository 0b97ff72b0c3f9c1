"""Streams of tasks that were learned in many orders, and what their order did: values and measures from accuracies by class."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...curation.store import Rows
from ..metrics.class_incremental import final_accuracy
from ..metrics.order_sensitivity import (
    OrderDifference,
    final_minus_diagonal,
    forgetting_bound,
    forgetting_from_best,
    order_difference,
    task_accuracy_matrix,
)
from ..results import Value, measured
from .predictions import Predictions, TestSet, asked

Key = tuple[int, str, int]
"""Repeat, kind of order, and its number."""


@dataclass(frozen=True, eq=False)
class OrderedStream:
    """One order, learned to its end.

    Attributes:
        order: its number.
        tasks: classes of each task, in the order learned.
        accuracy: after each task, that of each class learned so far on the test sequences, in the order learned.
        val_accuracy: likewise, on those that validate; NaN where there are none.

    >>> one = OrderedStream(0, ((2, 0), (1,)), [[1.0, 0.5], [0.5, 0.5, 1.0]], [[float("nan")] * 2, [float("nan")] * 3])
    >>> one.classes, one.matrix()
    ([2, 0, 1], array([[0.75,  nan],
           [0.5 , 1.  ]]))
    >>> one.measures()["af_from_best", "test"]  # the first task fell from 0.75 to 0.5
    0.25
    """

    order: int
    tasks: tuple[tuple[int, ...], ...]
    accuracy: Sequence[Sequence[float]]
    val_accuracy: Sequence[Sequence[float]]

    @property
    def classes(self) -> list[int]:
        """In the order learned."""
        return [each for task in self.tasks for each in task]

    def matrix(self) -> NDArray[np.float64]:
        """(N, N) accuracy by task on the test sequences, rows after each task; NaN above the diagonal."""
        return task_accuracy_matrix(self.accuracy, [len(task) for task in self.tasks])

    def measures(self) -> dict[tuple[str, str], float]:
        """By metric and split: ``aa``, ``af_from_best``, ``af_final_minus_diagonal``, ``bound`` (a_kk = 1), ``bound_own`` (its
        a_kk); and ``aa`` of the sequences that validate.
        """
        matrix, tasks = self.matrix(), len(self.tasks)
        average, nothing = final_accuracy(matrix), float("nan")
        val = np.asarray(self.val_accuracy[-1], dtype=np.float64)
        val_matrix = task_accuracy_matrix(self.val_accuracy, [len(task) for task in self.tasks])
        return {
            ("aa", "test"): average,
            ("af_from_best", "test"): forgetting_from_best(matrix),
            ("af_final_minus_diagonal", "test"): final_minus_diagonal(matrix),
            ("bound", "test"): float(forgetting_bound(average, tasks)) if tasks > 1 else nothing,
            ("bound_own", "test"): float(forgetting_bound(average, tasks, matrix[-1, -1])) if tasks > 1 else nothing,
            ("aa", "val"): nothing if np.isnan(val).any() else final_accuracy(val_matrix),
        }


# --------------------------------------------------------------------------------------------------- what was learned


def measure_orders(*, predictions: Rows, orders: int) -> Iterator[Value]:
    """Source step: the values of a training that learned several orders; see ``values_of``.

    Args:
        predictions: ``order_index``, ``k`` (tasks learned), ``classes``, ``sizes``, ``class_accuracy``, ``val_class_accuracy``.
        orders: how many it was to learn. Where some are missing, since they diverged, nothing is told of them together.
    """
    found = list(streams(predictions.table().to_pylist()))
    return values_of(found, together=len(found) == orders)


def streams(rows: Sequence[Mapping[str, Any]]) -> Iterator[OrderedStream]:
    """The streams whose results after each task are given, in their order.

    Raises:
        ValueError: a stream of which a task is missing or stands twice.

    >>> nan = float("nan")
    >>> first = {"order_index": 0, "k": 1, "classes": [2], "sizes": [1], "class_accuracy": [1.0], "val_class_accuracy": [nan]}
    >>> second = {"order_index": 0, "k": 2, "classes": [2, 0], "sizes": [1, 1], "class_accuracy": [0.5, 1.0]}
    >>> second["val_class_accuracy"] = [nan, nan]
    >>> next(streams([first, second])).tasks
    ((2,), (0,))
    >>> list(streams([second]))
    Traceback (most recent call last):
        ...
    ValueError: order 0: results after [2] tasks: 1, 2, ... each once
    """
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["order_index"], []).append(row)
    for order, unsorted in found.items():
        mine = sorted(unsorted, key=lambda row: row["k"])
        learned = [row["k"] for row in mine]
        if learned != list(range(1, len(mine) + 1)):
            raise ValueError(f"order {order}: results after {learned} tasks: 1, 2, ... each once")
        ends = itertools.pairwise(np.cumsum([0, *mine[-1]["sizes"]]).tolist())
        tasks = tuple(tuple(mine[-1]["classes"][start:stop]) for start, stop in ends)
        yield OrderedStream(order, tasks, [row["class_accuracy"] for row in mine], [row["val_class_accuracy"] for row in mine])


def measure_order(*, predictions: Rows) -> Iterator[Value]:
    """Source step: the values of a training that learned one order; see ``values_of``.

    Args:
        predictions: see ``predictions.columns``; of test sets with the splits ``test`` and ``val``, and of classes whose names
            are their numbers.
    """
    if predictions.num_rows:
        yield from values_of([_only_stream(Predictions(predictions))], together=True)


def read_streams(predictions: Rows) -> list[OrderedStream]:
    """The streams of a training that learned several orders, or one: see ``measure_orders`` and ``measure_order``."""
    if "order_index" in predictions.column_names:
        return list(streams(predictions.table().to_pylist()))
    return [_only_stream(Predictions(predictions))]


def _only_stream(found: Predictions) -> OrderedStream:
    tasks = tuple(tuple(map(int, one.classes)) for one in found.positions)
    tests = {test.split: test for test in found.tests}
    test, val = (_class_accuracy(found, tests.get(split)) for split in ("test", "val"))
    return OrderedStream(0, tasks, test, val)


def _class_accuracy(found: Predictions, test: TestSet | None) -> list[list[float]]:
    values: list[list[float]] = []
    for position, learned in enumerate(found.positions, start=1):
        values.append([float("nan")] * learned.known)
        guess = None if test is None else found.predicted(position, test)
        if test is not None and guess is not None:
            truth = test.labels[asked(test.labels, learned.known)]
            for label in np.unique(truth).tolist():
                values[-1][label] = float((guess[truth == label] == label).mean())
    return values


def values_of(found: Sequence[OrderedStream], *, together: bool) -> Iterator[Value]:
    """Values of orders that one training learned.

    After each task ``class_accuracy`` of each class, and ``accuracy`` of each task, which is named by its classes, ascending,
    with + between them; after the last ``OrderedStream.measures``. And those of the whole training: their means over its
    orders, where ``together``.

    >>> one = OrderedStream(0, ((0,), (1,)), [[1.0], [0.5, 1.0]], [[1.0], [0.5, 1.0]])
    >>> whole = [value for value in values_of([one], together=True) if value.position is None and value.split == "test"]
    >>> {value.metric: value.value for value in whole}
    {'aa': 0.75, 'af_from_best': 0.5, 'af_final_minus_diagonal': -0.5, 'bound': 0.5, 'bound_own': 0.5}
    """
    for one in found:
        for k, row in enumerate(one.accuracy, start=1):
            for label, value in zip(one.classes[: len(row)], row, strict=True):
                yield measured("class_accuracy", value, position=k, tested=str(label), split="test", order=one.order)
            for task, value in zip(one.tasks[:k], one.matrix()[k - 1], strict=False):
                name = "+".join(map(str, sorted(task)))
                yield measured("accuracy", float(value), position=k, tested=name, split="test", order=one.order)
        for (metric, split), value in one.measures().items():
            yield measured(metric, value, position=len(one.tasks), split=split, order=one.order)
    if found and together:
        told = [one.measures() for one in found]
        for metric, split in told[0]:
            yield measured(metric, float(np.mean([each[metric, split] for each in told])), split=split)


# --------------------------------------------------------------------------------------------------------- differences


def differences(final: Mapping[Key, Mapping[str, float]]) -> tuple[list[str], OrderDifference] | None:
    """OPD of one method over the orders that any repeat has, of the repeats that have them all; None without one.

    Args:
        final: of each stream, the accuracy at the end by what is tested: a task, or a class.

    >>> final = {(0, "task", 0): {"0": 1.0, "1": 0.5}, (0, "task", 1): {"0": 0.5, "1": 0.5}}  # repeat, kind, order
    >>> names, found = differences(final)
    >>> names, found.opd
    (['0', '1'], array([[0.5, 0. ]]))
    """
    orders = sorted({(kind, index) for _, kind, index in final})
    repeats = sorted({repeat for repeat, _, _ in final})
    whole = [repeat for repeat in repeats if all((repeat, *order) in final for order in orders)]
    if not whole:
        return None
    names = sorted(next(iter(final.values())), key=lambda name: [int(each) for each in name.split("+")])
    values = [[[final[repeat, *order][name] for name in names] for order in orders] for repeat in whole]
    return names, order_difference(values)
