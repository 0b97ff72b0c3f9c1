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
    """Source step: the values of a training that learned one order or several; see ``values_of`` and ``read_streams``.

    Args:
        predictions: what it left; nothing where it diverged.
        orders: how many it was to learn. Where some are missing, since they diverged, nothing is told of them together.
    """
    if predictions.num_rows:
        found = read_streams(predictions)
        yield from values_of(found, together=len(found) == orders)


def streams(rows: Sequence[Mapping[str, Any]]) -> Iterator[OrderedStream]:
    """The streams whose results after each task are given, in their order.

    Raises:
        ValueError: a stream of which a task is missing or stands twice.
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


def read_streams(predictions: Rows) -> list[OrderedStream]:
    """The streams that a training learned.

    Args:
        predictions: of several orders ``order_index``, ``k`` (tasks learned), ``classes``, ``sizes``, ``class_accuracy``,
            ``val_class_accuracy``; of one order see ``predictions.columns``: of test sets with the splits ``test`` and ``val``,
            and of classes whose names are their numbers.
    """
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
    """
    orders = sorted({(kind, index) for _, kind, index in final})
    repeats = sorted({repeat for repeat, _, _ in final})
    whole = [repeat for repeat in repeats if all((repeat, *order) in final for order in orders)]
    if not whole:
        return None
    names = sorted(next(iter(final.values())), key=lambda name: [int(each) for each in name.split("+")])
    values = [[[final[repeat, *order][name] for name in names] for order in orders] for repeat in whole]
    return names, order_difference(values)
