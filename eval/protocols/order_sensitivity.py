"""Streams of tasks learned in many orders, and the effect of the order: values and measures computed from predictions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.stage_rows import Rows
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
from .predictions import Predictions, asked, orders_of

ScoreKey = tuple[int, str, int]
"""Repeat, kind of order, and number of the order."""


class OrderPredictions(Predictions):
    """The predictions of one order, learned to its end. Splits of test sets are ``test`` and ``val``; class names are numbers.

    Args:
        rows, columns: see ``Predictions``.
        order: number of the order to read; None if there is only one.

    >>> from benchwright.eval.protocols.predictions import ONE_LABEL, row
    >>> rows = [
    ...     row(ONE_LABEL, "0000//test", 0, "", "test", 4, keys=list("abcd"), labels=[0, 0, 1, 1]),
    ...     row(ONE_LABEL, "0001", 1, "7", "", 9, class_names=["7"], record="{}"),
    ...     row(ONE_LABEL, "0001//test", 1, "", "test", 2, predicted=[0, 0]),
    ...     row(ONE_LABEL, "0002", 2, "3", "", 9, class_names=["3"], record="{}"),
    ...     row(ONE_LABEL, "0002//test", 2, "", "test", 4, predicted=[0, 1, 1, 1]),
    ... ]
    >>> one = OrderPredictions(Rows.of(pa.concat_tables(rows)))
    >>> one.tasks, one.matrix()
    ([(7,), (3,)], array([[1. , nan],
           [0.5, 1. ]]))
    >>> one.measures()["af_from_best", "test"]  # the first task fell from 1 to 0.5
    0.5
    """

    def __init__(self, rows: Rows, order: int | None = None, columns: dict[str, pa.ChunkedArray] | None = None) -> None:
        super().__init__(rows, order, columns)
        self.order = order or 0

    @property
    def tasks(self) -> list[tuple[int, ...]]:
        """Classes of each task, in the order learned."""
        return [tuple(map(int, one.classes)) for one in self.positions]

    def class_accuracy(self, split: str) -> list[list[float]]:
        """After each task the accuracy of each class learned so far, in the order learned; NaN where no sample was tested."""
        test = next((test for test in self.tests if test.split == split), None)
        values: list[list[float]] = []
        for position, learned in enumerate(self.positions, start=1):
            values.append([float("nan")] * learned.known)
            guess = None if test is None else self.predicted(position, test)
            if test is not None and guess is not None:
                truth = test.labels[asked(test.labels, learned.known)]
                for label in np.unique(truth).tolist():
                    values[-1][label] = float((guess[truth == label] == label).mean())
        return values

    def matrix(self, split: str = "test") -> NDArray[np.float64]:
        """(N, N) accuracy by task, as the mean over its classes; a row after each task, NaN above the diagonal."""
        return task_accuracy_matrix(self.class_accuracy(split), [len(task) for task in self.tasks])

    def square(self) -> NDArray[np.float64]:
        """``matrix`` of the test split."""
        return self.matrix()

    def measures(self) -> dict[tuple[str, str], float]:
        """By metric and split: ``aa``, ``af_from_best``, ``af_final_minus_diagonal``, ``bound`` (a_kk = 1) and ``bound_own``
        (measured a_kk) of the test split; and ``aa`` of the validation split.
        """
        matrix, val, tasks = self.matrix(), self.matrix("val"), len(self.tasks)
        average, nothing = final_accuracy(matrix), float("nan")
        return {
            ("aa", "test"): average,
            ("af_from_best", "test"): forgetting_from_best(matrix),
            ("af_final_minus_diagonal", "test"): final_minus_diagonal(matrix),
            ("bound", "test"): float(forgetting_bound(average, tasks)) if tasks > 1 else nothing,
            ("bound_own", "test"): float(forgetting_bound(average, tasks, matrix[-1, -1])) if tasks > 1 else nothing,
            ("aa", "val"): nothing if np.isnan(val[-1]).any() else final_accuracy(val),
        }


def read_orders(predictions: Rows) -> list[OrderPredictions]:
    """The predictions of each order that a training learned."""
    if not predictions.num_rows:
        return []
    shared: dict[str, pa.ChunkedArray] = {}
    return [OrderPredictions(predictions, order, shared) for order in orders_of(predictions) or [None]]


def measure_orders(*, predictions: Rows, orders: int) -> Iterator[Value]:
    """Source step: the values of a training that learned one order or several; see ``values_of``.

    Args:
        predictions: see ``OrderPredictions``.
        orders: how many it was to learn. If some are missing because they diverged, no values over all orders are given.
    """
    found = read_orders(predictions)
    return values_of(found, together=len(found) == orders)


def values_of(found: Sequence[OrderPredictions], *, together: bool) -> Iterator[Value]:
    """Values for the orders that one training learned.

    After each task: ``class_accuracy`` of each class, ``accuracy`` of each task (named by its classes, ascending, joined by +)
    and the size of the memory. After the last task: ``OrderPredictions.measures``. If ``together``, also the means of these
    measures over all orders, as values of the whole training.

    >>> from benchwright.eval.protocols.predictions import ONE_LABEL, row
    >>> rows = [row(ONE_LABEL, "0000//test", 0, "", "test", 4, keys=list("abcd"), labels=[0, 0, 1, 1])]
    >>> for k, right in ((1, [0, 0]), (2, [0, 1, 1, 1])):  # the classes 0 and 1, one after the other
    ...     rows.append(row(ONE_LABEL, f"000{k}", k, str(k - 1), "", 9, class_names=[str(k - 1)], record="{}"))
    ...     rows.append(row(ONE_LABEL, f"000{k}//test", k, "", "test", len(right), predicted=right))
    >>> one = OrderPredictions(Rows.of(pa.concat_tables(rows)))
    >>> whole = [value for value in values_of([one], together=True) if value.position is None and value.split == "test"]
    >>> {value.metric: value.value for value in whole}
    {'aa': 0.75, 'af_from_best': 0.5, 'af_final_minus_diagonal': -0.5, 'bound': 0.5, 'bound_own': 0.5}
    """
    measures_of = [one.measures() for one in found]
    for one, measures in zip(found, measures_of, strict=True):
        matrix, held = one.matrix(), [(each.memory_samples, each.memory_parts) for each in one.positions]
        for k, row in enumerate(one.class_accuracy("test"), start=1):
            measure = functools.partial(measured, position=k, split="test", memory=held[k - 1], order=one.order)
            for label, value in zip(one.classes, row, strict=False):
                yield measure("class_accuracy", value, tested=label)
            for task, value in zip(one.tasks[:k], matrix[k - 1], strict=False):
                yield measure("accuracy", float(value), tested="+".join(map(str, sorted(task))))
        for (metric, split), value in measures.items():
            yield measured(metric, value, position=len(one.tasks), split=split, memory=held[-1], order=one.order)
    if found and together:
        for metric, split in measures_of[0]:
            yield measured(metric, float(np.mean([each[metric, split] for each in measures_of])), split=split)


# --------------------------------------------------------------------------------------------------------- differences


def differences(final: Mapping[ScoreKey, Mapping[str, float]]) -> tuple[list[str], OrderDifference] | None:
    """OPD of one method over all orders, from the repeats that have every order; None if no repeat has.

    Args:
        final: for each stream, the final accuracy by task or class name.

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
